"""Fates of a job's rows whose values others have, in the store of jobs.

Of rows it holds numbers, ids and versions, and no value; what is said of them is sealed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from encrypted_records.proxy.disk.sqlite import Database

_REOPEN = "UPDATE chunk SET done = 0 WHERE job = ? AND number = ?"
_DROP_PARTS = "DELETE FROM part WHERE job = ? AND sequence = ?"


class FateStore:
    """The fates of a job are by number of the chunk, encoded; a chunk without any has none.

    Every method raises as those of :class:`.store.JobStore`.
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
        """Keep these fates, and have the chunks sealed again of which they are others.

        Args:
            conflicts: how many rows are left out.
            replaced: how many replace a record.
            errors: what is said of the former, sealed piece by piece.
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
        """Fates are to be found again before the job is published.

        Args:
            everything: whether nothing that was sealed can be used.
        """
        with self._database.writing() as database:
            database.execute("UPDATE job SET phase = 'seal' WHERE id = ?", (job,))
            if everything:
                database.execute("UPDATE chunk SET done = 0 WHERE job = ?", (job,))
                database.execute("DELETE FROM part WHERE job = ?", (job,))

    def errors(self, job: bytes) -> list[bytes]:
        """Errors of rows that are left out, in sealed pieces."""
        with self._database.asking() as database:
            statement = "SELECT sealed FROM conflict WHERE job = ? ORDER BY number"
            return [bytes(sealed) for (sealed,) in database.execute(statement, (job,)).fetchall()]
