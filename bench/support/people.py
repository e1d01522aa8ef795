"""The records that benchmarks share: ten fields, seven strings and three integers."""

from __future__ import annotations

import csv
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STRINGS = ("uuid", "email", "first", "last", "city", "country", "status")
#: name -> maximum; the minimum is 0
INTEGERS = {"age": 120, "salary": 10**6, "number": 10**9}
FIELDS = (*STRINGS, *INTEGERS)
_PADDED = {"uuid": 36, "first": 31, "last": 31, "city": 31}
_CHOICES = {
    "country": [f"C{number:03}" for number in range(200)],
    "status": ["active", "closed", "new", "pending"],
}
DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in STRINGS}
    | {name: {"type": "string", "padTo": size} for name, size in _PADDED.items()}
    | {name: {"type": "string", "enum": values} for name, values in _CHOICES.items()}
    | {name: {"type": "integer", "minimum": 0, "maximum": most} for name, most in INTEGERS.items()},
}
_SYLLABLES = ["ka", "ri", "mo", "ta", "sen", "lu", "bo", "ny", "el", "an", "do", "mi", "fra", "gus"]
_FIRST = [a + b for a in _SYLLABLES for b in _SYLLABLES]
_LAST = [a + b for a in _FIRST for b in _SYLLABLES]
_PIECE = 1 << 20


def record(chance: random.Random, number: int) -> dict[str, Any]:
    first = chance.choice(_FIRST)
    last = _LAST[int(len(_LAST) * chance.random() ** 3)]
    return {
        "uuid": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        "email": f"{first}.{last}{chance.randrange(10_000)}@example.com",
        "first": first,
        "last": last,
        "city": _LAST[int(2000 * chance.random() ** 3)].title(),
        "country": f"C{int(200 * chance.random() ** 4):03}",
        "status": chance.choice(_CHOICES["status"]),
        "age": chance.randrange(18, 95),
        "salary": chance.randrange(10_000) * 100,
        "number": number,
    }


def csv_file(folder: Path, count: int) -> Path:
    """The first ``count`` records as CSV with a header, written once."""
    path = folder / f"people-{count}.csv"
    if not path.exists():
        unfinished = path.with_suffix(".part")
        chance = random.Random(5)
        with unfinished.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(FIELDS)
            writer.writerows(record(chance, number).values() for number in range(count))
        unfinished.rename(path)
    return path


def as_upload(path: Path, schema_id: str) -> Iterator[bytes]:
    """The file in pieces, its header ending in the entry that names the schema."""
    with path.open("rb") as file:
        yield file.readline().rstrip() + f",schema_id:{schema_id}\n".encode()
        while piece := file.read(_PIECE):
            yield piece
