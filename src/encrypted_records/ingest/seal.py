"""Accepted records -> a sealed group, the segment that indexes it, and the commit of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index import columns, rows
from encrypted_records.index.building import STANDARD, Builder, Limits, Shell
from encrypted_records.index.ledger import Ledger
from encrypted_records.index.segments import Built
from encrypted_records.model.definition import SchemaDefinition, Value
from encrypted_records.model.records import (
    MAX_GROUP_RECORDS,
    CommitUpload,
    Group,
    PlainRecord,
    RowBatch,
    RowRef,
)


@dataclass(frozen=True, slots=True)
class SealedGroup:
    """Records, sealed and indexed, before there is a commit that adds them."""

    group: Group
    batch: RowBatch
    built: Built


def seal_group(
    key: SchemaKey,
    tails: SchemaKey,
    definition: SchemaDefinition,
    records: Sequence[PlainRecord],
    limits: Limits = STANDARD,
) -> SealedGroup:
    """``records`` (1 to 2**20) as one group with its segment; see :func:`seal_columns`."""
    identities = [(record.record_id, record.version) for record in records]
    every = [record.data for record in records]
    values = {name: [data.get(name) for data in every] for name in definition.fields}
    return seal_columns(key, tails, definition, identities, values, limits)


def seal_columns(
    key: SchemaKey,
    tails: SchemaKey,
    definition: SchemaDefinition,
    identities: Sequence[tuple[bytes, int]],
    values: Mapping[str, Sequence[Value]],
    limits: Limits = STANDARD,
) -> SealedGroup:
    """Records (1 to 2**20) as one group with its segment.

    Args:
        key: the newest of the schema's keys.
        tails: the one whose tails are in the index, as :attr:`Ledger.tails` says.
        identities: id and version of each record.
        values: of every field of the definition, as each record has it; None where absent.
    """
    count = len(identities)
    assert 0 < count <= MAX_GROUP_RECORDS
    group, batch = rows.seal_group(key, definition, identities, values)
    shell = Shell(groups=[(group.uid, 0)], rows=np.arange(count, dtype=np.uint32))
    builder = Builder(key, definition, shell, limits)
    for name, spec in definition.fields.items():
        builder.add(name, columns.build(spec, tails.field(spec), values[name]))
    return SealedGroup(group, batch, builder.finish())


def seal(
    ledger: Ledger,
    definition: SchemaDefinition,
    records: Sequence[PlainRecord],
    *,
    killed: Sequence[RowRef] = (),
    limits: Limits = STANDARD,
    commit_id: bytes | None = None,
) -> CommitUpload:
    """A commit that adds ``records`` (1 to 2**20) as one group with its segment.

    Args:
        killed: rows that it ends: those of which ``records`` are new versions.
        commit_id: as :meth:`Ledger.draft`.
    """
    sealed = seal_group(ledger.key, ledger.tails, definition, records, limits)
    return ledger.draft(
        definition.digest,
        groups=[sealed.group],
        segments=[sealed.built.segment],
        killed=killed,
        rows=[sealed.batch],
        pages=sealed.built.pages,
        commit_id=commit_id,
    )
