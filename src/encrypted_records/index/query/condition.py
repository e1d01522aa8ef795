"""A predicate with its index keys: computed once, used for every segment.

Its tree joins comparisons, and combines their rows and keys. The nodes are those of the predicate,
with an operator (:mod:`.leaves`) at each leaf.

A paged segment need not be completely in memory: :meth:`Condition.missing` names the pages that
:meth:`Condition.match` lacks. The caller loads them and calls it again until it names no page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count

from pyroaring import BitMap

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.columns.column import KeyRange
from encrypted_records.index.query.candidates import Matches
from encrypted_records.index.query.key_sets import KeyMembers, Texts, compute_ranges
from encrypted_records.index.query.leaves import (
    AbsentLeaf,
    LeafOperator,
    MembersLeaf,
    RangeLeaf,
    SegmentMemo,
    TestLeaf,
    TextLeaf,
    WordsLeaf,
)
from encrypted_records.index.segments.cuts import Zone
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment
from encrypted_records.model import predicates
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.texts import TextTest


@dataclass(frozen=True, slots=True)
class Every:
    """All parts hold; every row matches if there are no parts."""

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
    """The leaf of a condition that is a leaf or its negation, and whether it is negated."""
    negated = False
    while isinstance(node, Negation):
        node, negated = node.part, not negated
    return (node if isinstance(node, LeafOperator) else None), negated


def fold(node: Node, segment: OpenedSegment) -> Node | bool:
    """The part of a condition that a segment's loaded directories leave open; True if they show
    that all of its rows match, False if no row matches."""
    match node:
        case Every(parts) | Either(parts):
            # A true part decides "or"; a false part decides "and".
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
    """The rows among ``rows`` that match a condition.

    Args:
        found: the matching rows of each comparison, by its number.
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


def estimate(node: Node, total: int, counts: Mapping[int, int]) -> int:
    """Estimate how many of ``total`` rows match, as if comparisons joined by "and" matched the same
    rows.

    Args:
        counts: the number of matches of each comparison, by its number.
    """
    match node:
        case Every(parts):
            return min([total, *(estimate(part, total, counts) for part in parts)])
        case Either(parts):
            return min(total, sum(estimate(part, total, counts) for part in parts))
        case Negation(part):
            return total - min(total, estimate(part, total, counts))
        case _:
            return counts[node.number]


def find_first(node: Node, lowest: Mapping[int, list[int] | None], end: int) -> int:
    """A row before which no row matches; ``end`` if no row matches.

    Args:
        lowest: by comparison number, first rows of the parts that it selects; None if it selects
            all.
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
    """Whether the zones of a segment's fields show that no row matches."""
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
    """A range with the keys of ``field`` of all matching rows; None if no range is known."""
    match node:
        case Every(parts):
            bounds = (bound_keys(part, field) for part in parts)
            return next((key_range for key_range in bounds if key_range is not None), None)
        case RangeLeaf() if node.field == field and len(node.ranges.possible) == 1:
            return node.ranges.possible[0]
    return None


def take_range(node: Node, field: str) -> tuple[KeyRange | None, Node]:
    """A range with the keys of ``field`` of all matching rows, and the rest of the condition for
    rows with keys in the range. None and the whole condition if keys alone do not decide."""
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


