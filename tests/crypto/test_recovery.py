"""A keyring file opens for its owner on its machine, and for no one else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto import recovery
from encrypted_records.crypto.keys import Keyring, RootKey
from encrypted_records.errors import Closed, DoesNotOpen, Unsupported
from tests.reference import log

MACHINE, OWNER = bytes(range(32)), bytes(range(16))
KEYRING = Keyring({1: RootKey(bytes([1] * 32)), 3: RootKey(bytes([3] * 32))})
ROOTS = {1: bytes([1] * 32), 3: bytes([3] * 32)}


def roots(keyring: Keyring) -> dict[int, bytes]:
    return {version: root.export() for version, root in keyring.roots.items()}


def test_a_keyring_comes_back_from_its_file() -> None:
    file = recovery.wrap(KEYRING, MACHINE, OWNER)
    assert roots(recovery.unwrap(file, MACHINE, OWNER)) == ROOTS


def test_each_implementation_opens_the_others_file() -> None:
    assert log.unwrap(recovery.wrap(KEYRING, MACHINE, OWNER), MACHINE, OWNER) == ROOTS
    file = log.wrap(ROOTS, MACHINE, OWNER, bytes(12))
    assert roots(recovery.unwrap(file, MACHINE, OWNER)) == ROOTS


def test_wrapping_twice_never_repeats_a_nonce_or_shows_a_key() -> None:
    files = {recovery.wrap(KEYRING, MACHINE, OWNER) for _ in range(20)}
    assert len({file[12:24] for file in files}) == 20
    assert not any(root in file for file in files for root in ROOTS.values())


@given(st.data())
def test_no_byte_of_the_file_can_be_altered(data: st.DataObject) -> None:
    file = bytearray(recovery.wrap(KEYRING, MACHINE, OWNER))
    at = data.draw(st.integers(0, len(file) - 1))
    file[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((DoesNotOpen, Unsupported)):
        recovery.unwrap(bytes(file), MACHINE, OWNER)


@given(st.binary(max_size=120), st.booleans())
def test_any_other_bytes_are_refused_by_name(body: bytes, sound_head: bool) -> None:
    head = recovery.wrap(KEYRING, MACHINE, OWNER)[:24] if sound_head else b""
    with pytest.raises((Closed, Unsupported)):
        recovery.unwrap(head + body, MACHINE, OWNER)


@pytest.mark.parametrize(
    ("machine", "owner"), [(bytes(32), OWNER), (MACHINE, bytes(16)), (MACHINE, b"")]
)
def test_another_machine_or_owner_is_told_what_to_do_and_nothing_else(
    machine: bytes, owner: bytes
) -> None:
    with pytest.raises(DoesNotOpen) as caught:
        recovery.unwrap(recovery.wrap(KEYRING, MACHINE, OWNER), machine, owner)
    assert "same backup" in caught.value.hint
    assert not any(root.hex() in str(caught.value) for root in ROOTS.values())
