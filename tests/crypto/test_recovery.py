"""A keyring file opens for its owner, under its key or passphrase, and for no one else."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encrypted_records.crypto import recovery
from encrypted_records.crypto.keys import Keyring, RootKey
from encrypted_records.crypto.recovery import KdfCost, MachineKey, Passphrase, Wrapper
from encrypted_records.errors import BadInput, Closed, DoesNotOpen, Unsupported
from tests.reference import keyring as ref

MACHINE, OWNER = MachineKey(bytes(range(32))), bytes(range(16))
QUICK = KdfCost(8192, 1, 1)
PHRASE = Passphrase("correct horse", cost=QUICK)
KEYRING = Keyring({1: RootKey(bytes([1] * 32), created=7), 2: RootKey(bytes([3] * 32))})
ROOTS = {1: (7, bytes([1] * 32)), 2: (0, bytes([3] * 32))}
both = pytest.mark.parametrize("wrapper", [MACHINE, PHRASE], ids=["machine key", "passphrase"])


def roots(keyring: Keyring) -> dict[int, tuple[int, bytes]]:
    return {version: (root.created, root.export()) for version, root in keyring.roots.items()}


@both
def test_a_keyring_comes_back_from_its_file_with_its_dates(wrapper: Wrapper) -> None:
    file = recovery.wrap(KEYRING, wrapper, OWNER)
    assert roots(recovery.unwrap(file, wrapper, OWNER)) == ROOTS


def test_each_implementation_opens_the_others_file() -> None:
    assert ref.unwrap(recovery.wrap(KEYRING, MACHINE, OWNER), bytes(range(32)), OWNER) == ROOTS
    assert ref.unwrap(recovery.wrap(KEYRING, PHRASE, OWNER), "correct horse", OWNER) == ROOTS
    file = ref.wrap(ROOTS, bytes(range(32)), OWNER, bytes(12))
    assert roots(recovery.unwrap(file, MACHINE, OWNER)) == ROOTS
    chosen = ref.parameters(*QUICK, bytes(16))
    file = ref.wrap_with_passphrase(ROOTS, "correct horse", OWNER, bytes(12), chosen)
    assert roots(recovery.unwrap(file, PHRASE, OWNER)) == ROOTS


@both
def test_wrapping_twice_never_repeats_a_nonce_or_a_salt_or_shows_a_key(wrapper: Wrapper) -> None:
    files = [recovery.wrap(KEYRING, wrapper, OWNER) for _ in range(10)]
    assert len({file[24:36] if wrapper is PHRASE else file[12:24] for file in files}) == 10
    assert len({file[-16:] for file in files}) == 10
    assert not any(root in file for file in files for _, root in ROOTS.values())


@pytest.mark.parametrize("text", ["x" * 4097, "\u00e9" * 2049, "\u0315\u0300" * (1 << 19)])
def test_a_passphrase_of_more_than_4096_bytes_is_refused_before_anything_is_done_with_it(
    text: str,
) -> None:
    with pytest.raises(BadInput, match="4096 bytes"):
        Passphrase(text)


@pytest.mark.parametrize("text", ["x" * 4096, "\u00e9" * 2048, "\u0344" * 2048])
def test_one_of_4096_bytes_is_taken_even_if_its_normal_form_is_longer(text: str) -> None:
    passphrase = Passphrase(text, cost=QUICK)
    assert roots(recovery.unwrap(recovery.wrap(KEYRING, passphrase, OWNER), passphrase, OWNER))


@pytest.mark.parametrize("text", ["zoo " * 1025, "\u0315\u0300" * (1 << 19)])
def test_what_is_much_longer_than_24_words_is_no_recovery_phrase(text: str) -> None:
    with pytest.raises(BadInput, match="4096 characters") as caught:
        recovery.root_of(text, created=0)
    assert caught.value.reason == "invalid_phrase"


@both
@settings(deadline=None)
@given(data=st.data())
def test_no_byte_of_the_file_can_be_altered(wrapper: Wrapper, data: st.DataObject) -> None:
    file = bytearray(recovery.wrap(KEYRING, wrapper, OWNER))
    # Great costs are for the vectors: here no key is derived for longer than a moment.
    places = [at for at in range(len(file)) if not (wrapper is PHRASE and 12 <= at < 24)]
    file[data.draw(st.sampled_from(places))] ^= data.draw(st.integers(1, 255))
    with pytest.raises((DoesNotOpen, Unsupported)):
        recovery.unwrap(bytes(file), wrapper, OWNER)


def test_a_file_that_commits_to_another_passphrase_opens_under_neither() -> None:
    """AES-GCM alone would take it: its tag is right under the first of the two keys."""
    first, second = bytes(range(32)), bytes([7] * 32)
    file = ref.wrap_of_two_keys(first, second, ROOTS, OWNER, bytes(12))
    for key in (first, second):
        with pytest.raises(DoesNotOpen, match="cannot be decrypted with this machine's key"):
            recovery.unwrap(file, MachineKey(key), OWNER)


@pytest.mark.parametrize("versions", [(0, 1), (2,), (1, 3), (335_776_903,)])
def test_a_file_whose_versions_do_not_ascend_from_1_is_refused_by_name(
    versions: tuple[int, ...],
) -> None:
    numbered = dict.fromkeys(versions, ROOTS[1])
    file = ref.wrap(numbered, bytes(range(32)), OWNER, bytes(12))
    with pytest.raises(DoesNotOpen, match="versions in the keyring file") as caught:
        recovery.unwrap(file, MACHINE, OWNER)
    assert "backup" in caught.value.hint


@given(st.binary(max_size=120), st.sampled_from([0, 24, 56]))
def test_any_other_bytes_are_refused_by_name(body: bytes, sound: int) -> None:
    head = recovery.wrap(KEYRING, MACHINE, OWNER)[:sound]
    with pytest.raises((Closed, Unsupported)):
        recovery.unwrap(head + body, MACHINE, OWNER)


@pytest.mark.parametrize(
    ("machine", "owner"), [(bytes(32), OWNER), (bytes(range(32)), bytes(16)), (bytes(32), b"")]
)
def test_another_machine_or_owner_is_told_what_to_do_and_nothing_else(
    machine: bytes, owner: bytes
) -> None:
    with pytest.raises(DoesNotOpen) as caught:
        recovery.unwrap(recovery.wrap(KEYRING, MACHINE, OWNER), MachineKey(machine), owner)
    assert "same backup" in caught.value.hint
    assert not any(root.hex() in str(caught.value) for _, root in ROOTS.values())


def test_another_passphrase_is_told_so_and_neither_is_repeated() -> None:
    file = recovery.wrap(KEYRING, PHRASE, OWNER)
    with pytest.raises(DoesNotOpen) as caught:
        recovery.unwrap(file, Passphrase("correct house"), OWNER)
    assert "passphrase" in caught.value.message
    assert not {"horse", "house"} & set((caught.value.message + caught.value.hint).split())


@both
def test_a_file_says_how_it_is_wrapped_and_opens_with_nothing_else(wrapper: Wrapper) -> None:
    file = recovery.wrap(KEYRING, wrapper, OWNER)
    assert recovery.wrapping_of(file) == wrapper.wrapping
    with pytest.raises(DoesNotOpen):
        recovery.unwrap(file, PHRASE if wrapper is MACHINE else MACHINE, OWNER)


def test_a_new_file_costs_what_rfc_9106_recommends() -> None:
    file = recovery.wrap(KEYRING, Passphrase("correct horse"), OWNER)
    assert file[12:24] == ref.parameters(65_536, 3, 4, b"")


@pytest.mark.parametrize("text", ["", "\udc80"])
def test_nothing_and_half_a_character_are_no_passphrases(text: str) -> None:
    with pytest.raises(BadInput, match="passphrase"):
        Passphrase(text)


@both
def test_what_wraps_does_not_print(wrapper: Wrapper) -> None:
    shown = f"{wrapper!r} {wrapper}"
    assert "horse" not in shown
    assert repr(bytes(range(32))) not in shown


def test_a_keyring_comes_back_from_the_phrases_of_all_its_versions_in_their_order() -> None:
    phrases = [recovery.phrase_of(root) for _, root in sorted(KEYRING.roots.items())]
    found = recovery.keyring_of(phrases, created=5)
    assert list(found.roots) == [1, 2]
    assert [root.export() for root in found.roots.values()] == [
        root.export() for _, root in sorted(KEYRING.roots.items())
    ]
    assert {root.created for root in found.roots.values()} == {5}
    with pytest.raises(BadInput, match="phrases of all its versions"):
        recovery.keyring_of([], created=5)


def test_the_place_of_a_wrong_word_is_told_and_not_the_word() -> None:
    with pytest.raises(BadInput, match="word 2, 24 of") as caught:
        recovery.root_of("abandon hospitl " + "abandon " * 21 + "artt", created=0)
    assert "hospitl" not in caught.value.message


def test_keys_of_several_lanes_are_derived_at_once_by_several_threads() -> None:
    """OpenSSL's own threads wait for each other for ever where two derivations run at once."""
    passphrase = Passphrase("correct horse", cost=KdfCost(8192, 1, 4))
    done: list[bytes] = []

    def derive() -> None:
        for _ in range(3):
            done.append(recovery.wrap(KEYRING, passphrase, OWNER))

    threads = [threading.Thread(target=derive, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(done) == 12


def test_a_file_may_not_ask_for_more_than_five_times_the_usual_work() -> None:
    file = bytearray(recovery.wrap(KEYRING, PHRASE, OWNER))
    file[12:20] = (524_289).to_bytes(4, "big") + (2).to_bytes(4, "big")
    with pytest.raises(Unsupported, match="out of bounds"):
        recovery.unwrap(bytes(file), PHRASE, OWNER)
