"""The attack on what is fetched in an order: a sorted export, and paging through a sorted search.

An API that watches knows other records of the same kind, and which field is sorted by; an export by
each field, one after the other, gives it every column. It takes requests for rows in the order in
which they come, cuts the others, sorted by that field, at the same shares, and says of each row the
value that is likeliest there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bench.watching.census import Census, Kind
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.records import MAX_ROW_REFS


@dataclass(frozen=True)
class Window:
    """Rows that came together for the first time, by their numbers; of these ``needed`` are the
    ranks from ``first`` on, as far as the attacker knows how a proxy asks."""

    rows: NDArray[np.int64]
    first: int
    needed: int


@dataclass(frozen=True)
class Told:
    """Shares of all stored rows of which the value is ``right``, and of which the most frequent
    value of the others is (``mode``)."""

    field: str
    right: float
    mode: float
    requests: int

    @property
    def worth(self) -> float:
        """How many times as often the attack is right as always saying the most frequent value."""
        return self.right / self.mode


def of_export(requests: Sequence[NDArray[np.int64]]) -> list[Window]:
    """Windows of an export: they are taken to come in its order. A request that is not full ends
    one."""
    found: list[Window] = []
    before, held = 0, []
    for rows, asked in zip(_new(requests), requests, strict=True):
        held.append(rows)
        if len(asked) < MAX_ROW_REFS or asked is requests[-1]:
            window = np.concatenate(held)
            found.append(Window(window, before, len(window)))
            before, held = before + len(window), []
    return found


def of_pages(pages: Sequence[Sequence[NDArray[np.int64]]], size: int) -> list[Window]:
    """Windows of a search that is paged through, by the requests of each page of ``size``."""
    every = [np.concatenate(own) if own else np.zeros(0, np.int64) for own in pages]
    return [Window(rows, at * size, size) for at, rows in enumerate(_new(every)) if len(rows)]


def attack(found: Census, field: str, windows: Sequence[Window]) -> Told:
    """What the windows of an order by ``field`` tell."""
    stored = [row[field] for row in found.stored]
    others = sorted((row[field] for row in found.others), key=partial(_place, found.kind, field))
    usual = Counter(others)
    mode = usual.most_common(1)[0][0]
    said = [mode] * len(stored)
    for window in windows:
        first, end = (
            at * len(others) // len(stored) for at in (window.first, window.first + window.needed)
        )
        here = Counter(others[first : max(end, first + 1)])
        share = min(1.0, window.needed / len(window.rows))
        odds = {
            value: share * here[value] / here.total() + (1 - share) * count / len(others)
            for value, count in usual.items()
        }
        best = max(odds, key=lambda value: odds[value])
        for row in window.rows.tolist():
            said[row] = best
    right = sum(one == true for one, true in zip(said, stored, strict=True))
    return Told(field, right / len(stored), stored.count(mode) / len(stored), len(windows))


def _new(requests: Sequence[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
    """Of each request the rows that were not asked for before."""
    held: set[int] = set()
    for rows in requests:
        new = [row for row in rows.tolist() if row not in held]
        held.update(new)
        yield np.array(new, np.int64)


def _place(kind: Kind, field: str, value: str) -> tuple[bool, int, str]:
    """How a value is sorted: absent ones first."""
    number = kind.parsed.fields[field].kind != KeyKind.TEXT
    return value != "", int(value) if number and value else 0, value
