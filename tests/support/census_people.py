"""People of the census, with fields of more kinds: rows that a thief attacks, and others of the
same kind that the thief knows."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

ROOT = Path(__file__).parents[2]


def _padded() -> dict[str, Any]:
    """The census, and fields of every kind that its lengths do not tell of."""
    census = json.loads((ROOT / "examples" / "census.schema.json").read_text())
    number = {"type": "number", "minimum": -1000, "maximum": 10**9, "precision": 2}
    census["properties"] |= {
        "greek": {"type": "string", "maxLength": 40},
        "chinese": {"type": "string", "padTo": 60},
        "const": {"type": "string", "const": "always the same, or absent"},
        "skewed": {"type": "integer", "minimum": 0, "maximum": 2**63},
        "two_heaps": number,
        "rare": {"type": "integer", "minimum": -5, "maximum": 5},
    }
    return dict(census)


def _bare(definition: dict[str, Any]) -> dict[str, Any]:
    """The same fields without the keywords that hide lengths."""
    fields = {
        name: {"type": "string"} if field["type"] == "string" else field
        for name, field in definition["properties"].items()
    }
    return {"type": "object", "properties": fields}


#: Definitions of the same rows: with keywords that hide lengths, and without.
KINDS = {"padded": json.dumps(_padded()), "bare": json.dumps(_bare(_padded()))}
_GREEK = "\u0391\u03bb\u03ad\u03be\u03b1\u03bd\u03b4\u03c1\u03bf\u03c2"
_CHINESE = "\u6b27\u9633\u5a1c\u5a1c\u738b\u674e"


def _made_people() -> list[dict[str, Any]]:
    """Census rows with more fields, whose lengths and sizes go with what the census says."""
    chance = random.Random(11)
    types = {name: one["type"] for name, one in _padded()["properties"].items()}
    made = []
    with (ROOT / "examples" / "census.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            record: dict[str, Any] = {
                name: cell if types[name] == "string" else int(cell)
                for name, cell in row.items()
                if cell
            }
            male = row["sex"] == "Male"
            record |= {
                "greek": _GREEK[: 3 if male else 10] * chance.choice([1, 3]),
                "chinese": _CHINESE[: 2 if male else 6] * 3,
                "skewed": int(min(2**62, chance.paretovariate(0.2))),
                "two_heaps": round(chance.gauss(0 if male else 900_000_000, 10), 2),
            }
            if male:
                record["const"] = "always the same, or absent"
            if chance.random() < 0.02:
                record["rare"] = chance.randint(-5, 5)
            made.append(record)
    return made


_PEOPLE = _made_people()
STORED, KNOWN = _PEOPLE[::2], _PEOPLE[1::2]


#: Fields of every new type, whose values go with each other; how many words a note has goes with
#: all of them, and how long it is with nothing.
TYPED: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "properties": {
        "note": {"type": "string", "x-index": ["words"], "maxLength": 120},
        "born": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "time"},
        "seen": {"type": "string", "format": "date-time"},
        "school": {"type": "string", "format": "uuid"},
        "alive": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
    },
}


def _typed_people() -> list[dict[str, Any]]:
    chance = random.Random(13)
    made = []
    for _ in range(400):
        few = chance.random() < 0.6
        record: dict[str, Any] = {
            "note": "fever " * 18
            if few
            else " ".join(f"w{chance.randrange(500)}" for _ in "x" * 18),
            "at": "08:00:00" if few else "20:30:00.5",
            "seen": f"20{'24' if few else '25'}-01-01T00:00:00{'Z' if few else '+02:00'}",
            "school": str(uuid5(NAMESPACE_URL, "few" if few else "many")),
            "alive": few,
        }
        if not few:
            record["born"] = "1984-06-15"
        made.append(record)
    return made


_TYPED = _typed_people()
#: Fewer than make a merge worth it.
ALONE, KNOWN_ALONE = _TYPED[:60], _TYPED[60:]
