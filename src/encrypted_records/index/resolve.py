"""From a predicate and a segment's columns to the rows that match.

An answer is two sets of local ordinals: those that *certainly* match and those that *possibly*
do. They differ only where strings longer than an index key are compared by order or prefix; the
rows between the two are decided on the opened records. ``not`` swaps the roles, so no
uncertainty is lost on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pyroaring import BitMap

from encrypted_records.crypto import values
from encrypted_records.crypto.format import INDEX_KEY_BYTES, INDEX_KEY_PREFIX
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.columns import Column
from encrypted_records.index.segments import OpenSegment
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.predicates import (
    Absent,
    And,
    Everything,
    Leaf,
    Not,
    NumberIn,
    NumberRange,
    Or,
    Predicate,
    TextIn,
    TextPrefix,
    TextRange,
)


@dataclass(frozen=True, slots=True)
class Matches:
    """``certain`` is a subset of ``possible``; the truth lies between them."""

    certain: BitMap
    possible: BitMap

    @classmethod
    def exactly(cls, rows: BitMap) -> Matches:
        return cls(rows, rows)


#: Positions in a column's keys, first included and last not.
_Slice = tuple[int, int]


def resolve(
    predicate: Predicate, segment: OpenSegment, tails: SchemaKey, definition: SchemaDefinition
) -> Matches:
    """The rows of ``segment`` that match, as local ordinals.

    Args:
        tails: the key under which the log began (:attr:`.ledger.Ledger.tails`).

    Raises:
        DoesNotOpen: a column that is needed does not open.
    """
    rows = BitMap(segment.rows)

    def leaf(part: Leaf) -> Matches:
        return _leaf(part, segment.column(part.field), tails, definition)

    return _combine(predicate, rows, leaf)


def _combine(predicate: Predicate, rows: BitMap, leaf: Callable[[Leaf], Matches]) -> Matches:
    match predicate:
        case Everything():
            return Matches.exactly(rows)
        case And(parts) | Or(parts):
            found = [_combine(part, rows, leaf) for part in parts]
            join = BitMap.intersection if isinstance(predicate, And) else BitMap.union
            return Matches(
                join(*(one.certain for one in found)), join(*(one.possible for one in found))
            )
        case Not(part):
            inner = _combine(part, rows, leaf)
            return Matches(rows - inner.possible, rows - inner.certain)
        case _:
            return leaf(predicate)


def _leaf(leaf: Leaf, column: Column, tails: SchemaKey, definition: SchemaDefinition) -> Matches:
    if isinstance(leaf, Absent):
        return Matches.exactly(BitMap(column.ordinals[: column.absent]))
    if not len(column.keys):
        return Matches.exactly(BitMap())
    if isinstance(leaf, NumberIn | NumberRange):
        lowest = definition.fields[leaf.field].numbers.lowest
        return Matches.exactly(_rows(column, _number_slices(leaf, column, lowest)))
    return _text(leaf, column, tails, definition)


def _rows(column: Column, slices: list[_Slice]) -> BitMap:
    held = column.ordinals[column.absent :]
    return BitMap.union(BitMap(), *(BitMap(held[first:last]) for first, last in slices))


def _number_slices(leaf: NumberIn | NumberRange, column: Column, lowest: int) -> list[_Slice]:
    if isinstance(leaf, NumberRange):
        return [_number_slice(column, leaf.low - lowest, leaf.high - lowest)]
    return [_number_slice(column, point - lowest, point - lowest) for point in leaf.points]


def _number_slice(column: Column, low: int, high: int) -> _Slice:
    if high < 0 or low >= 2**64 or low > high:
        return 0, 0
    first = np.searchsorted(column.keys, np.uint64(max(low, 0)), "left")
    last = np.searchsorted(column.keys, np.uint64(min(high, 2**64 - 1)), "right")
    return int(first), int(last)


def _text(
    leaf: TextIn | TextPrefix | TextRange,
    column: Column,
    tails: SchemaKey,
    definition: SchemaDefinition,
) -> Matches:
    match leaf:
        case TextIn(field, texts):
            tail = tails.field(definition.fields[field]).tail
            wanted = [values.string_key(values.order_bytes(text), tail) for text in texts]
            slices = [(_at(column, one, "left"), _at(column, one, "right")) for one in wanted]
            return Matches.exactly(_rows(column, slices))
        case TextPrefix(_, prefix):
            return _prefix(column, values.order_bytes(prefix))
        case TextRange(_, low, high, low_included, high_included):
            everything = (0, len(column.keys))
            above = _Bound(everything, everything)
            below = above
            if low is not None:
                above = _above(column, values.order_bytes(low), included=low_included)
            if high is not None:
                below = _below(column, values.order_bytes(high), included=high_included)
            return Matches(
                _rows(column, [_overlap(above.certain, below.certain)]),
                _rows(column, [_overlap(above.possible, below.possible)]),
            )


@dataclass(frozen=True, slots=True)
class _Bound:
    """What one bound of a range leaves over."""

    certain: _Slice
    possible: _Slice


def _overlap(one: _Slice, other: _Slice) -> _Slice:
    first = max(one[0], other[0])
    return first, max(first, min(one[1], other[1]))


def _at(column: Column, wanted: bytes, side: Literal["left", "right"]) -> int:
    keys = column.keys
    return int(np.searchsorted(keys, np.array(wanted, keys.dtype), side))


def _with_prefix(column: Column, prefix: bytes) -> _Slice:
    """The keys that begin with these order bytes (at most 48)."""
    return _at(column, prefix, "left"), _at(column, prefix.ljust(INDEX_KEY_BYTES, b"\xff"), "right")


def _longer_than_key(column: Column, ordered: bytes) -> _Slice:
    """The keys of long strings whose first 48 order bytes are those of ``ordered``."""
    prefix = ordered[:INDEX_KEY_PREFIX]
    _, last = _with_prefix(column, prefix)
    # The string that is just the prefix, and ends there, is no long one.
    return _at(column, prefix, "right"), last


def _prefix(column: Column, ordered: bytes) -> Matches:
    if not values.is_long(ordered):
        return Matches.exactly(_rows(column, [_with_prefix(column, ordered)]))
    return Matches(BitMap(), _rows(column, [_longer_than_key(column, ordered)]))


def _above(column: Column, ordered: bytes, *, included: bool) -> _Bound:
    end = len(column.keys)
    if not values.is_long(ordered):
        first = _at(column, ordered, "left" if included else "right")
        return _Bound((first, end), (first, end))
    unsure = _longer_than_key(column, ordered)
    return _Bound((unsure[1], end), (unsure[0], end))


def _below(column: Column, ordered: bytes, *, included: bool) -> _Bound:
    if not values.is_long(ordered):
        last = _at(column, ordered, "right" if included else "left")
        return _Bound((0, last), (0, last))
    unsure = _longer_than_key(column, ordered)
    return _Bound((0, unsure[0]), (0, unsure[1]))
