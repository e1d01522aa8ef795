"""The tables of the store of jobs, and the parts of the store with separate tables.

These parts are the targets of jobs that reseal, with the chunks that they add on their way; and for
each pack and schema of a job, the segment that covers its groups.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from encrypted_records.crypto.format import UID_BYTES
from encrypted_records.model.record_formats import Charset, Format
from encrypted_records.model.records import Group, Segment
from encrypted_records.proxy.disk import Database
from encrypted_records.proxy.jobs.job import JobOptions, StoredJob
from encrypted_records.proxy.workers.messages import ChunkAt, SealedPart, SealedRows

groups_of = msgspec.msgpack.Decoder(list[Group]).decode

TABLES = """
CREATE TABLE IF NOT EXISTS job (
    id BLOB PRIMARY KEY,
    user BLOB NOT NULL,
    csv INTEGER NOT NULL,
    named BLOB,
    batch_size INTEGER NOT NULL,
    skip INTEGER NOT NULL,
    resumable INTEGER NOT NULL,
    state TEXT NOT NULL,
    phase TEXT NOT NULL DEFAULT 'check',
    size INTEGER NOT NULL DEFAULT 0,
    processed INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0,
    flawed INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    created REAL NOT NULL,
    finished REAL,
    token BLOB NOT NULL,
    -- whether what it left at the API and in the spool is still to be dropped
    leftovers INTEGER NOT NULL DEFAULT 1,
    charset TEXT,
    -- how the file is read, sealed
    reading BLOB,
    -- SHA-256 of the API token that began it
    began BLOB,
    -- what becomes of rows whose values others have, and the names of the fields that find them
    conflict TEXT, found_by TEXT,
    -- how many rows were left out for that, and how many replace a record
    conflicts INTEGER NOT NULL DEFAULT 0, replaced INTEGER NOT NULL DEFAULT 0,
    -- what it does, unless that is to store an upload
    work TEXT,
    -- how many packs its chunks are, and how many of these are built
    packs INTEGER NOT NULL DEFAULT 0, packed INTEGER NOT NULL DEFAULT 0,
    -- by field, how many values are stored with fewer decimals than were sent, as JSON
    rounded TEXT,
    -- what became of the cells of a file with a reading, sealed
    report BLOB,
    -- the number of the last attempt at one of its parts
    attempt INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS job_of_user ON job (user, created);
CREATE TABLE IF NOT EXISTS chunk (
    job BLOB NOT NULL, number INTEGER NOT NULL,
    "offset" INTEGER NOT NULL, "row" INTEGER NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL,
    done INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS checked (
    job BLOB NOT NULL, schema BLOB NOT NULL, definition BLOB NOT NULL,
    key_version INTEGER NOT NULL, tails_version INTEGER NOT NULL,
    PRIMARY KEY (job, schema)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS part (
    job BLOB NOT NULL, schema BLOB NOT NULL, sequence INTEGER NOT NULL,
    groups BLOB NOT NULL, segments BLOB NOT NULL,
    -- of groups that stand for others: ordinals without a row
    holes BLOB,
    PRIMARY KEY (job, schema, sequence)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS flaws (
    job BLOB NOT NULL, number INTEGER NOT NULL, sealed BLOB NOT NULL,
    PRIMARY KEY (job, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS conflict (
    job BLOB NOT NULL, number INTEGER NOT NULL, sealed BLOB NOT NULL,
    PRIMARY KEY (job, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fate (
    -- which rows of a chunk are left out, and which replace which stored rows
    job BLOB NOT NULL, chunk INTEGER NOT NULL, fates BLOB NOT NULL,
    PRIMARY KEY (job, chunk)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS about (
    job BLOB PRIMARY KEY,
    -- what its sender said of the file, sealed
    file BLOB,
    -- the cells of some bad rows, sealed
    examples BLOB,
    -- when its bytes were all there, when they were checked, and when what it stored was deleted
    received REAL, checked REAL, undone REAL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS target (
    job BLOB PRIMARY KEY,
    -- the definition to seal for, as canonical text; empty is the present one
    definition BLOB NOT NULL,
    -- the digest of the one that it was planned for to follow
    planned BLOB NOT NULL,
    -- ids of its fields, each with that of the field before
    origins BLOB NOT NULL,
    -- the version of the log at which it began
    seen INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS stored (
    job BLOB NOT NULL, schema BLOB NOT NULL,
    -- the uids of the groups that its records were stored in, one after the other
    groups BLOB NOT NULL,
    PRIMARY KEY (job, schema)
) WITHOUT ROWID;
"""

#: Columns that the table lacks in earlier versions.
LATER = {
    "charset": "TEXT",
    "reading": "BLOB",
    "began": "BLOB",
    "work": "TEXT",
    "conflict": "TEXT",
    "found_by": "TEXT",
    "conflicts": "INTEGER NOT NULL DEFAULT 0",
    "replaced": "INTEGER NOT NULL DEFAULT 0",
    "packs": "INTEGER NOT NULL DEFAULT 0",
    "packed": "INTEGER NOT NULL DEFAULT 0",
    "rounded": "TEXT",
    "report": "BLOB",
    "attempt": "INTEGER NOT NULL DEFAULT 0",
}

FORGET = (
    "DELETE FROM chunk WHERE job = ?",
    "DELETE FROM checked WHERE job = ?",
    "DELETE FROM part WHERE job = ?",
    "DELETE FROM fate WHERE job = ?",
    "DELETE FROM conflict WHERE job = ?",
    "DELETE FROM flaws WHERE job = ?",
)
#: The statements that keep what the owner may read of an ended job.
FORGET_WORK = FORGET[:-2]
JOBS = (
    "SELECT id, user, csv, named, batch_size, skip, resumable, state, phase, size, processed,"
    " total, flawed, error, created, finished, charset, reading, began, received,"
    " checked, undone, conflict, found_by, conflicts, replaced, work, packs,"
    " packed, rounded"
    " FROM job LEFT JOIN about ON about.job = job.id "
)
#: For a job that its owner deletes, after :data:`FORGET`.
FORGET_ALL = (
    "DELETE FROM about WHERE job = ?",
    "DELETE FROM target WHERE job = ?",
    "DELETE FROM stored WHERE job = ?",
    "DELETE FROM job WHERE id = ?",
)


def stamp(database: sqlite3.Connection, job: bytes, column: str, when: float) -> None:
    """Store when something happened to a job, in seconds since 1970."""
    database.execute(
        f"INSERT INTO about (job, {column}) VALUES (?, ?)"  # noqa: S608 - our own names
        f" ON CONFLICT (job) DO UPDATE SET {column} = excluded.{column}",
        (job, when),
    )


def keep_groups(database: sqlite3.Connection, job: bytes) -> None:
    """Remember the groups of the job's records when its parts are deleted; resealed groups do not
    count as the job's."""
    uids: dict[bytes, bytearray] = {}
    parts = database.execute(
        "SELECT schema, groups FROM part JOIN job ON job.id = job"
        " WHERE job = ? AND coalesce(work, 'store') = 'store'",
        (job,),
    )
    for schema, groups in parts:
        kept = uids.setdefault(schema, bytearray())
        for group in groups_of(groups):
            kept += group.uid
    database.executemany(
        "INSERT OR REPLACE INTO stored VALUES (?, ?, ?)",
        [(job, schema, bytes(kept)) for schema, kept in uids.items()],
    )


def encode(part: SealedPart) -> Iterable[bytes]:
    """The encoded groups, segments and holes of a part."""
    return map(msgspec.msgpack.encode, (part.groups, part.segments, part.holes))


def split_uids(joined: bytes) -> list[bytes]:
    """The uids that :func:`keep_groups` has joined."""
    return [joined[at : at + UID_BYTES] for at in range(0, len(joined), UID_BYTES)]


def job_of(row: sqlite3.Row) -> StoredJob:
    """The job of a row of :data:`JOBS`."""
    return StoredJob(
        id=row["id"],
        user=row["user"],
        options=JobOptions(
            # The first bytes show which layout of JSON it is.
            kind=Format.CSV if row["csv"] else Format.JSON,
            named=row["named"],
            batch_size=row["batch_size"],
            skip=bool(row["skip"]),
            resumable=bool(row["resumable"]),
            charset=row["charset"] and Charset(row["charset"]),
            on_conflict=row["conflict"],
            by=tuple(json.loads(row["found_by"] or "[]")),
            work=row["work"] or "store",
        ),
        state=row["state"],
        phase=row["phase"],
        size=row["size"],
        processed=row["processed"],
        total=row["total"],
        bad_rows=row["flawed"] + row["conflicts"],
        replaced=row["replaced"],
        error=row["error"],
        created=row["created"],
        finished=row["finished"],
        received=row["received"],
        checked=row["checked"],
        undone=row["undone"],
        packs=row["packs"],
        packed=row["packed"],
        rounded=json.loads(row["rounded"] or "{}"),
        sealed_reading=row["reading"],
        began=row["began"],
    )


def forget(database: sqlite3.Connection, job: bytes) -> None:
    """Delete the data that a running job needs, and the data that its owner may read."""
    for statement in FORGET:
        database.execute(statement, (job,))


def insert_chunks(database: sqlite3.Connection, job: bytes, chunks: Iterable[ChunkAt]) -> None:
    database.executemany(
        'INSERT INTO chunk (job, number, "offset", "row", first, last) VALUES (?, ?, ?, ?, ?, ?)',
        [(job, chunk.number, chunk.offset, chunk.row, chunk.first, chunk.last) for chunk in chunks],
    )


@dataclass(frozen=True, slots=True)
class SealTarget:
    """``definition`` is the canonical text to seal for, empty for the current definition;
    ``planned`` is the digest of the definition that it follows; ``seen`` is the version of the log
    at which the job began."""

    definition: bytes
    planned: bytes
    seen: int = 0
    #: ids of its fields, each with the field's id in the previous definition
    origins: tuple[tuple[int, int], ...] = ()


_origins = msgspec.msgpack.Decoder(tuple[tuple[int, int], ...])


class Targets:
    """Raises as :class:`JobStore` does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, job: bytes, target: SealTarget) -> None:
        self._database.run(
            "INSERT INTO target (job, definition, planned, seen, origins) VALUES (?, ?, ?, ?, ?)",
            *(job, target.definition, target.planned, target.seen),
            msgspec.msgpack.encode(target.origins),
        )

    def get(self, job: bytes) -> SealTarget:
        statement = "SELECT definition, planned, seen, origins FROM target WHERE job = ?"
        definition, planned, seen, origins = self._database.row(statement, job)
        return SealTarget(bytes(definition), bytes(planned), seen, _origins.decode(origins))

    def note_seen(self, job: bytes, version: int) -> None:
        """Record the version of the log at which the job begins, or begins again."""
        self._database.run("UPDATE target SET seen = ? WHERE job = ?", version, job)

    def under_way(self, schema: bytes) -> bool:
        """Whether a job of any user reseals this schema."""
        statement = (
            "SELECT 1 FROM job WHERE named = ? AND work = 'reseal'"
            " AND state IN ('uploading', 'processing')"
        )
        return self._database.row(statement, schema) is not None

    def end_of_chunks(self, job: bytes) -> int:
        """The row number at which the existing chunks end."""
        statement = 'SELECT max("offset") FROM chunk WHERE job = ?'
        (end,) = self._database.row(statement, job)
        return end or 0

    def add_chunks(self, job: bytes, chunks: Sequence[ChunkAt]) -> None:
        """Add chunks after the existing chunks; their records count as further work of the job."""
        with self._database.writing() as database:
            insert_chunks(database, job, chunks)
            records = sum(chunk.last - chunk.first + 1 for chunk in chunks)
            database.execute("UPDATE job SET total = total + ? WHERE id = ?", (records, job))

    def split(self, job: bytes, first: ChunkAt, second: ChunkAt) -> None:
        """Cut a chunk in two; ``first`` keeps its number."""
        with self._database.writing() as database:
            database.execute(
                'UPDATE chunk SET "offset" = ?, last = ? WHERE job = ? AND number = ?',
                (first.offset, first.last, job, first.number),
            )
            insert_chunks(database, job, [second])


#: The numbers of the parts of packed segments begin here, after those of all chunks; and their
#: distance between two packs.
FIRST_SEQUENCE, SEQUENCES = 1 << 30, 1 << 12

_segments = msgspec.msgpack.Decoder(list[Segment]).decode
#: An empty list of groups, or of segments.
_NONE = msgspec.msgpack.encode([])


def sequence_of(place: int) -> int:
    """The number of the first part of the pack at this place."""
    return FIRST_SEQUENCE + place * SEQUENCES


class PackStore:
    """Every method raises the same errors as :class:`.store.JobStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def plan(self, job: bytes, packs: int) -> None:
        """Record the number of packs of a job; none is built yet."""
        self._database.run("UPDATE job SET packs = ?, packed = 0 WHERE id = ?", packs, job)

    def read(self, job: bytes) -> tuple[list[SealedRows], dict[tuple[bytes, int], Segment]]:
        """A consistent read of the groups without a separate segment, in the order of chunks,
        and of all packed segments, by schema and the number of their first part."""
        statement = (
            "SELECT schema, sequence, groups, segments FROM part"
            " WHERE job = ? AND (sequence >= ? OR segments = ?) ORDER BY sequence, schema"
        )
        rows = self._database.rows(statement, job, FIRST_SEQUENCE, _NONE)
        groups: list[SealedRows] = []
        segments: dict[tuple[bytes, int], Segment] = {}
        for schema, sequence, uids, packed in rows:
            if sequence >= FIRST_SEQUENCE:
                (segments[bytes(schema), sequence],) = _segments(packed)
            else:
                groups += [SealedRows(bytes(schema), sequence, group) for group in groups_of(uids)]
        return groups, segments

    def add(self, job: bytes, sequence: int, segments: Sequence[tuple[bytes, Segment]]) -> None:
        """Record that the API has these segments of a pack, replacing those of the same schemas."""
        with self._database.writing() as database:
            database.executemany(
                "INSERT OR REPLACE INTO part (job, schema, sequence, groups, segments)"
                " VALUES (?, ?, ?, ?, ?)",
                [
                    (job, schema, sequence, _NONE, msgspec.msgpack.encode([segment]))
                    for schema, segment in segments
                ],
            )

    def mark(self, job: bytes, packed: int) -> None:
        """Record how many packs are built."""
        self._database.run("UPDATE job SET packed = ? WHERE id = ?", packed, job)

    def drop(self, job: bytes, segments: Collection[tuple[bytes, int]]) -> None:
        """Delete segments whose rows were sealed again, and are in other groups now."""
        with self._database.writing() as database:
            database.executemany(
                "DELETE FROM part WHERE job = ? AND schema = ? AND sequence = ?",
                [(job, *segment) for segment in segments],
            )
