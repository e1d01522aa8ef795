"""Jobs in SQLite: what a job needs to go on after this process has ended, and nothing in the clear.

No value of a record is stored here, and no key. The job's token and the flaws found, which may name
what somebody took for a field, come sealed (docs/SPEC.md, section 12). What a method has done is on
disk when it returns. Progress never goes back, also when a job begins its check again.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from encrypted_records.errors import Conflict
from encrypted_records.model.records import Group, Segment
from encrypted_records.proxy import databases
from encrypted_records.proxy.jobs import NEXT, Job, Order, Phase, State
from encrypted_records.proxy.tasks import ChunkAt, SealedPart

_TABLES = """
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
    listed INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    created REAL NOT NULL,
    finished REAL,
    token BLOB NOT NULL,
    -- whether what it left at the API and in the spool is still to be dropped
    leftovers INTEGER NOT NULL DEFAULT 1
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
    digest BLOB NOT NULL, groups BLOB NOT NULL, segments BLOB NOT NULL,
    PRIMARY KEY (job, schema, sequence)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS flaws (
    job BLOB NOT NULL, number INTEGER NOT NULL, sealed BLOB NOT NULL,
    PRIMARY KEY (job, number)
) WITHOUT ROWID;
"""
_FORGET = (
    "DELETE FROM chunk WHERE job = ?",
    "DELETE FROM checked WHERE job = ?",
    "DELETE FROM part WHERE job = ?",
    "DELETE FROM flaws WHERE job = ?",
)
_JOBS = (
    "SELECT id, user, csv, named, batch_size, skip, resumable, state, phase, size, processed,"
    " total, flawed, listed, error, created, finished FROM job "
)

_groups = msgspec.msgpack.Decoder(list[Group])
_segments = msgspec.msgpack.Decoder(list[Segment])


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """A schema of a checked job: the digest of the definition that its records fit, and the
    versions of the keys that seal them and that are in their index."""

    schema: bytes
    definition: bytes
    key_version: int
    tails_version: int


@dataclass(frozen=True, slots=True)
class StagedPart:
    """What the commit will say of a part that the API holds."""

    digest: bytes
    groups: list[Group]
    segments: list[Segment]


class JobStore:
    """Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._database = databases.opened(path, _TABLES)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction.

        Raises:
            OutOfSpace: the disk is full; nothing of it was stored.
        """
        with self._lock, _named_errors():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                # This is where a full disk shows, and then the transaction is still open.
                self._database.execute("COMMIT")
            except BaseException:
                # SQLite may have done so itself.
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def _rows(self, question: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock, _named_errors():
            return self._database.execute(question, values).fetchall()

    def add(self, job: Job, token: bytes) -> None:
        order = job.order
        with self._writing() as database:
            database.execute(
                "INSERT INTO job (id, user, csv, named, batch_size, skip, resumable, state,"
                " created, token) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (job.id, job.user, order.csv, order.named, order.batch_size, order.skip,
                 order.resumable, job.state, job.created, token),
            )  # fmt: skip

    def get(self, job: bytes) -> Job | None:
        found = self._jobs("WHERE id = ?", job)
        return found[0] if found else None

    def of_user(self, user: bytes, *, offset: int, limit: int) -> tuple[int, list[Job]]:
        """How many jobs the user has, and some of them, the newest first."""
        ((count,),) = self._rows("SELECT count(*) FROM job WHERE user = ?", user)
        order = "WHERE user = ? ORDER BY created DESC, id LIMIT ? OFFSET ?"
        return count, self._jobs(order, user, limit, offset)

    def unfinished(self) -> list[Job]:
        return self._jobs("WHERE state IN ('uploading', 'processing') ORDER BY created")

    def with_leftovers(self) -> list[Job]:
        """Ended jobs that have left something behind."""
        return self._jobs("WHERE state IN ('completed', 'failed') AND leftovers ORDER BY created")

    def _jobs(self, condition: str, *values: object) -> list[Job]:
        return [_job(row) for row in self._rows(_JOBS + condition, *values)]

    def counts(self) -> dict[State, int]:
        """How many jobs there are in each state, of all users."""
        found = dict(self._rows("SELECT state, count(*) FROM job GROUP BY state"))
        return {state: found.get(state, 0) for state in NEXT}

    def token(self, job: bytes) -> bytes:
        ((token,),) = self._rows("SELECT token FROM job WHERE id = ?", job)
        return bytes(token)

    def renew(self, job: bytes, token: bytes) -> None:
        with self._writing() as database:
            database.execute("UPDATE job SET token = ? WHERE id = ?", (token, job))

    def received(self, job: bytes, size: int) -> None:
        """All bytes are in the spool.

        Raises:
            Conflict: the job has ended meanwhile.
        """
        with self._writing() as database:
            _move(database, job, "processing")
            database.execute("UPDATE job SET size = ? WHERE id = ?", (size, job))

    def counted(self, job: bytes, rows: int) -> None:
        with self._writing() as database:
            database.execute("UPDATE job SET total = max(total, ?) WHERE id = ?", (rows, job))

    def checked(
        self,
        job: bytes,
        *,
        rows: int,
        flawed: int,
        listed: int,
        flaws: Iterable[bytes],
        chunks: Iterable[ChunkAt],
        schemas: Iterable[CheckedSchema],
    ) -> None:
        """The input was checked as a whole; what an earlier check has left is forgotten."""
        with self._writing() as database:
            _forget(database, job)
            database.executemany(
                "INSERT INTO flaws VALUES (?, ?, ?)",
                [(job, number, sealed) for number, sealed in enumerate(flaws)],
            )
            database.executemany(
                'INSERT INTO chunk (job, number, "offset", "row", first, last)'
                " VALUES (?, ?, ?, ?, ?, ?)",
                [(job, one.number, one.offset, one.row, one.first, one.last) for one in chunks],
            )
            database.executemany(
                "INSERT INTO checked VALUES (?, ?, ?, ?, ?)",
                [
                    (job, one.schema, one.definition, one.key_version, one.tails_version)
                    for one in schemas
                ],
            )
            database.execute(
                "UPDATE job SET phase = 'seal', total = ?, flawed = ?, listed = ? WHERE id = ?",
                (rows, flawed, listed, job),
            )

    def check_again(self, job: bytes) -> None:
        """The definition or the key has changed: nothing that was sealed can be used."""
        self._phase(job, "check")

    def sealed(self, job: bytes) -> None:
        """All chunks are stored ahead."""
        self._phase(job, "publish")

    def _phase(self, job: bytes, phase: Phase) -> None:
        with self._writing() as database:
            database.execute("UPDATE job SET phase = ? WHERE id = ?", (phase, job))

    def schemas(self, job: bytes) -> list[CheckedSchema]:
        found = self._rows(
            "SELECT schema, definition, key_version, tails_version FROM checked WHERE job = ?", job
        )
        return [CheckedSchema(*row) for row in found]

    def open_chunks(self, job: bytes) -> list[ChunkAt]:
        """Chunks that the API does not hold yet."""
        found = self._rows(
            'SELECT number, "offset", "row", first, last FROM chunk WHERE job = ? AND NOT done'
            " ORDER BY number",
            job,
        )
        return [ChunkAt(*row) for row in found]

    def done(self, job: bytes, chunk: ChunkAt, parts: Sequence[SealedPart]) -> None:
        """The API holds the parts of this chunk."""
        encode = msgspec.msgpack.encode
        with self._writing() as database:
            database.executemany(
                "INSERT OR REPLACE INTO part VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (job, one.schema, chunk.number, one.digest, encode(one.groups),
                     encode(one.segments))
                    for one in parts
                ],
            )  # fmt: skip
            database.execute(
                "UPDATE chunk SET done = 1 WHERE job = ? AND number = ?", (job, chunk.number)
            )
            database.execute(
                "UPDATE job SET processed = max(processed, (SELECT total(last - first + 1)"
                " FROM chunk WHERE chunk.job = job.id AND done)) WHERE id = ?",
                (job,),
            )

    def parts(self, job: bytes, schema: bytes) -> list[StagedPart]:
        """The parts of a schema, in their order."""
        found = self._rows(
            "SELECT digest, groups, segments FROM part WHERE job = ? AND schema = ?"
            " ORDER BY sequence",
            job,
            schema,
        )
        return [
            StagedPart(digest, _groups.decode(groups), _segments.decode(segments))
            for digest, groups, segments in found
        ]

    def completed(self, job: bytes, when: float) -> None:
        """
        Raises:
            Conflict: the job has ended meanwhile.
        """
        with self._writing() as database:
            _move(database, job, "completed")
            database.execute(
                "UPDATE job SET processed = total, finished = ? WHERE id = ?", (when, job)
            )

    def failed(self, job: bytes, error: str, when: float) -> None:
        """
        Raises:
            Conflict: the job has ended meanwhile.
        """
        with self._writing() as database:
            _move(database, job, "failed")
            database.execute(
                "UPDATE job SET error = ?, finished = ? WHERE id = ?", (error, when, job)
            )

    def tidied(self, job: bytes) -> None:
        """Nothing of the job is left at the API or in the spool; keep what its owner may ask."""
        with self._writing() as database:
            for statement in _FORGET[:-1]:
                database.execute(statement, (job,))
            database.execute("UPDATE job SET leftovers = 0, token = x'' WHERE id = ?", (job,))

    def flaws(self, job: bytes) -> list[bytes]:
        """The sealed pieces of the list of flaws, in their order."""
        found = self._rows("SELECT sealed FROM flaws WHERE job = ? ORDER BY number", job)
        return [bytes(sealed) for (sealed,) in found]

    def forget(self, job: bytes) -> None:
        with self._writing() as database:
            _forget(database, job)
            database.execute("DELETE FROM job WHERE id = ?", (job,))

    def forget_before(self, when: float) -> None:
        """Forget jobs that ended before ``when`` and have left nothing behind."""
        for (job,) in self._rows("SELECT id FROM job WHERE finished < ? AND NOT leftovers", when):
            self.forget(job)

    def close(self) -> None:
        with self._lock:
            self._database.close()


def _move(database: sqlite3.Connection, job: bytes, state: State) -> None:
    row = database.execute("SELECT state FROM job WHERE id = ?", (job,)).fetchone()
    if row is None or state not in NEXT[row[0]]:
        raise Conflict("the job has ended already", code="job_ended")
    database.execute("UPDATE job SET state = ? WHERE id = ?", (state, job))


def _forget(database: sqlite3.Connection, job: bytes) -> None:
    for statement in _FORGET:
        database.execute(statement, (job,))


def _job(row: tuple[Any, ...]) -> Job:
    job, user, csv, named, batch, skip, resumable, *rest = row
    return Job(job, user, Order(bool(csv), named, batch, bool(skip), bool(resumable)), *rest)


def _named_errors() -> AbstractContextManager[None]:
    return databases.named_errors("job_store_failed", "the proxy's store of jobs does not answer")
