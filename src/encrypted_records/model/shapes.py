"""Lengths that a ciphertext of our format can have (docs/SPEC.md, section 4).

The API holds no key; lengths and version bytes are all it can check, so that nothing that is not
a ciphertext of this format is stored. The proxy seals to the same lengths.
"""

from __future__ import annotations

from collections.abc import Sequence

from encrypted_records.model.definition import FieldType

#: First byte of every sealed field and page.
SEAL_VERSION = 1
_VERSION = bytes((SEAL_VERSION,))
TAG_BYTES = 16
#: A type byte and a 64-bit number.
NUMBER_PLAIN_BYTES = 9
_SMALL_CLASSES = (16, 32, 48, 64)


def padded_length(size: int) -> int:
    """The length class of ``size`` bytes: 16, 32, 48, 64, then Padmé.

    Padmé (Nikitin et al., "Reducing Metadata Leakage from Encrypted Files and Communication with
    PURBs", PETS 2019, section 4) adds at most 12 % and leaks O(log log size) bits.
    """
    for length in _SMALL_CLASSES:
        if size <= length:
            return length
    exponent = size.bit_length() - 1
    kept = exponent.bit_length()
    mask = (1 << (exponent - kept)) - 1
    return (size + mask) & ~mask


def is_padded_length(size: int) -> bool:
    return size > 0 and padded_length(size) == size


def are_sealed_fields(column: Sequence[bytes], kind: FieldType) -> bool:
    """Whether all have the version byte and a length that a field of ``kind`` can have.

    By column, since a column of thousands has few lengths.
    """
    begins = {sealed[:1] for sealed in column}
    return begins <= {_VERSION} and all(_is_length(size, kind) for size in set(map(len, column)))


def _is_length(size: int, kind: FieldType) -> bool:
    plain = size - 1 - TAG_BYTES
    if kind == "string":
        return is_padded_length(plain - 1)
    return plain == NUMBER_PLAIN_BYTES
