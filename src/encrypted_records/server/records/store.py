"""The bulky tables, in SQL: PostgreSQL by binary COPY, SQLite by executemany.

Callers check everything and hold the transaction; nothing here decides. Groups and segments are
named by their numbers in the database, and the caller has seen to it that the user reaches them.
Those numbers are asked for in SQL too, since every question asks, and writing such a query takes
the ORM longer than the database takes to answer it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from django.db import connection

T = TypeVar("T")
#: (group, ordinal) or (segment, number)
Key = tuple[int, int]
#: Keys per query; two parameters each, far below what either database takes.
_KEYS_PER_QUERY = 500


@dataclass(frozen=True)
class _Table:
    """How rows enter a table; ``types`` are PostgreSQL's, in the order of the columns."""

    copy: str
    types: tuple[str, ...]
    insert: str


_ROWS = _Table(
    "COPY record_row (group_id, ordinal, record_id, version, sealed) FROM STDIN (FORMAT BINARY)",
    ("int8", "int8", "bytea", "int8", "bytea"),
    "INSERT INTO record_row (group_id, ordinal, record_id, version, sealed)"
    " VALUES (%s, %s, %s, %s, %s)",
)
_PAGES = _Table(
    "COPY index_page (segment_id, number, data) FROM STDIN (FORMAT BINARY)",
    ("int8", "int8", "bytea"),
    "INSERT INTO index_page (segment_id, number, data) VALUES (%s, %s, %s)",
)
_DEAD = _Table(
    "COPY dead_row (group_id, ordinal, version) FROM STDIN (FORMAT BINARY)",
    ("int8", "int8", "int8"),
    "INSERT INTO dead_row (group_id, ordinal, version) VALUES (%s, %s, %s)",
)

_fields_decoder = msgspec.msgpack.Decoder(list[bytes])
_fields_encoder = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True)
class StoredSealedRow:
    """A row of ``record_row``, its ciphertexts still packed."""

    group: int
    ordinal: int
    record_id: bytes
    version: int
    sealed: bytes

    @property
    def fields(self) -> list[bytes]:
        return _fields_decoder.decode(self.sealed)


def pack_fields(fields: Sequence[bytes]) -> bytes:
    return _fields_encoder.encode(fields)


def add_rows(rows: Iterable[tuple[int, int, bytes, int, bytes]]) -> None:
    """Store rows (group, ordinal, record id, version, packed fields).

    Raises:
        django.db.IntegrityError: a record has that version already.
    """
    _insert(_ROWS, rows)


def add_pages(pages: Iterable[tuple[int, int, bytes]]) -> None:
    _insert(_PAGES, pages)


def add_dead(rows: Iterable[tuple[int, int, int]]) -> None:
    """Mark rows (group, ordinal) as ended by the commit of a version."""
    _insert(_DEAD, rows)


def _insert(table: _Table, rows: Iterable[tuple[Any, ...]]) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # COPY goes past Django's cursor, which would turn the driver's errors into Django's.
            with connection.wrap_database_errors, cursor.cursor.copy(table.copy) as copy:
                copy.set_types(table.types)
                for row in rows:
                    copy.write_row(row)
        else:
            cursor.executemany(table.insert, list(rows))


def groups_at(schema: bytes, uids: Collection[bytes]) -> dict[bytes, tuple[int, int]]:
    """By uid, the number of each visible group of a schema, and how many rows it has."""
    return _named("uid, id, count", "record_group", schema, uids)


def segments_at(schema: bytes, uids: Collection[bytes]) -> dict[bytes, tuple[int, int]]:
    """By uid, the number of each visible segment of a schema, and how many pages it has."""
    return _named("uid, id, pages", "index_segment", schema, uids)


def _named(
    columns: str, table: str, schema: bytes, uids: Collection[bytes]
) -> dict[bytes, tuple[int, int]]:
    found: dict[bytes, tuple[int, int]] = {}
    for some in cut(list(uids)):
        marks = ", ".join(["%s"] * len(some))
        statement = (
            f"SELECT {columns} FROM {table}"  # noqa: S608  no input
            f" WHERE schema_id = %s AND uid IN ({marks}) AND staging_id IS NULL"
        )
        with connection.cursor() as cursor:
            cursor.execute(statement, [schema, *some])
            found |= {bytes(uid): (number, count) for uid, number, count in cursor.fetchall()}
    return found


def rows_at(keys: Sequence[Key]) -> dict[Key, StoredSealedRow]:
    """The rows at (group, ordinal), dead ones too; unknown keys are left out."""
    found = _at("group_id, ordinal, record_id, version, sealed", "record_row", keys)
    return {(row[0], row[1]): _row(row) for row in found}


def versions_at(keys: Sequence[Key]) -> dict[Key, tuple[bytes, int]]:
    """Record id and version at (group, ordinal), without the ciphertext."""
    found = _at("group_id, ordinal, record_id, version", "record_row", keys)
    return {(row[0], row[1]): (bytes(row[2]), row[3]) for row in found}


def dead_among(keys: Sequence[Key]) -> set[Key]:
    found = _at("group_id, ordinal", "dead_row", keys)
    return {(row[0], row[1]) for row in found}


