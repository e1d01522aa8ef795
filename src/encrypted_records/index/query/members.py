"""The values of one column as a set that another field's column is compared with.

Both are sorted, so that comparing them is one pass over their keys. Numbers are brought to the
other field's grid first; those that are not on it are no value of that field. Long strings have
index keys under their own schema's tails, and are given as texts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto import values
from encrypted_records.crypto.format import INDEX_KEY_BYTES, INDEX_KEY_PREFIX
from encrypted_records.crypto.keys import TailKey
from encrypted_records.index.columns.column import Keys, key_type, run_starts
from encrypted_records.index.columns.packing import matrix
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.predicates import InColumn, NumberIn, Predicate, TextIn

#: Of no more values, each is looked up as that of any comparison is.
FEW = 1000
#: The greatest key of a number.
_LAST = 2**64 - 1

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class KeyMembers:
    """``keys`` are sorted and distinct, as ``spec``, the field that is compared, has them; none is
    of a long string. ``long`` are those, in the form in which texts are compared."""

    spec: FieldSpec
    keys: Keys
    long: frozenset[str] = frozenset()

    def has_point(self, point: int) -> bool:
        offset = point - self.spec.numbers.lowest
        return 0 <= offset <= _LAST and self._has(np.array([offset], np.uint64))

    def has_text(self, text: str) -> bool:
        if self.spec.kind is KeyKind.UUID:
            return self._has(values.uuid_keys([text]))
        ordered = values.order_bytes(text)
        if values.is_long(ordered):
            return text in self.long
        return self._has(np.array([ordered], f"S{INDEX_KEY_BYTES}"))

    def _has(self, key: Keys) -> bool:
        return bool(held_in(key, self.keys)[0])

    def index_keys(self, tail: TailKey) -> Keys:
        """The index keys of all of them, sorted.

        Args:
            tail: of the field that is compared.
        """
        if not self.long:
            return self.keys
        longer = values.string_keys(list(self.long), tail)
        return np.sort(np.concatenate((self.keys, longer)), kind="stable")


def held_in(keys: Keys, wanted: Keys) -> Mask:
    """A mask of the keys, in any order, that are among the sorted keys ``wanted``."""
    if not len(keys) or not len(wanted):
        return np.zeros(len(keys), np.bool_)
    at = np.searchsorted(wanted, keys)
    at[at == len(wanted)] = 0
    held: Mask = wanted[at] == keys
    return held


def are_alike(spec: FieldSpec, other: FieldSpec) -> bool:
    """Whether values of two fields can be equal: of one format, or of none and both of texts or
    both of numbers."""
    own, its = spec.field_type, other.field_type
    return own is its or (own.is_number and its.is_number)


def join_keys(parts: Sequence[Keys], spec: FieldSpec) -> Keys:
    """The sorted, distinct keys of several columns of a field as one."""
    none: Keys = np.zeros(0, key_type(spec.kind))
    # What is in order already is merged, which takes a tenth of the time of sorting it.
    every = np.sort(np.concatenate((none, *(part for part in parts if len(part)))), kind="stable")
    return every[run_starts(every)]


def are_long(keys: Keys) -> Mask:
    """A mask of the keys whose strings are longer than an index key."""
    if keys.dtype.kind != "S" or keys.dtype.itemsize < INDEX_KEY_BYTES:
        return np.zeros(len(keys), np.bool_)
    long: Mask = np.any(matrix(keys)[:, INDEX_KEY_PREFIX:], axis=1)
    return long


def compare_with(
    own: FieldSpec, other: FieldSpec, keys: Keys, long: Collection[str], *, few: int = FEW
) -> Predicate:
    """Whether ``own`` has one of the values of ``other`` whose keys these are.

    Args:
        keys: sorted and distinct, none of a long string.
        long: the long strings, in the form in which texts are compared.
        few: of no more values, each is looked up alone.
    """
    if not own.is_of_texts:
        keys = to_grid(own, other, keys)
    if len(keys) + len(long) > few:
        return InColumn(own.name, KeyMembers(own, keys, frozenset(long)))
    if own.kind is KeyKind.TEXT:
        return TextIn(own.name, frozenset((*map(values.text_of, map(bytes, keys)), *long)))
    if own.kind is KeyKind.UUID:
        return TextIn(own.name, frozenset(map(values.from_uuid_key, map(bytes, keys))))
    lowest = own.numbers.lowest
    return NumberIn(own.name, frozenset(lowest + key for key in keys.tolist()))


def to_grid(own: FieldSpec, other: FieldSpec, keys: Keys) -> Keys:
    """The keys of ``other``'s values as ``own`` has them, without those that it cannot have.

    Both are sorted; exact, whatever bounds and decimals the fields have.
    """
    mine, theirs = own.numbers, other.numbers
    keys = keys.astype(np.uint64)
    more = mine.precision - theirs.precision
    if more < 0:
        # Only every so-many-th of their points is one of ours.
        step = 10**-more
        first = -theirs.lowest % step
        keys = keys[keys % np.uint64(step) == np.uint64(first)] // np.uint64(step)
        lowest, factor = (theirs.lowest + first) // step, 1
    else:
        lowest, factor = theirs.lowest, 10**more
    # Ours is (lowest + key) * factor, from our lowest to our highest.
    begin = max(0, -(-mine.lowest // factor) - lowest)
    end = min(_LAST, mine.highest // factor - lowest)
    if end < begin:
        return keys[:0]
    keys = keys[np.searchsorted(keys, np.uint64(begin)) :]
    keys = keys[: np.searchsorted(keys, np.uint64(end), "right")]
    # What is kept has its place within 64 bits, and unsigned numbers go round at their end.
    shift = (lowest * factor - mine.lowest) % 2**64
    return keys * np.uint64(factor) + np.uint64(shift)
