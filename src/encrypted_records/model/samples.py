"""Answers about samples and files: their form, and the cost and leakage of a schema for them.

Workers make them, endpoints answer with them, and clients read them.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import msgspec

from encrypted_records.errors import Flaw
from encrypted_records.model.resources import Count

#: A schema's definition.
Definition = Annotated[
    dict[str, Any], msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/Definition"})
]


class FieldNote(msgspec.Struct, frozen=True):
    """The evidence for a proposed field.

    Attributes:
        present, absent: number of rows with a value, and without one.
        note: remark that the schema's owner should check.
        least, most: extremes of its values, if all are numbers.
        bytes: average length of its texts in UTF-8, if some values are texts.
        values: all texts of the sample, if they are few.
        unique: whether values are distinct in all rows.
    """

    name: str
    present: Count
    absent: Count
    note: str | None
    least: Decimal | None
    most: Decimal | None
    bytes: Count | None
    values: list[str] | None
    unique: bool


class ProposedSchema(msgspec.Struct, frozen=True):
    """A definition for a sample, to edit.

    Attributes:
        sampled: number of rows of the sample that were examined.
    """

    schema: Definition
    sampled: Count
    fields: list[FieldNote]


class Common(msgspec.Struct, frozen=True):
    """A value, truncated like cells, and the number of rows that have it."""

    value: str
    count: Count


class Spread(msgspec.Struct, frozen=True):
    """The values of a column in the checked rows.

    Attributes:
        present: number of rows with a value.
        distinct: number of distinct values.
        common: most frequent values, for fields that are not numeric.
        least, most: extremes of a numeric field's column; cells that are not numbers are ignored.
        bins: number of values in each of the bins of equal width from ``least`` to ``most``.
    """

    name: str
    present: Count
    distinct: Count
    common: list[Common]
    least: Decimal | None
    most: Decimal | None
    bins: list[Count]


class PreviewRow(msgspec.Struct, frozen=True):
    """A row of a sample.

    Attributes:
        row: its number.
        cells: values in the order of the preview's columns; None if the row has no value.
        texts: cells as written in a file that is read by a reading.
    """

    row: Count
    cells: list[str | None]
    texts: list[str | None]


class Preview(msgspec.Struct):
    """The first rows of a sample under a definition.

    Attributes:
        checked: number of rows that were checked.
        bad_rows: number of rows with errors.
        errors: the first errors.
    """

    columns: list[str]
    fields: list[Spread]
    rows: list[PreviewRow]
    checked: Count
    bad_rows: Count
    errors: list[Flaw]

    @property
    def refusal(self) -> str:
        """The message of the refusal to create a schema for a file with such rows."""
        rows = "a row is" if self.bad_rows == 1 else f"{self.bad_rows:,} rows are"
        return f"{rows} invalid among the first {self.checked:,}: nothing was created or stored"

    @property
    def unread(self) -> list[str]:
        """The fields with cells that do not have the form of the file's reading."""
        return list(
            dict.fromkeys(
                flaw.field for flaw in self.errors if flaw.code == "reading" and flaw.field
            )
        )


#: How a file is read; clients send it back as they received it, also with members that are new.
Reading = Annotated[
    dict[str, Any], msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/Recipe"})
]


class FieldReading(msgspec.Struct, frozen=True):
    """A column of a file and its field, by the rows that were examined.

    Attributes:
        type: type of the field, in words.
        note: remark, or question about ``ask``.
        ask: option that the column does not determine; it stays text.
        examples: cells, each with its stored value.
        rewritten: number of cells that are stored in another spelling of the same value.
        absent: number of cells without a value.
        words: number of cells for each word that means an absent value.
        values: all texts, if they are few.
        unique: whether values are distinct in all rows.
    """

    name: str
    type: str
    note: str | None
    ask: str | None
    examples: list[Annotated[list[str], msgspec.Meta(min_length=2, max_length=2)]]
    rewritten: Count
    absent: Count
    words: dict[str, Count]
    values: list[str] | None
    unique: bool


class ReadingDifference(msgspec.Struct, frozen=True):
    """A difference between a file and the previous file of its schema.

    Attributes:
        taken: whether the difference changes no value and is accepted.
        say: known parts of a reading that accept another difference; None if only a new reading
            helps.
    """

    kind: str
    detail: str
    taken: bool = False
    column: str | None = None
    say: dict[str, Any] | None = None


class FileReading(msgspec.Struct, frozen=True):
    """How a file is read, and a definition for it.

    Attributes:
        sampled: number of rows that were examined.
        whole: whether these are all rows of the file.
        above, below: lines that are left out above and below the table.
        short_rows: number of rows without their last cells.
        guessed: members of ``reading`` that are likely but not certain.
        words: words of the file that show its charset.
        notes: remarks, such as sheets that are not read.
        renamed: by field, the name in the file, if it was changed.
        kept: whether the file is read by the reading kept for the schema.
        differences: differences from the file of the kept reading.
    """

    reading: Reading
    schema: Definition
    sampled: Count
    whole: bool
    fields: list[FieldReading]
    above: list[str]
    below: list[str]
    short_rows: Count
    guessed: list[str]
    words: list[str]
    notes: list[str]
    renamed: dict[str, str]
    kept: bool
    differences: list[ReadingDifference]

    @property
    def recipe(self) -> bytes:
        """The reading as JSON, as uploads send it."""
        return msgspec.json.encode(self.reading)


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
