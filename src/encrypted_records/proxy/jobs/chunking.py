"""Runs of stored rows that one worker seals again: by the numbers of the rows, and aligned to what
the API proves together. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.log.spans import count_live
from encrypted_records.ingest.check import STANDARD, ChunkLimits
from encrypted_records.model.ciphertext_lengths import least_class
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.digests import RUN
from encrypted_records.proxy.workers.messages import ChunkAt

#: As of a job that stores an upload.
LIMITS = STANDARD


def plan_chunks(
    snapshot: Snapshot,
    definition: SchemaDefinition,
    first: int,
) -> list[ChunkAt]:
    """Chunks of all rows from number ``first`` on.

    A chunk's ``number`` is that of its first row, ``offset`` of the row behind it; ``first`` and
    ``last`` count the records that live, from 1 on.

    Args:
        definition: to seal for.
    """
    most = _most_rows(snapshot, definition, LIMITS)
    edges = [first, *_edges(snapshot, first, most)]
    chunks: list[ChunkAt] = []
    done = 0
    for begin, end in pairwise(edges):
        living = count_live(snapshot, begin, end)
        chunks.append(ChunkAt(begin, end, 0, done + 1, done + living))
        done += living
    return chunks


def _most_rows(snapshot: Snapshot, definition: SchemaDefinition, limits: ChunkLimits) -> int:
    """The largest number of rows of a chunk; none has a higher class than it had or is to have."""
    shapes = {
        (tuple(state.group.fields), tuple(state.group.classes))
        for state in snapshot.groups.values()
    }
    had: dict[int, int] = {}
    for fields, classes in shapes:
        for number, stated in zip(fields, classes, strict=True):
            had[number] = max(had.get(number, 0), stated.length)
    specs = definition.fields.values()
    padded = sum(least_class(spec, had.get(spec.id, 0)).length for spec in specs)
    by_cells, by_bytes = limits.cells // max(1, len(specs)), limits.padded // max(1, padded)
    return max(RUN, min(limits.records, by_cells, by_bytes))


def _edges(snapshot: Snapshot, first: int, most: int) -> Iterator[int]:
    """Ends of chunks: no run of a group is cut, so that it is proven as a whole."""
    begin = first
    while begin < snapshot.stored:
        end = min(begin + most, snapshot.stored)
        if end < snapshot.stored:
            ordinal = snapshot.ref(end).ordinal
            end = max(end - ordinal % RUN, begin + 1) if end - ordinal % RUN > begin else end
        yield end
        begin = end
