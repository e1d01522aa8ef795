"""Several segments -> one, without their dead rows (docs/SPEC.md, section 6).

A merge rewrites the index only. Rows stay where they are; each group keeps its order, and its
rows keep their ordinals, so that a local ordinal is always base + ordinal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyroaring import BitMap

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index import columns
from encrypted_records.index.columns import Column, Ordinals
from encrypted_records.index.ledger import View
from encrypted_records.index.segments import Built, OpenSegment, build_mini
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.records import MAX_MINI_RECORDS, Segment


def worth_merging(view: View, least: int) -> tuple[Segment, ...]:
    """The oldest small minis that fit into one, once there are ``least`` small ones or more.

    A mini that is more than half full counts as large and is left alone, so that no row is
    rewritten more often than it takes to fill half a mini.
    """
    small = [
        segment
        for segment in view.segments
        if segment.form == "mini" and segment.count <= MAX_MINI_RECORDS // 2
    ]
    if len(small) < least:
        return ()
    chosen: list[Segment] = []
    room = MAX_MINI_RECORDS
    for segment in small:
        if segment.count > room:
            break
        chosen.append(segment)
        room -= segment.count
    return tuple(chosen)


def merge_minis(
    key: SchemaKey, definition: SchemaDefinition, inputs: Sequence[OpenSegment], view: View
) -> Built:
    """One mini for the live rows of ``inputs``, which hold at most 4,096 together.

    Args:
        key: seals the mini; the inputs may be of older versions.

    Raises:
        DoesNotOpen: a column of an input does not open.
    """
    groups: list[tuple[bytes, int]] = []
    moves: list[tuple[OpenSegment, Ordinals, BitMap]] = []
    base = purged = 0
    for segment in inputs:
        covered = segment.segment.count + segment.segment.purged
        dead = view.dead_rows(segment.segment)
        moves.append((segment, np.uint32(base) + segment.rows, dead))
        groups += [(uid, base + at) for uid, at in segment.segment.groups]
        purged += len(dead)
        base += covered
    kept = [rows[~np.isin(part.rows, np.array(dead, np.uint32))] for part, rows, dead in moves]
    found: dict[str, Column] = {}
    for name, spec in definition.fields.items():
        parts = [_living(part.column(name), rows, part.rows, dead) for part, rows, dead in moves]
        found[name] = columns.joined(parts, spec.type)
    return build_mini(
        key,
        definition,
        groups=groups,
        found=found,
        rows=np.concatenate(kept),
        purged=purged,
        inputs=[segment.segment.uid for segment in inputs],
    )


def _living(
    column: Column, moved: Ordinals, rows: Ordinals, dead: BitMap
) -> tuple[Column, Ordinals]:
    """The column without dead rows, and where each old local ordinal goes."""
    target = np.zeros(int(rows[-1]) + 1 if len(rows) else 0, np.uint32)
    target[rows] = moved
    if not dead:
        return column, target
    alive = ~np.isin(column.ordinals, np.array(dead, np.uint32))
    return Column(column.ordinals[alive], column.keys[alive[column.absent :]]), target
