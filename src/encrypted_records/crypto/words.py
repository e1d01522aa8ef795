"""Bytes <-> words of BIP-39's English list. No message here repeats a word."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from mnemonic import Mnemonic

from encrypted_records.errors import BadInput
from encrypted_records.model.normalization import normalized

#: Nobody types as much.
_MAX_CHARACTERS = 4096


def words_of(secret: bytes) -> str:
    """16 bytes as 12 words, 32 as 24. Anyone who calls this answers for them."""
    return _bip39().to_mnemonic(secret)


def secret_of(text: str, count: int, name: str, refuse: Callable[[str], BadInput]) -> bytes:
    """Undo :func:`words_of`; case and white space do not matter.

    Args:
        count: how many words there have to be.
        name: what the words are, such as "recovery phrase".
        refuse: makes the error of a message.

    Raises:
        BadInput: what ``refuse`` makes of words that are too many, unknown, or mistyped.
    """
    if len(text) > _MAX_CHARACTERS:
        raise refuse(f"the {name} has at most {_MAX_CHARACTERS} characters")
    words = normalized("NFKD", text).lower().split()
    if len(words) != count:
        raise refuse(f"the {name} has {count} words, not {len(words)}")
    unknown = [at for at, word in enumerate(words, 1) if word not in _bip39().wordlist]
    if unknown:
        places = ", ".join(map(str, unknown))
        raise refuse(f"not in the list of words: word {places} of the {name}")
    try:
        return bytes(_bip39().to_entropy(words))
    except ValueError:
        raise refuse(
            f"a word of the {name} is wrong, or the order is: the checksum does not match"
        ) from None


@cache
def _bip39() -> Mnemonic:
    return Mnemonic("english")


def spelled(digest: bytes, count: int) -> str:
    """The first bits of a public digest as words that people can compare, eleven bits a word."""
    bits = int.from_bytes(digest, "big") >> (8 * len(digest) - 11 * count)
    places = [bits >> (11 * (count - 1 - at)) & 2047 for at in range(count)]
    return " ".join(_bip39().wordlist[place] for place in places)
