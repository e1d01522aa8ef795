"""What a schema will cost and reveal, before anyone stores a record under it.

Sizes are computed from the formats (docs/SPEC.md, sections 4 to 6) and leave out what a database
adds. The rate is measured: made-up records are sealed on the spot, for a moment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from encrypted_records.crypto.keys import Keyring
from encrypted_records.index import columns
from encrypted_records.index.ledger import Ledger
from encrypted_records.ingest.seal import seal
from encrypted_records.model.definition import FieldSpec, FieldType, SchemaDefinition, Value
from encrypted_records.model.ids import ID_BYTES, new_id
from encrypted_records.model.records import MAX_MINI_RECORDS, PlainRecord
from encrypted_records.model.shapes import NUMBER_PLAIN_BYTES, TAG_BYTES, padded_length

#: Length of a string whose typical length nobody has stated, in bytes of UTF-8.
DEFAULT_STRING_BYTES = 12
#: How long the measurement goes on.
MEASURE_SECONDS = 0.25
#: Records sealed at once while measuring: what one direct ingest takes.
_GROUP = 100
#: Version byte and tag of anything sealed.
_OVERHEAD = 1 + TAG_BYTES
#: A row's record id, version, and the framing of its list of fields, at most.
_ROW_BYTES = ID_BYTES + 4 + 5
#: MessagePack's framing of one ciphertext of ordinary length.
_FRAMING = 2

_ALIKE = {
    "api_never": "values, their order, which values are equal, which fields are absent, what is"
    " searched for, how many records match.",
    "definition": "Definitions are plaintext: field names, types, bounds, patterns and allowed"
    " values.",
    "data_folder": "Everything, where the machine key there opens the keyrings.",
}
_NUMBERS = {"api": "Numbers have one length.", **_ALIKE}
_STRINGS = {
    "api": "a length class for every string value: up to 15, 31, 47, 63 bytes of UTF-8, then steps"
    " of at most 12 %.",
    **_ALIKE,
}
#: Who learns what of a field of a type, in the words of docs/LEAKAGE.md.
REVEALS: Mapping[FieldType, Mapping[str, str]] = {
    "string": _STRINGS,
    "integer": _NUMBERS,
    "number": _NUMBERS,
}


@dataclass(frozen=True, slots=True)
class FieldEstimate:
    """Bytes per record of one field: in the sealed row, and in the index."""

    name: str
    row_bytes: int
    index_bytes: float
    reveals: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Estimate:
    """``rate`` is records sealed and indexed per second by one core of this machine, just now."""

    fields: list[FieldEstimate]
    records: int
    row_bytes: int
    index_bytes: float
    rate: float

    @property
    def total_bytes(self) -> int:
        return round(self.records * (self.row_bytes + self.index_bytes))

    @property
    def seconds(self) -> float:
        return self.records / self.rate


def estimate(
    definition: SchemaDefinition, records: int, string_bytes: Mapping[str, int]
) -> Estimate:
    """What ``records`` records of ``definition`` need.

    Args:
        string_bytes: typical length of string fields, by name, in bytes of UTF-8.
    """
    fields = [
        _field(spec, records, string_bytes.get(name, DEFAULT_STRING_BYTES))
        for name, spec in definition.fields.items()
    ]
    return Estimate(
        fields=fields,
        records=records,
        row_bytes=_ROW_BYTES + sum(one.row_bytes for one in fields),
        index_bytes=sum(one.index_bytes for one in fields),
        rate=_measure(definition, string_bytes),
    )


def _field(spec: FieldSpec, records: int, length: int) -> FieldEstimate:
    plain = NUMBER_PLAIN_BYTES if spec.type != "string" else 1 + padded_length(length + 1)
    rows = min(records, MAX_MINI_RECORDS)
    column = columns.encoded_size(spec.type, rows) + _OVERHEAD
    return FieldEstimate(spec.name, plain + _OVERHEAD + _FRAMING, column / rows, REVEALS[spec.type])


def _measure(definition: SchemaDefinition, string_bytes: Mapping[str, int]) -> float:
    """Records per second that sealing and indexing made-up records gives here and now."""
    key = Keyring.generate().schema(new_id(), new_id())
    ledger = Ledger(key, os.urandom(16))
    sealed = 0
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < MEASURE_SECONDS or not sealed:
        made_up = [
            PlainRecord(
                new_id(),
                1,
                {
                    name: _made_up(spec, string_bytes.get(name, DEFAULT_STRING_BYTES), row)
                    for name, spec in definition.fields.items()
                },
            )
            for row in range(_GROUP)
        ]
        seal(ledger, definition, made_up)
        sealed += _GROUP
    return sealed / spent


def _made_up(spec: FieldSpec, length: int, row: int) -> Value:
    if spec.type == "string":
        return f"{row:02d}".ljust(length, "x")[:length]
    rules = spec.numbers
    point = rules.lowest + (row * (rules.highest - rules.lowest)) // _GROUP
    return point if spec.type == "integer" else rules.from_grid(point)
