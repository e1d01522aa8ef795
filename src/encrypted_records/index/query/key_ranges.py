"""The ranges of sorted index keys that a comparison selects; no column is needed to compute them.

A leaf becomes ranges of keys that *certainly* match and ranges that *possibly* do. They differ only
if strings beyond an index key's 48 bytes are compared by order or prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

from encrypted_records.crypto import values
from encrypted_records.crypto.format import INDEX_KEY_BYTES
from encrypted_records.crypto.keys import FieldKey
from encrypted_records.index.columns.column import Edge, KeyRange, last_with, longer_than_key
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.predicates import (
    NumberIn,
    NumberRange,
    TextIn,
    TextPrefix,
    TextRange,
)

#: The leaves that compare a value; :class:`~encrypted_records.model.predicates.Absent` does not.
Comparison = NumberIn | NumberRange | TextIn | TextPrefix | TextRange


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """Disjoint key ranges in order; each key in ``certain`` is in ``possible``."""

    certain: tuple[KeyRange, ...]
    possible: tuple[KeyRange, ...]


def compute_ranges(leaf: Comparison, spec: FieldSpec, key: FieldKey) -> KeyRanges:
    """The keys of ``spec``'s columns that match ``leaf``."""
    match leaf:
        case NumberIn(_, points):
            return _exactly(*(_number(spec, point, point) for point in points))
        case NumberRange(_, low, high):
            return _exactly(_number(spec, low, high))
        case TextIn(_, texts) if spec.kind is KeyKind.UUID:
            keys = [values.uuid_key(text) for text in texts]
            return _exactly(*(KeyRange(Edge(key, "left"), Edge(key, "right")) for key in keys))
        case TextIn(_, texts):
            keys = [values.string_key(values.order_bytes(text), key.tail) for text in texts]
            return _exactly(*(KeyRange(Edge(key, "left"), Edge(key, "right")) for key in keys))
        case TextPrefix(_, prefix):
            return _prefix(values.order_bytes(prefix))
        case TextRange() if spec.kind is KeyKind.UUID:
            return _uuid_range(leaf)
        case TextRange():
            return _range(leaf)


def _exactly(*ranges: KeyRange | None) -> KeyRanges:
    known = tuple(key_range for key_range in ranges if key_range is not None)
    return KeyRanges(known, known)


def _number(spec: FieldSpec, low: int, high: int) -> KeyRange | None:
    lowest = spec.numbers.lowest
    first, last = max(low - lowest, 0), min(high - lowest, 2**64 - 1)
    # What lies outside the 64 bits of an offset is no key.
    return KeyRange(Edge(first, "left"), Edge(last, "right")) if first <= last else None


def _prefix(ordered: bytes) -> KeyRanges:
    if values.is_long(ordered):
        return KeyRanges((), (longer_than_key(ordered),))
    return _exactly(KeyRange(Edge(ordered, "left"), last_with(ordered)))


def _uuid_range(leaf: TextRange) -> KeyRanges:
    """Uuids in their one spelling are in the order of their bytes."""
    first, last = Edge(b"", "left"), last_with(b"")
    if leaf.low is not None:
        first = Edge(values.uuid_key(leaf.low), "left" if leaf.low_included else "right")
    if leaf.high is not None:
        last = Edge(values.uuid_key(leaf.high), "right" if leaf.high_included else "left")
    return _exactly(*_unless_empty(first, last))


def _range(leaf: TextRange) -> KeyRanges:
    certain_first = possible_first = Edge(b"", "left")
    certain_last = possible_last = last_with(b"")
    if leaf.low is not None:
        ordered = values.order_bytes(leaf.low)
        if values.is_long(ordered):
            possible_first, certain_first = longer_than_key(ordered)
        else:
            possible_first = certain_first = Edge(ordered, "left" if leaf.low_included else "right")
    if leaf.high is not None:
        ordered = values.order_bytes(leaf.high)
        if values.is_long(ordered):
            certain_last, possible_last = longer_than_key(ordered)
        else:
            possible_last = certain_last = Edge(ordered, "right" if leaf.high_included else "left")
    return KeyRanges(
        _unless_empty(certain_first, certain_last), _unless_empty(possible_first, possible_last)
    )


def _unless_empty(first: Edge, last: Edge) -> tuple[KeyRange, ...]:
    return (KeyRange(first, last),) if _comparable(first) < _comparable(last) else ()


def _comparable(edge: Edge) -> tuple[bytes, bool]:
    """Edges of strings in their order; keys compare as if padded with zeros."""
    assert isinstance(edge.key, bytes)
    return edge.key.ljust(INDEX_KEY_BYTES, b"\0"), edge.side == "right"
