"""Answers about samples and files: their form, and the cost and leakage of a schema for them.

Workers make them, endpoints answer with them, and clients read them.
"""

from __future__ import annotations

import msgspec

from encrypted_records.model.resources import Count

# --- estimates ----------------------------------------------------------------------------------


class RecordBytes(msgspec.Struct, frozen=True):
    """Bytes per record: encrypted, in the index, and both together."""

    sealed: float
    index: float
    total: float


class PaddingCost(msgspec.Struct, frozen=True):
    """Bytes per record, and the same in per cent of a record without padding."""

    bytes: float
    percent: float


class LengthAttack(msgspec.Struct, frozen=True):
    """The success of an attacker who knows the stored lengths of all fields, and other rows.

    Attributes:
        guess: share of values that are right if the most frequent value is always named.
        attack: share of values that the attacker names correctly.
        bits: average information in the field's own length.
        padding: cost of the field's padding.
        pad_to: ``padTo`` that would hide the lengths; None if they reveal nothing, or too long.
        pad_to_adds: cost of ``pad_to``.
    """

    guess: float
    attack: float
    bits: float
    padding: PaddingCost
    pad_to: Count | None
    pad_to_adds: PaddingCost


class FieldLeaks(msgspec.Struct, frozen=True):
    """The parties that learn something about a field, in the words of docs/LEAKAGE.md.

    Attributes:
        api: information that the API sees.
        api_never: information that the API never sees in stored data.
        api_watching: information that the API gets by watching requests.
        definition: information in the definition, which the API sees.
        data_folder: information that a copy of the proxy's data folder reveals.
    """

    api: str
    api_never: str
    api_watching: str
    definition: str
    data_folder: str


class FieldCost(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cost and the leakage of a field.

    Attributes:
        sealed_bytes: bytes per record, encrypted.
        index_bytes: bytes per record in the index.
        lengths: success of an attack on lengths; absent without a sample.
    """

    name: str
    sealed_bytes: float
    index_bytes: float
    reveals: FieldLeaks
    lengths: LengthAttack | None = None


class SampledRows(msgspec.Struct, frozen=True):
    """The rows of a sample.

    Attributes:
        rows: number of rows that fit the definition.
        refused: number of rows that do not fit, and are ignored.
        padding: cost of the padding of all fields.
    """

    rows: Count
    refused: Count
    padding: PaddingCost


class CostEstimate(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cost of a number of records, without the overhead of a database.

    Attributes:
        bytes: bytes of all records.
        records_per_second: number of records that one core of the proxy encrypts and indexes.
        seconds: time that one core takes for all records.
        sample: the rows that the estimate uses; absent without a sample.
    """

    records: Count
    bytes_per_record: RecordBytes
    bytes: Count
    records_per_second: Count
    seconds: float
    fields: list[FieldCost]
    sample: SampledRows | None = None
