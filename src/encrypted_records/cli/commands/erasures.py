"""Output of commands about an erasure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from encrypted_records.cli.terminal import format_count, say

#: PostgreSQL keeps deleted bytes in its files until then.
_VACUUM = (
    "PostgreSQL keeps deleted bytes in its files until an operator has run VACUUM FULL there"
    " (docs/operations.md, Erasure)."
)


def cost_line(segments: int, rows: int) -> str:
    """A line with the cost of an erasure."""
    return (
        f"Erasing rewrites {format_count(segments, 'segment')} of the index, with"
        f" {format_count(rows, 'row')} in all."
    )


def say_erased(receipt: Mapping[str, Any]) -> None:
    """Report the result of an erasure; for remaining data, also the readers that need it."""
    if "deleted" in receipt:
        say(f"Deleted {format_count(receipt['deleted'], 'record')}.")
    for schema in receipt["schemas"]:
        left = schema["left"]
        if schema["gone"]:
            say(f"Erased, up to version {schema['version']} of {schema['schema']}.")
            if left["database"] == "postgresql":
                say(_VACUUM)
            continue
        counts = [left[name] for name in ("rows", "segments", "groups")]
        # What is gone from the tables may be in objects, or in what an API keeps of them.
        what = format_count(left["rows"], "row") if any(counts) else "objects, or copies of them"
        say(f"Not erased yet in {schema['schema']}: {what}.")
        for held in left["holds"]:
            say(f"  {held['email']} still reads version {held['version']} ({held['reason']}).")
        if not left["holds"]:
            say(
                f"  It will be erased automatically, by {left['due']}. ers doctor shows what"
                " is still left."
            )
