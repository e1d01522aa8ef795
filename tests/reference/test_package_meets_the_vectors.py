"""The package derives, encodes, seals, opens and refuses what the vectors say."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encrypted_records import runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto import recovery, sealing, spooling, values
from encrypted_records.crypto.keys import Keyring, RootKey, SchemaKey, SchemaKeys, TailKey
from encrypted_records.errors import DoesNotOpen, ErsError, Unsupported
from encrypted_records.index.columns.rebase import Rebase
from encrypted_records.model.ciphertext_lengths import LeastClass, least_class, padded_length
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.definition_parser import parse_canonical, parse_definition
from encrypted_records.model.ids import to_text
from encrypted_records.model.records import Group, SealedRow
from encrypted_records.proxy.spool import Spool
from encrypted_records.proxy.write.ingest import IdempotencyKey
from tests.reference.loading import raw, vectors

DERIVATION = vectors("derivation.json")
VALUES = vectors("values.json")
FIELDS = vectors("fields.json")
KEYRING = vectors("keyring.json")
PHRASES = vectors("phrases.json")
SPOOL = vectors("spool.json")


def code_of(error: BaseException) -> str:
    assert isinstance(error, ErsError)
    return type(error).code


def bare(key: Any) -> str:
    """A key's bytes, which the package gives to no one; only these tests look."""
    return bytes(key._secret).hex()


def schema_keys(entry: dict[str, Any]) -> SchemaKeys:
    place = (bytes.fromhex(entry["organization"]), bytes.fromhex(entry["schema"]))
    return Keyring({entry["kv"]: RootKey(bytes.fromhex(entry["root"]))}).schema(*place)


def schema_key(entry: dict[str, Any]) -> SchemaKey:
    return schema_keys(entry).newest


def field(text: str, *, enforced: bool = False) -> FieldSpec:
    formats = '"formats": "enforced", ' if enforced else ""
    root = f'{{"type": "object", {formats}"properties": {{"f": {text}}}}}'
    return parse_definition(root).fields["f"]


def field_of_values(name: str) -> FieldSpec:
    return field(VALUES["fields"][name], enforced=name in VALUES["enforced"])


