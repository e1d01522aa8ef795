"""Sections 15.6 and 15.8: words, the keys that follow from them, answers, service strings."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

from tests.reference import Refused, hpke
from tests.reference.identity import check_keys, is_signed, sign, signing_key
from tests.reference.keys import expand, info, mac
from tests.reference.msgpack import pack
from tests.reference.phrase import _WORDS
from tests.reference.roster import Roster

_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def words(secret: bytes) -> str:
    checksum = hashlib.sha256(secret).digest()[0] >> 4
    number = int.from_bytes(secret, "big") << 4 | checksum
    return " ".join(_WORDS[number >> 11 * at & 2047] for at in reversed(range(12)))


def secret_of(text: str) -> bytes:
    found = text.lower().split()
    if len(found) != 12 or not set(found) <= set(_WORDS):
        raise Refused("invitation_words")
    number = 0
    for word in found:
        number = number << 11 | _WORDS.index(word)
    secret = (number >> 4).to_bytes(16, "big")
    if words(secret) != " ".join(found):
        raise Refused("invitation_words")
    return secret


def spelled(digest: bytes) -> str:
    """The words of the head (15.9)."""
    number = int.from_bytes(digest[:11], "big")
    return " ".join(_WORDS[number >> 11 * at & 2047] for at in reversed(range(8)))


@dataclass(frozen=True)
class Keys:
    pair: bytes
    answer_seed: bytes
    check_key: bytes

    @property
    def answer_key(self) -> bytes:
        return signing_key(self.answer_seed)


def keys_of(secret: bytes, organization: bytes, invitation: bytes) -> Keys:
    pair = hpke.expand(hpke.extract(organization + invitation, secret), info(b"invitation"), 32)
    return Keys(pair, expand(pair, b"answer"), expand(pair, b"check"))


def check(keys: Keys, previous: bytes, content: list[Any]) -> bytes:
    """``content`` is the whole of an invite entry, or all but its check."""
    return mac(keys.check_key, previous + pack(content[:6]))


def answer(
    keys: Keys, entry: bytes, organization: bytes, invitation: bytes, signed: list[bytes]
) -> list[Any]:
    """``signed`` are member, keys, anchor and proof."""
    signature = sign(keys.answer_seed, "answer", entry + b"".join(signed))
    return [1, organization, invitation, *signed, signature]


def check_answer(roster: Roster, answer: list[Any], now: int) -> None:
    """Refuse what owners refuse."""
    version, organization, invitation, member, keys, anchor, proof, signature = answer
    if version != 1:
        raise Refused("unsupported")
    state = roster.states[-1]
    invite = state.invitations.get(invitation)
    if organization != roster.organization or invite is None:
        raise Refused("invitation_words")
    if invite["over"] or now >= invite["expires"]:
        raise Refused("invitation_over")
    if invite["member"] and invite["member"] != member:
        raise Refused("invitation_words")
    if not invite["member"] and member in state.members:
        raise Refused("invitation_over")
    signed = invite["digest"] + member + keys + anchor + proof
    if not is_signed(invite["answer_key"], "answer", signed, signature):
        raise Refused("invitation_words")
    check_keys(keys)
    if state.is_of_another(member, keys):
        raise Refused("keys_refused")
    if not is_signed(keys[1:33], "keys", roster.digests[1] + member + keys + anchor, proof):
        raise Refused("keys_refused")


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().replace("=", "")


def identifier(data: bytes) -> str:
    number, text = int.from_bytes(data, "big"), ""
    for _ in range(22):
        number, digit = divmod(number, 57)
        text = _ALPHABET[digit] + text
    return text


def service_string(member: bytes, root: bytes) -> str:
    return f"ers1_{identifier(member)}_{base64url(root)}"
