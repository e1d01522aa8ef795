"""Seal accepted records: a group, the segment that indexes it, and the commit of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from encrypted_records.crypto import sealing
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns import words
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.segments.builder import STANDARD, Builder, SegmentLimits, Shell
from encrypted_records.index.segments.mini import Built
from encrypted_records.model.definition import SchemaDefinition, Value, words_spec
from encrypted_records.model.records import (
    MAX_GROUP_RECORDS,
    CommitUpload,
    Group,
    GroupSalt,
    PackedRowBatch,
    PlainRecord,
    RowRef,
)


@dataclass(frozen=True, slots=True)
class SealedGroup:
    """Sealed and indexed records, before a commit adds them."""

    group: Group
    batch: PackedRowBatch
    salt: GroupSalt
    built: Built


@dataclass(frozen=True, slots=True)
class SealedCommit:
    """A commit that adds records, and its built segment."""

    upload: CommitUpload
    built: Built


def seal_group(
    key: SchemaKey,
    tails: SchemaKey,
    definition: SchemaDefinition,
    records: Sequence[PlainRecord],
    limits: SegmentLimits = STANDARD,
    before: Group | None = None,
) -> SealedGroup:
    """Seal ``records`` (1 to 2**20) as a group with its segment; see :func:`seal_columns`."""
    identities = [(record.record_id, record.version) for record in records]
    every = [record.data for record in records]
    values = {name: [data.get(name) for data in every] for name in definition.fields}
    return seal_columns(key, tails, definition, identities, values, limits, before=before)


def seal_columns(
    key: SchemaKey,
    tails: SchemaKey,
    definition: SchemaDefinition,
    identities: Sequence[tuple[bytes, int]],
    values: Mapping[str, Sequence[Value]],
    limits: SegmentLimits = STANDARD,
    *,
    origin: bytes = b"",
    before: Group | None = None,
    holes: Sequence[tuple[int, int]] = (),
) -> SealedGroup:
    """Seal records (1 to 2**20) as a group with its segment.

    Args:
        key: the newest of the schema's keys.
        tails: the key whose tails are in the index, :attr:`Ledger.tails`.
        identities: id and version of each record.
        values: each record's value of every field of the definition; None if absent.
        origin: identifies these records, also when they are sealed again.
        before, holes: as :func:`sealing.seal_group`; there may be holes alone.
    """
    group, batch, salt = sealing.seal_group(key, definition, identities, values, before, holes)
    assert 0 < group.count <= MAX_GROUP_RECORDS
    lives = np.ones(group.count, np.bool_)
    for first, length in holes:
        lives[first : first + length] = False
    living = np.flatnonzero(lives).astype(np.uint32)
    shell = Shell(
        groups=[(group.uid, 0)],
        rows=living,
        purged=group.count - len(living),
        origin=origin or group.uid,
    )
    builder = Builder(key, definition, shell, limits)
    for name, column in build_columns(tails, definition, group, values):
        builder.add(name, columns.Column(living[column.ordinals], column.keys) if holes else column)
    return SealedGroup(group, batch, salt, builder.finish())


def build_columns(
    tails: SchemaKey,
    definition: SchemaDefinition,
    group: Group,
    values: Mapping[str, Sequence[Value]],
) -> Iterator[tuple[str, columns.Column]]:
    """Each column of the definition by name, over the rows of ``values`` from 0 on.

    Args:
        tails: as of :func:`seal_columns`.
        group: the group of the rows.
    """
    for spec, stated in zip(definition.fields.values(), group.classes, strict=True):
        yield spec.name, columns.build(spec, tails.field(spec), values[spec.name])
        if spec.words:
            words_field = words_spec(spec)
            yield words_field.name, words.build(tails.field(words_field), values[spec.name], stated)


def seal(
    ledger: Ledger,
    definition: SchemaDefinition,
    records: Sequence[PlainRecord],
    *,
    killed: Sequence[RowRef] = (),
    limits: SegmentLimits = STANDARD,
    requests: Sequence[bytes] = (),
    before: Group | None = None,
) -> SealedCommit:
    """Make a commit that adds ``records`` (1 to 2**20) as a group with its segment.

    Args:
        killed: rows that it ends, of which ``records`` are new versions.
        requests: as :meth:`Ledger.draft`.
        before: as :func:`sealing.seal_group`.
    """
    sealed = seal_group(ledger.key, ledger.tails, definition, records, limits, before)
    upload = ledger.draft(
        definition,
        groups=[sealed.group],
        segments=[sealed.built.segment],
        killed=killed,
        rows=[sealed.batch],
        pages=sealed.built.pages,
        salts=[sealed.salt],
        headers=[sealed.built.header],
        requests=requests,
        # A commit to unique fields is exact, because its maker has checked all earlier records.
        exact=bool(definition.unique),
    )
    return SealedCommit(upload, sealed.built)
