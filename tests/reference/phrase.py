"""Section 8.1: the recovery phrase."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from tests.reference import Refused

_LIST = files("mnemonic").joinpath("wordlist/english.txt").read_text("ascii")
_WORDS = _LIST.split()
LIST_DIGEST = hashlib.sha256("".join(word + "\n" for word in _WORDS).encode()).hexdigest()


def phrase(root: bytes) -> str:
    number = int.from_bytes(root + hashlib.sha256(root).digest()[:1], "big")
    return " ".join(_WORDS[number >> 11 * at & 2047] for at in reversed(range(24)))


def root_of(text: str) -> bytes:
    words = text.lower().split()
    if len(words) != 24 or not set(words) <= set(_WORDS):
        raise Refused("invalid")
    number = 0
    for word in words:
        number = number << 11 | _WORDS.index(word)
    whole = number.to_bytes(33, "big")
    if hashlib.sha256(whole[:32]).digest()[:1] != whole[32:]:
        raise Refused("invalid")
    return whole[:32]
