"""Census records for the observer: those that are stored, and others of the same kind.

The observer knows the others in plaintext, which is how it knows what goes with what; of the
stored ones it has what the API has. Without a file, both are made from ``examples/census.csv``.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.ingest.lengths import lengths_of
from encrypted_records.model.definition_parser import parse_definition

EXAMPLES = Path(__file__).parents[2] / "examples"
DEFINITION: dict[str, Any] = json.loads((EXAMPLES / "census.schema.json").read_text())
_PARSED = parse_definition(json.dumps(DEFINITION))
#: All fields, and those that are asked for: the ones in which records have values in common.
FIELDS = tuple(DEFINITION["properties"])
ASKED = tuple(name for name in FIELDS if name not in ("fnlwgt", "capital_gain", "capital_loss"))
STRINGS = tuple(name for name in FIELDS if DEFINITION["properties"][name]["type"] == "string")

Row = dict[str, str]
#: Field and value, as the CSV file has it.
Question = tuple[str, str]
Codes = NDArray[np.int32]


@dataclass(frozen=True)
class Census:
    stored: list[Row]
    others: list[Row]

    @cached_property
    def questions(self) -> list[Question]:
        """Every equality that selects a stored record."""
        return [(name, value) for name in ASKED for value in sorted(values(self.stored, name))]

    def matches(self, question: Question) -> NDArray[np.bool_]:
        """Of each stored record."""
        name, value = question
        return np.array([row[name] == value for row in self.stored])


def values(rows: Sequence[Row], name: str) -> set[str]:
    """Empty is absent, and no value."""
    return {row[name] for row in rows} - {""}


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


def value_of(question: Question) -> str | int:
    """As a search takes it."""
    name, value = question
    return value if name in STRINGS else int(value)


def upload(rows: Sequence[Row], schema_id: str) -> Iterator[bytes]:
    yield ",".join((*FIELDS, f"schema_id:{schema_id}\n")).encode()
    for start in range(0, len(rows), 1000):
        some = rows[start : start + 1000]
        yield "".join(",".join(row[name] for name in FIELDS) + "\n" for row in some).encode()


def length_classes(rows: Sequence[Row]) -> NDArray[np.int32]:
    """Bytes of each string that its ciphertext's length tells, a column for each of STRINGS."""
    columns = {name: [row[name] or None for row in rows] for name in STRINGS}
    return lengths_of(_PARSED.fields, columns).astype(np.int32)
