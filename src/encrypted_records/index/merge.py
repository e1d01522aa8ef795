"""Several segments -> one, without their dead rows (docs/SPEC.md, section 6.4).

A merge rewrites the index only. Rows stay where they are; each group keeps its order, and its
rows keep their ordinals, so that a local ordinal is always base + ordinal.

Columns are taken one after another, so that a caller need not hold all pages of all inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index import bitmaps, columns
from encrypted_records.index.building import STANDARD, Builder, Limits, Shell
from encrypted_records.index.columns import Column
from encrypted_records.index.paged import Opened
from encrypted_records.index.segments import Built
from encrypted_records.index.view import View
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.records import MAX_MINI_RECORDS, Page, Segment


@dataclass(frozen=True, slots=True)
class Tier:
    """Segments of up to half of ``capacity`` rows, and more than half of the tier below.

    ``few`` of them may be live; one more, and the oldest that fit into one are merged.
    """

    capacity: int
    few: int


#: The first is for the small segments that direct ingests leave, and is merged at once.
TIERS = (Tier(MAX_MINI_RECORDS, 64), Tier(1 << 16, 15), Tier(1 << 20, 15))

#: The part of a segment's rows that may be dead before it is merged by itself, and for how long
#: a single one may be, in milliseconds.
MOST_DEAD = 0.05
LONGEST_DEAD = 30 * 24 * 3600 * 1000


def worth_merging(view: View, tiers: Sequence[Tier] = TIERS, *, now: int) -> tuple[Segment, ...]:
    """The segments to merge next; none where all is well.

    A segment that fills more than half of its tier counts as one of the next, so that no row is
    rewritten more often than it takes to fill half a segment. Of the last tier such segments are
    left alone. Dead rows go when there are many in one segment, or some that died long ago: what
    was deleted is to be gone.

    Args:
        now: milliseconds since 1970.
    """
    below = -1
    for tier in tiers:
        own = [one for one in view.segments if below < one.count <= tier.capacity // 2]
        below = tier.capacity // 2
        if len(own) <= tier.few:
            continue
        chosen = _oldest(own, tier.capacity)
        if len(chosen) > 1:
            return chosen
    decayed = [one for one in view.segments if _is_decayed(view, one, now)]
    return _oldest(decayed, tiers[-1].capacity)


def _oldest(segments: Sequence[Segment], capacity: int) -> tuple[Segment, ...]:
    """As many of the first as have at most ``capacity`` rows together."""
    chosen: list[Segment] = []
    for segment in segments:
        if chosen and segment.count > capacity:
            break
        chosen.append(segment)
        capacity -= segment.count
    return tuple(chosen)


def _is_decayed(view: View, segment: Segment, now: int) -> bool:
    dead = len(view.dead_rows(segment)) - segment.purged
    if dead > MOST_DEAD * segment.count:
        return True
    since = view.dying_since(segment)
    return since is not None and now - since > LONGEST_DEAD


@dataclass(frozen=True, slots=True)
class _Part:
    """An input, where its local ordinals begin in the new segment, and which of them live."""

    segment: Opened
    base: int
    living: NDArray[np.bool_]


class Merge:
    """One merge: :meth:`take` each of :attr:`fields`, then :meth:`finish`."""

    def __init__(
        self,
        key: SchemaKey,
        definition: SchemaDefinition,
        inputs: Sequence[Opened],
        dead: Sequence[BitMap],
        limits: Limits = STANDARD,
    ) -> None:
        """
        Args:
            dead: local ordinals of each input's rows that are left out.
        """
        self._definition = definition
        self._parts: list[_Part] = []
        groups: list[tuple[bytes, int]] = []
        base = purged = 0
        for segment, gone in zip(inputs, dead, strict=True):
            covered = segment.segment.count + segment.segment.purged
            self._parts.append(_Part(segment, base, _living(covered, gone)))
            groups += [(uid, base + at) for uid, at in segment.segment.groups]
            purged += len(gone)
            base += covered
        rows = [np.flatnonzero(part.living) + part.base for part in self._parts]
        shell = Shell(
            groups=groups,
            rows=np.concatenate(rows).astype(np.uint32),
            purged=purged,
            inputs=[segment.segment.uid for segment in inputs],
        )
        self._builder = Builder(key, definition, shell, limits)

    @property
    def fields(self) -> list[str]:
        """The columns of the new segment."""
        return list(self._definition.fields)

    def take(self, name: str) -> None:
        """Merge a field's column, all pages of which the inputs must have by now.

        Raises:
            DoesNotOpen: a column of an input does not open, or lacks a living row.
        """
        parts = [_moved(part, part.segment.column(name)) for part in self._parts]
        self._builder.add(name, columns.joined(parts, self._definition.fields[name].type))

    def finish(self) -> Built:
        return self._builder.finish()

    def sealed(self) -> tuple[Segment, Iterator[Page]]:
        """As :meth:`finish`; each page is sealed when it is taken, and held by its taker alone."""
        return self._builder.sealed()


def merge(
    key: SchemaKey,
    definition: SchemaDefinition,
    inputs: Sequence[Opened],
    view: View,
    limits: Limits = STANDARD,
) -> Built:
    """One segment for the live rows of ``inputs``, all of which are here as a whole.

    Args:
        key: seals the mini; the inputs may be of older versions.

    Raises:
        DoesNotOpen: a column of an input does not open.
    """
    dead = [view.dead_rows(one.segment) for one in inputs]
    merging = Merge(key, definition, inputs, dead, limits)
    for name in merging.fields:
        merging.take(name)
    return merging.finish()


def _living(covered: int, dead: BitMap) -> NDArray[np.bool_]:
    living = np.ones(covered, np.bool_)
    living[bitmaps.ordinals(dead)] = False
    return living


def _moved(part: _Part, column: Column) -> Column:
    """The column without dead rows, its ordinals as they are in the new segment."""
    alive = part.living[column.ordinals]
    if np.count_nonzero(alive) != np.count_nonzero(part.living):
        raise DoesNotOpen("a column lacks rows that are alive")
    moved = column.ordinals + np.uint32(part.base)
    if alive.all():
        return Column(moved, column.keys)
    return Column(moved[alive], column.keys[alive[column.absent :]])