@pytest.mark.parametrize("entry", DERIVATION["keys"], ids=lambda entry: f"kv {entry['kv']}")
def test_every_key_of_the_tree_is_derived_as_specified(
    entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = schema_key(DERIVATION | entry)
    group, segment = (bytes.fromhex(DERIVATION[name]) for name in ("group", "segment"))
    assert bare(key) == entry["K_schema"]
    assert key.id.hex() == entry["key_id"]
    assert bare(key.log) == entry["K_log"]
    assert bare(key.ledger) == entry["K_ledger"]
    assert bare(key.checkpoint) == entry["K_checkpoint"]
    assert bare(key.uids) == entry["K_uid"]
    assert bare(key.cover) == entry["K_cover"]
    for draw in entry["draws"]:
        question, place = (bytes.fromhex(draw[name]) for name in ("question", "place"))
        assert key.cover.draw(question, draw["kind"].encode(), place) == draw["draw"]
    assert bare(key.meta(segment)) == entry["K_meta"]
    definition = parse_definition(DERIVATION["definition"])
    for expected in entry["fields"]:
        spec = definition.fields[expected["name"]]
        derived = key.field(spec)
        assert spec.binding.hex() == expected["binding"]
        assert bare(derived) == expected["K_field"]
        assert bare(derived.seal(group)) == expected["K_seal"]
        assert bare(derived.index(segment)) == expected["K_index"]
        assert bare(derived.tail) == expected["K_tail"]
    uid = entry["uid"]
    monkeypatch.setattr(runtime.machine, "random_bytes", lambda _: bytes.fromhex(uid["r"]))
    digest = hashlib.sha256(bytes.fromhex(uid["content"])).digest()
    assert key.uids.uid(digest).hex() == uid["uid"]
    request = entry["request"]
    digest = hashlib.sha256(bytes.fromhex(request["body"])).digest()
    once = IdempotencyKey(bytes.fromhex(request["key"]), digest)
    made = [once.request_id(key.uids), *(once.record_id(key.uids, number) for number in (1, 100))]
    assert [one.hex() for one in made] == request["ids"]
    question = hashlib.sha256(entry["question"]["text"].encode()).digest()
    assert key.uids.of_question(question).hex() == entry["question"]["question"]


@pytest.mark.parametrize("entry", vectors("bindings.json"), ids=lambda entry: entry["fields"][0])
def test_every_spelling_of_a_field_binds_alike(entry: dict[str, Any]) -> None:
    assert {
        field(text, enforced=entry.get("enforced", False)).binding.hex() for text in entry["fields"]
    } == {entry["binding"]}


@pytest.mark.parametrize("entry", vectors("definitions.json"), ids=lambda one: one["digest"][:8])
def test_every_spelling_of_a_definition_has_its_digest(entry: dict[str, Any]) -> None:
    found = [parse_definition(text) for text in entry["definitions"]]
    assert {one.digest.hex() for one in found} == {entry["digest"]}
    assert {one.canonical.decode() for one in found} == {entry["canonical"]}
    assert all(parse_canonical(one.canonical) == one for one in found)


@pytest.mark.parametrize("entry", vectors("successions.json"), ids=lambda one: one["canonical"])
def test_a_definition_that_follows_another_keeps_its_ids(entry: dict[str, Any]) -> None:
    before, after = map(parse_definition, entry["texts"])
    renamed = entry.get("renamed", {})
    followed = after.following(before, renamed)
    assert followed.follows(before)
    assert {name: followed.fields[name].id for name in renamed} == {
        name: before.fields[was].id for name, was in renamed.items()
    }
    assert followed.canonical.decode() == entry["canonical"]
    assert parse_canonical(followed.canonical) == followed


@pytest.mark.parametrize("entry", vectors("rebases.json"), ids=lambda one: one["shown"])
def test_keys_go_from_one_grid_to_another(entry: dict[str, Any]) -> None:
    own, shown = (
        parse_definition(f'{{"type": "object", "properties": {{"a": {entry[which]}}}}}').fields["a"]
        for which in ("own", "shown")
    )
    rebase = Rebase.between(own, shown)
    assert rebase is not None
    moved = [str(rebase.key(int(key))) for key in entry["keys"]]
    assert moved == entry["moved"]
    together = rebase.keys(np.array([int(key) for key in entry["keys"]], np.uint64))
    assert [str(key) for key in together] == moved
    with pytest.raises(DoesNotOpen):
        rebase.key(int(entry["keys"][-1]) + 1)


def test_lengths_are_padded_as_specified() -> None:
    for entry in vectors("padding.json"):
        assert padded_length(entry["size"]) == entry["padded"]


def test_order_bytes_and_index_keys_are_as_specified() -> None:
    found = vectors("order_bytes.json")
    tail = TailKey(bytes.fromhex(found["K_tail"]))
    for entry in found["texts"]:
        ordered = values.order_bytes(entry["text"])
        assert ordered.hex() == entry["order_bytes"]
        assert values.string_key(ordered, tail).hex() == entry["index_key"]


@pytest.mark.parametrize("entry", VALUES["good"], ids=lambda one: f"{one['field']}-{one['plain']}")
def test_a_value_has_its_plaintext_and_comes_back_from_it(entry: dict[str, Any]) -> None:
    spec = field_of_values(entry["field"])
    value = raw(entry["value"], spec.type)
    if spec.type == "integer" and value is not None and spec.format is None:
        value = int(str(value))
    stated = LeastClass(*entry["class"])
    assert values.encode(spec, value, stated).hex() == entry["plain"]  # type: ignore[arg-type]
    assert values.decode(spec, bytes.fromhex(entry["plain"]), stated) == value


@pytest.mark.parametrize("name", VALUES["classes"])
def test_a_field_has_the_least_class_that_its_definition_asks_for(name: str) -> None:
    stated = least_class(field_of_values(name))
    assert [stated.length, stated.only] == VALUES["classes"][name]


@pytest.mark.parametrize("entry", VALUES["bad"], ids=lambda entry: entry["why"])
def test_a_plaintext_that_no_value_has_is_refused(entry: dict[str, Any]) -> None:
    spec = field_of_values(entry["field"])
    with pytest.raises(ErsError) as caught:
        values.decode(spec, bytes.fromhex(entry["plain"]), LeastClass(*entry["class"]))
    assert code_of(caught.value) == entry["error"]


def open_sealed(place: dict[str, Any], name: str, stated: Any, sealed: str) -> Any:
    """Open one field as a row of a group that has no other."""
    definition = parse_definition(place["definition"])
    ids, classes = [definition.fields[name].id], [LeastClass(*stated)]
    uid, named = bytes.fromhex(place["group"]), definition.digest
    group = Group(uid, place["kv"], 100, ids, classes, named, bytes(32))
    row = SealedRow(bytes.fromhex(place["record"]), place["version"], [bytes.fromhex(sealed)])
    opened = sealing.open_row(schema_key(place), definition, group, place["ordinal"], row)
    return opened.data.get(name)


@pytest.mark.parametrize("entry", FIELDS["good"], ids=lambda one: f"{one['field']}-{one['value']}")
def test_a_sealed_field_is_made_and_opened_as_specified(entry: dict[str, Any]) -> None:
    place = FIELDS["place"]
    key, name = schema_key(place), entry["field"]
    spec = parse_definition(place["definition"]).fields[name]
    value = spec.accept(raw(entry["value"], spec.type))
    assert open_sealed(place, name, entry["class"], entry["sealed"]) == value
    record = sealing.record_context(
        sealing.context_of(key), bytes.fromhex(place["record"]), place["version"]
    )
    sealed = sealing.seal_field(
        key.field(spec).seal(bytes.fromhex(place["group"])),
        place["ordinal"],
        record,
        spec.id_bytes,
        values.encode(spec, value, LeastClass(*entry["class"])),
    )
    assert sealed.hex() == entry["sealed"]


@pytest.mark.parametrize("entry", FIELDS["bad"], ids=lambda entry: entry["why"])
def test_a_sealed_field_opens_nowhere_but_in_its_place(entry: dict[str, Any]) -> None:
    with pytest.raises(ErsError) as caught:
        open_sealed(entry["place"], entry["field"], entry["class"], entry["sealed"])
    assert code_of(caught.value) == entry["error"]


BAD_KEYRINGS = KEYRING["machine_key"]["bad"] + KEYRING["passphrase"]["bad"]


def wrapper_of(entry: dict[str, Any]) -> recovery.Wrapper:
    if "machine_key" in entry:
        return recovery.MachineKey(bytes.fromhex(entry["machine_key"]))
    return recovery.Passphrase(entry["passphrase"])


def unwrapped(entry: dict[str, Any], wrapper: recovery.Wrapper) -> dict[str, Any]:
    file, owner = (bytes.fromhex(entry[name]) for name in ("file", "owner"))
    keyring = recovery.unwrap(file, wrapper, owner)
    return {
        str(version): {"created": root.created, "root": root.export().hex()}
        for version, root in keyring.roots.items()
    }


def test_a_keyring_file_is_written_and_read_as_specified(monkeypatch: pytest.MonkeyPatch) -> None:
    good = KEYRING["machine_key"]["good"]
    wrapper, owner = wrapper_of(good), bytes.fromhex(good["owner"])
    assert unwrapped(good, wrapper) == KEYRING["roots"]
    keyring = recovery.unwrap(bytes.fromhex(good["file"]), wrapper, owner)
    monkeypatch.setattr(runtime.machine, "random_bytes", lambda _: bytes.fromhex(good["nonce"]))
    assert recovery.wrap(keyring, wrapper, owner).hex() == good["file"]


def test_a_keyring_file_with_a_passphrase_is_written_and_read_as_specified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = KEYRING["passphrase"]["good"]
    owner = bytes.fromhex(good["owner"])
    random = {len(good[name]) // 2: bytes.fromhex(good[name]) for name in ("nonce", "salt")}
    monkeypatch.setattr(runtime.machine, "random_bytes", lambda size: random[size])
    for spelling in (good["passphrase"], good["same_passphrase"]):
        wrapper = recovery.Passphrase(spelling, cost=recovery.KdfCost(**good["cost"]))
        assert unwrapped(good, wrapper) == KEYRING["roots"]
        keyring = recovery.unwrap(bytes.fromhex(good["file"]), wrapper, owner)
        assert recovery.wrap(keyring, wrapper, owner).hex() == good["file"]


@pytest.mark.parametrize("wrapping", [fmt.WRAP_KEYCHAIN, *fmt.WRAP_SERVICES])
def test_a_keyring_file_under_a_key_kept_elsewhere_is_read_as_specified(wrapping: int) -> None:
    entry = KEYRING["others"][str(wrapping)]
    key = bytes.fromhex(entry["key"])
    kept_elsewhere = wrapping in fmt.WRAP_SERVICES
    wrapper = (
        recovery.ServiceWrappingKey(wrapping, key) if kept_elsewhere else recovery.KeychainKey(key)
    )
    assert unwrapped(entry, wrapper) == KEYRING["roots"]
    with pytest.raises(DoesNotOpen):
        unwrapped(entry, recovery.MachineKey(bytes.fromhex(entry["key"])))


@pytest.mark.parametrize("entry", BAD_KEYRINGS, ids=lambda entry: entry["why"])
def test_a_keyring_file_that_is_not_sound_is_refused_by_name(entry: dict[str, Any]) -> None:
    with pytest.raises(ErsError) as caught:
        unwrapped(entry, wrapper_of(entry))
    assert code_of(caught.value) == entry["error"]


def test_a_root_key_has_its_fingerprint() -> None:
    root = RootKey(bytes.fromhex(DERIVATION["root"]))
    assert root.fingerprint.hex() == DERIVATION["fingerprint"]
    assert root.verifier.hex() == DERIVATION["verifier"]


def test_a_root_key_has_its_phrase_and_comes_back_from_it() -> None:
    for entry in PHRASES["good"]:
        assert recovery.phrase_of(RootKey(bytes.fromhex(entry["root"]))) == entry["phrase"]
        found = recovery.root_of(entry["phrase"], created=7)
        assert (found.export().hex(), found.created) == (entry["root"], 7)


def test_case_and_white_space_of_a_phrase_do_not_matter() -> None:
    for text in PHRASES["same"]["phrases"]:
        found = recovery.root_of(text, created=0)
        assert found.export().hex() == PHRASES["same"]["root"]


@pytest.mark.parametrize("entry", PHRASES["bad"], ids=lambda entry: entry["why"])
def test_a_phrase_with_a_mistake_is_refused_and_not_repeated(entry: dict[str, Any]) -> None:
    with pytest.raises(ErsError) as caught:
        recovery.root_of(entry["phrase"], created=0)
    assert code_of(caught.value) == entry["error"]
    assert caught.value.reason == "invalid_phrase"
    said = set(f"{caught.value.message} {caught.value.hint}".split())
    assert not said & {word for word in entry["phrase"].split() if len(word) > 4}


def test_the_keys_of_a_spool_file_and_of_a_job_are_derived_as_specified() -> None:
    root, upload = (bytes.fromhex(SPOOL[name]) for name in ("root", "upload"))
    for version, expected in SPOOL["K_spool"].items():
        assert bare(RootKey(root).spool(upload, int(version))) == expected
    for version, expected in SPOOL["K_job"].items():
        assert bare(RootKey(root).job(upload, int(version))) == expected
    key = RootKey(root).spool(upload, 1)
    found = [bare(key.session(bytes.fromhex(salt))) for salt in SPOOL["salts"]]
    assert found == SPOOL["K_session"]


def spool_file(kind: int, sessions: list[list[bytes]]) -> str:
    key = RootKey(bytes.fromhex(SPOOL["root"])).spool(bytes.fromhex(SPOOL["upload"]), 1)
    file = head = spooling.SpoolHead(kind, key.version, key.upload).encode()
    offset = 0
    for number, frames in enumerate(sessions):
        salt = bytes.fromhex(SPOOL["salts"][number])
        session = spooling.SpoolSession(key, head, number, offset, salt)
        file += session.encode()
        for plain in frames:
            out = memoryview(bytearray(len(plain) + spooling.FRAME_OVERHEAD))
            assert session.seal_into(plain, out) == len(out)
            file += bytes(out)
        offset = session.offset
    return file.hex()


def test_a_spool_file_is_written_as_specified() -> None:
    sessions = [[bytes.fromhex(frame) for frame in frames] for frames in SPOOL["sessions"]]
    assert spool_file(fmt.SPOOL_PLAIN, sessions) == SPOOL["file"]


@pytest.mark.parametrize("name", ["joined", "note"])
def test_a_spool_file_of_one_frame_is_made_and_opened_as_specified(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = {"joined": fmt.SPOOL_JOINED, "note": fmt.SPOOL_NOTE}[name]
    plain, file = (bytes.fromhex(SPOOL[name][part]) for part in ("plain", "file"))
    key = RootKey(bytes.fromhex(SPOOL["root"])).spool(bytes.fromhex(SPOOL["upload"]), 1)
    monkeypatch.setattr(runtime.machine, "random_bytes", lambda _: bytes.fromhex(SPOOL["salts"][0]))
    assert spooling.seal_whole(kind, key, plain) == file
    assert spooling.open_whole(kind, key, file) == plain
    for at in range(len(file)):
        altered = file[:at] + bytes((file[at] ^ 1,)) + file[at + 1 :]
        for wrong in (altered, file[:at]):
            with pytest.raises((DoesNotOpen, Unsupported)):
                spooling.open_whole(kind, key, wrong)


def read_spool(folder: Path, file: str) -> str:
    upload = bytes.fromhex(SPOOL["upload"])
    spool = Spool(folder)
    (folder / f"{to_text(upload)}.spool").write_bytes(bytes.fromhex(file))
    keyring = Keyring({kv: RootKey(bytes.fromhex(SPOOL["root"])) for kv in (1, 2)})
    return b"".join(spool.read(upload, keyring, size=len(SPOOL["plain"]) // 2)).hex()


def test_a_spool_file_is_read_as_specified(tmp_path: Path) -> None:
    assert read_spool(tmp_path, SPOOL["file"]) == SPOOL["plain"]


@pytest.mark.parametrize("entry", SPOOL["bad"], ids=lambda entry: entry["why"])
def test_an_unsound_spool_file_is_damaged(entry: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DoesNotOpen) as caught:
        read_spool(tmp_path, entry["file"])
    assert caught.value.reason == "spool_damaged"
