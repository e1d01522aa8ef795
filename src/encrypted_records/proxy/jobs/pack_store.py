"""Packed parts of a job, in the store of jobs: for each pack and schema the segment that covers its
groups.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from encrypted_records.model.records import Segment
from encrypted_records.proxy.disk import Database
from encrypted_records.proxy.jobs import tables
from encrypted_records.proxy.workers.messages import SealedRows

#: Parts of packed segments are numbered from here on, behind those of all chunks; those of a pack
#: are so far from those of the next.
FIRST_SEQUENCE, SEQUENCES = 1 << 30, 1 << 12

_segments = msgspec.msgpack.Decoder(list[Segment]).decode
#: An empty list of groups, or of segments.
_NONE = msgspec.msgpack.encode([])


def sequence_of(place: int) -> int:
    """The number of the first part of the pack at this place."""
    return FIRST_SEQUENCE + place * SEQUENCES


class PackStore:
    """Every method raises as those of :class:`.store.JobStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def plan(self, job: bytes, packs: int) -> None:
        """Record the number of packs of a job; none is built yet."""
        with self._database.writing() as database:
            change = "UPDATE job SET packs = ?, packed = 0 WHERE id = ?"
            database.execute(change, (packs, job))

    def read(self, job: bytes) -> tuple[list[SealedRows], dict[tuple[bytes, int], Segment]]:
        """At one moment: the groups that have no segment of their own, in the order of chunks; and
        all packed segments, by schema and the number of their first part."""
        statement = (
            "SELECT schema, sequence, groups, segments FROM part"
            " WHERE job = ? AND (sequence >= ? OR segments = ?) ORDER BY sequence, schema"
        )
        with self._database.asking() as database:
            rows = database.execute(statement, (job, FIRST_SEQUENCE, _NONE)).fetchall()
        groups: list[SealedRows] = []
        segments: dict[tuple[bytes, int], Segment] = {}
        for schema, sequence, own, packed in rows:
            if sequence >= FIRST_SEQUENCE:
                (segments[bytes(schema), sequence],) = _segments(packed)
            else:
                groups += [
                    SealedRows(bytes(schema), sequence, group) for group in tables.groups_of(own)
                ]
        return groups, segments

    def add(self, job: bytes, sequence: int, segments: Sequence[tuple[bytes, Segment]]) -> None:
        """The API holds these segments of a pack, instead of others of the same schemas."""
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
        with self._database.writing() as database:
            database.execute("UPDATE job SET packed = ? WHERE id = ?", (packed, job))

    def drop(self, job: bytes, segments: Collection[tuple[bytes, int]]) -> None:
        """Forget segments whose rows were sealed again, and are elsewhere now."""
        with self._database.writing() as database:
            database.executemany(
                "DELETE FROM part WHERE job = ? AND schema = ? AND sequence = ?",
                [(job, *segment) for segment in segments],
            )
