"""Targets of jobs that seal again, and the chunks that they find on their way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from encrypted_records.proxy.disk import Database
from encrypted_records.proxy.workers.messages import ChunkAt


@dataclass(frozen=True, slots=True)
class SealTarget:
    """``definition`` is the canonical text to seal for, empty for the present one; ``planned`` the
    digest of the one that it follows; ``seen`` the version of the log at which the job began."""

    definition: bytes
    planned: bytes
    seen: int = 0
    #: ids of its fields, each with the one that it has in the definition before
    origins: tuple[tuple[int, int], ...] = ()


_origins = msgspec.msgpack.Decoder(tuple[tuple[int, int], ...])


class Targets:
    """Raises as :class:`JobStore` does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, job: bytes, target: SealTarget) -> None:
        with self._database.writing() as database:
            database.execute(
                "INSERT INTO target (job, definition, planned, seen, origins)"
                " VALUES (?, ?, ?, ?, ?)",
                (
                    *(job, target.definition, target.planned, target.seen),
                    msgspec.msgpack.encode(target.origins),
                ),
            )

    def get(self, job: bytes) -> SealTarget:
        with self._database.asking() as database:
            statement = "SELECT definition, planned, seen, origins FROM target WHERE job = ?"
            definition, planned, seen, origins = database.execute(statement, (job,)).fetchone()
        return SealTarget(bytes(definition), bytes(planned), seen, _origins.decode(origins))

    def note_seen(self, job: bytes, version: int) -> None:
        """The job begins, or begins again, at this version of the log."""
        with self._database.writing() as database:
            database.execute("UPDATE target SET seen = ? WHERE job = ?", (version, job))

    def under_way(self, schema: bytes) -> bool:
        """Whether a job of any user seals this schema again."""
        statement = (
            "SELECT 1 FROM job WHERE named = ? AND work = 'reseal'"
            " AND state IN ('uploading', 'processing')"
        )
        with self._database.asking() as database:
            return database.execute(statement, (schema,)).fetchone() is not None

    def end_of_chunks(self, job: bytes) -> int:
        """The number of the row up to which there are chunks."""
        statement = 'SELECT max("offset") FROM chunk WHERE job = ?'
        with self._database.asking() as database:
            (end,) = database.execute(statement, (job,)).fetchone()
        return end or 0

    def add_chunks(self, job: bytes, chunks: Iterable[ChunkAt]) -> None:
        """Add chunks behind those that there are; the job has their records to do as well."""
        with self._database.writing() as database:
            for chunk in chunks:
                database.execute(
                    'INSERT INTO chunk (job, number, "offset", "row", first, last)'
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    (job, chunk.number, chunk.offset, chunk.row, chunk.first, chunk.last),
                )
                database.execute(
                    "UPDATE job SET total = total + ? WHERE id = ?",
                    (chunk.last - chunk.first + 1, job),
                )

    def split(self, job: bytes, first: ChunkAt, rest: ChunkAt) -> None:
        """Cut a chunk in two; ``first`` keeps its number."""
        with self._database.writing() as database:
            database.execute(
                'UPDATE chunk SET "offset" = ?, last = ? WHERE job = ? AND number = ?',
                (first.offset, first.last, job, first.number),
            )
            database.execute(
                'INSERT INTO chunk (job, number, "offset", "row", first, last)'
                " VALUES (?, ?, ?, ?, ?, ?)",
                (job, rest.number, rest.offset, rest.row, rest.first, rest.last),
            )
