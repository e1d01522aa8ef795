"""Stored records that have the values of a job's rows, kept up to date with the log.

Columns are read once; after that only segments with rows that came later. Positions name stored
rows, since they outlive merges.
"""

from __future__ import annotations

import numpy as np

from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.ordinals import ordinals
from encrypted_records.index.query.bringing import open_columns
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.matches import Matches
from encrypted_records.index.segments.loaded import OpenedSegment
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.proxy.jobs.job_keys import JobKeys, Numbers, SetCodes
from encrypted_records.proxy.process.offload import aside
from encrypted_records.proxy.search.context import QueryContext


class Matching:
    """A job's rows of one schema, and who holds their values."""

    def __init__(self, keys: JobKeys, made: SchemaDefinition) -> None:
        """
        Args:
            made: the definition under which the rows were checked.
        """
        self.keys = keys
        self._made = made
        #: of each set its fields' ids
        self._of: tuple[tuple[int, ...], ...] = ()
        self.sets: list[SetCodes] = []
        #: by set and number of its values, the position of the live row that has them, or -1
        self.holders: list[Numbers] = []
        #: the rows that were ever stored when this was last brought up to date
        self._stored = 0

    async def follow(self, context: QueryContext) -> None:
        """Bring ``holders`` up to the context's snapshot.

        Raises:
            NotFound: ``segment_gone``.
            DoesNotOpen: a page was altered.
        """
        snapshot, compared = context.snapshot, context.definition
        wanted = tuple(
            tuple(compared.fields[name].id for name in names) for names in compared.unique
        )
        if wanted != self._of:
            await aside(self._begin, wanted)
        await aside(self._drop_dead, snapshot)
        names = sorted({compared.by_id[number].name for own in wanted for number in own})
        for segment in snapshot.segments:
            if snapshot.places(segment).highest < self._stored:
                continue
            opened = await context.run(open_columns(segment, names, context.space.sizes))
            await aside(self._take, opened, snapshot, compared)
        self._stored = snapshot.stored

    def _begin(self, wanted: tuple[tuple[int, ...], ...]) -> None:
        self.sets = [SetCodes.of(self.keys, fields) for fields in wanted]
        self.holders = [np.full(one.count + 1, -1, np.int64) for one in self.sets]
        self._of, self._stored = wanted, 0

    def _drop_dead(self, snapshot: Snapshot) -> None:
        for held in self.holders:
            some = np.flatnonzero(held >= 0)
            held[some[~are_live(snapshot, held[some])]] = -1

    def _take(self, segment: OpenedSegment, snapshot: Snapshot, compared: SchemaDefinition) -> None:
        every = Matches.exactly(segment.everything)
        part = Candidates.of(segment, every, snapshot)
        part = part.only(part.positions >= self._stored)
        for own, held in zip(self.sets, self.holders, strict=True):
            codes = own.of_segment(self.keys, part, self._made, compared)
            some = np.flatnonzero(codes)
            held[codes[some]] = part.positions[some]


def are_live(snapshot: Snapshot, positions: Numbers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """A mask of the rows at these positions that live."""
    live = np.ones(len(positions), np.bool_)
    starts = np.array(snapshot.starts[: len(snapshot.groups) + 1], np.int64)
    groups = np.searchsorted(starts, positions, "right") - 1
    for number in np.unique(groups).tolist():
        dead = snapshot.dead.get(snapshot.in_order[number].uid)
        if dead:
            own = np.flatnonzero(groups == number)
            live[own] = ~np.isin(positions[own] - starts[number], ordinals(dead))
    return live
