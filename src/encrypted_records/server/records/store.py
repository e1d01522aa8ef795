"""The bulky tables, in SQL: PostgreSQL by binary COPY, SQLite by executemany.

Callers check everything and hold the transaction; nothing here decides. Groups and segments are
named by their database numbers; callers have checked that the user may access them. Those numbers
are looked up in raw SQL too: the ORM takes longer to build such a query than the database takes to
answer it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import chain, islice
from typing import Any, TypeVar

import msgspec
from django.apps import apps
from django.conf import settings
from django.db import connection
from django.utils import timezone

from encrypted_records.model.ciphertext_lengths import LeastClass
from encrypted_records.model.digests import RUN
from encrypted_records.model.records import Group
from encrypted_records.server.db.statements import as_driver_has_it, execute, fetch

# Rows of tables whose key has two numbers, by key: in bounded statements, with plans that do not
# read a whole table.


T = TypeVar("T")
Key = tuple[int, int]
#: Keys per query; two parameters each, far below the limit of either database.
_KEYS_PER_QUERY = 500


def _keyed_rows(columns: str, table: str, keys: Sequence[Key]) -> Iterator[tuple[Any, ...]]:
    """The rows with these keys; ``columns`` begins with the two parts of the key."""
    by_first: dict[int, list[int]] = {}
    for first, second in keys:
        by_first.setdefault(first, []).append(second)
    if connection.vendor != "postgresql" or (len(by_first) > 1 and not _is_divided(table)):
        yield from select(lambda wanted: lookup(columns, table, wanted), keys)
        return
    outer, inner = columns.split(", ")[:2]
    statement = f"SELECT {columns} FROM {table} WHERE {outer} = %s AND {inner} = ANY(%s::bigint[])"  # noqa: S608
    for first, seconds in by_first.items():
        for batch in cut(seconds):
            yield from fetch(statement, first, list(batch))


@cache
def _is_divided(table: str) -> bool:
    """Whether a table is partitioned, or Citus is installed and may have distributed it. A join
    with the keys would query every partition, and filtering by the first key parts as well makes
    PostgreSQL choose far slower plans if there are many.
    """
    [(found,)] = fetch(
        "SELECT EXISTS (SELECT 1 FROM pg_class WHERE oid = %s::regclass AND relkind = 'p')"
        " OR to_regclass('pg_dist_partition') IS NOT NULL",
        table,
    )
    return bool(found)


def select(statement: Callable[[str], str], keys: Sequence[Key]) -> Iterator[tuple[Any, ...]]:
    """The rows of a statement, for a bounded number of keys at a time.

    Args:
        statement: builds the SQL around the SQL that selects the keys.
    """
    for batch in cut(keys):
        parameters: list[Any]
        if connection.vendor == "postgresql":
            # Two arrays: psycopg takes longer to read a statement with a thousand parameters than
            # the database takes to answer it.
            wanted = "SELECT * FROM unnest(%s::bigint[], %s::bigint[])"
            parameters = [[key[0] for key in batch], [key[1] for key in batch]]
        else:
            wanted = pairs(len(batch))
            parameters = [part for key in batch for part in key]
        yield from fetch(statement(wanted), *parameters)


def select_in(statement: str, values: Collection[Any], *others: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of a statement that has ``IN {values}``, for a bounded number of values at a time.

    Args:
        others: the values of placeholders before that.
    """
    for batch in cut(list(values)):
        yield from fetch(statement.format(values=marks(len(batch))), *others, *batch)


def marks(count: int) -> str:
    """SQL placeholders for a list of ``count`` values."""
    return f"({', '.join(['%s'] * count)})"


def owners_with_any(table: str, column: str, owners: Collection[int]) -> Iterator[int]:
    """The groups or segments among these numbers that have rows in a table, in order."""
    statement = f"SELECT DISTINCT {column} FROM {table} WHERE {column} IN {{values}} ORDER BY 1"  # noqa: S608
    return (number for (number,) in select_in(statement, sorted(owners)))


def pairs(count: int) -> str:
    """SQL placeholders for ``count`` keys of two parameters each."""
    return f"VALUES {', '.join(['(%s, %s)'] * count)}"


def lookup(columns: str, table: str, wanted: str) -> str:
    """SQL for the rows of the keys that ``wanted`` selects; ``columns`` begins with the two key
    parts.

    The keys are joined as a table: for (...) IN (VALUES ...) SQLite reads the whole table.
    """
    first, second = columns.split(", ")[:2]
    return (
        f"WITH wanted (one, two) AS ({wanted})"  # noqa: S608  no input
        f" SELECT {columns} FROM wanted JOIN {table} ON {first} = one AND {second} = two"
    )


