"""Accepted records -> a sealed group, the segment that indexes it, and the commit of both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from encrypted_records.index import columns, rows
from encrypted_records.index.ledger import Ledger
from encrypted_records.index.segments import build_mini
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.records import MAX_MINI_RECORDS, CommitUpload, PlainRecord


def seal(
    ledger: Ledger, definition: SchemaDefinition, records: Sequence[PlainRecord]
) -> CommitUpload:
    """A commit that adds ``records`` (1 to 4,096) as one group with its segment."""
    assert 0 < len(records) <= MAX_MINI_RECORDS
    key = ledger.key
    group, batch = rows.seal_group(key, definition, records)
    found = {
        name: columns.build(
            spec, ledger.tails.field(spec), [record.data.get(name) for record in records]
        )
        for name, spec in definition.fields.items()
    }
    built = build_mini(
        key,
        definition,
        groups=[(group.uid, 0)],
        found=found,
        rows=np.arange(len(records), dtype=np.uint32),
    )
    return ledger.draft(
        definition.digest,
        groups=[group],
        segments=[built.segment],
        rows=[batch],
        pages=built.pages,
    )