@dataclass(frozen=True)
class Condition:
    """Records are checked against ``predicate``; ``root`` is the same with an operator for each
    comparison, numbered in order. ``known`` are long strings that were opened to decide tests of
    texts."""

    predicate: predicates.Predicate
    root: Node
    known: Texts = field(default_factory=Texts)
    #: the findings so far, by the segment's uid
    _memos: dict[bytes, SegmentMemo] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        predicate: predicates.Predicate,
        tails: SchemaKey,
        definition: SchemaDefinition,
        known: Texts | None = None,
    ) -> Condition:
        """
        Args:
            tails: the key of the hashes in long strings' index keys (``Ledger.tails``).
            known: for the long strings that will be opened.
        """
        known = known or Texts()
        numbers = count()

        def build(part: predicates.Predicate) -> Node:
            match part:
                case predicates.Everything():
                    return Every()
                case predicates.And(parts):
                    return Every(tuple(map(build, parts)))
                case predicates.Or(parts):
                    return Either(tuple(map(build, parts)))
                case predicates.Not(inner):
                    return Negation(build(inner))
                case _:
                    return _operator(next(numbers), part, tails, definition, known)

        return cls(predicate, build(predicate), known)

    def with_texts(self) -> Condition:
        """The same condition, but rows that a word index leaves open are decided by the field's
        column, like other tests."""

        def build(node: Node) -> Node:
            match node:
                case Every(parts):
                    return Every(tuple(map(build, parts)))
                case Either(parts):
                    return Either(tuple(map(build, parts)))
                case Negation(part):
                    return Negation(build(part))
                case WordsLeaf():
                    return replace(node, text=_text_leaf(node.number, node.of_text, self.known))
                case _:
                    return node

        return replace(self, root=build(self.root))

    @cached_property
    def leaves(self) -> tuple[LeafOperator, ...]:
        return tuple(leaves_of(self.root))

    @cached_property
    def tests(self) -> tuple[TestLeaf, ...]:
        """The tests of a column's keys among the comparisons."""
        return tuple(leaf.test for leaf in self.leaves if leaf.test is not None)

    @property
    def text_tests(self) -> tuple[TextLeaf, ...]:
        """The text tests of the condition, which the index cannot decide for long strings."""
        return tuple(test for test in self.tests if isinstance(test, TextLeaf))

    @cached_property
    def by_words(self) -> bool:
        """Whether a word index answers a test."""
        return any(isinstance(leaf, WordsLeaf) for leaf in self.leaves)

    @cached_property
    def leaves_words_open(self) -> bool:
        """Whether texts could decide rows that a word index leaves open (:meth:`with_texts`)."""
        return any(isinstance(leaf, WordsLeaf) and leaf.text is None for leaf in self.leaves)

    @cached_property
    def is_exact(self) -> bool:
        """Whether keys and the absence of fields decide the condition."""
        return all(isinstance(leaf, AbsentLeaf) or leaf.is_exact for leaf in self.leaves)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that the condition reads."""
        return frozenset(name for leaf in self.leaves for name in leaf.columns)

    @cached_property
    def values(self) -> int:
        """The number of values in comparisons."""
        return sum(leaf.values for leaf in self.leaves)

    def memo(self, segment: OpenedSegment) -> SegmentMemo:
        """The rows and keys found of a segment so far."""
        return self._memos.setdefault(segment.segment.uid, SegmentMemo())

    def excludes(self, segment: OpenedSegment) -> bool:
        """Whether the zones in the segment's header show that no row matches."""
        return isinstance(segment, LoadedSegment) and is_excluded(
            self.root, segment.directories.zones
        )

    # --- rows -----------------------------------------------------------------------------------

    def missing_to_find(self, segment: OpenedSegment) -> set[int]:
        """Only the directory pages that :meth:`missing` names."""
        return set() if self.excludes(segment) else segment.missing_directories(self.columns)

    def missing(self, segment: OpenedSegment) -> set[int]:
        """The pages to put into ``segment`` before :meth:`match` can answer; directories first."""
        if not isinstance(segment, LoadedSegment) or self.excludes(segment):
            return set()
        memo = self.memo(segment)
        return segment.missing_directories(self.columns) or set().union(
            *(leaf.missing(segment, memo) for leaf in self.leaves)
        )

    def match(self, segment: OpenedSegment) -> Matches:
        """The rows of ``segment`` that match, as local ordinals.

        Dead rows that a merge left out still match a negation, and a range that contains all other
        rows: the caller removes dead rows.

        Raises:
            DoesNotOpen: a column that is needed does not open.
        """
        if self.excludes(segment):
            return Matches.exactly(BitMap())
        memo = self.memo(segment)
        found = {leaf.number: leaf.rows(segment, memo) for leaf in self.leaves}
        return combine(self.root, segment.everything, found)

    def count_entries(self, segment: OpenedSegment) -> int:
        """The number of column entries that :meth:`match` reads, for a condition without tests of
        columns or words.
        """
        if self.excludes(segment):
            return 0
        memo, entries = self.memo(segment), 0
        for leaf in self.leaves:
            if isinstance(leaf, RangeLeaf):
                entries += leaf.count_entries(segment, memo)
            else:
                entries += segment.lookup(leaf.field).absent
        return entries

    # --- tests of columns -----------------------------------------------------------------------

    def to_scan(self, segment: OpenedSegment) -> frozenset[str]:
        """The fields whose columns are tested in a segment, if it can have a match."""
        if self.excludes(segment):
            return frozenset()
        return frozenset(test.field for test in self.tests)

    def missing_to_scan(self, segment: OpenedSegment) -> set[int]:
        """The directories of :meth:`to_scan` that are not loaded."""
        return segment.missing_directories(self.to_scan(segment))

    def missing_to_test(self, segment: OpenedSegment) -> set[int]:
        """The pages to put into ``segment`` before :meth:`settle` works."""
        if not isinstance(segment, LoadedSegment) or self.excludes(segment):
            return set()
        memo = self.memo(segment)
        return set().union(*(test.missing(segment, memo) for test in self.tests))

    def untested(self, segment: OpenedSegment) -> Iterator[TestLeaf]:
        """The tests whose rows of a segment are not known yet."""
        if not self.excludes(segment):
            memo = self.memo(segment)
            yield from (test for test in self.tests if test.number not in memo.found)

    def settle(self, segment: OpenedSegment) -> None:
        """Store the rows that pass each test, so that whole columns are no longer needed."""
        memo = self.memo(segment)
        for test in self.untested(segment):
            test.rows(segment, memo)

    # --- counts ---------------------------------------------------------------------------------

    def missing_to_count(self, segment: OpenedSegment) -> set[int]:
        """The pages to put into ``segment`` before :meth:`count` can answer; directories first."""
        leaf, _ = only_leaf(self.root)
        if not isinstance(segment, LoadedSegment) or leaf is None or self.excludes(segment):
            return set()
        return segment.missing_directories(leaf.columns) or leaf.missing_to_count(segment)

    def count(self, segment: OpenedSegment) -> int | None:
        """The number of matching rows, including dead rows, if it is known without a set of rows;
        otherwise None.

        Directories give the count of a single comparison, and of its negation: with at most two
        pages, and with none for columns that list their values.
        """
        if self.root == Every():
            return segment.count
        leaf, negated = only_leaf(self.root)
        if leaf is None:
            return None
        matching = 0 if self.excludes(segment) else leaf.count(segment, self.memo(segment))
        if matching is None or not negated:
            return matching
        return segment.count - matching

    def sort_range(self, field: str) -> KeyRange | None:
        """A range with the keys of ``field`` of all matching rows; None if no range is known."""
        return bound_keys(self.root, field)


def _operator(
    number: int, leaf: predicates.Leaf, tails: SchemaKey, definition: SchemaDefinition, known: Texts
) -> LeafOperator:
    spec = definition.fields[leaf.field]
    key, many = tails.field(spec), predicates.values_of(leaf)
    match leaf:
        case predicates.Absent():
            return AbsentLeaf(number, leaf.field, many)
        case predicates.InColumn():
            assert isinstance(leaf.members, KeyMembers)
            return MembersLeaf(number, leaf.field, many, leaf.members.index_keys(key.tail))
        case TextTest() if leaf.of_words and spec.words:
            return WordsLeaf.of(number, leaf, spec, tails)
        case TextTest():
            return _text_leaf(number, leaf, known)
        case _:
            return RangeLeaf(number, leaf.field, many, compute_ranges(leaf, spec, key))


def _text_leaf(number: int, test: TextTest, known: Texts) -> TextLeaf:
    return TextLeaf(number, test.field, predicates.values_of(test), test, known)
