"""What a proxy keeps of a log is sealed as the specification says, by it and by the reference."""

from __future__ import annotations

from typing import Any

import pytest

from encrypted_records import runtime
from encrypted_records.crypto.keys import Keyring, RootKey, SchemaKeys
from encrypted_records.errors import ErsError
from encrypted_records.proxy.schemas import store as kept_ledgers
from tests.reference import Refused, kept, keys
from tests.reference.loading import vectors

FOUND = vectors("ledgers.json")
USER, ORGANIZATION, SCHEMA = (bytes.fromhex(FOUND[n]) for n in ("user", "organization", "schema"))
ROOTS = {int(kv): bytes.fromhex(root) for kv, root in FOUND["roots"].items()}
SCHEMAS = [keys.schema(root, ORGANIZATION, SCHEMA, kv) for kv, root in ROOTS.items()]


def schema_keys(newest: int) -> SchemaKeys:
    """The package's, of a keyring whose newest version it is."""
    held = {kv: RootKey(root) for kv, root in ROOTS.items() if kv <= newest}
    return SchemaKeys(Keyring(held), ORGANIZATION, SCHEMA)


@pytest.mark.parametrize("entry", FOUND["good"])
def test_a_log_is_kept_as_specified(entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plain, sealed = bytes.fromhex(entry["plain"]), bytes.fromhex(entry["sealed"])
    assert kept.read(SCHEMAS, USER, sealed) == plain
    assert kept_ledgers.unseal(USER, schema_keys(2), sealed) == plain
    monkeypatch.setattr(
        runtime.machine, "random_bytes", lambda size: bytes.fromhex(FOUND["nonce"])[:size]
    )
    assert kept_ledgers.seal(USER, schema_keys(entry["kv"]), plain) == sealed


@pytest.mark.parametrize("entry", FOUND["bad"], ids=lambda entry: entry["why"])
def test_what_was_not_kept_in_its_place_is_refused(entry: dict[str, Any]) -> None:
    sealed = bytes.fromhex(entry["sealed"])
    with pytest.raises(Refused) as refused:
        kept.read(SCHEMAS, USER, sealed)
    assert refused.value.code == entry["error"]
    with pytest.raises(ErsError) as caught:
        kept_ledgers.unseal(USER, schema_keys(2), sealed)
    assert caught.value.code == entry["error"]


def test_no_two_are_sealed_under_one_nonce() -> None:
    first, second = (kept_ledgers.seal(USER, schema_keys(1), b"x") for _ in range(2))
    assert first[5:17] != second[5:17]
