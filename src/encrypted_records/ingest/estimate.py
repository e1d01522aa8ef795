"""What a schema will cost and reveal, before anyone stores a record under it.

Sizes are computed from the formats (docs/SPEC.md, sections 4 to 6) and leave out what a database
adds. The index is taken as it is once everything is merged, and where it is packed, for values that
are random and of the stated lengths: what repeats takes less. The rate is measured: made-up records
are sealed on the spot, for a moment.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from encrypted_records.crypto.format import INDEX_KEY_BYTES, INDEX_KEY_PREFIX
from encrypted_records.crypto.keys import Keyring
from encrypted_records.index import columns, directory, packing, pages
from encrypted_records.index.building import MAX_PLAIN_RECORDS
from encrypted_records.index.ledger import Ledger
from encrypted_records.index.merge import TIERS
from encrypted_records.index.packing import MAX_ENTRIES
from encrypted_records.ingest.seal import seal
from encrypted_records.model.definition import FieldSpec, FieldType, SchemaDefinition, Value
from encrypted_records.model.ids import ID_BYTES, new_id
from encrypted_records.model.records import MAX_MINI_RECORDS, PAGE_BYTES, PlainRecord
from encrypted_records.model.shapes import NUMBER_PLAIN_BYTES, TAG_BYTES, padded_length

#: Length of a string whose typical length nobody has stated, in bytes of UTF-8.
DEFAULT_STRING_BYTES = 12
#: How long the measurement goes on.
MEASURE_SECONDS = 0.25
#: Records sealed at once while measuring: what one direct ingest takes.
_GROUP = 100
#: Entries of a packed column that are made up, and what their strings are made of.
_SAMPLE = 4096
_LETTERS = b"0123456789abcdefghijklmnopqrstuvwxyz"
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
    lengths = {name: string_bytes.get(name, DEFAULT_STRING_BYTES) for name in definition.fields}
    index = _index_bytes(definition, records, lengths)
    fields = [
        FieldEstimate(name, _sealed_bytes(spec, lengths[name]), index[name], REVEALS[spec.type])
        for name, spec in definition.fields.items()
    ]
    return Estimate(
        fields=fields,
        records=records,
        row_bytes=_ROW_BYTES + sum(one.row_bytes for one in fields),
        index_bytes=sum(one.index_bytes for one in fields),
        rate=_measure(definition, string_bytes),
    )


def _sealed_bytes(spec: FieldSpec, length: int) -> int:
    plain = NUMBER_PLAIN_BYTES if spec.type != "string" else 1 + padded_length(length + 1)
    return plain + _OVERHEAD + _FRAMING


def _index_bytes(
    definition: SchemaDefinition, records: int, lengths: Mapping[str, int]
) -> dict[str, float]:
    """Bytes per record of each field's column, in the form that segments of so many have."""
    fields = definition.fields
    if records <= MAX_MINI_RECORDS:
        sizes = {name: columns.encoded_size(one.type, records) for name, one in fields.items()}
        return {name: (size + _OVERHEAD) / records for name, size in sizes.items()}
    rows = min(records, TIERS[-1].capacity)
    if records <= MAX_PLAIN_RECORDS:
        plans = {name: directory.plan(one.type, rows, MAX_ENTRIES) for name, one in fields.items()}
        count = {name: float(one.data + one.directory) for name, one in plans.items()}
    else:
        count = {name: _packed(one, rows, lengths[name]) for name, one in fields.items()}
    # Dummies bring the number of all pages up to a length class.
    total = sum(count.values())
    padding = padded_length(math.ceil(total)) / total
    return {name: padding * one * PAGE_BYTES / rows for name, one in count.items()}


def _packed(spec: FieldSpec, rows: int, length: int) -> float:
    """Pages of a packed column with random values: a stretch of it is made up, and packed."""
    chance = np.random.default_rng()
    width = columns.stored_key_type(spec.type).itemsize
    if spec.type == "string":
        share = max(1, round(math.log(rows / _SAMPLE, len(_LETTERS))))
        drawn = chance.choice(np.frombuffer(_LETTERS, np.uint8), (_SAMPLE, INDEX_KEY_BYTES))
        # Neighbours in a long sorted column begin alike; what is beyond a string's end is zero.
        drawn[:, :share] = _LETTERS[0]
        drawn[:, length if length <= INDEX_KEY_PREFIX else INDEX_KEY_BYTES :] = 0
        keys: columns.Keys = np.sort(drawn.view(f"S{INDEX_KEY_BYTES}").ravel())
    else:
        span = spec.numbers.highest - spec.numbers.lowest + 1
        keys = np.sort(chance.integers(0, max(1, span * _SAMPLE // rows), _SAMPLE, np.uint64))
    order = np.lexsort((ordinals := chance.integers(0, rows, _SAMPLE, np.uint32), keys))
    size = len(packing.Packer(ordinals[order], keys).pack(0, _SAMPLE)) / _SAMPLE
    data = math.ceil(rows * size / pages.CAPACITY)
    # Of a page, the directory tells its number, its end and two keys.
    return data + math.ceil(data * (8 + 2 * width) / pages.CAPACITY)


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
