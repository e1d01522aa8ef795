"""Lengths that a ciphertext of our format can have (docs/SPEC.md, section 4).

The API holds no key; lengths and version bytes are all it can check, so that nothing that is not
a ciphertext of this format is stored. The proxy seals to the same lengths.
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
#: What a sealed field has beside its class: format version, type byte, tag.
BESIDE_CLASS = 2 + TAG_BYTES


class LeastClass(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A group's statement on one of its fields: no value is sealed at a class below ``length``
    bytes, and none above it where it is the ``only`` one.
    """

    length: Annotated[int, Meta(ge=8, lt=2**32)]
    only: Literal[0, 1]

    def may_be(self, length: int) -> bool:
        """Whether a plaintext of this field may have ``length`` bytes after its type byte."""
        if length == self.length:
            return True
        return not self.only and length > self.length and is_padded_length(length)


def fixed_class(spec: FieldSpec) -> LeastClass | None:
    """The one class of a field whose values all have one length; None of a field of texts."""
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
#: Classes that no text has.
_FIXED = frozenset(
    LeastClass(kind.fixed_bytes, 1)
    for kind in TYPES
    if kind.fixed_bytes is not None and not is_padded_length(kind.fixed_bytes)
)


def is_fixed_length(length: int) -> bool:
    """Whether values of some type have this length, and no text has it."""
    return any(fixed.length == length for fixed in _FIXED)


def least_class(spec: FieldSpec, at_least: int = 0) -> LeastClass:
    """The class below which no value of the field is sealed by its definition.

    Args:
        at_least: the class that the values had before, if they are sealed again: a rule that was
            loosened since must not show their lengths.
    """
    if (fixed := fixed_class(spec)) is not None:
        return fixed
    # One byte more, for the marker that ends a text.
    length = max(padded_length(spec.alike_bytes + 1), at_least)
    return LeastClass(length, int(spec.longest_bytes < length))  # type: ignore[arg-type] # 0 or 1


def sealed_class(spec: FieldSpec, size: int) -> int:
    """The class at which a value of ``size`` bytes is sealed by the field's definition; of an
    absent one, and of a number, whatever the size."""
    stated = least_class(spec)
    return stated.length if stated.only else max(stated.length, padded_length(size + 1))


def padded_width(definition: SchemaDefinition) -> int:
    """The least classes of all fields together: how many bytes every record takes, at least."""
    return sum(least_class(spec).length for spec in definition.fields.values())


def is_class(stated: LeastClass) -> bool:
    """Whether some field can have this class."""
    return stated in _FIXED or is_padded_length(stated.length)


def is_class_of(spec: FieldSpec, stated: LeastClass) -> bool:
    """Whether a group may state this of a field: no weaker than the definition asks for."""
    asked = least_class(spec)
    if spec.field_type.fixed_bytes is not None:
        return stated == asked
    return is_class(stated) and stated.length >= asked.length and stated.only >= asked.only


def are_sealed_fields(column: Sequence[bytes], stated: LeastClass) -> bool:
    """Whether all have the version byte and a length that their group states.

    By column, since a column of thousands has few lengths.
    """
    if not all(stated.may_be(size - BESIDE_CLASS) for size in set(map(len, column))):
        return False
    # None is empty now, so each has a first byte.
    return set(map(_first, column)) <= {SEAL_VERSION}
