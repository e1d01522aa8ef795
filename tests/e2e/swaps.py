"""What somebody who can write to the database might exchange, one function each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from encrypted_records.model.ids import from_text
from encrypted_records.model.records import CommitBody, Segment
from tests.e2e.database import Database, Row
from tests.support.store import Store

#: Every string has the same length, so that no swap is found by a size.
DEFINITION = {
    "type": "object",
    "properties": {
        "a": {"type": "string"},
        "b": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 999},
    },
}


@dataclass(frozen=True)
class Filled:
    """A schema with two commits of two records each."""

    store: Store
    records: dict[str, dict[str, Any]]

    @property
    def schema(self) -> bytes:
        return from_text(self.store.schema_id)

    def groups(self, database: Database) -> list[Row]:
        return database.of_schema("record_group", self.schema, "id")

    def rows(self, database: Database) -> list[Row]:
        """In the order in which they were stored."""
        return [
            row
            for group in self.groups(database)
            for row in database.run(
                "SELECT * FROM record_row WHERE group_id = %s ORDER BY ordinal", group["id"]
            )
        ]

    def segments(self, database: Database) -> list[Row]:
        return database.of_schema("index_segment", self.schema, "id")

    def pages(self, database: Database) -> list[Row]:
        return [
            database.run("SELECT * FROM index_page WHERE segment_id = %s", segment["id"])[0]
            for segment in self.segments(database)
        ]

    def commits(self, database: Database) -> list[Row]:
        return database.of_schema("commit_log", self.schema, "version")


def filled(store: Store, mark: str) -> Filled:
    rows = [{"a": f"{mark}-a{n}", "b": f"{mark}-b{n}", "n": n} for n in range(4)]
    found = [store.ingest(rows[:2]), store.ingest(rows[2:])]
    return Filled(store, dict(zip([*found[0], *found[1]], rows, strict=True)))


@dataclass(frozen=True)
class Pair:
    """Two schemas of equal definition, in one organization and under one keyring."""

    left: Filled
    right: Filled


Swap = Callable[[Database, Pair], None]
_ROW = ("record_id", "version", "sealed")
_COMMIT = ("commit_id", "digest", "log_digest", "body", "mac")


def _sealed(row: Row) -> list[bytes]:
    return msgspec.msgpack.decode(row["sealed"], type=list[bytes])


def _store(database: Database, row: Row, fields: list[bytes]) -> None:
    database.change("record_row", row, sealed=msgspec.msgpack.encode(fields))


def _exchange_first_field(database: Database, one: Row, other: Row) -> None:
    (first, *rest), (theirs, *remaining) = _sealed(one), _sealed(other)
    assert first != theirs
    _store(database, one, [theirs, *rest])
    _store(database, other, [first, *remaining])


def two_fields_of_one_record(database: Database, pair: Pair) -> None:
    row = pair.left.rows(database)[0]
    a, b, n = _sealed(row)
    _store(database, row, [b, a, n])


def one_field_of_two_records(database: Database, pair: Pair) -> None:
    one, other, *_ = pair.left.rows(database)
    _exchange_first_field(database, one, other)


def one_field_of_two_groups(database: Database, pair: Pair) -> None:
    one, _, other, _ = pair.left.rows(database)
    assert one["ordinal"] == other["ordinal"]
    _exchange_first_field(database, one, other)


def one_field_of_two_schemas(database: Database, pair: Pair) -> None:
    _exchange_first_field(database, pair.left.rows(database)[0], pair.right.rows(database)[0])


def all_fields_of_two_records(database: Database, pair: Pair) -> None:
    one, other, *_ = pair.left.rows(database)
    database.exchange("record_row", one, other, "sealed")


def two_rows_of_one_group(database: Database, pair: Pair) -> None:
    one, other, *_ = pair.left.rows(database)
    database.exchange("record_row", one, other, *_ROW)


def two_rows_of_two_groups(database: Database, pair: Pair) -> None:
    one, _, other, _ = pair.left.rows(database)
    database.exchange("record_row", one, other, *_ROW)


def two_rows_of_two_schemas(database: Database, pair: Pair) -> None:
    one, other = (side.rows(database)[0] for side in (pair.left, pair.right))
    database.exchange("record_row", one, other, *_ROW)


def the_ids_of_two_records(database: Database, pair: Pair) -> None:
    one, other, *_ = pair.left.rows(database)
    database.exchange("record_row", one, other, "record_id")


def the_version_of_a_record_for_another(database: Database, pair: Pair) -> None:
    row = pair.left.rows(database)[0]
    database.change("record_row", row, version=row["version"] + 1)


def the_uids_of_two_groups(database: Database, pair: Pair) -> None:
    one, other = pair.left.groups(database)
    database.exchange("record_group", one, other, "uid")


def two_columns_of_one_page(database: Database, pair: Pair) -> None:
    page = pair.left.pages(database)[0]
    # Version byte, tag, number of absent rows, and an ordinal with a 64-byte key for each row.
    size = 1 + 16 + 4 + 2 * (4 + 64)
    a, b, n = page["data"][:size], page["data"][size : 2 * size], page["data"][2 * size :]
    database.change("index_page", page, data=b + a + n)


def the_pages_of_two_segments(database: Database, pair: Pair) -> None:
    one, other = pair.left.pages(database)
    database.exchange("index_page", one, other, "data")


def the_pages_of_two_schemas(database: Database, pair: Pair) -> None:
    one, other = (side.pages(database)[0] for side in (pair.left, pair.right))
    database.exchange("index_page", one, other, "data")


def the_uids_of_two_segments(database: Database, pair: Pair) -> None:
    one, other = pair.left.segments(database)
    database.exchange("index_segment", one, other, "uid")


def two_commits_of_one_schema(database: Database, pair: Pair) -> None:
    one, other = pair.left.commits(database)
    database.exchange("commit_log", one, other, *_COMMIT)


def two_commits_of_two_schemas(database: Database, pair: Pair) -> None:
    one, other = (side.commits(database)[0] for side in (pair.left, pair.right))
    database.exchange("commit_log", one, other, *_COMMIT)


def _place(form: type[msgspec.Struct], member: str) -> int:
    """Where a member stands in the array that is stored."""
    return form.__struct_fields__.index(member)


_SEGMENTS = _place(CommitBody, "segments")


def _edit_first_segments(
    database: Database, pair: Pair, edit: Callable[[list[Any], list[Any]], None]
) -> None:
    """Edit the first segments that the two commits of a schema bring."""
    commits = pair.left.commits(database)
    bodies = [msgspec.msgpack.decode(commit["body"]) for commit in commits]
    edit(*(body[_SEGMENTS][0] for body in bodies))
    for commit, body in zip(commits, bodies, strict=True):
        database.change("commit_log", commit, body=msgspec.msgpack.encode(body))


def the_groups_that_two_segments_state(database: Database, pair: Pair) -> None:
    def edit(one: list[Any], other: list[Any]) -> None:
        at = _place(Segment, "groups")
        one[at], other[at] = other[at], one[at]

    _edit_first_segments(database, pair, edit)


def the_headers_of_two_segments(database: Database, pair: Pair) -> None:
    one, other = pair.left.segments(database)
    database.exchange("index_segment", one, other, "header")


def the_salts_of_two_segments(database: Database, pair: Pair) -> None:
    one, other = pair.left.segments(database)
    database.exchange("index_segment", one, other, "salt")


def two_segments_without_their_uids(database: Database, pair: Pair) -> None:
    """Header, salt and page together: each of them fits the others."""
    one, other = pair.left.segments(database)
    database.exchange("index_segment", one, other, "header", "salt")
    the_pages_of_two_segments(database, pair)


def the_salts_of_two_groups(database: Database, pair: Pair) -> None:
    one, other = pair.left.groups(database)
    database.exchange("record_group", one, other, "salt")


def the_digests_that_two_segments_state(database: Database, pair: Pair) -> None:
    def edit(one: list[Any], other: list[Any]) -> None:
        at = _place(Segment, "digest")
        one[at], other[at] = other[at], one[at]

    _edit_first_segments(database, pair, edit)


def the_segments_that_the_api_notes_for_two_groups(database: Database, pair: Pair) -> None:
    one, other = pair.left.groups(database)
    database.exchange("record_group", one, other, "segment_id")
