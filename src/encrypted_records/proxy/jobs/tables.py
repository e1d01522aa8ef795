"""The tables of the store of jobs, and what is asked and deleted in more than one place."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

import msgspec

from encrypted_records.crypto.format import UID_BYTES
from encrypted_records.model.record_formats import Charset, Format
from encrypted_records.model.records import Group
from encrypted_records.proxy.jobs.job import JobOptions, StoredJob
from encrypted_records.proxy.workers.messages import SealedPart

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

#: Columns that earlier versions of the table lack.
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
#: Those of them that leave what the owner may read of a job that has ended.
FORGET_WORK = FORGET[:-2]
JOBS = (
    "SELECT id, user, csv, named, batch_size, skip, resumable, state, phase, size, processed,"
    " total, flawed, error, created, finished, charset, reading, began, received,"
    " checked, undone, conflict, found_by, conflicts, replaced, work, packs,"
    " packed, rounded"
    " FROM job LEFT JOIN about ON about.job = job.id "
)
#: Of a job that its owner forgets, after :data:`FORGET`.
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
    """Remember where the job's records are, when its parts are forgotten; what was sealed again is
    not the job's."""
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
    """Groups, segments and holes of a part, as they are kept."""
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
            # Which layout of JSON it is, the first bytes show.
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
    """Delete what a job needs while it is under way, and what its owner may read of it."""
    for statement in FORGET:
        database.execute(statement, (job,))
