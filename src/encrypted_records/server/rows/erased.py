"""The facts about rows whose bytes are gone, in SQL: as :mod:`..records.store`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db import connection

from encrypted_records.server.records import store
from encrypted_records.server.records.store import Key

_ERASED = store.RowTable(
    "COPY erased_row (group_id, ordinal, digest) FROM STDIN (FORMAT BINARY)",
    ("int8", "int8", "bytea"),
    "INSERT INTO erased_row (group_id, ordinal, digest) VALUES (%s, %s, %s)",
)


def add(rows: Iterable[tuple[int, int, bytes]]) -> None:
    """Note rows (group, ordinal, digest) whose bytes are gone."""
    store.insert(_ERASED, rows)


def among(keys: Sequence[Key]) -> set[Key]:
    """The rows among these that are known to be gone."""
    columns = "group_id, ordinal"
    rows = store.select(lambda wanted: store.lookup(columns, "erased_row", wanted), keys)
    return {(row[0], row[1]) for row in rows}


def digests_of(group: int, first: int, end: int) -> dict[int, bytes]:
    """The digests that erased rows of a group left, by ordinal, from ``first`` to below ``end``."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT ordinal, digest FROM erased_row"
            " WHERE group_id = %s AND ordinal >= %s AND ordinal < %s",
            [group, first, end],
        )
        return {at: bytes(digest) for at, digest in cursor.fetchall()}
