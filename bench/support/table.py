"""What a benchmark prints: one line per figure, with what it is to be held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    what: str
    figure: str
    beside: str = ""


def show(title: str, rows: Sequence[Row]) -> None:
    first = max(len(row.what) for row in rows)
    second = max(len(row.figure) for row in rows)
    print(f"\n{title}")
    for row in rows:
        print(f"  {row.what:{first}}  {row.figure:>{second}}  {row.beside}".rstrip())