def cut(keys: Sequence[T], size: int = _KEYS_PER_QUERY) -> Iterator[Sequence[T]]:
    """A bounded number of keys at a time."""
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


#: At most this many rows are inserted one by one.
FEW = 4
#: How long a hold counts after it was last renewed.
HELD_FOR = timedelta(minutes=5)


def kept_for() -> timedelta:
    """How long replaced data is kept for readers."""
    kept: timedelta = settings.KEEP_REPLACED
    return kept


class _CertainClock:
    """The clock without what it was set ahead by, until the API has run for a day since, in total:
    a step is no evidence that time has passed, and a deletion cannot be undone. Time while no API
    ran counts as a step from a day on. The database keeps this over restarts.
    """

    def __init__(self) -> None:
        self._mark: Any = None
        #: when this process last looked, and last wrote the mark, by the elapsed time
        self._looked = self._written = 0.0

    def now(self) -> datetime:
        elapsed = time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
        wall = timezone.now().timestamp()
        if starts := self._mark is None:
            first = {"certain": wall, "seen": wall}
            # By its name: the statements of this module are used without Django's models, too.
            marks = apps.get_model("records", "ClockMark").objects
            self._mark, _ = marks.get_or_create(id=1, defaults=first)
            ran, passed = 0.0, min(max(wall - self._mark.seen, 0.0), _DAY_SECONDS)
        else:
            ran = passed = elapsed - self._looked
        mark = self._mark
        is_set_ahead = wall - mark.seen - passed > _MOST_DRIFT
        mark.ran = 0.0 if is_set_ahead else mark.ran + ran
        mark.certain, mark.seen, self._looked = mark.certain + passed, wall, elapsed
        if wall - mark.certain <= _MOST_DRIFT or mark.ran >= _DAY_SECONDS:
            mark.certain = wall
        if starts or is_set_ahead or elapsed - self._written >= _WRITE_SECONDS:
            mark.save()
            self._written = elapsed
        return datetime.fromtimestamp(mark.certain, UTC)


#: The most seconds that a clock deviates from the elapsed time between two looks, unless it is set.
_MOST_DRIFT = 60.0
_WRITE_SECONDS = 600.0
_DAY_SECONDS = 86_400.0
_clock = _CertainClock()


def certain_now() -> datetime:
    """The latest moment that has certainly come; for deletions by age."""
    return _clock.now()


@dataclass(frozen=True)
class RowTable:
    """A bulky table, and its columns in insertion order with PostgreSQL's types."""

    name: str
    columns: str
    types: tuple[str, ...]


_ROWS = RowTable(
    "record_row",
    "group_id, ordinal, record_id, version, sealed",
    ("int8", "int8", "bytea", "int8", "bytea"),
)
_PAGES = RowTable(
    "index_page", "segment_id, number, digest, data", ("int8", "int8", "bytea", "bytea")
)
_RUNS = RowTable("row_run", "group_id, first, digests", ("int8", "int8", "bytea"))
_DEAD = RowTable("dead_row", "group_id, ordinal, version", ("int8", "int8", "int8"))

_fields_decoder = msgspec.msgpack.Decoder(list[bytes])
_holes = msgspec.json.Decoder(list[tuple[int, int]])
_described = msgspec.json.Decoder(tuple[list[int], list[LeastClass]])


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


def describe_fields(group: Group) -> str:
    """A group's ``fields`` and ``classes`` as they are stored."""
    return msgspec.json.encode((group.fields, group.classes)).decode()


def fields_of(described: str) -> list[int]:
    """The ids of the fields that a group's description names."""
    fields, _ = _described.decode(described)
    return fields


def classes_of(described: str) -> dict[int, LeastClass]:
    """The least class of each field that a group's description names."""
    return dict(zip(*_described.decode(described), strict=True))


def holes_of(stored: str) -> list[tuple[int, int]]:
    """A group's holes as (first, count) runs, parsed from their stored form."""
    return _holes.decode(stored)


def hole_ordinals(stored: str) -> set[int]:
    """The ordinals of a group's holes."""
    return {at for first, count in holes_of(stored) for at in range(first, first + count)}


def add_rows(rows: Iterable[tuple[int, int, bytes, int, bytes]]) -> None:
    """Store rows (group, ordinal, record id, version, packed fields).

    Raises:
        django.db.IntegrityError: a group has a row at that ordinal already.
    """
    insert(_ROWS, rows)


def add_runs(runs: Iterable[tuple[int, int, bytes]]) -> None:
    """Store digests of runs (group, first ordinal, digests)."""
    insert(_RUNS, runs)


