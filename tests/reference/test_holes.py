"""A group with holes: the package seals the very bytes of the vector, and its uid says which."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from encrypted_records import runtime
from encrypted_records.crypto import sealing
from encrypted_records.errors import DoesNotOpen
from encrypted_records.model.definition_parser import parse_definition
from tests.reference.loading import raw, vectors
from tests.reference.test_package_meets_the_vectors import schema_keys

VECTOR = vectors("holes.json")
DEFINITION = parse_definition(VECTOR["definition"])


def value(name: str, stated: Any) -> Any:
    spec = DEFINITION.fields[name]
    return None if stated is None else spec.accept(raw(stated, spec.type))


def test_a_group_with_holes_is_sealed_and_opened_as_specified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = schema_keys(VECTOR).newest
    drawn = itertools.chain([VECTOR["randomness"], VECTOR["salt"]])
    monkeypatch.setattr(runtime.machine, "random_bytes", lambda _: bytes.fromhex(next(drawn)))
    records = VECTOR["records"]
    columns = {
        name: [value(name, record["data"][name]) for record in records]
        for name in DEFINITION.fields
    }
    identities = [(bytes.fromhex(record["record"]), record["version"]) for record in records]
    holes = [(first, count) for first, count in VECTOR["holes"]]

    group, batch, salt = sealing.seal_group(key, DEFINITION, identities, columns, holes=holes)

    assert (group.uid.hex(), group.count) == (VECTOR["group"], VECTOR["count"])
    assert VECTOR["group"] != VECTOR["without_holes"]
    assert [[field.hex() for field in row.fields] for row in batch.present] == VECTOR["rows"]
    assert [at for at, row in enumerate(batch.rows) if row is not None] == VECTOR["ordinals"]
    assert (group.rows.hex(), salt.salt.hex()) == (VECTOR["digest"], VECTOR["salt"])
    for ordinal, row in zip(VECTOR["ordinals"], batch.present, strict=True):
        opened = sealing.open_row(key, DEFINITION, group, ordinal, row)
        assert (opened.record_id, opened.version) == (row.record_id, row.version)
        with pytest.raises(DoesNotOpen):
            sealing.open_row(key, DEFINITION, group, ordinal + 1, row)
