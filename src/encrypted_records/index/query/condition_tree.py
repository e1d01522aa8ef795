"""The tree of a condition: how comparisons are joined, and the consequences for rows and keys.

The nodes are those of a predicate, with an operator (:mod:`.leaves`) at each leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyroaring import BitMap

from encrypted_records.index.columns.column import KeyRange
from encrypted_records.index.query.leaves import LeafOperator, RangeLeaf
from encrypted_records.index.query.matches import Matches
from encrypted_records.index.segments.loaded import OpenedSegment
from encrypted_records.index.segments.zones import Zone


@dataclass(frozen=True, slots=True)
class Every:
    """All parts hold; every row matches where there is none."""

    parts: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    part: Node


Node = Every | Either | Negation | LeafOperator


def leaves_of(node: Node) -> Iterator[LeafOperator]:
    match node:
        case Every(parts) | Either(parts):
            for part in parts:
                yield from leaves_of(part)
        case Negation(part):
            yield from leaves_of(part)
        case _:
            yield node


def only_leaf(node: Node) -> tuple[LeafOperator | None, bool]:
    """The leaf of a condition that is one or its negation, and whether it is negated."""
    negated = False
    while isinstance(node, Negation):
        node, negated = node.part, not negated
    return (node if isinstance(node, LeafOperator) else None), negated


def fold(node: Node, segment: OpenedSegment) -> Node | bool:
    """The part of a condition that a segment's directories, which are here, leave open; True where
    they say that all of its rows match, and False where none does."""
    match node:
        case Every(parts) | Either(parts):
            # One part decides "or" by holding, and "and" by not holding.
            decides = isinstance(node, Either)
            left: list[Node] = []
            for part in parts:
                folded = fold(part, segment)
                if folded is decides:
                    return decides
                if not isinstance(folded, bool):
                    left.append(folded)
            if len(left) < 2:
                return left[0] if left else not decides
            return Either(tuple(left)) if decides else Every(tuple(left))
        case Negation(part):
            inner = fold(part, segment)
            return not inner if isinstance(inner, bool) else Negation(inner)
        case _:
            decided = node.decided(segment)
            return node if decided is None else decided


def combine(node: Node, rows: BitMap, found: Mapping[int, Matches]) -> Matches:
    """The rows that match a condition, of the ``rows`` there are.

    Args:
        found: those that match each of its comparisons, by its number.
    """
    match node:
        case Every(()):
            return Matches.exactly(rows)
        case Every(parts) | Either(parts):
            answers = [combine(part, rows, found) for part in parts]
            join = BitMap.intersection if isinstance(node, Every) else BitMap.union
            possible = join(*(answer.possible for answer in answers))
            if all(answer.exact for answer in answers):
                return Matches.exactly(possible)
            return Matches(join(*(answer.certain for answer in answers)), possible)
        case Negation(part):
            inner = combine(part, rows, found)
            if inner.exact:
                return Matches.exactly(rows - inner.possible)
            return Matches(rows - inner.possible, rows - inner.certain)
        case _:
            return found[node.number]


def estimate(node: Node, every: int, counts: Mapping[int, int]) -> int:
    """Estimate how many of ``every`` rows match, as if comparisons that are joined by "and" had the
    same rows.

    Args:
        counts: the number of matches of each comparison, by its number.
    """
    match node:
        case Every(parts):
            return min([every, *(estimate(part, every, counts) for part in parts)])
        case Either(parts):
            return min(every, sum(estimate(part, every, counts) for part in parts))
        case Negation(part):
            return every - min(every, estimate(part, every, counts))
        case _:
            return counts[node.number]


def find_first(node: Node, lowest: Mapping[int, list[int] | None], end: int) -> int:
    """A row before which none matches; ``end`` where none does at all.

    Args:
        lowest: of comparisons, by their number, the first rows of what they select; None if they
            select all.
    """
    match node:
        case Every(parts):
            return max([0, *(find_first(part, lowest, end) for part in parts)])
        case Either(parts):
            return min(find_first(part, lowest, end) for part in parts)
        case LeafOperator():
            found = lowest[node.number]
            return 0 if found is None else min(found, default=end)
        case _:
            return 0


def is_excluded(node: Node, zones: Mapping[str, Zone]) -> bool:
    """Whether the least and greatest keys of a segment's fields say that no row matches."""
    match node:
        case Every(parts):
            return any(is_excluded(part, zones) for part in parts)
        case Either(parts):
            return all(is_excluded(part, zones) for part in parts)
        case Negation():
            return False
        case _:
            return node.excludes(zones)


def bound_keys(node: Node, field: str) -> KeyRange | None:
    """The keys of ``field`` among which those of all rows are; None where none are known."""
    match node:
        case Every(parts):
            bounds = (bound_keys(part, field) for part in parts)
            return next((key_range for key_range in bounds if key_range is not None), None)
        case RangeLeaf() if node.field == field and len(node.ranges.possible) == 1:
            return node.ranges.possible[0]
    return None


def take_range(node: Node, field: str) -> tuple[KeyRange | None, Node]:
    """The keys of ``field`` among which those of all rows are, and what else a row fulfils whose
    key is one of these. None, and all of the condition, where keys alone do not tell."""
    match node:
        case Every(parts):
            for at, part in enumerate(parts):
                key_range, left = take_range(part, field)
                if key_range is not None:
                    return key_range, Every((*parts[:at], left, *parts[at + 1 :]))
        case RangeLeaf() if node.field == field and node.is_exact:
            if len(node.ranges.possible) == 1:
                return node.ranges.possible[0], Every()
    return None, node
