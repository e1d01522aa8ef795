"""Jobs in SQLite: the data that a job needs to resume in the next process, and no plaintext.

No value of a record is stored here, and no key. The job's token and the errors of its rows, which
may quote a wrong field name, are sealed (docs/SPEC.md, section 12). When a method returns, its
change is on disk. Progress never decreases, even if a job begins its check again.

The store also has the outcomes of a job's rows whose values other records have: numbers, ids and
versions of rows, but no value. The errors about them are sealed.

A watcher of a job gets its newest state, not every state in between (:class:`Progress`). A job
never waits for a watcher: each reads the newest state when it is ready, so a slow watcher misses
states and delays nothing.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.client.proxy.jobs import JobState
from encrypted_records.errors import Conflict
from encrypted_records.model.record_formats import Format
from encrypted_records.model.records import Group, Segment
from encrypted_records.proxy.disk import MOST_PAGES, Database
from encrypted_records.proxy.jobs import tables
from encrypted_records.proxy.jobs.job import NEXT, JobSecrets, Phase, StoredJob
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.spool import Spool
from encrypted_records.proxy.workers.messages import ChunkAt, SealedPart

_segments = msgspec.msgpack.Decoder(list[Segment])
_holes = msgspec.msgpack.Decoder(list[tuple[int, int]])


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """A schema of a checked job: the digest of the definition that its records fit, and the
    versions of the keys that seal them and that are in their index."""

    schema: bytes
    definition: bytes
    key_version: int
    tails_version: int


@dataclass(frozen=True, slots=True)
class StagedContents:
    """A part that is staged at the API, as the commit will describe it."""

    groups: list[Group]
    segments: list[Segment]
    #: ordinals of its only group that have no row
    holes: list[tuple[int, int]] = field(default_factory=list)


class JobStore:
    """Safe to use from several threads.

    Every method raises OutOfSpace if the disk is full, and then has changed nothing, and
    Unavailable (``job_store_failed``) if the file fails in another way. ``most_pages`` is as for
    :class:`Database`.
    """

    def __init__(self, path: Path, *, most_pages: int = MOST_PAGES) -> None:
        """
        Raises:
            Startup: the file is damaged, or cannot be opened.
        """
        self._database = Database(
            path,
            tables.TABLES,
            code="job_store_failed",
            message="the proxy's store of jobs does not answer",
            loss="batch jobs are then forgotten, including running ones: check whether their"
            " records are stored before you send such a file again",
            later={"job": tables.LATER, "part": {"holes": "BLOB"}},
            most_pages=most_pages,
        )
        self.fates = FateStore(self._database)
        self.packs = tables.PackStore(self._database)
        self.targets = tables.Targets(self._database)

    def add(self, job: StoredJob, token: bytes, file: bytes | None = None) -> None:
        """Store a new job.

        Args:
            file: the sender's note on its file, sealed.
        """
        options = job.options
        with self._database.writing() as database:
            database.execute(
                "INSERT INTO job (id, user, csv, named, batch_size, skip, resumable, state,"
                " created, charset, reading, token, began, conflict, found_by, work) VALUES (:id,"
                " :user, :csv, :named, :batch_size, :skip, :resumable, :state, :created, :charset,"
                " :reading, :token, :began, :conflict, :found_by, :work)",
                {
                    "id": job.id,
                    "user": job.user,
                    "csv": options.kind is Format.CSV,
                    "named": options.named,
                    "batch_size": options.batch_size,
                    "skip": options.skip,
                    "resumable": options.resumable,
                    "state": job.state,
                    "created": job.created,
                    "charset": options.charset and options.charset.value,
                    "reading": job.sealed_reading,
                    "token": token,
                    "began": job.began,
                    "conflict": options.on_conflict,
                    "found_by": json.dumps(options.by),
                    "work": options.work,
                },
            )
            database.execute("INSERT INTO about (job, file) VALUES (?, ?)", (job.id, file))

    def get(self, job: bytes) -> StoredJob | None:
        jobs = self._jobs("WHERE id = ?", job)
        return jobs[0] if jobs else None

    def of_user(
        self,
        user: bytes,
        *,
        schema: bytes | None = None,
        began: bytes | None = None,
        offset: int,
        limit: int,
    ) -> tuple[int, list[StoredJob]]:
        """The number of the user's jobs, and some of them, the newest first.

        Args:
            began: the digest of the API token that began them; None for all jobs.
            schema: the schema that they are for; None for the jobs of all schemas.
        """
        condition, values = "WHERE user = ?", [user]
        if schema is not None:
            condition += " AND (named = ? OR id IN (SELECT job FROM stored WHERE schema = ?))"
            values += [schema, schema]
        if began is not None:
            condition += " AND began = ?"
            values.append(began)
        ((count,),) = self._database.rows(f"SELECT count(*) FROM job {condition}", *values)  # noqa: S608
        order = " ORDER BY created DESC, id LIMIT ? OFFSET ?"
        return count, self._jobs(condition + order, *values, limit, offset)

    def of_size(self, user: bytes, size: int) -> list[StoredJob]:
        """The user's jobs whose upload had ``size`` bytes, and which store or have stored it."""
        condition = (
            "WHERE user = ? AND size = ? AND state IN ('processing', 'completed')"
            " AND undone IS NULL ORDER BY created DESC"
        )
        return self._jobs(condition, user, size)

    def file(self, job: bytes) -> bytes | None:
        """The note on the job's file, sealed; None if there is none."""
        rows = self._database.rows("SELECT file FROM about WHERE job = ?", job)
        return rows[0]["file"] if rows else None

    def examples(self, job: bytes) -> bytes | None:
        """The cells of some of the job's bad rows, sealed; None if there are none."""
        rows = self._database.rows("SELECT examples FROM about WHERE job = ?", job)
        return rows[0]["examples"] if rows else None

    def report(self, job: bytes) -> bytes | None:
        """The report of the job's file, sealed; None before the file is checked, and for a file
        without a reading."""
        rows = self._database.rows("SELECT report FROM job WHERE id = ?", job)
        return rows[0]["report"] if rows else None

    def stored_groups(self, job: bytes) -> dict[bytes, list[bytes]]:
        """The uids of the groups in which the job's records were stored, by schema."""
        rows = self._database.rows(
            "SELECT schema, groups FROM stored WHERE job = ? ORDER BY schema", job
        )
        return {row["schema"]: tables.split_uids(row["groups"]) for row in rows}

    def mark_undone(self, job: bytes) -> None:
        """Note that the records that the job stored are deleted."""
        with self._database.writing() as database:
            tables.stamp(database, job, "undone", runtime.wall())
            database.execute("DELETE FROM stored WHERE job = ?", (job,))

    def list_unfinished(self) -> list[StoredJob]:
        return self._jobs("WHERE state IN ('uploading', 'processing') ORDER BY created")

    def with_leftovers(self) -> list[StoredJob]:
        """Ended jobs with leftovers at the API or in the spool."""
        return self._jobs("WHERE state IN ('completed', 'failed') AND leftovers ORDER BY created")

    def _jobs(self, condition: str, *values: object) -> list[StoredJob]:
        return [tables.job_of(row) for row in self._database.rows(tables.JOBS + condition, *values)]

    def counts(self) -> dict[JobState, int]:
        """The number of jobs in each state, of all users."""
        rows = self._database.rows("SELECT state, count(*) AS jobs FROM job GROUP BY state")
        counts = {row["state"]: row["jobs"] for row in rows}
        return {state: counts.get(state, 0) for state in NEXT}

    def token(self, job: bytes) -> bytes:
        ((token,),) = self._database.rows("SELECT token FROM job WHERE id = ?", job)
        return bytes(token)

    def renew(self, job: bytes, token: bytes) -> None:
        """Store another token of the job, sealed."""
        self._database.run("UPDATE job SET token = ? WHERE id = ?", token, job)

    def mark_received(self, job: bytes, size: int, file: bytes | None = None) -> None:
        """Record that all bytes are in the spool.

        Args:
            file: the new note on its file, sealed; None leaves the stored note.

        Raises:
            Conflict: the job has ended in the meantime.
        """
        with self._database.writing() as database:
            _move(database, job, "processing")
            database.execute("UPDATE job SET size = ? WHERE id = ?", (size, job))
            tables.stamp(database, job, "received", runtime.wall())
            if file is not None:
                database.execute("UPDATE about SET file = ? WHERE job = ?", (file, job))

    def mark_counted(self, job: bytes, rows: int) -> None:
        self._database.run("UPDATE job SET total = max(total, ?) WHERE id = ?", rows, job)

    def mark_checked(
        self,
        job: bytes,
        *,
        rows: int,
        bad_rows: int,
        errors: Iterable[bytes],
        examples: bytes | None = None,
        rounded: Mapping[str, int] | None = None,
        report: bytes | None = None,
        chunks: Iterable[ChunkAt],
        schemas: Iterable[CheckedSchema],
    ) -> None:
        """Record that the whole input was checked; the results of an earlier check are deleted."""
        with self._database.writing() as database:
            tables.forget(database, job)
            database.executemany(
                "INSERT INTO flaws VALUES (?, ?, ?)",
                [(job, number, sealed) for number, sealed in enumerate(errors)],
            )
            tables.insert_chunks(database, job, chunks)
            database.executemany(
                "INSERT INTO checked VALUES (?, ?, ?, ?, ?)",
                [
                    (
                        job,
                        schema.schema,
                        schema.definition,
                        schema.key_version,
                        schema.tails_version,
                    )
                    for schema in schemas
                ],
            )
            database.execute(
                "UPDATE job SET phase = 'seal', total = ?, flawed = ?, conflicts = 0, replaced = 0,"
                " rounded = ?, report = ? WHERE id = ?",
                (rows, bad_rows, json.dumps(rounded or {}), report, job),
            )
            tables.stamp(database, job, "checked", runtime.wall())
            database.execute("UPDATE about SET examples = ? WHERE job = ?", (examples, job))

    def check_again(self, job: bytes) -> None:
        """Check again after the definition or the key changed: no sealed chunk can be used."""
        self._phase(job, "check")

    def mark_sealed(self, job: bytes) -> None:
        """Record that all chunks are staged."""
        self._phase(job, "publish")

    def _phase(self, job: bytes, phase: Phase) -> None:
        self._database.run("UPDATE job SET phase = ? WHERE id = ?", phase, job)

    def schemas(self, job: bytes) -> list[CheckedSchema]:
        rows = self._database.rows(
            "SELECT schema, definition, key_version, tails_version FROM checked WHERE job = ?", job
        )
        return [CheckedSchema(**row) for row in rows]

    def next_attempt(self, job: bytes) -> int:
        """A number above the number of every part that the job has made so far.

        It follows the clock, so that it is also above the numbers of parts that a store restored
        from a backup does not know.
        """
        with self._database.writing() as database:
            change = "UPDATE job SET attempt = max(attempt + 1, ?) WHERE id = ?"
            database.execute(change, (int(runtime.wall() * 1000), job))
            ((attempt,),) = database.execute("SELECT attempt FROM job WHERE id = ?", (job,))
        return int(attempt)

    def open_chunks(self, job: bytes) -> list[ChunkAt]:
        """Chunks that the API does not have yet."""
        return self._chunks("WHERE job = ? AND NOT done", job)

    def chunks(self, job: bytes) -> list[ChunkAt]:
        """All chunks."""
        return self._chunks("WHERE job = ?", job)

    def _chunks(self, condition: str, job: bytes) -> list[ChunkAt]:
        columns = 'number, "offset", "row", first, last'
        rows = self._database.rows(f"SELECT {columns} FROM chunk {condition} ORDER BY number", job)  # noqa: S608
        return [ChunkAt(**row) for row in rows]

    def done(self, job: bytes, chunk: ChunkAt, parts: Sequence[SealedPart]) -> None:
        """Record that the API has the parts of this chunk."""
        with self._database.writing() as database:
            database.executemany(
                "INSERT OR REPLACE INTO part (job, schema, sequence, groups, segments, holes)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                [(job, part.schema, chunk.number, *tables.encode(part)) for part in parts],
            )
            database.execute(
                "UPDATE chunk SET done = 1 WHERE job = ? AND number = ?", (job, chunk.number)
            )
            database.execute(
                "UPDATE job SET processed = max(processed, (SELECT total(last - first + 1)"
                " FROM chunk WHERE chunk.job = job.id AND done)) WHERE id = ?",
                (job,),
            )

    def parts(self, job: bytes, schema: bytes) -> list[StagedContents]:
        """The parts of a schema, in their options."""
        rows = self._database.rows(
            "SELECT groups, segments, holes FROM part WHERE job = ? AND schema = ?"
            " ORDER BY sequence",
            job,
            schema,
        )
        return [
            StagedContents(
                groups=tables.groups_of(row["groups"]),
                segments=_segments.decode(row["segments"]),
                holes=_holes.decode(row["holes"]) if row["holes"] else [],
            )
            for row in rows
        ]

    def mark_completed(self, job: bytes, when: float) -> None:
        """
        Raises:
            Conflict: the job has ended in the meantime.
        """
        with self._database.writing() as database:
            _move(database, job, "completed")
            tables.keep_groups(database, job)
            database.execute(
                "UPDATE job SET processed = total, finished = ? WHERE id = ?", (when, job)
            )

    def mark_failed(self, job: bytes, error: str, when: float) -> None:
        """
        Raises:
            Conflict: the job has ended in the meantime.
        """
        with self._database.writing() as database:
            _move(database, job, "failed")
            change = "UPDATE job SET error = ?, finished = ? WHERE id = ?"
            database.execute(change, (error, when, job))

    def mark_tidied(self, job: bytes) -> None:
        """Record that no data of the job is left at the API or in the spool; data that its owner
        may read, such as its flaws and conflicts, is kept.
        """
        with self._database.writing() as database:
            for statement in tables.FORGET_WORK:
                database.execute(statement, (job,))
            database.execute("UPDATE job SET leftovers = 0, token = x'' WHERE id = ?", (job,))

    def errors(self, job: bytes) -> list[bytes]:
        """The sealed pieces of the list of errors, in their order."""
        rows = self._database.rows("SELECT sealed FROM flaws WHERE job = ? ORDER BY number", job)
        return [bytes(row["sealed"]) for row in rows]

    def forget(self, job: bytes) -> None:
        with self._database.writing() as database:
            tables.forget(database, job)
            for statement in tables.FORGET_ALL:
                database.execute(statement, (job,))

    def forget_before(self, when: float) -> None:
        """Delete jobs that ended before ``when`` and have no leftovers."""
        for (job,) in self._database.rows(
            "SELECT id FROM job WHERE finished < ? AND NOT leftovers", when
        ):
            self.forget(job)

    def close(self) -> None:
        self._database.close()


