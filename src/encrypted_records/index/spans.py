"""What a comparison looks for, as stretches of sorted index keys; no column is needed for it.

A leaf becomes spans of keys that *certainly* match and spans that *possibly* do. They differ
only where strings beyond an index key's 48 bytes are compared by order or prefix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from encrypted_records.crypto import values
from encrypted_records.crypto.format import INDEX_KEY_BYTES, INDEX_KEY_PREFIX
from encrypted_records.crypto.keys import FieldKey
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.predicates import (
    NumberIn,
    NumberRange,
    TextIn,
    TextPrefix,
    TextRange,
)

#: The leaves that compare a value; :class:`~encrypted_records.model.predicates.Absent` does not.
Comparison = NumberIn | NumberRange | TextIn | TextPrefix | TextRange


class Edge(NamedTuple):
    """A place between sorted keys: before (left) or behind (right) all keys equal to ``key``."""

    key: int | bytes
    side: Literal["left", "right"]


class Span(NamedTuple):
    """The keys between two edges."""

    first: Edge
    last: Edge


@dataclass(frozen=True, slots=True)
class Spans:
    """Disjoint spans, no edge behind the other; each key in ``certain`` is in ``possible``."""

    certain: tuple[Span, ...]
    possible: tuple[Span, ...]


def spans(leaf: Comparison, spec: FieldSpec, key: FieldKey) -> Spans:
    """The keys of ``spec``'s columns that match ``leaf``."""
    match leaf:
        case NumberIn(_, points):
            return _exactly(*(_number(spec, point, point) for point in points))
        case NumberRange(_, low, high):
            return _exactly(_number(spec, low, high))
        case TextIn(_, texts):
            keys = (values.string_key(values.order_bytes(text), key.tail) for text in texts)
            return _exactly(*(Span(Edge(one, "left"), Edge(one, "right")) for one in keys))
        case TextPrefix(_, prefix):
            return _prefix(values.order_bytes(prefix))
        case TextRange():
            return _range(leaf)


def _exactly(*found: Span | None) -> Spans:
    known = tuple(span for span in found if span is not None)
    return Spans(known, known)


def _number(spec: FieldSpec, low: int, high: int) -> Span | None:
    lowest = spec.numbers.lowest
    first, last = max(low - lowest, 0), min(high - lowest, 2**64 - 1)
    # What lies outside the 64 bits of an offset is no key.
    return Span(Edge(first, "left"), Edge(last, "right")) if first <= last else None


def _last_with(prefix: bytes) -> Edge:
    """Behind all keys that begin with these order bytes (at most 48)."""
    return Edge(prefix.ljust(INDEX_KEY_BYTES, b"\xff"), "right")


def _longer_than_key(ordered: bytes) -> Span:
    """The keys of long strings whose first 48 order bytes are those of ``ordered``."""
    prefix = ordered[:INDEX_KEY_PREFIX]
    # The string that is just the prefix, and ends there, is no long one.
    return Span(Edge(prefix, "right"), _last_with(prefix))


def alike(key: int | bytes) -> Span:
    """The keys that the index takes for equal to ``key``: of long strings, all of their class."""
    if isinstance(key, bytes) and values.is_long(key):
        return _longer_than_key(key)
    return Span(Edge(key, "left"), Edge(key, "right"))


def _prefix(ordered: bytes) -> Spans:
    if values.is_long(ordered):
        return Spans((), (_longer_than_key(ordered),))
    return _exactly(Span(Edge(ordered, "left"), _last_with(ordered)))


def _range(leaf: TextRange) -> Spans:
    certain_first = possible_first = Edge(b"", "left")
    certain_last = possible_last = _last_with(b"")
    if leaf.low is not None:
        ordered = values.order_bytes(leaf.low)
        if values.is_long(ordered):
            possible_first, certain_first = _longer_than_key(ordered)
        else:
            possible_first = certain_first = Edge(ordered, "left" if leaf.low_included else "right")
    if leaf.high is not None:
        ordered = values.order_bytes(leaf.high)
        if values.is_long(ordered):
            certain_last, possible_last = _longer_than_key(ordered)
        else:
            possible_last = certain_last = Edge(ordered, "right" if leaf.high_included else "left")
    return Spans(
        _unless_empty(certain_first, certain_last), _unless_empty(possible_first, possible_last)
    )


def _unless_empty(first: Edge, last: Edge) -> tuple[Span, ...]:
    return (Span(first, last),) if _place(first) < _place(last) else ()


def _place(edge: Edge) -> tuple[bytes, bool]:
    """Edges of strings in their order; keys compare as if padded with zeros."""
    assert isinstance(edge.key, bytes)
    return edge.key.ljust(INDEX_KEY_BYTES, b"\0"), edge.side == "right"
