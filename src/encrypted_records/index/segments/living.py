"""Where the rows of segments come to lie when one is made of them, and which of them live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.errors import DoesNotOpen
from encrypted_records.index import ordinals as bitmaps
from encrypted_records.index.columns import words
from encrypted_records.index.columns.column import Column, EntryBlock
from encrypted_records.index.log.layout import Laid
from encrypted_records.index.segments.builder import Shell
from encrypted_records.index.segments.paged import MergeInput
from encrypted_records.model.field_types.base import KeyKind


@dataclass(frozen=True, slots=True)
class LivingRows:
    """An input, where its local ordinals begin in the new segment, and which of them live."""

    segment: MergeInput
    base: int
    living: NDArray[np.bool_]

    def require_all(self, listed: NDArray[np.bool_]) -> None:
        """
        Args:
            listed: of each row whether a column lists it.

        Raises:
            DoesNotOpen: one that lives is not listed.
        """
        if np.any(self.living & ~listed):
            raise DoesNotOpen("a column lacks rows that are alive")

    def of(self, block: EntryBlock) -> EntryBlock | None:
        """The block without dead rows, its ordinals as they are in the new segment; None where
        nothing is left."""
        living = block.select(self.living[block.ordinals])
        return living and replace(living, ordinals=living.ordinals + np.uint32(self.base))


def lay_out(
    inputs: Sequence[MergeInput], groups: Sequence[Laid], dead: Sequence[BitMap]
) -> tuple[list[LivingRows], Shell]:
    """The inputs side by side, and all of the new segment but its columns.

    Args:
        groups: those that each input has by now.
        dead: local ordinals of each input's rows that are left out.
    """
    covered = [source.segment.count + source.segment.purged for source in inputs]
    # One byte a row, for all of them together.
    living = np.ones(sum(covered), np.bool_)
    parts: list[LivingRows] = []
    every: list[tuple[bytes, int]] = []
    base = 0
    for segment, own, gone, count in zip(inputs, groups, dead, covered, strict=True):
        here = living[base : base + count]
        here[bitmaps.ordinals(gone)] = False
        parts.append(LivingRows(segment, base, here))
        every += [(uid, base + at) for uid, at in own]
        base += count
    uids = [segment.segment.uid for segment in inputs]
    return parts, Shell(every, living, purged=sum(map(len, dead)), inputs=uids)


def renumber(part: LivingRows, column: Column, kind: KeyKind) -> Column:
    """A whole column without dead rows, its ordinals as they are in the new segment.

    Raises:
        DoesNotOpen: it lacks rows that are alive.
    """
    alive = part.living[column.ordinals]
    listed = part.living[words.rows_of(column)] if kind is KeyKind.WORDS else alive
    if np.count_nonzero(listed) != np.count_nonzero(part.living):
        raise DoesNotOpen("a column lacks rows that are alive")
    moved = column.ordinals + np.uint32(part.base)
    if alive.all():
        return Column(moved, column.keys)
    return Column(moved[alive], column.keys[alive[column.absent :]])
