"""Estimates from a sample for a definition: what the lengths of its fields would leak, and what
padding costs.

Every second row represents the stored records, the others the knowledge of an attacker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from encrypted_records.errors import Flaw, InvalidRecords
from encrypted_records.ingest.lengths import LengthLeak, attack, lengths_of
from encrypted_records.ingest.parse_csv import read_numbers
from encrypted_records.ingest.sample_rows import MAX_SAMPLED, read_rows
from encrypted_records.ingest.validate import validate
from encrypted_records.model.ciphertext_lengths import (
    least_class,
    padded_length,
)
from encrypted_records.model.definition import MAX_PAD_TO, FieldSpec, SchemaDefinition, Value
from encrypted_records.model.record_formats import Format

#: Rows that fit, at least: one of each half.
_LEAST = 2


@dataclass(frozen=True, slots=True)
class FieldSample:
    """Figures for one field, in bytes per record: the average text; its length class; the padding
    beyond the class of each text alone; and, if lengths leak information, the ``padTo`` that would
    hide the whole sample, with its extra cost.
    """

    told: LengthLeak
    text: float
    sealed: float
    padding: float
    pad_to: int | None
    hiding: float


@dataclass(frozen=True, slots=True)
class Sample:
    """``rows`` fit the definition, ``refused`` do not and were left out."""

    fields: Mapping[str, FieldSample]
    rows: int
    refused: int


def look_at(definition: SchemaDefinition, sample: bytes, kind: Format) -> Sample:
    """Analyse the first rows of a sample.

    Raises:
        Malformed, InvalidRecords: as for :func:`read_rows`; or fewer than two rows fit, with the
            errors of the first row that does not.
    """
    columns: dict[str, list[Value]] = {name: [] for name in definition.fields}
    fitting = refused = 0
    first: Sequence[Flaw] = ()
    for number, row in enumerate(islice(read_rows(sample, kind), MAX_SAMPLED), 1):
        present = {name: value for name, value in row.items() if value is not None}
        raw = read_numbers(definition, present) if kind is Format.CSV else present
        data, flaws = validate(definition, raw, row=number, pointer="")
        if flaws:
            refused += 1
            first = first or flaws
            continue
        fitting += 1
        for name, values in columns.items():
            values.append(data.get(name))
    if fitting < _LEAST:
        raise InvalidRecords(
            "fewer than two rows of the sample fit the definition", flaws=tuple(first)
        )
    known, stored = ({name: texts[at::2] for name, texts in columns.items()} for at in (0, 1))
    fields = definition.fields
    found = attack(lengths_of(fields, stored), stored, known, lengths_of(fields, known))
    sampled = {
        field.name: _measure(fields[field.name], columns[field.name], field) for field in found
    }
    return Sample(sampled, fitting, refused)


def _measure(spec: FieldSpec, values: Sequence[Value], told: LengthLeak) -> FieldSample:
    sealed = lengths_of({spec.name: spec}, {spec.name: values})[:, 0]
    if spec.field_type.fixed_bytes is not None:
        return FieldSample(told, 0.0, float(sealed.mean()), 0.0, None, 0.0)
    sizes = [len(value.encode()) if isinstance(value, str) else 0 for value in values]
    alone = np.array([padded_length(size + 1) for size in sizes])
    widest = int(sealed.max())
    pad_to = widest - 1 if widest > least_class(spec).length else None
    if pad_to is not None and pad_to > MAX_PAD_TO:
        pad_to = None
    return FieldSample(
        told=told,
        text=float(np.mean(sizes)),
        sealed=float(sealed.mean()),
        padding=float((sealed - alone).mean()),
        pad_to=pad_to,
        hiding=0.0 if pad_to is None else float(widest - sealed.mean()),
    )
