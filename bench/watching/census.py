"""Census records for the observer: those that are stored, and others of the same kind.

The observer knows the others in plaintext, which is how it knows what goes with what; of the
stored ones it has what the API has. Without a file, both are made from ``examples/census.csv``.

What a census row says is stored in one of two kinds: in the fields of the example (``PLAIN``), or
in fields with enforced formats and a note whose words are indexed (``FORMATTED``).
"""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import numpy as np
from numpy.typing import NDArray

from encrypted_records.ingest.estimate import lengths_of
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.field_types.base import KeyKind

EXAMPLES = Path(__file__).parents[2] / "examples"

Row = dict[str, str]
#: Field and value, as the CSV file has it; of words a word, of dates a year, of instants a month.
Question = tuple[str, str]
Codes = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Kind:
    """How rows are stored. ``asked`` are the fields that are asked for: those in which records have
    values in common. ``parts`` says of a field by how many characters of a value it is asked."""

    definition: dict[str, Any]
    asked: tuple[str, ...]
    parts: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def parsed(self) -> SchemaDefinition:
        return parse_definition(json.dumps(self.definition))

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(self.definition["properties"])

    @cached_property
    def strings(self) -> tuple[str, ...]:
        """The fields whose ciphertexts have lengths that differ."""
        return tuple(spec.name for spec in self.parsed.fields.values() if spec.kind is KeyKind.TEXT)

    def is_words(self, name: str) -> bool:
        return self.parsed.fields[name].words

    def column(self, name: str) -> KeyKind:
        """Of the column that a question reads."""
        return KeyKind.WORDS if self.is_words(name) else self.parsed.fields[name].kind

    def values(self, row: Row, name: str) -> tuple[str, ...]:
        """The values by which a row is found; an absent one has none."""
        if self.is_words(name):
            return tuple(sorted(set(row[name].split())))
        return (row[name][: self.parts.get(name)],) if row[name] else ()

    def all_values(self, rows: Sequence[Row], name: str) -> list[str]:
        return sorted({value for row in rows for value in self.values(row, name)})

    def condition(self, question: Question) -> dict[str, Any]:
        """As a search takes it."""
        name, value = question
        if self.is_words(name):
            return {"field": name, "op": "has_words", "value": value}
        meant = self.parsed.fields[name].field_type.of_cell(value)
        return {"field": name, "op": "eq", "value": meant}


def _plain_kind() -> Kind:
    definition: dict[str, Any] = json.loads((EXAMPLES / "census.schema.json").read_text())
    unasked = ("fnlwgt", "capital_gain", "capital_loss")
    return Kind(definition, tuple(prop for prop in definition["properties"] if prop not in unasked))


PLAIN = _plain_kind()
FORMATTED = Kind(
    {
        "type": "object",
        "formats": "enforced",
        "properties": {
            "note": {"type": "string", "x-index": ["words"]},
            "born": {"type": "string", "format": "date"},
            "seen": {"type": "string", "format": "date-time"},
            "school": {"type": "string", "format": "uuid"},
            "married": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
        },
    },
    ("note", "born", "seen", "school", "married"),
    {"born": 4, "seen": 7},
)
_SAID = ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex")


def formatted(row: Row) -> Row:
    """What a census row says, in the other fields."""
    said = " ".join(row[name] for name in _SAID if row[name]).lower()
    hours = int(row["hours_per_week"])
    born = date(2026 - int(row["age"]), 1 + int(row["fnlwgt"]) % 12, 1 + hours % 28)
    return {
        "note": " ".join(re.findall("[a-z]+", said)),
        "born": born.isoformat(),
        "seen": f"2026-{1 + hours % 12:02}-{1 + int(row['age']) % 28:02}T08:00:00Z",
        "school": str(uuid5(NAMESPACE_URL, row["education"])),
        "married": "true" if row["marital_status"].startswith("Married") else "false",
    }


@dataclass(frozen=True)
class Census:
    stored: list[Row]
    others: list[Row]
    kind: Kind = PLAIN

    @cached_property
    def questions(self) -> list[Question]:
        """Every question of one value that selects a stored record."""
        kind = self.kind
        return [
            (name, value) for name in kind.asked for value in kind.all_values(self.stored, name)
        ]

    def matches(self, question: Question) -> NDArray[np.bool_]:
        """Of each stored record."""
        name, value = question
        return np.array([value in self.kind.values(row, name) for row in self.stored])

    def formatted(self) -> Census:
        """The same people in fields of the other kind."""
        stored, others = ([formatted(row) for row in rows] for rows in (self.stored, self.others))
        return Census(stored, others, FORMATTED)


def read(path: Path | None, stored: int, others: int, chance: random.Random) -> Census:
    """The first ``stored`` rows of the file and up to ``others`` of what follows."""
    if path is None:
        made = list(_resampled(stored + others, chance))
    else:
        with path.open(newline="") as file:
            made = list(csv.DictReader(file))
    assert len(made) > stored, "the file has too few rows"
    return Census(made[:stored], made[stored : stored + others])


def _resampled(count: int, chance: random.Random) -> Iterator[Row]:
    """Rows that are mostly one of the examples, with some numbers of another one: as a census has
    them, many agree in much and few in everything."""
    with (EXAMPLES / "census.csv").open(newline="") as file:
        examples = list(csv.DictReader(file))
    for _ in range(count):
        row, other = chance.choice(examples), chance.choice(examples)
        mixed = {name: other[name] for name in ("fnlwgt", "hours_per_week", "native_country")}
        age = min(90, max(17, int(row["age"]) + chance.randrange(-3, 4)))
        yield row | mixed | {"age": str(age)}


def drawn(questions: Sequence[Question], count: int, chance: random.Random) -> list[int]:
    """Numbers of questions, drawn by Zipf's law; which ones are asked most is left to chance."""
    order = list(range(len(questions)))
    chance.shuffle(order)
    shares = [1 / rank for rank in range(1, len(order) + 1)]
    return chance.choices(order, shares, k=count)


def upload(rows: Sequence[Row], kind: Kind, schema_id: str) -> Iterator[bytes]:
    yield ",".join((*kind.fields, f"schema_id:{schema_id}\n")).encode()
    for start in range(0, len(rows), 1000):
        some = rows[start : start + 1000]
        yield "".join(",".join(row[name] for name in kind.fields) + "\n" for row in some).encode()


def length_classes(rows: Sequence[Row], kind: Kind = PLAIN) -> NDArray[np.int32]:
    """Bytes of each string that its ciphertext's length tells, a column for each of ``strings``."""
    columns = {name: [row[name] or None for row in rows] for name in kind.strings}
    fields = {name: kind.parsed.fields[name] for name in kind.strings}
    return lengths_of(fields, columns).astype(np.int32)
