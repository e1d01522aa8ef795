"""Estimates the storage, speed and leakage of a schema before records are stored.

Sizes are computed from the formats (docs/SPEC.md, sections 4 to 6), without the database's
overhead. The index is estimated after all merges; packed parts have random values of the stated
lengths, and repeated values take less. The rate is measured by briefly encrypting artificial
records.

LEAKAGE.md reports the results of this attack on lengths. The attacker has a copy of the database,
and thus the lengths of all fields of every stored row, and plaintext rows of the same kind that are
not stored there. The attack guesses the value of a field from all lengths of the row. Its advantage
is how much more often it is right than always guessing the most frequent value. In a sample, every
second row represents the stored records, the others the attacker's knowledge. Estimates and tests
use the same attack.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from encrypted_records import runtime
from encrypted_records.crypto.format import INDEX_KEY_BYTES, INDEX_KEY_PREFIX
from encrypted_records.crypto.keys import Keyring
from encrypted_records.errors import Flaw, InvalidRecords, TooLarge
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns import directory, packing, pages, words
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.segments.builder import MAX_PLAIN_RECORDS
from encrypted_records.index.segments.merge_policy import TIERS
from encrypted_records.ingest.blocks import MAX_RECORD_BYTES
from encrypted_records.ingest.check import validate
from encrypted_records.ingest.infer import MAX_SAMPLED, read_rows
from encrypted_records.ingest.parsing import read_numbers
from encrypted_records.ingest.seal import seal
from encrypted_records.model.ciphertext_lengths import (
    BESIDE_CLASS,
    TAG_BYTES,
    least_class,
    padded_length,
    sealed_class,
)
from encrypted_records.model.definition import MAX_PAD_TO, FieldSpec, SchemaDefinition, Value
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.ids import ID_BYTES, new_id
from encrypted_records.model.record_formats import Format
from encrypted_records.model.records import (
    MAX_MINI_RECORDS,
    MAX_MINI_WORDS,
    PAGE_BYTES,
    PlainRecord,
)
from encrypted_records.model.samples import (
    CostEstimate,
    FieldCost,
    FieldLeaks,
    LengthAttack,
    PaddingCost,
    RecordBytes,
    SampledRows,
)

#: Values of rows by field; None is an absent value, which can also be guessed.
Columns = Mapping[str, Sequence[Hashable]]
#: Ciphertext lengths, of shape (rows, fields), in any unit.
Lengths = NDArray[np.int64]
Codes = NDArray[np.int64]

#: Weight of the known values at the field's length, in known rows with all lengths in common.
_WEIGHT = 3.0


@dataclass(frozen=True, slots=True)
class LengthLeak:
    """The information that lengths leak about one field.

    ``guess`` is the share of stored rows in which the most frequent value is right, ``attack`` the
    share in which the attack is right. ``bits`` is the average information of the field's length; 0
    if all values have the same length.
    """

    name: str
    guess: float
    attack: float
    bits: float

    @property
    def advantage(self) -> float:
        return self.attack - self.guess


def lengths_of(fields: Mapping[str, FieldSpec], columns: Mapping[str, Sequence[Value]]) -> Lengths:
    """The encrypted lengths of ``fields``, in the order of ``columns``."""
    return np.array(
        [
            [sealed_class(fields[name], _size(value)) for value in values]
            for name, values in columns.items()
        ],
        np.int64,
    ).T


def attack(
    stored: Lengths, truth: Columns, known: Columns, known_lengths: Lengths
) -> list[LengthLeak]:
    """The success rate of guessing each field of the stored rows.

    Args:
        stored: the lengths of the stored rows, which the attacker has.
        truth: the values of the stored rows, to count correct guesses.
        known: other rows, in plaintext, with the same fields in the same order.
        known_lengths: the encrypted lengths of those rows.
    """
    kinds, kind = np.unique(np.vstack([stored, known_lengths]), axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    of_stored, of_known = kind[: len(stored)], kind[len(stored) :]
    wanted = np.unique(of_stored)
    told = []
    for at, name in enumerate(truth):
        values, taught = _number(known[name], {})
        _, asked = _number(truth[name], values)
        own = kinds[:, at]
        guesses = _guess(taught, of_known, own, wanted)
        mode = np.bincount(taught).argmax()
        by_kind = np.full(len(kinds), mode)
        by_kind[wanted] = guesses
        told.append(
            LengthLeak(
                name=name,
                guess=float((asked == mode).mean()),
                attack=float((asked == by_kind[of_stored]).mean()),
                bits=_entropy(stored[:, at]),
            )
        )
    return told


def _guess(taught: Codes, of_known: Codes, own: Lengths, wanted: Codes) -> list[int]:
    """The likeliest value for each of the ``wanted`` kinds of rows.

    Args:
        taught: the values of the known rows, as numbers.
        of_known: the kind of each known row.
        own: by kind, the length of the field.
    """
    overall = np.bincount(taught)
    order = np.argsort(of_known, kind="stable")
    begins = np.searchsorted(of_known[order], np.arange(len(own) + 1))
    shares: dict[int, NDArray[np.float64]] = {}
    guesses = []
    for kind in wanted.tolist():
        length = int(own[kind])
        if length not in shares:
            alike = np.bincount(taught[own[of_known] == length], minlength=len(overall))
            rough = alike if alike.any() else overall
            shares[length] = rough / rough.sum()
        score = _WEIGHT * shares[length]
        rows = taught[order[begins[kind] : begins[kind + 1]]]
        # Only values of these rows can overtake the likeliest value of that length.
        seen, hits = np.unique(rows, return_counts=True)
        best = int(score.argmax())
        candidates = np.append(seen, best)
        votes = score[candidates] + np.append(hits, 0)
        if best in seen:
            votes[-1] = votes[int(np.flatnonzero(seen == best)[0])]
        guesses.append(int(candidates[votes.argmax()]))
    return guesses


def _number(
    column: Sequence[Hashable], known: dict[Hashable, int]
) -> tuple[dict[Hashable, int], Codes]:
    """Values as numbers from ``known``, to which new values are added if it is empty; other values
    are -1."""
    if not known:
        known = {value: at for at, value in enumerate(dict.fromkeys(column))}
    return known, np.array([known.get(value, -1) for value in column], np.int64)


def _entropy(lengths: Lengths) -> float:
    _, counts = np.unique(lengths, return_counts=True)
    shares = counts / counts.sum()
    return abs(float(-(shares * np.log2(shares)).sum()))


def _size(value: Value) -> int:
    return len(value.encode()) if isinstance(value, str) else 0


#: Minimum number of rows that fit: one in each half.
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
    """``rows`` rows fit the definition; ``refused`` rows do not and were left out."""

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
        field.name: _measure_field(fields[field.name], columns[field.name], field)
        for field in found
    }
    return Sample(sampled, fitting, refused)


def _measure_field(spec: FieldSpec, values: Sequence[Value], told: LengthLeak) -> FieldSample:
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


#: Length of a string without a stated typical length, in bytes of UTF-8.
DEFAULT_STRING_BYTES = 12
#: Duration of the measurement, in seconds.
MEASURE_SECONDS = 0.25
#: Records encrypted at once while measuring: the maximum of a direct ingest, and maximum bytes of
#: long records.
_GROUP = 100
_GROUP_BYTES = 4 << 20
#: Number of generated entries of a packed column, and the alphabet of their strings.
_SAMPLE = 4096
_LETTERS = b"0123456789abcdefghijklmnopqrstuvwxyz"
#: Bytes of the version byte and tag of every ciphertext.
_OVERHEAD = 1 + TAG_BYTES
#: Maximum bytes of a row's record id, version, and the framing of its list of fields.
_ROW_BYTES = ID_BYTES + 4 + 5
#: MessagePack's framing of one ciphertext of ordinary length.
_FRAMING = 2
#: Bytes of text per distinct word, and bytes per word of a text in an index of a million texts
#: (calculated, not measured).
_WORD_BYTES, _PACKED_WORD_BYTES = 8, 1.5


def _leaks(api: str) -> FieldLeaks:
    return FieldLeaks(
        api=api,
        api_never="values, their order, which values are equal, which fields are absent",
        api_watching="in part what is searched for, and how many records match.",
        definition="Definitions are plaintext: field names, types, bounds, patterns and allowed"
        " values.",
        data_folder="Everything, if the machine key there decrypts the keyrings.",
    )


#: The leakage of a field, by :attr:`FieldType.reveals`.
REVEALS: Mapping[str, FieldLeaks] = {
    "text": _leaks(
        "a length class for every string value: up to 31, 47, 63 bytes of UTF-8, then steps of"
        " at most 12 %; `padTo` makes all up to its number of bytes alike."
    ),
    "only text": _leaks("Strings whose longest value is known have one length."),
    "number": _leaks("Numbers have one length."),
    "format": _leaks("Values of one format have one length."),
}


@dataclass(frozen=True, slots=True)
class Estimate:
    """``rate`` is the measured records encrypted and indexed per second by one core of this
    machine."""

    fields: list[FieldCost]
    records: int
    row_bytes: float
    index_bytes: float
    rate: float
    sample: SampledRows | None

    def rounded(self) -> CostEstimate:
        """The answer about it."""
        total = self.row_bytes + self.index_bytes
        sizes = (round(size, 1) for size in (self.row_bytes, self.index_bytes, total))
        return CostEstimate(
            records=self.records,
            bytes_per_record=RecordBytes(*sizes),
            bytes=round(self.records * total),
            records_per_second=round(self.rate),
            seconds=round(self.records / self.rate, 1),
            fields=self.fields,
            sample=self.sample,
        )


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
    sealed = {
        name: _sealed_bytes(spec, lengths[name], sampled.get(name))
        for name, spec in definition.fields.items()
    }
    row_bytes, index_bytes = _ROW_BYTES + sum(sealed.values()), sum(index.values())
    padding = sum(field.padding for field in sampled.values())
    bare = row_bytes + index_bytes - padding
    fields = [
        FieldCost(
            name=name,
            sealed_bytes=round(sealed[name], 1),
            index_bytes=round(index[name], 1),
            reveals=_revealed(spec),
            lengths=_lengths(sampled[name], bare) if sample else None,
        )
        for name, spec in definition.fields.items()
    ]
    return Estimate(
        fields=fields,
        records=records,
        row_bytes=row_bytes,
        index_bytes=index_bytes,
        rate=_measure_rate(definition, string_bytes),
        sample=SampledRows(sample.rows, sample.refused, _cost(padding, bare)) if sample else None,
    )


def _lengths(found: FieldSample, bare: float) -> LengthAttack:
    return LengthAttack(
        guess=round(found.told.guess, 4),
        attack=round(found.told.attack, 4),
        bits=round(found.told.bits, 2),
        padding=_cost(found.padding, bare),
        pad_to=found.pad_to,
        pad_to_adds=_cost(found.hiding, bare),
    )


def _cost(added: float, bare: float) -> PaddingCost:
    return PaddingCost(round(added, 1), round(100 * added / bare, 1))


def _sealed_bytes(spec: FieldSpec, length: int, sampled: FieldSample | None) -> float:
    """The size of an encrypted value of ``length`` bytes, or the average size of the sampled
    values.
    """
    sealed = sealed_class(spec, length) if sampled is None else sampled.sealed
    return sealed + BESIDE_CLASS + _FRAMING


def _revealed(spec: FieldSpec) -> FieldLeaks:
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
            name: directory.count_pages(spec.kind, rows, packing.MAX_ENTRIES)
            for name, spec in fields.items()
        }
        count = {name: float(plan.data + plan.directory) for name, plan in plans.items()}
        for name, entries in room.items():
            plan = directory.count_pages(KeyKind.WORDS, rows * entries, packing.MAX_ENTRIES)
            count[name] += plan.data + plan.directory
    else:
        count = {name: _packed(spec, rows, lengths[name]) for name, spec in fields.items()}
        for name in room:
            listed = rows * (1 + lengths[name] / _WORD_BYTES)
            count[name] += math.ceil(listed * _PACKED_WORD_BYTES / pages.CAPACITY)
    # Dummy pages raise the total number of pages to a length class.
    total = sum(count.values())
    padding = padded_length(math.ceil(total)) / total
    return {name: padding * pages * PAGE_BYTES / rows for name, pages in count.items()}


def _packed(spec: FieldSpec, rows: int, length: int) -> float:
    """The pages of a packed column with random values, from packing a generated stretch."""
    chance = np.random.default_rng(int.from_bytes(runtime.random_bytes(16)))
    width = columns.stored_key_type(spec.kind).itemsize
    if spec.kind is KeyKind.UUID:
        drawn = chance.integers(0, 256, (_SAMPLE, width), np.uint8)
        keys: columns.Keys = np.sort(drawn.view(f"S{width}").ravel())
    elif spec.kind is KeyKind.TEXT:
        share = max(1, round(math.log(rows / _SAMPLE, len(_LETTERS))))
        drawn = chance.choice(np.frombuffer(_LETTERS, np.uint8), (_SAMPLE, INDEX_KEY_BYTES))
        # Neighbours in a long sorted column share a prefix; bytes after a string's end are zero.
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
    # For each page, the directory has its number, its end and two keys.
    return data + math.ceil(data * (8 + 2 * width) / pages.CAPACITY)


def _measure_rate(definition: SchemaDefinition, string_bytes: Mapping[str, int]) -> float:
    """Records per second, measured by encrypting and indexing artificial records."""
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
