"""Lengths that a ciphertext of our format can have (docs/SPEC.md, section 4).

The API holds no key and can check only lengths and version bytes. It does, so that it stores only
ciphertexts of this format. The proxy seals to the same lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from encrypted_records.model.definition import FieldSpec, SchemaDefinition
from encrypted_records.model.field_types import TYPES
from encrypted_records.model.field_types.base import POINT_BYTES

#: First byte of every sealed field and page.
SEAL_VERSION = 1
_first = itemgetter(0)
TAG_BYTES = 16
#: A type byte and a 64-bit number.
NUMBER_PLAIN_BYTES = 1 + POINT_BYTES
_SMALL_CLASSES = (16, 32, 48, 64)
#: Bytes of a sealed field in addition to its class: format version, type byte, tag.
BESIDE_CLASS = 2 + TAG_BYTES


class LeastClass(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A group's statement about one of its fields: no value is sealed at a class below ``length``
    bytes, nor at a class above it if ``only`` is 1.
    """

    length: Annotated[int, Meta(ge=8, lt=2**32)]
    only: Literal[0, 1]

    def may_be(self, length: int) -> bool:
        """Whether a plaintext of this field may have ``length`` bytes after its type byte."""
        if length == self.length:
            return True
        return not self.only and length > self.length and is_padded_length(length)


def fixed_class(spec: FieldSpec) -> LeastClass | None:
    """The only class of a field whose values all have the same length; None for a field
    of texts.
    """
    length = spec.field_type.fixed_bytes
    return None if length is None else LeastClass(length, 1)


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


def class_step(size: int) -> int:
    """The distance between length classes at ``size``."""
    if size <= _SMALL_CLASSES[-1]:
        return 16
    exponent = size.bit_length() - 1
    return 1 << (exponent - exponent.bit_length())


def is_padded_length(size: int) -> bool:
    return size > 0 and padded_length(size) == size


#: The length of every number.
NUMBER_CLASS = LeastClass(POINT_BYTES, 1)
#: Classes of fixed-length values, which no text has.
_FIXED = frozenset(
    LeastClass(kind.fixed_bytes, 1)
    for kind in TYPES
    if kind.fixed_bytes is not None and not is_padded_length(kind.fixed_bytes)
)


def is_fixed_length(length: int) -> bool:
    """Whether values of some type have this length, and no text has it."""
    return any(fixed.length == length for fixed in _FIXED)


def least_class(spec: FieldSpec, at_least: int = 0) -> LeastClass:
    """The least class for values of the field under its definition.

    Args:
        at_least: the class that the values had before, if they are sealed again: a rule that was
            loosened in between must not reveal their lengths.
    """
    if (fixed := fixed_class(spec)) is not None:
        return fixed
    # One byte more, for the marker that ends a text.
    length = max(padded_length(spec.alike_bytes + 1), at_least)
    return LeastClass(length, int(spec.longest_bytes < length))  # type: ignore[arg-type] # 0 or 1


def sealed_class(spec: FieldSpec, size: int) -> int:
    """The class at which a value of ``size`` bytes is sealed under the field's definition. For an
    absent value and for a number, ``size`` does not matter.
    """
    stated = least_class(spec)
    return stated.length if stated.only else max(stated.length, padded_length(size + 1))


def padded_width(definition: SchemaDefinition) -> int:
    """The sum of the least classes of all fields: the minimum bytes of a record."""
    return sum(least_class(spec).length for spec in definition.fields.values())


def is_class(stated: LeastClass) -> bool:
    """Whether any field can have this class."""
    return stated in _FIXED or is_padded_length(stated.length)


def is_class_of(spec: FieldSpec, stated: LeastClass) -> bool:
    """Whether a group may state this class for a field: not weaker than the definition demands."""
    least = least_class(spec)
    if spec.field_type.fixed_bytes is not None:
        return stated == least
    return is_class(stated) and stated.length >= least.length and stated.only >= least.only


def are_sealed_fields(column: Sequence[bytes], stated: LeastClass) -> bool:
    """Whether all have the version byte and a length that their group allows.

    The check is by column, because a column of thousands has few distinct lengths.
    """
    if not all(stated.may_be(size - BESIDE_CLASS) for size in set(map(len, column))):
        return False
    # None is empty at this point, so each has a first byte.
    return set(map(_first, column)) <= {SEAL_VERSION}
