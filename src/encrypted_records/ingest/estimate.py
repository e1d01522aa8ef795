"""Estimates what a schema will cost and reveal, before a record is stored under it.

Sizes are computed from the formats (docs/SPEC.md, sections 4 to 6) and leave out what a database
adds. The index is estimated as it is after all merges, and for packed parts with random values of
the stated lengths; repeated values take less. The rate is measured: artificial records are sealed
for a moment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from encrypted_records import runtime
from encrypted_records.crypto.format import INDEX_KEY_BYTES, INDEX_KEY_PREFIX
from encrypted_records.crypto.keys import Keyring
from encrypted_records.errors import TooLarge
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns import directory, packing, pages, words
from encrypted_records.index.columns.packing import MAX_ENTRIES
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.segments.builder import MAX_PLAIN_RECORDS
from encrypted_records.index.segments.merge_policy import TIERS
from encrypted_records.ingest.blocks import MAX_RECORD_BYTES
from encrypted_records.ingest.sampling import FieldSample, Sample
from encrypted_records.ingest.seal import seal
from encrypted_records.model.ciphertext_lengths import (
    BESIDE_CLASS,
    TAG_BYTES,
    least_class,
    padded_length,
    sealed_class,
)
from encrypted_records.model.definition import FieldSpec, SchemaDefinition, Value
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.ids import ID_BYTES, new_id
from encrypted_records.model.records import (
    MAX_MINI_RECORDS,
    MAX_MINI_WORDS,
    PAGE_BYTES,
    PlainRecord,
)

#: Length of a string without a stated typical length, in bytes of UTF-8.
DEFAULT_STRING_BYTES = 12
#: How long the measurement takes.
MEASURE_SECONDS = 0.25
#: Records sealed at once while measuring: what one direct ingest takes, and of long ones so many
#: bytes.
_GROUP = 100
_GROUP_BYTES = 4 << 20
#: Entries of a packed column that are made up, and what their strings are made of.
_SAMPLE = 4096
_LETTERS = b"0123456789abcdefghijklmnopqrstuvwxyz"
#: Version byte and tag of anything sealed.
_OVERHEAD = 1 + TAG_BYTES
#: A row's record id, version, and the framing of its list of fields, at most.
_ROW_BYTES = ID_BYTES + 4 + 5
#: MessagePack's framing of one ciphertext of ordinary length.
_FRAMING = 2
#: Bytes of text for each distinct word, and of an index of a million texts for each word of a text,
#: which was reckoned and not measured.
_WORD_BYTES, _PACKED_WORD_BYTES = 8, 1.5

_ALIKE = {
    "api_never": "values, their order, which values are equal, which fields are absent",
    "api_watching": "in part what is searched for, and how many records match.",
    "definition": "Definitions are plaintext: field names, types, bounds, patterns and allowed"
    " values.",
    "data_folder": "Everything, if the machine key there decrypts the keyrings.",
}
_NUMBERS = {"api": "Numbers have one length.", **_ALIKE}
_STRINGS = {
    "api": "a length class for every string value: up to 31, 47, 63 bytes of UTF-8, then steps of"
    " at most 12 %; `padTo` makes all up to its number of bytes alike.",
    **_ALIKE,
}
_ALIKE_STRINGS = {"api": "Strings whose longest value is known have one length.", **_ALIKE}
_FORMATS = {"api": "Values of one format have one length.", **_ALIKE}
#: The parties that learn something of a field, by :attr:`FieldType.reveals`, in the words of
#: docs/LEAKAGE.md.
REVEALS: Mapping[str, Mapping[str, str]] = {
    "text": _STRINGS,
    "only text": _ALIKE_STRINGS,
    "number": _NUMBERS,
    "format": _FORMATS,
}


@dataclass(frozen=True, slots=True)
class FieldEstimate:
    """Bytes per record of one field: in the sealed row, and in the index."""

    name: str
    row_bytes: float
    index_bytes: float
    reveals: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Estimate:
    """``rate`` is records sealed and indexed per second by one core of this machine, just now."""

    fields: list[FieldEstimate]
    records: int
    row_bytes: float
    index_bytes: float
    rate: float
    sample: Sample | None = None

    @property
    def total_bytes(self) -> int:
        return round(self.records * (self.row_bytes + self.index_bytes))

    @property
    def seconds(self) -> float:
        return self.records / self.rate


def estimate(
    definition: SchemaDefinition,
    records: int,
    string_bytes: Mapping[str, int],
    sample: Sample | None = None,
) -> Estimate:
    """Estimate the storage that ``records`` records of ``definition`` need.

    Args:
        string_bytes: typical length of string fields, by name, in bytes of UTF-8. A sample
            overrides it.

    Raises:
        TooLarge: the lengths add up to more than the limit for a record.
    """
    sampled = sample.fields if sample else {}
    string_bytes = dict(string_bytes) | {
        name: math.ceil(size.text) for name, size in sampled.items()
    }
    lengths = {name: string_bytes.get(name, DEFAULT_STRING_BYTES) for name in definition.fields}
    if sum(string_bytes.get(name, 0) for name in definition.fields) > MAX_RECORD_BYTES:
        raise TooLarge(f"a record has at most {MAX_RECORD_BYTES >> 20} MiB")
    index = _index_bytes(definition, records, lengths)
    fields = [
        FieldEstimate(
            name,
            _sealed_bytes(spec, lengths[name], sampled.get(name)),
            index[name],
            _revealed(spec),
        )
        for name, spec in definition.fields.items()
    ]
    return Estimate(
        fields=fields,
        records=records,
        row_bytes=_ROW_BYTES + sum(field.row_bytes for field in fields),
        index_bytes=sum(field.index_bytes for field in fields),
        rate=_measure(definition, string_bytes),
        sample=sample,
    )


def _sealed_bytes(spec: FieldSpec, length: int, sampled: FieldSample | None) -> float:
    """The size of an encrypted value of ``length`` bytes, or the average size of the sampled
    values.
    """
    sealed = sealed_class(spec, length) if sampled is None else sampled.sealed
    return sealed + BESIDE_CLASS + _FRAMING


def _revealed(spec: FieldSpec) -> Mapping[str, str]:
    told = spec.field_type.reveals
    return REVEALS["only text" if told == "text" and least_class(spec).only else told]


def _index_bytes(
    definition: SchemaDefinition, records: int, lengths: Mapping[str, int]
) -> dict[str, float]:
    """Bytes per record of each field's columns, in the form that segments with this number of
    records have.
    """
    fields = definition.fields
    room = {
        name: 1 + words.room_of(sealed_class(spec, lengths[name]))
        for name, spec in fields.items()
        if spec.words
    }
    if records <= MAX_MINI_RECORDS and records * sum(room.values()) <= MAX_MINI_WORDS:
        sizes = {name: columns.encoded_size(spec.kind, records) for name, spec in fields.items()}
        for name, entries in room.items():
            sizes[name] += words.encoded_size(records * entries) + _OVERHEAD
        return {name: (size + _OVERHEAD) / records for name, size in sizes.items()}
    rows = min(records, TIERS[-1].capacity)
    if records <= MAX_PLAIN_RECORDS:
        plans = {
            name: directory.count_pages(spec.kind, rows, MAX_ENTRIES)
            for name, spec in fields.items()
        }
        count = {name: float(plan.data + plan.directory) for name, plan in plans.items()}
        for name, entries in room.items():
            plan = directory.count_pages(KeyKind.WORDS, rows * entries, MAX_ENTRIES)
            count[name] += plan.data + plan.directory
    else:
        count = {name: _packed(spec, rows, lengths[name]) for name, spec in fields.items()}
        for name in room:
            listed = rows * (1 + lengths[name] / _WORD_BYTES)
            count[name] += math.ceil(listed * _PACKED_WORD_BYTES / pages.CAPACITY)
    # Dummies bring the number of all pages up to a length class.
    total = sum(count.values())
    padding = padded_length(math.ceil(total)) / total
    return {name: padding * pages * PAGE_BYTES / rows for name, pages in count.items()}


def _packed(spec: FieldSpec, rows: int, length: int) -> float:
    """Pages of a packed column with random values: a stretch of it is made up, and packed."""
    chance = np.random.default_rng(int.from_bytes(runtime.random_bytes(16)))
    width = columns.stored_key_type(spec.kind).itemsize
    if spec.kind is KeyKind.UUID:
        drawn = chance.integers(0, 256, (_SAMPLE, width), np.uint8)
        keys: columns.Keys = np.sort(drawn.view(f"S{width}").ravel())
    elif spec.kind is KeyKind.TEXT:
        share = max(1, round(math.log(rows / _SAMPLE, len(_LETTERS))))
        drawn = chance.choice(np.frombuffer(_LETTERS, np.uint8), (_SAMPLE, INDEX_KEY_BYTES))
        # Neighbours in a long sorted column begin alike; what is beyond a string's end is zero.
        drawn[:, :share] = _LETTERS[0]
        drawn[:, length if length <= INDEX_KEY_PREFIX else INDEX_KEY_BYTES :] = 0
        keys = np.sort(drawn.view(f"S{INDEX_KEY_BYTES}").ravel())
    else:
        span = spec.numbers.highest - spec.numbers.lowest + 1
        keys = np.sort(chance.integers(0, max(1, span * _SAMPLE // rows), _SAMPLE, np.uint64))
    order = np.lexsort((ordinals := chance.integers(0, rows, _SAMPLE, np.uint32), keys))
    (entries,) = columns.Column(ordinals[order], keys).entries(0, _SAMPLE)
    size = len(packing.Packer(entries).pack(0, _SAMPLE)) / _SAMPLE
    data = math.ceil(rows * size / pages.CAPACITY)
    # Of a page, the directory tells its number, its end and two keys.
    return data + math.ceil(data * (8 + 2 * width) / pages.CAPACITY)


def _measure(definition: SchemaDefinition, string_bytes: Mapping[str, int]) -> float:
    """Records per second, measured by sealing and indexing artificial records."""
    key = Keyring.generate().schema(new_id(), new_id())
    ledger = Ledger(key, runtime.random_bytes(16))
    long = sum(string_bytes.get(name, DEFAULT_STRING_BYTES) for name in definition.fields)
    group = max(1, min(_GROUP, _GROUP_BYTES // max(1, long)))
    sealed = 0
    start = runtime.monotonic()
    while (spent := runtime.monotonic() - start) < MEASURE_SECONDS or not sealed:
        made_up = [
            PlainRecord(
                new_id(),
                1,
                {
                    name: _made_up(spec, string_bytes.get(name, DEFAULT_STRING_BYTES), row)
                    for name, spec in definition.fields.items()
                },
            )
            for row in range(group)
        ]
        seal(ledger, definition, made_up)
        sealed += group
    return sealed / spent


def _made_up(spec: FieldSpec, length: int, row: int) -> Value:
    if spec.kind is KeyKind.UUID:
        return str(UUID(int=row))
    if spec.kind is KeyKind.TEXT:
        if spec.allowed is not None:
            return spec.texts[row % len(spec.texts)] if spec.texts else None
        most = spec.string.max_length
        return f"{row:02d}".ljust(length, "x")[: length if most is None else min(length, most)]
    rules = spec.numbers
    point = rules.lowest + (row * (rules.highest - rules.lowest)) // _GROUP
    return spec.field_type.from_point(spec, point)
