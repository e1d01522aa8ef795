"""What opens the rows of a group is kept, and opens nothing else by it."""

from __future__ import annotations

import json
import os

import msgspec
import pytest

from encrypted_records.crypto import sealing
from encrypted_records.crypto.keys import GROUPS_KEPT, RootKey, SchemaKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.model.ciphertext_lengths import LeastClass
from encrypted_records.model.definition import SchemaDefinition, Value
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.records import Group, SealedRow

PROPERTIES = {
    "name": {"type": "string"},
    "age": {"type": "integer", "minimum": 0, "maximum": 120},
}


def definition(properties: object = PROPERTIES) -> SchemaDefinition:
    return parse_definition(json.dumps({"type": "object", "properties": properties}))


def new_key() -> SchemaKey:
    return RootKey.generate().schema(os.urandom(16), os.urandom(16), 1)


def sealed(key: SchemaKey, under: SchemaDefinition, age: int | None) -> tuple[Group, SealedRow]:
    columns: dict[str, list[Value]] = {"name": ["Ada"], "age": [age]}
    group, batch, _ = sealing.seal_group(key, under, [(os.urandom(16), 1)], columns)
    (row,) = batch.present
    return group, row


def test_rows_of_many_groups_open_though_few_are_kept() -> None:
    key, under = new_key(), definition()
    every = [sealed(key, under, age % 120) for age in range(GROUPS_KEPT + 3)]
    for _ in range(2):
        for age, (group, row) in enumerate(every):
            opened = sealing.open_row(key, under, group, 0, row)
            assert opened.data == {"name": "Ada", "age": age % 120}
            assert len(key.openers) <= GROUPS_KEPT


def test_a_field_has_the_name_of_the_definition_that_is_asked_for() -> None:
    key, under = new_key(), definition()
    group, row = sealed(key, under, None)
    other = definition({"called": PROPERTIES["name"], "age": PROPERTIES["age"]})
    assert other.ids == under.ids
    assert sealing.open_row(key, under, group, 0, row).data == {"name": "Ada"}
    assert sealing.open_row(key, other, group, 0, row, under).data == {"called": "Ada"}
    assert sealing.open_row(key, under, group, 0, row).data == {"name": "Ada"}


def test_a_group_of_the_same_uid_that_states_other_lengths_is_another() -> None:
    key, under = new_key(), definition()
    group, row = sealed(key, under, 36)
    sealing.open_row(key, under, group, 0, row)
    classes = [LeastClass(64, 1), *group.classes[1:]]
    with pytest.raises(DoesNotOpen):
        sealing.open_row(key, under, msgspec.structs.replace(group, classes=classes), 0, row)
    fewer = msgspec.structs.replace(group, classes=group.classes[1:])
    with pytest.raises(DoesNotOpen):
        sealing.open_row(key, under, fewer, 0, row)
    assert sealing.open_row(key, under, group, 0, row).data == {"name": "Ada", "age": 36}


def test_a_row_is_authentic_exactly_where_each_byte_of_it_is_the_one_that_was_sealed() -> None:
    key, under = new_key(), definition()
    group, row = sealed(key, under, 36)
    opener = sealing.opener_of(key, under, group, under)
    opener.authenticate(0, row)
    others = [(1, row), (0, SealedRow(os.urandom(16), row.version, row.fields))]
    others += [(0, SealedRow(row.record_id, row.version + 1, row.fields))]
    others += [(0, SealedRow(row.record_id, row.version, row.fields[:1]))]
    others += [(0, SealedRow(row.record_id, row.version, row.fields[::-1]))]
    for at, one in enumerate(row.fields):
        for place in range(len(one)):
            spoilt = bytes([*one[:place], one[place] ^ 1, *one[place + 1 :]])
            fields = [*row.fields[:at], spoilt, *row.fields[at + 1 :]]
            others.append((0, SealedRow(row.record_id, row.version, fields)))
    for ordinal, other in others:
        with pytest.raises(DoesNotOpen):
            opener.authenticate(ordinal, other)