def add_pages(pages: Iterable[tuple[int, int, bytes, bytes]]) -> None:
    """Store pages (segment, number, digest, sealed bytes)."""
    insert(_PAGES, pages)


def add_dead(rows: Iterable[tuple[int, int, int]]) -> None:
    """Mark rows (group, ordinal) as ended by the commit of a version."""
    insert(_DEAD, rows)


def insert(table: RowTable, rows: Iterable[tuple[Any, ...]]) -> None:
    """Store rows in a bulky table. A few rows are inserted faster than a COPY starts."""
    place = f"{table.name} ({table.columns})"
    statement = f"INSERT INTO {place} VALUES {marks(len(table.types))}"  # noqa: S608  no input
    first = list(islice(left := iter(rows), FEW + 1))
    if len(first) <= FEW:
        for row in first:
            execute(as_driver_has_it(statement), row)
        return
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # COPY bypasses Django's cursor, which would convert the driver's errors to Django's.
            sql = f"COPY {place} FROM STDIN (FORMAT BINARY)"
            with connection.wrap_database_errors, cursor.cursor.copy(sql) as copy:
                copy.set_types(table.types)
                for row in chain(first, left):
                    copy.write_row(row)
        else:
            cursor.executemany(statement, [*first, *left])


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """Number and rows of a visible group, which may have ended recently."""

    number: int
    count: int
    holes: list[tuple[int, int]]
    #: the number of its dead rows whose bytes are erased
    erased: int = 0
    salt: bytes = b""

    def has(self, ordinal: int) -> bool:
        """Whether the group has this row, possibly erased."""
        return ordinal < self.count and not any(
            first <= ordinal < first + count for first, count in self.holes
        )


def groups_at(schema: bytes, uids: Collection[bytes]) -> dict[bytes, StoredGroup]:
    """Each visible group of a schema, by uid."""
    rows = _look_up(
        "uid, id, count, holes, erased, salt", "record_group", schema, uids, _not_long_ended()
    )
    return {
        bytes(uid): StoredGroup(pk, count, holes_of(runs), erased, bytes(salt))
        for uid, pk, count, runs, erased, salt in rows
    }


#: Whether a reader of an earlier version needs the ended data.
_HELD = (
    "EXISTS (SELECT 1 FROM hold h"
    " WHERE h.schema_id = t.schema_id AND h.version < t.ended AND h.renewed > %s)"
)


def _renewed_after() -> Any:
    """The moment after which a hold must have been renewed to count."""
    return connection.ops.adapt_datetimefield_value(timezone.now() - HELD_FOR)


def _not_long_ended() -> Any:
    """The moment after which a group must have ended to still have its rows."""
    return connection.ops.adapt_datetimefield_value(timezone.now() - kept_for())


def segments_at(schema: bytes, uids: Collection[bytes]) -> dict[bytes, tuple[int, int]]:
    """The number of each visible segment of a schema and its number of pages, by uid."""
    rows = _look_up("uid, id, pages", "index_segment", schema, uids)
    return {bytes(uid): (number, count) for uid, number, count in rows}


def _look_up(
    columns: str, table: str, schema: bytes, uids: Collection[bytes], ended_after: Any = None
) -> list[tuple[Any, ...]]:
    statement = f"SELECT {columns} FROM {table} t WHERE schema_id = %s AND staging_id IS NULL"  # noqa: S608
    parameters = [schema]
    if ended_after is not None:
        statement += f" AND (ended_at IS NULL OR ended_at > %s OR {_HELD})"
        parameters += [ended_after, _renewed_after()]
    return list(select_in(f"{statement} AND uid IN {{values}}", uids, *parameters))


def rows_at(keys: Sequence[Key]) -> dict[Key, StoredSealedRow]:
    """The rows at (group, ordinal), dead rows too; unknown keys are left out."""
    keys = _in_table(keys)
    rows = _keyed_rows("group_id, ordinal, record_id, version, sealed", "record_row", keys)
    return {(row[0], row[1]): row_of(row) for row in rows}


def _in_table(keys: Sequence[Key]) -> Sequence[Key]:
    """The keys of rows that may be in the table, and not only in objects.

    Only groups of which at least a run of rows is wanted are checked: looking up fewer rows is just
    as fast.
    """
    wanted = Counter(group for group, _ in keys)
    empty = {group for group, count in wanted.items() if count >= RUN and not _has_rows(group)}
    return [key for key in keys if key[0] not in empty] if empty else keys


def _has_rows(group: int) -> bool:
    return bool(fetch("SELECT 1 FROM record_row WHERE group_id = %s LIMIT 1", group))


