"""Keys of an identity sign one kind at a time, and neither print nor leave."""

from __future__ import annotations

import copy
import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto import recovery
from encrypted_records.crypto.identity import Identity, MemberKeys, Verifier
from encrypted_records.crypto.invitations import InvitationSecret
from encrypted_records.crypto.keys import RootKey
from encrypted_records.errors import BadInput, DoesNotOpen, KeysRefused
from encrypted_records.model import signatures
from encrypted_records.model.signatures import message
from tests.reference import identity as naive

ORGANIZATION, OTHER, MEMBER = bytes(15) + b"o", bytes(15) + b"p", bytes(15) + b"m"
ROOT = RootKey(b"r" * 32)


def identity() -> Identity:
    return ROOT.identity(ORGANIZATION, MEMBER, 1)


def test_every_place_and_version_has_keys_of_its_own() -> None:
    every = [
        ROOT.identity(ORGANIZATION, MEMBER, 1),
        ROOT.identity(ORGANIZATION, MEMBER, 2),
        ROOT.identity(OTHER, MEMBER, 1),
        ROOT.identity(ORGANIZATION, OTHER, 1),
        RootKey(b"s" * 32).identity(ORGANIZATION, MEMBER, 1),
    ]
    parts = [part for one in every for part in MemberKeys(one.keys).parts]
    assert len(set(parts)) == len(parts)
    assert identity().keys == every[0].keys


@given(st.binary(max_size=200), st.binary(max_size=20))
def test_what_is_sealed_to_a_member_opens_for_that_member_and_purpose(
    plain: bytes, info: bytes
) -> None:
    own = identity()
    sealed = MemberKeys(own.keys).seal(plain, info)
    assert own.open(sealed, info) == plain
    for wrong in (sealed[:-1], sealed + b"\x00", sealed[:1120]):
        with pytest.raises(DoesNotOpen):
            own.open(wrong, info)
    with pytest.raises(DoesNotOpen):
        ROOT.identity(OTHER, MEMBER, 1).open(sealed, info)


def test_a_signature_with_a_key_of_small_order_would_be_right_for_everything() -> None:
    """Why such keys are refused: the library does not."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    neutral = b"\x01" + bytes(31)
    for text in (b"one", b"another"):
        Ed25519PublicKey.from_public_bytes(neutral).verify(neutral + bytes(32), text)
    with pytest.raises(KeysRefused):
        Verifier(neutral)


def test_the_listed_points_are_those_whose_order_divides_eight() -> None:
    listed = naive.small_orders()
    assert len(listed) == 5
    for y in listed:
        assert not signatures.signs_alone(y.to_bytes(32, "little"))
    assert signatures.signs_alone(identity().public)


def test_the_listed_points_to_seal_to_are_those_of_small_order_on_the_curve_and_its_twist() -> None:
    """By the map of RFC 7748, section 4.1: u = (1 + y) / (1 - y); of the twist -1 comes on top."""
    signing = naive.small_orders() - {1}  # the neutral point, which has no u
    listed = {(1 + y) * pow(1 - y, -1, naive.P) % naive.P for y in signing} | {naive.P - 1}
    assert len(listed) == 5
    for u in listed:
        assert not signatures.agrees_alone(u.to_bytes(32, "little"))
    assert signatures.agrees_alone(identity().keys[33:65])


@pytest.mark.parametrize("highest", [0, 1])
@pytest.mark.parametrize("multiple", [0, 1])
def test_the_library_seals_to_no_point_of_small_order(
    monkeypatch: pytest.MonkeyPatch, highest: int, multiple: int
) -> None:
    """Nothing rests on the list alone."""
    keys = identity().keys
    monkeypatch.setattr(signatures, "agrees_alone", lambda _: True)
    for u in signatures._SMALL_ORDER_U:
        spelled = u + multiple * naive.P
        if spelled < 2**255:
            point = (spelled + highest * 2**255).to_bytes(32, "little")
            with pytest.raises(ValueError, match="shared key"):
                MemberKeys(keys[:33] + point + keys[65:]).seal(b"plain", b"info")


def test_secrets_neither_print_nor_leave_by_accident() -> None:
    secrets = [identity(), InvitationSecret(b"s" * 16), ROOT.anchor(ORGANIZATION, MEMBER, 1)]
    for secret in secrets:
        assert repr(secret) == f"<{type(secret).__name__}>"
        with pytest.raises(TypeError):
            pickle.dumps(secret)
        with pytest.raises(TypeError):
            copy.copy(secret)


def test_kinds_are_part_of_what_is_signed() -> None:
    signature = identity().sign("keys", b"a", b"b")
    verifier = MemberKeys(identity().keys).verifier
    assert verifier.verify(signature, message("keys", b"ab"))
    assert not verifier.verify(signature, message("answer", b"ab"))


@given(st.binary(min_size=16, max_size=16))
def test_words_are_read_again_however_they_are_typed(secret: bytes) -> None:
    typed = "\t".join(word.title() for word in recovery.words_of(secret).split()) + "\n"
    assert recovery.secret_of(typed, 12, "invitation", BadInput) == secret


def test_words_in_another_order_or_another_word_are_said_to_be_so() -> None:
    told = recovery.words_of(bytes(range(16))).split()
    for mistyped in (reversed(told), ["zoo", *told[1:]]):
        with pytest.raises(BadInput, match="is wrong, or the order is"):
            recovery.secret_of(" ".join(mistyped), 12, "invitation", BadInput)


def test_words_of_a_digest_follow_its_first_bits() -> None:
    digest = os.urandom(32)
    assert recovery.spelled(digest, 8).split() == recovery.spelled(digest, 23).split()[:8]
    assert recovery.spelled(bytes(32), 3) == "abandon abandon abandon"
