"""A group with ordinals that have no row: it stands for one that a commit ended (SPEC 7.7)."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.reference import digests
from tests.reference import fields as ref
from tests.vectors.cases import people, people_key
from tests.vectors.sealed_cases import ROWS, place, typed

_HOLES = [(0, 1), (3, 2), (8, 1)]
_ORDINALS = [1, 2, 5, 6, 7]
_COUNT = 9


def holes() -> dict[str, Any]:
    schema, definition = people_key(), people()
    r, salt = (hashlib.sha256(label).digest() for label in (b"group with holes", b"its salt"))
    records = [(record, version, typed(definition, data)) for record, version, data in ROWS]
    uid = ref.group_uid(schema, definition, records, r, _HOLES)
    sealed = ref.seal_rows(schema, definition, records, uid, _ORDINALS)
    own = [digests.HOLE] * _COUNT
    for ordinal, (record, version, _), fields in zip(_ORDINALS, records, sealed, strict=True):
        own[ordinal] = digests.row(salt, record, version, fields)
    return {
        **place(),
        "randomness": r.hex(),
        "salt": salt.hex(),
        "holes": [list(run) for run in _HOLES],
        "ordinals": _ORDINALS,
        "count": _COUNT,
        "records": [
            {"record": record.hex(), "version": version, "data": data}
            for record, version, data in ROWS
        ],
        "group": uid.hex(),
        "without_holes": ref.group_uid(schema, definition, records, r).hex(),
        "rows": [[field.hex() for field in fields] for fields in sealed],
        "digest": digests.rows(own).hex(),
    }