def versions_at(keys: Sequence[Key]) -> dict[Key, tuple[bytes, int]]:
    """Record id and version at (group, ordinal), without the ciphertext."""
    rows = _keyed_rows("group_id, ordinal, record_id, version", "record_row", keys)
    return {(row[0], row[1]): (bytes(row[2]), row[3]) for row in rows}


def dead_among(keys: Sequence[Key]) -> set[Key]:
    rows = _keyed_rows("group_id, ordinal", "dead_row", keys)
    return {(row[0], row[1]) for row in rows}


def pages_at(keys: Sequence[Key]) -> dict[Key, bytes]:
    """The pages at (segment, number); unknown keys are left out."""
    rows = _keyed_rows("segment_id, number, data", "index_page", keys)
    return {(row[0], row[1]): bytes(row[2]) for row in rows}


def runs_of(groups: Collection[int]) -> dict[int, bytes]:
    """The digests of all runs of these groups, in order, by group."""
    found: dict[int, list[bytes]] = {number: [] for number in groups}
    statement = "SELECT group_id, digests FROM row_run WHERE group_id IN {values} ORDER BY first"
    for number, digest in select_in(statement, groups):
        found[number].append(bytes(digest))
    return {number: b"".join(run_digests) for number, run_digests in found.items()}


def page_digests_of(segments: Collection[int]) -> list[tuple[int, int, bytes]]:
    """Segment, number and digest of each page of these segments that is in the table."""
    statement = "SELECT segment_id, number, digest FROM index_page WHERE segment_id IN {values}"
    return [
        (segment, number, bytes(digest))
        for segment, number, digest in select_in(statement, segments)
    ]


def live_rows(group: int, *, offset: int, limit: int) -> list[StoredSealedRow]:
    """Live rows of one group by ordinal."""
    rows = fetch(
        """
        SELECT group_id, ordinal, record_id, version, sealed FROM record_row r
        WHERE group_id = %s AND NOT EXISTS (
            SELECT 1 FROM dead_row d WHERE d.group_id = r.group_id AND d.ordinal = r.ordinal)
        ORDER BY ordinal LIMIT %s OFFSET %s
        """,
        *(group, limit, offset),
    )
    return [row_of(row) for row in rows]


def rows_between(group: int, first: int, end: int) -> list[tuple[StoredSealedRow, bool]]:
    """The rows of a group from ordinal ``first`` to below ``end``, each with whether it is dead;
    missing rows are left out.
    """
    rows = fetch(
        """
        SELECT group_id, ordinal, record_id, version, sealed, EXISTS (
            SELECT 1 FROM dead_row d WHERE d.group_id = r.group_id AND d.ordinal = r.ordinal)
        FROM record_row r WHERE group_id = %s AND ordinal >= %s AND ordinal < %s
        ORDER BY ordinal
        """,
        *(group, first, end),
    )
    return [(row_of(row), bool(row[5])) for row in rows]


def dead_of(group: int) -> set[int]:
    """Ordinals of a group's rows that a commit ended."""
    return set(deaths_of([group])[group])


def deaths_of(groups: Collection[int]) -> dict[int, dict[int, int]]:
    """The versions that ended rows of these groups, by group and ordinal; 0 for each row of a
    completely erased group, whose versions are not stored.
    """
    found: dict[int, dict[int, int]] = {number: {} for number in groups}
    each = "SELECT group_id, ordinal, version FROM dead_row WHERE group_id IN {values}"
    for number, ordinal, version in select_in(each, groups):
        found[number][ordinal] = version
    erased = (
        "SELECT id, count, holes FROM record_group WHERE id IN {values}"
        " AND staging_id IS NULL AND ended_at IS NULL AND live = 0 AND erased = count"
    )
    for number, count, holes in select_in(erased, groups):
        for ordinal in set(range(count)) - hole_ordinals(holes):
            found[number].setdefault(ordinal, 0)
    return found


def live_rows_of(record_ids: Collection[bytes]) -> list[StoredSealedRow]:
    """The live rows of these record ids, of every user, in no order."""
    statement = """
        SELECT group_id, ordinal, record_id, r.version, sealed FROM record_row r
        JOIN record_group g ON g.id = r.group_id
        WHERE record_id IN {values} AND staging_id IS NULL AND ended_at IS NULL
            AND NOT EXISTS (
                SELECT 1 FROM dead_row d WHERE d.group_id = r.group_id AND d.ordinal = r.ordinal)
        """
    return [row_of(row) for row in select_in(statement, record_ids)]


def row_of(row: tuple[Any, ...]) -> StoredSealedRow:
    """A row from the columns ``group_id, ordinal, record_id, version, sealed``."""
    return StoredSealedRow(row[0], row[1], bytes(row[2]), row[3], bytes(row[4]))