def pages_at(keys: Sequence[Key]) -> dict[Key, bytes]:
    """The pages at (segment, number); unknown keys are left out."""
    found = _at("segment_id, number, data", "index_page", keys)
    return {(row[0], row[1]): bytes(row[2]) for row in found}


def _at(columns: str, table: str, keys: Sequence[Key]) -> Iterator[tuple[Any, ...]]:
    """Rows of a two-column primary key, a bounded number of keys at a time."""
    for some in cut(keys):
        with connection.cursor() as cursor:
            cursor.execute(
                lookup(columns, table, len(some)), [part for key in some for part in key]
            )
            yield from cursor.fetchall()


def lookup(columns: str, table: str, count: int) -> str:
    """SQL for the rows of ``count`` keys, of which ``columns`` begins with the two parts.

    The keys are a table that is joined: for (...) IN (VALUES ...) SQLite reads the whole table.
    """
    first, second = columns.split(", ")[:2]
    marks = ", ".join(["(%s, %s)"] * count)
    return (
        f"WITH wanted (one, two) AS (VALUES {marks})"  # noqa: S608  no input
        f" SELECT {columns} FROM wanted JOIN {table} ON {first} = one AND {second} = two"
    )


def cut(keys: Sequence[T]) -> Iterator[Sequence[T]]:
    """A bounded number of keys at a time."""
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        yield keys[start : start + _KEYS_PER_QUERY]


def live_rows(group: int, *, offset: int, limit: int) -> list[StoredSealedRow]:
    """Live rows of one group by ordinal."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT group_id, ordinal, record_id, version, sealed FROM record_row r
            WHERE group_id = %s AND NOT EXISTS (
                SELECT 1 FROM dead_row d WHERE d.group_id = r.group_id AND d.ordinal = r.ordinal)
            ORDER BY ordinal LIMIT %s OFFSET %s
            """,
            [group, limit, offset],
        )
        return [_row(row) for row in cursor.fetchall()]


def live_row_of(record_id: bytes) -> StoredSealedRow | None:
    """The live row of a record, whoever it belongs to."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT group_id, ordinal, record_id, version, sealed FROM record_row r
            WHERE record_id = %s AND NOT EXISTS (
                SELECT 1 FROM dead_row d WHERE d.group_id = r.group_id AND d.ordinal = r.ordinal)
            ORDER BY version DESC LIMIT 1
            """,
            [record_id],
        )
        row = cursor.fetchone()
    return None if row is None else _row(row)


def drop_rows(group: int, first: int, count: int) -> None:
    _run(
        "DELETE FROM record_row WHERE group_id = %s AND ordinal >= %s AND ordinal < %s",
        group,
        first,
        first + count,
    )


def drop_page(segment: int, number: int) -> None:
    _run("DELETE FROM index_page WHERE segment_id = %s AND number = %s", segment, number)


def drop_empty(staging: int) -> None:
    """Delete the groups and segments of a staging that have no row or page."""
    for statement in _DROP_EMPTY:
        _run(statement, staging)


def drop_staged(staging: int) -> None:
    """Delete all rows and pages of a staging."""
    for statement in _DROP_STAGED:
        _run(statement, staging)


_DROP_EMPTY = (
    "DELETE FROM record_group WHERE staging_id = %s AND NOT EXISTS"
    " (SELECT 1 FROM record_row r WHERE r.group_id = record_group.id)",
    "DELETE FROM index_segment WHERE staging_id = %s AND NOT EXISTS"
    " (SELECT 1 FROM index_page p WHERE p.segment_id = index_segment.id)",
)
_DROP_STAGED = (
    "DELETE FROM record_row WHERE group_id IN (SELECT id FROM record_group WHERE staging_id = %s)",
    "DELETE FROM index_page WHERE segment_id IN"
    " (SELECT id FROM index_segment WHERE staging_id = %s)",
)


def drop_pages(segments: Sequence[int]) -> None:
    for segment in segments:
        _run("DELETE FROM index_page WHERE segment_id = %s", segment)


#: Children before parents.
_ERASE = (
    "DELETE FROM dead_row WHERE group_id IN (SELECT id FROM record_group WHERE schema_id = %s)",
    "DELETE FROM record_row WHERE group_id IN (SELECT id FROM record_group WHERE schema_id = %s)",
    "DELETE FROM record_group WHERE schema_id = %s",
    "DELETE FROM staged_part WHERE staging_id IN (SELECT id FROM staging WHERE schema_id = %s)",
    "DELETE FROM index_page WHERE segment_id IN"
    " (SELECT id FROM index_segment WHERE schema_id = %s)",
    "DELETE FROM index_segment WHERE schema_id = %s",
    "DELETE FROM staging WHERE schema_id = %s",
    "DELETE FROM writer_head WHERE schema_id = %s",
    "DELETE FROM commit_log WHERE schema_id = %s",
)


def erase(schema: bytes) -> None:
    """Delete everything stored for a schema, by the 16 bytes of its id."""
    for statement in _ERASE:
        _run(statement, schema)


def _run(statement: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def _row(row: tuple[Any, ...]) -> StoredSealedRow:
    return StoredSealedRow(row[0], row[1], bytes(row[2]), row[3], bytes(row[4]))
