"""Keys are derived apart from each other, found by their ids, and never show themselves."""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records import runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.keys import (
    FieldKey,
    IndexKey,
    Keyring,
    LogKey,
    MetaKey,
    RootKey,
    SchemaKey,
    SchemaKeys,
    SealKey,
    TailKey,
    UidKey,
)
from encrypted_records.errors import DoesNotOpen, ErsError, KeyMissing
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.definition_parser import parse_definition

SECRET = bytes(range(32, 64))
ORGANIZATION, SCHEMA, UID = bytes(16), bytes([1] * 16), bytes([2] * 16)
PLAIN_KEYS = [RootKey, FieldKey, SealKey, IndexKey, MetaKey, LogKey, UidKey, TailKey]


def schema_key(root: RootKey | None = None) -> SchemaKey:
    return (root or RootKey(SECRET)).schema(ORGANIZATION, SCHEMA, 1)


def used(key: Any) -> Any:
    """A key whose cached parts exist, as in the middle of its work."""
    if isinstance(key, SchemaKeys):
        used(key.newest)
    if isinstance(key, SchemaKey):
        _ = key.id, key.log, key.uids, key.field(FieldSpec("s", "string")).tail
    if isinstance(key, SealKey | IndexKey | MetaKey):
        key.encrypt(bytes(12), b"", b"")
    if isinstance(key, FieldKey):
        _ = key.tail
    return key


KEYS = [
    *(used(kind(SECRET)) for kind in PLAIN_KEYS),
    used(SchemaKey(SECRET, organization=ORGANIZATION, schema=SCHEMA, version=1)),
    Keyring({1: RootKey(SECRET), 2: RootKey(bytes(32))}),
    used(Keyring({1: RootKey(SECRET)}).schema(ORGANIZATION, SCHEMA)),
]


def shows(text: str) -> bool:
    """Whether the secret is in ``text`` in any of the usual spellings."""
    spelled = [
        SECRET.hex(),
        base64.b64encode(SECRET).decode(),
        repr(SECRET)[2:-1],
        str(list(SECRET)),
    ]
    return any(one.lower() in text.lower() for one in spelled)


@pytest.mark.parametrize("key", KEYS, ids=lambda key: type(key).__name__)
@pytest.mark.parametrize(
    "show",
    [
        repr,
        str,
        "{}".format,
        "{!r:>40}".format,
        lambda key: "%s %r" % (key, key),  # noqa: UP031
        lambda key: f"{[key]} { ({'key': key}) }",
        lambda key: json.dumps(key, default=repr),
        lambda key: repr({name: value for name, value in vars(key).items() if name != "roots"}),
        lambda key: repr(ValueError("no", key)),
        ascii,
    ],
    ids=["repr", "str", "format", "padded", "%", "nested", "json", "vars", "error", "ascii"],
)
def test_a_key_shows_nothing_of_itself(key: Any, show: Callable[[Any], str]) -> None:
    assert not shows(show(key))


def test_the_check_itself_sees_a_secret_in_every_spelling() -> None:
    for shown in (repr(SECRET), SECRET.hex(" ").replace(" ", ""), f"{list(SECRET)}"):
        assert shows(f"<Key {shown}>")


@pytest.mark.parametrize("key", KEYS, ids=lambda key: type(key).__name__)
def test_a_key_is_neither_pickled_nor_copied(key: Any) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError):
            pickle.dumps(key, protocol)
    with pytest.raises(TypeError):
        copy.deepcopy(key)
    if isinstance(key, Keyring):
        with pytest.raises(TypeError):
            dataclasses.asdict(key)
    elif not isinstance(key, SchemaKeys):
        with pytest.raises(TypeError):
            copy.copy(key)


def test_tracebacks_with_local_variables_show_no_key() -> None:
    keyring = Keyring({1: RootKey(SECRET)})
    keys = keyring.schema(ORGANIZATION, SCHEMA)
    key = keys.newest
    field = key.field(FieldSpec("s", "string"))
    failing: list[Callable[[], object]] = [
        lambda: keys.of(9),
        lambda: keys.find(1, bytes(8)),
        lambda: field.seal(UID).decrypt(bytes(12), bytes(40), b""),
    ]
    secrets = [bytes(one._secret) for one in (key, field, field.seal(UID))]
    for call in failing:
        with pytest.raises(ErsError) as caught:
            call()
        below = caught.tb.tb_next  # this test's own variables hold the secrets
        shown = "".join(
            traceback.TracebackException(
                caught.type, caught.value, below, capture_locals=True
            ).format()
        )
        assert "self = <" in shown
        assert not shows(shown)
        assert not any(repr(secret)[2:-1] in shown or secret.hex() in shown for secret in secrets)


def test_only_a_root_key_gives_its_bytes_away_and_only_when_asked() -> None:
    assert RootKey(SECRET).export() == SECRET
    for kind in (*PLAIN_KEYS[1:], SchemaKey):
        assert not hasattr(kind, "export")


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_has_32_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        RootKey(bytes(size))


def test_generated_keys_differ() -> None:
    assert len({RootKey.generate().export() for _ in range(50)}) == 50
    assert Keyring.generate().roots[1].export() != Keyring.generate().roots[1].export()