def _move(database: sqlite3.Connection, job: bytes, state: JobState) -> None:
    row = database.execute("SELECT state FROM job WHERE id = ?", (job,)).fetchone()
    if row is None or state not in NEXT[row[0]]:
        raise Conflict("the job has already ended", code="job_ended")
    database.execute("UPDATE job SET state = ? WHERE id = ?", (state, job))


_REOPEN = "UPDATE chunk SET done = 0 WHERE job = ? AND number = ?"
_DROP_PARTS = "DELETE FROM part WHERE job = ? AND sequence = ?"


class FateStore:
    """The encoded outcomes of a job's rows by number of the chunk; a chunk without any has no
    entry.

    Every method raises the same errors as :class:`JobStore`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, job: bytes) -> dict[int, bytes]:
        with self._database.asking() as database:
            rows = database.execute("SELECT chunk, fates FROM fate WHERE job = ?", (job,))
            return {chunk: bytes(fates) for chunk, fates in rows.fetchall()}

    def replace(
        self,
        job: bytes,
        fates: Mapping[int, bytes],
        *,
        conflicts: int,
        replaced: int,
        errors: Sequence[bytes],
    ) -> None:
        """Store these outcomes, and have the chunks whose outcomes changed sealed again.

        Args:
            conflicts: number of rows that are left out.
            replaced: number of rows that replace a record.
            errors: the errors of the rows that are left out, sealed piece by piece.
        """
        before = self.get(job)
        changed = [
            (job, chunk)
            for chunk in sorted(before.keys() | fates.keys())
            if before.get(chunk) != fates.get(chunk)
        ]
        with self._database.writing() as database:
            database.executemany(_REOPEN, changed)
            database.executemany(_DROP_PARTS, changed)
            database.executemany("DELETE FROM fate WHERE job = ? AND chunk = ?", changed)
            database.executemany(
                "INSERT INTO fate VALUES (?, ?, ?)",
                [(job, chunk, fates[chunk]) for _, chunk in changed if chunk in fates],
            )
            database.execute("DELETE FROM conflict WHERE job = ?", (job,))
            database.executemany(
                "INSERT INTO conflict VALUES (?, ?, ?)",
                [(job, number, sealed) for number, sealed in enumerate(errors)],
            )
            database.execute(
                "UPDATE job SET conflicts = ?, replaced = ? WHERE id = ?",
                (conflicts, replaced, job),
            )

    def seal_again(self, job: bytes, *, everything: bool) -> None:
        """Have the outcomes determined again before the job is published.

        Args:
            everything: whether no sealed chunk can be used.
        """
        with self._database.writing() as database:
            database.execute("UPDATE job SET phase = 'seal' WHERE id = ?", (job,))
            if everything:
                database.execute("UPDATE chunk SET done = 0 WHERE job = ?", (job,))
                database.execute("DELETE FROM part WHERE job = ?", (job,))

    def errors(self, job: bytes) -> list[bytes]:
        """Errors of rows that are left out, in sealed pieces."""
        statement = "SELECT sealed FROM conflict WHERE job = ? ORDER BY number"
        return [bytes(sealed) for (sealed,) in self._database.rows(statement, job)]


#: Seconds between two states that one watcher gets.
PAUSE_SECONDS = 0.1


class Progress:
    def __init__(self) -> None:
        self._watchers: dict[bytes, set[asyncio.Event]] = {}
        #: the reasons of waiting jobs
        self._waiting: dict[bytes, str] = {}

    def note_waiting(self, job: bytes, why: str) -> None:
        """Note that the job does nothing until it continues later."""
        self._waiting[job] = why

    def why_waiting(self, job: bytes) -> str | None:
        """The reason why the job waits, if it does, since its last progress."""
        return self._waiting.get(job)

    def announce(self, job: bytes) -> None:
        """Wake the watchers of a job that made progress."""
        self._waiting.pop(job, None)
        for event in self._watchers.get(job, ()):
            event.set()

    @contextmanager
    def watching(self, job: bytes) -> Iterator[asyncio.Event]:
        """An event that is set whenever the job has changed."""
        event = asyncio.Event()
        self._watchers.setdefault(job, set()).add(event)
        try:
            yield event
        finally:
            self._watchers[job].discard(event)
            if not self._watchers[job]:
                del self._watchers[job]


@dataclass(frozen=True, slots=True)
class JobDependencies:
    api: Api
    schemas: Schemas
    keyrings: Keyrings
    store: JobStore
    secrets: JobSecrets
    spool: Spool
    progress: Progress
