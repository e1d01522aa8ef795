"""The reference opens and refuses what the vectors say; making them shows that it seals them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reference import Refused, definitions, keyring, keys, phrase, segments, spool
from tests.reference import fields as ref
from tests.reference.loading import raw, vectors

VALUES = vectors("values.json")
FIELDS = vectors("fields.json")
KEYRING = vectors("keyring.json")
SPOOL = vectors("spool.json")


def schema_of(entry: dict[str, Any]) -> keys.Schema:
    root, organization, schema = (
        bytes.fromhex(entry[name]) for name in ("root", "organization", "schema")
    )
    return keys.schema(root, organization, schema, entry["kv"])


def open_sealed(place: dict[str, Any], name: str, stated: list[int], sealed: str) -> ref.Value:
    return ref.open_field(
        schema_of(place),
        definitions.load(place["definition"]).fields[name],
        bytes.fromhex(place["group"]),
        place["ordinal"],
        bytes.fromhex(place["record"]),
        place["version"],
        bytes.fromhex(sealed),
        (stated[0], stated[1]),
    )


@pytest.mark.parametrize("entry", VALUES["good"], ids=lambda one: f"{one['field']}-{one['plain']}")
def test_a_value_comes_back_from_its_plaintext(entry: dict[str, Any]) -> None:
    name = entry["field"]
    formats = '"formats": "enforced", ' if name in VALUES["enforced"] else ""
    text = f'{{{formats}"properties": {{"f": {VALUES["fields"][name]}}}}}'
    field = definitions.load(text).fields["f"]
    found = ref.value_of(field, bytes.fromhex(entry["plain"]), tuple(entry["class"]))
    assert found == raw(entry["value"], field["type"])


@pytest.mark.parametrize("entry", FIELDS["good"], ids=lambda one: f"{one['field']}-{one['value']}")
def test_a_sealed_field_opens_in_its_place(entry: dict[str, Any]) -> None:
    kind = definitions.load(FIELDS["place"]["definition"]).fields[entry["field"]]["type"]
    found = open_sealed(FIELDS["place"], entry["field"], entry["class"], entry["sealed"])
    assert found == raw(entry["value"], kind)


@pytest.mark.parametrize("entry", FIELDS["bad"], ids=lambda entry: entry["why"])
def test_a_sealed_field_opens_nowhere_else(entry: dict[str, Any]) -> None:
    with pytest.raises(Refused) as caught:
        open_sealed(entry["place"], entry["field"], entry["class"], entry["sealed"])
    assert caught.value.code == entry["error"]


def unwrapped(entry: dict[str, Any]) -> keyring.Roots:
    file, owner = (bytes.fromhex(entry[name]) for name in ("file", "owner"))
    if "passphrase" in entry:
        return keyring.unwrap(file, entry["passphrase"], owner)
    return keyring.unwrap(file, bytes.fromhex(entry["machine_key"]), owner)


@pytest.mark.parametrize(
    "entry",
    KEYRING["machine_key"]["bad"] + KEYRING["passphrase"]["bad"],
    ids=lambda entry: entry["why"],
)
def test_an_unsound_keyring_file_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(Refused) as caught:
        unwrapped(entry)
    assert caught.value.code == entry["error"]


@pytest.mark.parametrize("wrapping", ["machine_key", "passphrase"])
def test_a_sound_keyring_file_opens(wrapping: str) -> None:
    found = {
        str(kv): {"created": created, "root": root.hex()}
        for kv, (created, root) in unwrapped(KEYRING[wrapping]["good"]).items()
    }
    assert found == KEYRING["roots"]


def test_a_phrase_gives_its_root_key() -> None:
    found = vectors("phrases.json")
    for entry in found["good"]:
        assert phrase.root_of(entry["phrase"]).hex() == entry["root"]
    for text in found["same"]["phrases"]:
        assert phrase.root_of(text).hex() == found["same"]["root"]


@pytest.mark.parametrize("part", ["header", "page"])
@pytest.mark.parametrize("at", [0, 1, -1])
def test_an_altered_mini_does_not_open(part: str, at: int) -> None:
    found = vectors("group.json")
    segment = {name: bytearray.fromhex(value) for name, value in found["segment"].items()}
    segment[part][at] ^= 1
    with pytest.raises(Refused, match="does_not_open"):
        segments.open_mini(
            schema_of(found),
            definitions.load(found["definition"]),
            *(bytes(segment[name]) for name in ("uid", "header", "page")),
        )


def read_spool(file: str) -> bytes:
    root, upload = (bytes.fromhex(SPOOL[name]) for name in ("root", "upload"))
    return spool.read(root, upload, bytes.fromhex(file), len(SPOOL["plain"]) // 2)


def test_a_spool_file_gives_its_upload() -> None:
    assert read_spool(SPOOL["file"]).hex() == SPOOL["plain"]


@pytest.mark.parametrize("entry", SPOOL["bad"], ids=lambda entry: entry["why"])
def test_an_unsound_spool_file_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(Refused) as caught:
        read_spool(entry["file"])
    assert caught.value.code == entry["error"]
