"""Ids and versions of records among the stored rows: which are there, and which are the same.

A row that stands for another has its id and its version, so the database cannot hold each to one
row. A record that is new has an id that no row has; one that is changed has the version after that
of the row that its commit ends, which lives, so that no row has it yet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from django.db import connection

from encrypted_records.server.db.statements import as_driver_has_it, executed
from encrypted_records.server.objects import parts
from encrypted_records.server.records import store
from encrypted_records.server.rows import contents
from encrypted_records.server.rows.row_ranges import Range

#: (record id, version)
Identity = tuple[bytes, int]
#: Ids are made of the time. So many others may lie between those of one part before each is looked
#: for by itself.
_MOST_BETWEEN = 1000


def is_any_stored(wanted: Set[bytes]) -> bool:
    """Whether a row of any schema, staged ones too, has one of these ids."""
    if not wanted:
        return False
    span = min(wanted), max(wanted)
    return (
        _is_any_in("record_row", wanted, span)
        or _is_any_in("changed_row", wanted, span)
        or parts.is_any_new(wanted, span)
    )


def _is_any_in(table: str, wanted: Collection[bytes], span: tuple[bytes, bytes]) -> bool:
    between_them = as_driver_has_it(
        f"SELECT record_id FROM {table} WHERE record_id >= %s AND record_id <= %s"  # noqa: S608
        " ORDER BY record_id LIMIT %s"
    )
    with executed(between_them, [*span, _MOST_BETWEEN + 1]) as cursor:
        between = cursor.fetchall()
    if len(between) <= _MOST_BETWEEN:
        return any(bytes(record_id) in wanted for (record_id,) in between)
    with connection.cursor() as cursor:
        for some in store.cut(sorted(wanted)):
            marks = ", ".join(["%s"] * len(some))
            statement = f"SELECT 1 FROM {table} WHERE record_id IN ({marks}) LIMIT 1"  # noqa: S608
            cursor.execute(statement, list(some))
            if cursor.fetchone() is not None:
                return True
    return False


def list_changed(groups: Sequence[int]) -> list[Identity]:
    """The rows of these groups with a version above 1."""
    return [
        identity
        for table in ("record_row", "changed_row")
        for group in groups
        for identity in _changed_in(table, group)
    ]


def _changed_in(table: str, group: int) -> list[Identity]:
    statement = f"SELECT record_id, version FROM {table} WHERE group_id = %s AND version > 1"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(statement, [group])
        return [(bytes(record_id), version) for record_id, version in cursor.fetchall()]


def list_in(ranges: Sequence[Range]) -> dict[Range, list[tuple[int, bytes, int]]]:
    """Ordinal, id and version of each row of these ranges of ordinals of groups."""
    return contents.versions_in(ranges)
