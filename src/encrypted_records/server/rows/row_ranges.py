"""Rows of many groups at once, in the table: a group that a direct ingest made has one row or a
few, and a statement for each would take far longer than its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection

from encrypted_records.server.records import store
from encrypted_records.server.records.store import StoredSealedRow

#: The rows of a group from one ordinal to below another: all three numbers.
Range = tuple[int, int, int]
#: Ranges that one statement asks for.
_AT_ONCE = 64


def rows_in(ranges: Sequence[Range]) -> dict[Range, list[StoredSealedRow]]:
    """The rows of each of these ranges, by ordinal; one that is not there is left out."""
    found = _in("group_id, ordinal, record_id, version, sealed", ranges)
    return {range_: [store.row_of(row) for row in rows] for range_, rows in found.items()}


def versions_in(ranges: Sequence[Range]) -> dict[Range, list[tuple[int, bytes, int]]]:
    """Ordinal, id and version of each row of these ranges, by ordinal."""
    found = _in("group_id, ordinal, record_id, version", ranges)
    return {
        range_: [(at, bytes(record_id), version) for _, at, record_id, version in rows]
        for range_, rows in found.items()
    }


def _in(columns: str, ranges: Sequence[Range]) -> dict[Range, list[tuple[Any, ...]]]:
    found: dict[Range, list[tuple[Any, ...]]] = {span: [] for span in ranges}
    for some in store.cut(list(found), _AT_ONCE):
        of_group: dict[int, list[Range]] = {}
        for place in some:
            of_group.setdefault(place[0], []).append(place)
        # Each names its group: a table in partitions is asked only where these are.
        within = "(group_id = %s AND ordinal >= %s AND ordinal < %s)"
        wheres = " OR ".join([within] * len(some))
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT {columns} FROM record_row WHERE {wheres}",  # noqa: S608  no input
                [part for run in some for part in run],
            )
            rows = cursor.fetchall()
        for row in rows:
            for place in of_group[row[0]]:
                if place[1] <= row[1] < place[2]:
                    found[place].append(row)
    for own in found.values():
        own.sort(key=lambda row: int(row[1]))
    return found
