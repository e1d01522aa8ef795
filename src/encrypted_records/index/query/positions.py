"""Positions of key ranges in a sorted column."""

from __future__ import annotations

from collections.abc import Sequence

from encrypted_records.index.columns.column import Column, Edge, KeyRange, Keys, Lookup


def span_of(keys: Keys) -> KeyRange:
    """The range from the first to the last of some keys, of which there is at least one."""
    first, last = keys[[0, -1]].tolist()
    return KeyRange(Edge(first, "left"), Edge(last, "right"))


def find_positions(column: Lookup, ranges: Sequence[KeyRange]) -> list[tuple[int, int]]:
    """The beginning and the end of each range's entries among the column's present entries; ranges
    without entries are left out.
    """
    if not column.present or not ranges:
        return []
    firsts = column.at_all([key_range.first for key_range in ranges])
    lasts = column.at_all([key_range.last for key_range in ranges])
    return [(first, last) for first, last in zip(firsts, lasts, strict=True) if first < last]


def holds_all(column: Lookup, ranges: Sequence[KeyRange]) -> bool:
    """Whether every row is in one of these, where that is known without any page."""
    # Dates and running numbers grow with the order of storing: most segments are in or out. Of a
    # column in memory, its entries show that as quickly.
    return not isinstance(column, Column) and any(map(column.all_within, ranges))
