"""The inputs of the vectors about paged segments, and what they give."""

from __future__ import annotations

import hashlib
import random
from decimal import Decimal
from typing import Any

from tests.reference import digests, paged
from tests.reference.fields import Value
from tests.vectors.cases import (
    GROUP,
    ODD,
    ORGANIZATION,
    PEOPLE,
    RECORDS,
    ROOT,
    SCHEMA,
    people,
    people_key,
)

#: Two groups; some of their rows were dead when the segment was made.
_GROUPS = [(GROUP, 0), (RECORDS[0], 20)]
_COVERED = 37
_PURGED = (0, 19, 33)
#: Entries in a page: columns have several.
_ORIGIN = b"the job of the vectors, and a number"
_SIZE = 8


def _data(ordinal: int) -> dict[str, str | None]:
    """Two cities, so that they are listed; ages and balances repeat, and some are absent."""
    odd = [None, "", "a", "a\u0301bc", "\x00\x01", "x" * 48, f"{'x' * 48}{ordinal % 5}", "\u65e5"]
    return {
        "age": None if ordinal % 7 == 3 else str(ordinal * 37 % 11),
        "balance": None if ordinal % 2 else str(Decimal(ordinal * 7919 % 2000 - 1000) / 8),
        "city": ["Oslo", "Rome"][ordinal % 3 == 0],
        ODD: odd[ordinal % 8],
    }


def _typed(data: dict[str, str | None]) -> dict[str, Value]:
    kinds = people().fields
    return {
        name: value if value is None or kinds[name]["type"] == "string" else Decimal(value)
        for name, value in data.items()
    }


def _order(seed: str) -> list[int]:
    """Not secret here."""
    order = list(range(64))
    random.Random(seed).shuffle(order)
    return order


def segments() -> dict[str, Any]:
    """The same rows in a segment that is not packed, and in one that is."""
    schema, definition = people_key(), people()
    rows = [(ordinal, _data(ordinal)) for ordinal in range(_COVERED) if ordinal not in _PURGED]
    typed = [(ordinal, _typed(data)) for ordinal, data in rows]
    found = {}
    for name, packed in (("plain", False), ("packed", True)):
        r = hashlib.sha256(name.encode()).digest()
        order = _order(name)
        made = paged.build_paged(
            schema,
            definition,
            _GROUPS,
            typed,
            _COVERED,
            r,
            order,
            size=_SIZE,
            packed=packed,
            origin=_ORIGIN,
        )
        found[name] = {
            "randomness": r.hex(),
            "order": [number for number in order if number < len(made.pages)],
            "uid": made.uid.hex(),
            "header": made.header.hex(),
            "salt": hashlib.sha256(b"salt").hexdigest(),
            "digest": digests.segment(
                hashlib.sha256(b"salt").digest(), made.header, made.pages
            ).hex(),
            "pages": [
                {
                    "field": field,
                    "kind": kind,
                    "content": content.hex(),
                    "sealed_sha256": hashlib.sha256(sealed).hexdigest(),
                }
                for sealed, (field, kind, content) in zip(made.pages, made.contents, strict=True)
            ],
        }
    return {
        "root": ROOT.hex(),
        "kv": 1,
        "organization": ORGANIZATION.hex(),
        "schema": SCHEMA.hex(),
        "definition": PEOPLE,
        "groups": [[uid.hex(), base] for uid, base in _GROUPS],
        "covered": _COVERED,
        "entries_per_page": _SIZE,
        "origin": _ORIGIN.hex(),
        "dummies": [
            {"slots": slots, "drawn": paged.drawn(schema, _ORIGIN, slots)}
            for slots in (1, 40, 64, 65, 127, 128, 600, 4095, 100_000)
        ],
        "rows": [{"ordinal": ordinal, "data": data} for ordinal, data in rows],
        "index": {
            name: [
                [ordinal, None if key is None else key.hex()]
                for ordinal, key in paged.entries(
                    field,
                    schema.field(field),
                    [(ordinal, data[name]) for ordinal, data in typed],
                )
            ]
            for name, field in definition.fields.items()
        },
        **found,
    }
