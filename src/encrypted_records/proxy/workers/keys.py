"""A worker's part of looking for equal values: the index keys of rows that are not stored yet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.columns.column import keys_of
from encrypted_records.ingest.tables import Columns
from encrypted_records.proxy.workers import messages


def keys_by_row(
    schema: messages.SchemaKeyBytes, fields: Sequence[int], records: Columns
) -> messages.SchemaRows:
    """The keys of the fields of these ids, under the records' own definition.

    Equal values have equal keys, and so do stored ones, whose keys the index has.
    """
    tails = SchemaKey(
        schema.tails,
        version=schema.tails_version,
        organization=schema.organization,
        schema=schema.schema,
    )
    found: list[messages.FieldKeys] = []
    for number in fields:
        spec = records.definition.by_id[number]
        column = records.values[spec.name]
        present = np.array([value is not None for value in column], np.bool_)
        keys = keys_of(spec, tails.field(spec), [one for one in column if one is not None])
        found.append(messages.FieldKeys(number, present.tobytes(), keys.dtype.str, keys.tobytes()))
    rows = np.array(records.rows, np.uint32)
    return messages.SchemaRows(schema.schema, rows.tobytes(), found)
