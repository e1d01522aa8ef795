"""From a predicate and a segment's columns to the rows that match.

An answer is two sets of local ordinals: those that *certainly* match and those that *possibly*
do. They differ only where strings longer than an index key are compared by order or prefix; the
rows between the two are decided on the opened records. ``not`` swaps the roles, so no
uncertainty is lost on the way.

A paged segment need not be here as a whole: :func:`missing` names the pages without which
:func:`resolve` cannot answer, and is asked again once they are here, until it names none.

``tails`` is everywhere the key under which the log began (:attr:`.ledger.Ledger.tails`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from pyroaring import BitMap

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.bitmaps import bitmap
from encrypted_records.index.columns import Lookup
from encrypted_records.index.paged import Opened
from encrypted_records.index.spans import Comparison, Span, Spans, spans
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.predicates import (
    Absent,
    And,
    Everything,
    Leaf,
    Not,
    Or,
    Predicate,
    fields_of,
)


@dataclass(frozen=True, slots=True)
class Matches:
    """``certain`` is a subset of ``possible``; the truth lies between them."""

    certain: BitMap
    possible: BitMap

    @classmethod
    def exactly(cls, rows: BitMap) -> Matches:
        return cls(rows, rows)


def missing(
    predicate: Predicate, segment: Opened, tails: SchemaKey, definition: SchemaDefinition
) -> set[int]:
    """The pages to put into ``segment`` before :func:`resolve` can answer; directories first."""
    directories = segment.missing_directories(fields_of(predicate))
    if directories:
        return directories
    found: set[int] = set()
    for leaf in _leaves(predicate):
        column = segment.lookup(leaf.field)
        if isinstance(leaf, Absent):
            found |= column.missing_absent()
        else:
            wanted = _spans(leaf, tails, definition)
            # Where the two differ, what is certain lies within what is possible, in some page.
            exact = wanted.certain == wanted.possible
            for span in wanted.possible:
                if not (exact and column.all_within(span)):
                    found |= column.missing_for(span)
    return found


def resolve(
    predicate: Predicate, segment: Opened, tails: SchemaKey, definition: SchemaDefinition
) -> Matches:
    """The rows of ``segment`` that match, as local ordinals.

    Where a merge left dead rows out, a negation has them all the same, and so has a range that all
    other rows are in: whoever asks takes the dead rows off.

    Raises:
        DoesNotOpen: a column that is needed does not open.
    """

    def leaf(part: Leaf) -> Matches:
        column = segment.lookup(part.field)
        if isinstance(part, Absent):
            return Matches.exactly(bitmap(column.absent_rows()))
        found = _spans(part, tails, definition)
        certain = _rows(column, found.certain, segment.everything)
        if found.certain == found.possible:
            return Matches.exactly(certain)
        return Matches(certain, _rows(column, found.possible, segment.everything))

    return _combine(predicate, segment.everything, leaf)


def missing_to_count(
    predicate: Predicate, segment: Opened, tails: SchemaKey, definition: SchemaDefinition
) -> set[int]:
    """The pages to put into ``segment`` before :func:`count` can answer; directories first."""
    match predicate:
        case Not(part):
            return missing_to_count(part, segment, tails, definition)
        case Everything() | And() | Or():
            return set()
        case _:
            directories = segment.missing_directories([predicate.field])
            if directories or isinstance(predicate, Absent):
                return directories
            column = segment.lookup(predicate.field)
            found = _spans(predicate, tails, definition).certain
            return set().union(*(column.missing_to_count(span) for span in found))


def count(
    predicate: Predicate, segment: Opened, tails: SchemaKey, definition: SchemaDefinition
) -> int | None:
    """How many rows match, dead ones included, where that takes no set of rows; else None.

    Directories tell it of a single comparison, and of its negation: with at most two pages, and
    with none for columns that list their values.
    """
    match predicate:
        case Everything():
            return segment.count
        case And() | Or():
            return None
        case Not(part):
            inner = count(part, segment, tails, definition)
            return None if inner is None else segment.count - inner
        case Absent(field):
            return segment.count - segment.lookup(field).present
        case _:
            found = _spans(predicate, tails, definition)
            if found.certain != found.possible:
                return None
            column = segment.lookup(predicate.field)
            return sum(last - first for first, last in _positions(column, found.certain))


def stretch(
    predicate: Predicate, field: str, tails: SchemaKey, definition: SchemaDefinition
) -> Span | None:
    """Keys of ``field`` among which those of all rows that match are; None where none is known."""
    match predicate:
        case And(parts):
            found = (stretch(part, field, tails, definition) for part in parts)
            return next((span for span in found if span is not None), None)
        case Everything() | Or() | Not() | Absent():
            return None
        case _:
            if predicate.field != field:
                return None
            found_spans = _spans(predicate, tails, definition).possible
            return found_spans[0] if len(found_spans) == 1 else None


def _leaves(predicate: Predicate) -> Iterator[Leaf]:
    match predicate:
        case Everything():
            return
        case And(parts) | Or(parts):
            for part in parts:
                yield from _leaves(part)
        case Not(part):
            yield from _leaves(part)
        case _:
            yield predicate


def _spans(leaf: Comparison, tails: SchemaKey, definition: SchemaDefinition) -> Spans:
    spec = definition.fields[leaf.field]
    return spans(leaf, spec, tails.field(spec))


def _positions(column: Lookup, found: Sequence[Span]) -> Iterator[tuple[int, int]]:
    """Where each span's entries begin and end among the column's present ones."""
    for span in found if column.present else ():
        yield column.at(span.first), column.at(span.last)


def _rows(column: Lookup, found: Sequence[Span], everything: BitMap) -> BitMap:
    # Dates and running numbers grow with the order of storing: most segments are in or out.
    if any(column.all_within(span) for span in found):
        return everything
    held = [column.pieces(first, last) for first, last in _positions(column, found)]
    return bitmap(*chain.from_iterable(held))


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