parts = st.lists(st.binary(max_size=5), max_size=4)


@given(parts, parts)
def test_no_two_lists_of_parts_give_the_same_info_string(
    one: list[bytes], other: list[bytes]
) -> None:
    assert (fmt.info(*one) == fmt.info(*other)) == (one == other)


def test_no_two_places_of_the_tree_share_a_key() -> None:
    definition = parse_definition(
        """{"type": "object", "properties": {
            "a": {"type": "string"}, "b": {"type": "string"},
            "n": {"type": "integer", "minimum": 0, "maximum": 9},
            "m": {"type": "number", "minimum": 0, "maximum": 9, "precision": 0}}}"""
    )
    moved = parse_definition(
        """{"type": "object", "properties": {
            "n": {"type": "integer", "minimum": 0, "maximum": 10}}}"""
    )
    found: list[bytes] = []
    for root in (RootKey(SECRET), RootKey(bytes(32))):
        for organization, schema, version in [
            (ORGANIZATION, SCHEMA, 1),
            (SCHEMA, ORGANIZATION, 1),
            (ORGANIZATION, SCHEMA, 2),
            (ORGANIZATION, UID, 1),
        ]:
            key = root.schema(organization, schema, version)
            fields = [key.field(spec) for spec in definition.fields.values()]
            fields.append(key.field(moved.fields["n"]))
            keys: list[Any] = [key, key.log, key.uids, key.meta(UID), key.meta(SCHEMA), *fields]
            for field in fields:
                keys += [field.seal(UID), field.seal(SCHEMA), field.index(UID), field.index(SCHEMA)]
                keys.append(field.tail)
            found += [bytes(key._secret) for key in keys]
    assert len(set(found)) == len(found)


def test_a_schemas_key_is_found_by_its_version_and_must_have_the_id_that_is_stated() -> None:
    keyring = Keyring({version: RootKey.generate() for version in (1, 2, 7)})
    keys = keyring.schema(ORGANIZATION, SCHEMA)
    assert keys.newest.version == keyring.newest == 7
    for version in (1, 2, 7):
        wanted = keyring.roots[version].schema(ORGANIZATION, SCHEMA, version)
        assert keys.find(version, wanted.id).id == wanted.id
        assert keys.find(version, wanted.id) is keys.of(version)
        with pytest.raises(KeyMissing, match=f"version {version} of this keyring is another"):
            keys.find(version, bytes(8))


def test_a_key_that_the_keyring_lacks_is_missing_by_name() -> None:
    keyring, other = Keyring.generate(), Keyring.generate()
    keys, foreign = keyring.schema(ORGANIZATION, SCHEMA), other.schema(ORGANIZATION, SCHEMA)
    with pytest.raises(KeyMissing, match="no version 2"):
        keys.of(2)
    with pytest.raises(KeyMissing, match=f"{foreign.newest.id.hex()}.* version 2; .* is 1"):
        keys.find(2, foreign.newest.id)
    with pytest.raises(KeyMissing, match=foreign.newest.id.hex()):
        keys.find(1, foreign.newest.id)
    with pytest.raises(KeyMissing):
        keyring.schema(ORGANIZATION, UID).find(1, keys.newest.id)


def test_a_rotated_keyring_holds_the_old_keys_and_one_that_owes_them_nothing() -> None:
    keyring = Keyring.generate(created=1)
    one, other = keyring.rotate(created=2), keyring.rotate(created=2)
    assert one.newest == other.newest == 2
    assert one.roots[1] is other.roots[1] is keyring.roots[1]
    assert one.roots[2].created == 2
    assert len({keyring.fingerprint, one.fingerprint, other.fingerprint}) == 3
    assert one.rotate().newest == 3


def test_uids_are_fresh_and_hedged_by_the_content(monkeypatch: pytest.MonkeyPatch) -> None:
    uids = schema_key().uids
    assert len({uids.uid(bytes(32)) for _ in range(50)}) == 50
    assert len(uids.uid(bytes(32))) == fmt.UID_BYTES
    monkeypatch.setattr(runtime.machine, "random_bytes", bytes)  # a cloned machine draws the same
    assert uids.uid(bytes(32)) == uids.uid(bytes(32))
    assert uids.uid(bytes(32)) != uids.uid(bytes([1] * 32))


def test_a_mac_verifies_its_message_and_no_other() -> None:
    log = schema_key().log
    tag = log.compute(b"body")
    assert log.verify(tag, b"body")
    assert log.verify(tag, b"bo", b"dy")
    for wrong, message in [
        (tag, b"bodY"),
        (tag[:-1], b"body"),
        (bytes(32), b"body"),
        (b"", b"body"),
    ]:
        assert not log.verify(wrong, message)
    assert not schema_key(RootKey(bytes(32))).log.verify(tag, b"body")


@pytest.mark.parametrize("size", [0, 1, 15, 16, 40])
def test_what_is_no_ciphertext_does_not_open(size: int) -> None:
    with pytest.raises(DoesNotOpen) as caught:
        SealKey(SECRET).decrypt(bytes(12), bytes(size), b"")
    assert caught.value.__suppress_context__
