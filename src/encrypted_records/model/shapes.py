"""Which byte strings can be a sealed field: lengths that depend on nothing secret but a size class.

A sealed field is the version byte, AES-GCM ciphertext, and a 16-byte tag. The plaintext below is
a type byte and then

* 8 bytes for an integer or a number, whatever its value, and
* for a string its UTF-8 and one marker byte, padded to a *size class*.

Size classes are 16, 32, 48 and 64, and from there on the lengths of Padmé (Nikitin et al.,
"Reducing Metadata Leakage from Encrypted Files and Communication with PURBs", PoPETs 2019,
section 4): at most 12 % of padding, and only O(log log n) bits of the length shown. An absent
field is sealed like a value of its type, so that absence does not show.

The crypto room pads with these functions and the API refuses what they rule out, so that
nothing but ciphertext of this format can be stored.
"""

from __future__ import annotations

from functools import lru_cache

from encrypted_records.model.definition import MAX_STRING_BYTES, FieldType

#: First byte of every sealed field of this format.
SEALED_VERSION = 1
TAG_BYTES = 16
TYPE_BYTES = 1
NUMBER_BYTES = 8
#: Length of every sealed integer or number, the version byte included.
SEALED_NUMBER_BYTES = 1 + TYPE_BYTES + NUMBER_BYTES + TAG_BYTES
_STRING_OVERHEAD = 1 + TYPE_BYTES + TAG_BYTES
_SMALL_CLASS = 16
_SMALL_LIMIT = 64


def padded_length(n: int) -> int:
    """The size class of ``n`` bytes: UTF-8 and the marker byte."""
    if n <= _SMALL_LIMIT:
        return max(1, -(-n // _SMALL_CLASS)) * _SMALL_CLASS
    exponent = n.bit_length() - 1
    zeros = exponent - exponent.bit_length()
    mask = (1 << zeros) - 1
    return (n + mask) & ~mask


#: The largest size class: that of the longest string and its marker byte.
MAX_PADDED_BYTES = padded_length(MAX_STRING_BYTES + 1)


def is_padded_length(p: int) -> bool:
    """Whether ``p`` is a size class; Padmé is idempotent, so its lengths are its fixed points."""
    return 0 < p <= MAX_PADDED_BYTES and padded_length(p) == p


@lru_cache(maxsize=4096)
def is_sealed_length(kind: FieldType, length: int) -> bool:
    """Whether a sealed field of type ``kind`` can be ``length`` bytes long."""
    if kind == "string":
        return is_padded_length(length - _STRING_OVERHEAD)
    return length == SEALED_NUMBER_BYTES
