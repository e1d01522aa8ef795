"""Accepted records -> a sealed group, the segment that indexes it, and the commit of both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from encrypted_records.index import columns, rows
from encrypted_records.index.building import STANDARD, Builder, Limits, Shell
from encrypted_records.index.ledger import Ledger
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.records import MAX_GROUP_RECORDS, CommitUpload, PlainRecord


def seal(
    ledger: Ledger,
    definition: SchemaDefinition,
    records: Sequence[PlainRecord],
    limits: Limits = STANDARD,
) -> CommitUpload:
    """A commit that adds ``records`` (1 to 2**20) as one group with its segment."""
    assert 0 < len(records) <= MAX_GROUP_RECORDS
    key = ledger.key
    group, batch = rows.seal_group(key, definition, records)
    shell = Shell(groups=[(group.uid, 0)], rows=np.arange(len(records), dtype=np.uint32))
    builder = Builder(key, definition, shell, limits)
    for name, spec in definition.fields.items():
        values = [record.data.get(name) for record in records]
        builder.add(name, columns.build(spec, ledger.tails.field(spec), values))
    built = builder.finish()
    return ledger.draft(
        definition.digest,
        groups=[group],
        segments=[built.segment],
        rows=[batch],
        pages=built.pages,
    )
