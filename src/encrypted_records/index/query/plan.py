"""A predicate with the index keys that it looks for: computed once, used for every segment.

A match is two sets of local ordinals: those that *certainly* match and those that *possibly* do.
They differ only where strings longer than an index key are compared by order or prefix; the rows
between the two are decided on the opened records. ``not`` swaps the two sets.

A paged segment need not be in memory as a whole: :meth:`Plan.missing` names the pages without
which :meth:`Plan.match` cannot answer, and is asked again once they are there, until it names none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from pyroaring import BitMap

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.columns.column import Keys, Lookup
from encrypted_records.index.columns.key_range import KeyRange
from encrypted_records.index.ordinals import Ordinals, bitmap
from encrypted_records.index.query.bounds import bound_keys, is_excluded
from encrypted_records.index.query.column_scan import (
    Scan,
    count_of,
    is_whole,
    needs_whole,
    rows_of,
)
from encrypted_records.index.query.key_ranges import KeyRanges, compute_ranges
from encrypted_records.index.query.long_strings import Texts
from encrypted_records.index.query.matches import Matches, combine
from encrypted_records.index.query.members import KeyMembers
from encrypted_records.index.query.positions import find_positions, holds_all
from encrypted_records.index.query.word_lookup import WordLookup
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.predicates import (
    Absent,
    ColumnTest,
    Everything,
    InColumn,
    Leaf,
    Predicate,
    leaves_of,
    only_leaf,
    values_of,
)
from encrypted_records.model.text_tests import TextTest


@dataclass(frozen=True)
class Plan:
    """``ranges`` are the key ranges of each comparison, by the identity of its leaf in
    ``predicate``: two that are equal are computed twice, and none is hashed. ``keys`` are likewise
    those that a column is compared with; ``words`` are the tests that an index of words answers.
    ``by_text`` says that what it leaves open is decided by the field's own column, as other tests
    are. ``known`` are long strings that were opened to decide tests of texts."""

    predicate: Predicate
    ranges: Mapping[int, KeyRanges]
    keys: Mapping[int, Keys] = field(default_factory=dict)
    words: Mapping[int, WordLookup] = field(default_factory=dict)
    by_text: bool = False
    known: Texts = field(default_factory=Texts)
    #: by segment and identity of the test: texts that pass, and their rows
    _scans: dict[tuple[bytes, int], Scan] = field(default_factory=dict)
    _found: dict[tuple[bytes, int], Matches] = field(default_factory=dict)
    #: by segment and identity of some key ranges: where these begin and end in their column
    _located: dict[tuple[bytes, int], list[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        predicate: Predicate,
        tails: SchemaKey,
        definition: SchemaDefinition,
        known: Texts | None = None,
    ) -> Plan:
        """
        Args:
            tails: the key of the hashes in long strings' index keys (``Ledger.tails``).
            known: for the long strings that will be opened.
        """
        ranges: dict[int, KeyRanges] = {}
        keys: dict[int, Keys] = {}
        words: dict[int, WordLookup] = {}
        for leaf in leaves_of(predicate):
            spec = definition.fields[leaf.field]
            if isinstance(leaf, InColumn):
                assert isinstance(leaf.members, KeyMembers)
                keys[id(leaf)] = leaf.members.index_keys(tails.field(spec).tail)
            elif isinstance(leaf, TextTest) and leaf.of_words and spec.words:
                words[id(leaf)] = WordLookup.of(leaf, spec, tails)
            elif not isinstance(leaf, Absent | ColumnTest):
                ranges[id(leaf)] = compute_ranges(leaf, spec, tails.field(spec))
        return cls(predicate, ranges, keys, words, known=known or Texts())

    def with_texts(self) -> Plan:
        """The same plan, ``by_text``."""
        return replace(self, by_text=True)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that the predicate looks at."""
        of_words = frozenset(one.column for one in self.words.values())
        return of_words.union(
            leaf.field
            for leaf in leaves_of(self.predicate)
            if self.by_text or id(leaf) not in self.words
        )

    @cached_property
    def values(self) -> int:
        """How many values the predicate compares with."""
        return values_of(self.predicate)

    def missing(self, segment: OpenedSegment) -> set[int]:
        """The pages to put into ``segment`` before :meth:`match` can answer; directories first."""
        if not isinstance(segment, PagedSegment):
            return set()  # a mini is in memory as a whole
        if self.excludes(segment):
            return set()
        directories = segment.missing_directories(self.columns)
        if directories:
            return directories
        pages: set[int] = set()
        for leaf in leaves_of(self.predicate):
            if id(leaf) in self.words:
                pages |= self.words[id(leaf)].missing(segment)
            if isinstance(leaf, ColumnTest):
                if self._is_tested(leaf):
                    pages |= self._missing_to_test(leaf, segment)
                continue
            if not self.is_kept(segment, leaf):
                pages |= self.missing_to_compare(leaf, segment)
        return pages

    def missing_to_compare(self, leaf: Leaf, segment: PagedSegment) -> set[int]:
        """The pages that one comparison needs; its directory is here."""
        column = segment.lookup(leaf.field)
        if isinstance(leaf, Absent):
            return column.missing_absent()
        ranges = self.ranges[id(leaf)]
        # Where the two differ, what is certain lies within what is possible, in some page.
        exact = ranges.certain == ranges.possible
        return set().union(
            *(
                column.missing_for(key_range)
                for key_range in ranges.possible
                if not (exact and column.all_within(key_range))
            )
        )

    def is_kept(self, segment: OpenedSegment, leaf: Leaf) -> bool:
        """Whether the rows that a comparison selects are known already."""
        return (segment.segment.uid, id(leaf)) in self._found

    def keep(self, segment: OpenedSegment, leaf: Leaf, found: Matches) -> None:
        """The rows that a comparison selects were found otherwise (:mod:`.reading_tests`)."""
        self._found[segment.segment.uid, id(leaf)] = found

    def missing_to_find(self, segment: OpenedSegment) -> set[int]:
        """The directories alone of what :meth:`missing` names."""
        return set() if self.excludes(segment) else segment.missing_directories(self.columns)

    def match(self, segment: OpenedSegment) -> Matches:
        """The rows of ``segment`` that match, as local ordinals.

        Where a merge left dead rows out, a negation has them all the same, and so has a range that
        all other rows are in: the caller removes the dead rows.

        Raises:
            DoesNotOpen: a column that is needed does not open.
        """

        def leaf(part: Leaf) -> Matches:
            found = self._found.get((segment.segment.uid, id(part)))
            if found is not None and id(part) not in self.words:
                return found
            if id(part) in self.words:
                having = Matches(*self.words[id(part)].find(segment))
                return self._decide(part, segment, having) if self.by_text else having
            if isinstance(part, ColumnTest):
                return self._passing(part, segment)
            column = segment.lookup(part.field)
            if isinstance(part, Absent):
                return Matches.exactly(bitmap(column.absent_rows()))
            ranges = self.ranges[id(part)]
            possible = self._rows(segment, column, ranges.possible)
            if ranges.certain == ranges.possible:
                return Matches.exactly(possible)
            return Matches(self._rows(segment, column, ranges.certain), possible)

        if self.excludes(segment):
            return Matches.exactly(BitMap())
        return combine(self.predicate, segment.everything, leaf)

    def _decide(self, test: Leaf, segment: OpenedSegment, having: Matches) -> Matches:
        """What an index of words leaves open, by the texts themselves."""
        assert isinstance(test, TextTest)
        passing = self._passing(test, segment)
        return Matches(
            having.certain | (having.possible & passing.certain),
            having.certain | (having.possible & passing.possible),
        )

    def count_entries(self, segment: OpenedSegment) -> int:
        """How many entries of columns :meth:`match` takes, of a plan without tests of columns or
        words."""
        count = 0
        for leaf in () if self.excludes(segment) else leaves_of(self.predicate):
            column = segment.lookup(leaf.field)
            if isinstance(leaf, Absent):
                count += column.absent
            elif not holds_all(column, possible := self.ranges[id(leaf)].possible):
                count += sum(last - first for first, last in self._find(segment, column, possible))
        return count

    def is_exact(self, leaf: Leaf) -> bool:
        """Whether a comparison is one of key ranges alone, and they decide it."""
        ranges = self.ranges.get(id(leaf))
        return ranges is not None and ranges.certain == ranges.possible

    def holds_all(self, segment: OpenedSegment, leaf: Leaf) -> bool:
        """Whether every row of a segment fulfils a comparison that :meth:`is_exact`, where its
        directory, which is here, tells that."""
        return holds_all(segment.lookup(leaf.field), self.ranges[id(leaf)].possible)

    def entries(self, segment: OpenedSegment, leaf: Leaf) -> list[Ordinals] | None:
        """The rows of a comparison that :meth:`is_exact`, as they lie in pages; None where all are.

        Raises:
            DoesNotOpen: as :meth:`match`.
        """
        column, ranges = segment.lookup(leaf.field), self.ranges[id(leaf)].possible
        if holds_all(column, ranges):
            return None
        pieces = (column.pieces(*bounds) for bounds in self._find(segment, column, ranges))
        return [some for some in chain.from_iterable(pieces) if len(some)]

    def excludes(self, segment: OpenedSegment) -> bool:
        """Whether the least and greatest keys in the segment's header say that no row matches."""
        return isinstance(segment, PagedSegment) and is_excluded(
            self.predicate, segment.directories.zones, self.ranges, self.keys
        )

    def _rows(self, segment: OpenedSegment, column: Lookup, ranges: Sequence[KeyRange]) -> BitMap:
        if holds_all(column, ranges):
            return segment.everything
        pieces = (column.pieces(*bounds) for bounds in self._find(segment, column, ranges))
        return bitmap(*chain.from_iterable(pieces))

    def _find(
        self, segment: OpenedSegment, column: Lookup, ranges: Sequence[KeyRange]
    ) -> list[tuple[int, int]]:
        at = (segment.segment.uid, id(ranges))
        found = self._located.get(at)
        if found is None:
            found = self._located[at] = find_positions(column, ranges)
        return found

    @cached_property
    def tests(self) -> tuple[ColumnTest, ...]:
        """The tests of a column's keys among the comparisons."""
        return tuple(
            leaf
            for leaf in leaves_of(self.predicate)
            if isinstance(leaf, ColumnTest) and self._is_tested(leaf)
        )

    def _is_tested(self, leaf: ColumnTest) -> bool:
        return self.by_text or id(leaf) not in self.words

    @property
    def text_tests(self) -> tuple[TextTest, ...]:
        """Those of texts, which long strings leave open."""
        return tuple(test for test in self.tests if isinstance(test, TextTest))

    def scan(
        self, test: ColumnTest, segment: OpenedSegment, go_on: Callable[[], None] = lambda: None
    ) -> Scan:
        """The keys of a segment that pass a test: computed once.

        Args:
            go_on: as for :meth:`ColumnTexts.test`.

        Raises:
            DoesNotOpen: the column does not open.
        """
        at = (segment.segment.uid, id(test))
        found = self._scans.get(at)
        if found is None:
            if isinstance(test, InColumn):
                found = Scan.of_keys(test.field, segment, self.keys[id(test)])
            else:
                found = Scan.of_texts(test, segment, self.known, go_on)
            self._scans[at] = found
        return found

    def missing_to_scan(self, segment: OpenedSegment) -> set[int]:
        """The directories to put into ``segment`` before :meth:`to_scan` helps."""
        return segment.missing_directories(self.to_scan(segment))

    def to_scan(self, segment: OpenedSegment) -> frozenset[str]:
        """The fields whose columns are tested in a segment, if it can have any match."""
        if self.excludes(segment):
            return frozenset()
        return frozenset(test.field for test in self.tests)

    def missing_to_test(self, segment: OpenedSegment) -> set[int]:
        """The pages to put into ``segment`` before :meth:`settle` works."""
        if not isinstance(segment, PagedSegment) or self.excludes(segment):
            return set()
        return set().union(*(self._missing_to_test(test, segment) for test in self.tests))

    def missing_to_want(self, tests: Iterable[TextTest], segment: OpenedSegment) -> set[int]:
        """The pages to put into ``segment`` before the texts can be wanted that decide these
        tests, whose columns are here as a whole or are listed in their directories. A test that was
        made before needs none, so that they may never have come, or have gone since."""
        if not isinstance(segment, PagedSegment):
            return set()
        listed = (test for test in tests if not is_whole(segment, test.field))
        scans = ((self.scan(test, segment), test.field) for test in listed)
        return set().union(*(scan.missing_undecided(segment, name) for scan, name in scans))

    def _missing_to_test(self, test: ColumnTest, segment: PagedSegment) -> set[int]:
        at = (segment.segment.uid, id(test))
        if at in self._found:
            return set()
        if at not in self._scans and needs_whole(segment, test.field):
            pages = segment.missing_columns([test.field])
            if pages:
                return pages
        return self.scan(test, segment).missing(segment, test.field)

    def _passing(self, test: ColumnTest, segment: OpenedSegment) -> Matches:
        at = (segment.segment.uid, id(test))
        found = self._found.get(at)
        if found is None:
            scan = self.scan(test, segment)
            certain = rows_of(segment, test.field, scan.certain)
            possible = certain if scan.exact else rows_of(segment, test.field, scan.possible)
            found = self._found[at] = Matches(certain, possible)
        return found

    def settle(self, segment: OpenedSegment) -> None:
        """Keep the rows that pass each test, so that whole columns are needed no more."""
        if not self.excludes(segment):
            for test in self.tests:
                self._passing(test, segment)

    def forget(self, segment: OpenedSegment, leaves: Iterable[Leaf]) -> None:
        """Let go of what was found for some comparisons of a segment: they are made again."""
        for leaf in leaves:
            self._scans.pop((segment.segment.uid, id(leaf)), None)
            self._found.pop((segment.segment.uid, id(leaf)), None)

    def missing_to_count(self, segment: OpenedSegment) -> set[int]:
        """The pages to put into ``segment`` before :meth:`count` can answer; directories first."""
        if not isinstance(segment, PagedSegment):
            return set()
        leaf, _ = only_leaf(self.predicate)
        if leaf is None or id(leaf) in self.words or self.excludes(segment):
            return set()
        directories = segment.missing_directories([leaf.field])
        if directories or isinstance(leaf, Absent):
            return directories
        if isinstance(leaf, ColumnTest):
            whole = needs_whole(segment, leaf.field)
            return segment.missing_columns([leaf.field]) if whole else set()
        column = segment.lookup(leaf.field)
        certain = self.ranges[id(leaf)].certain
        return set().union(*(column.missing_to_count(key_range) for key_range in certain))

    def count(self, segment: OpenedSegment) -> int | None:
        """How many rows match, dead ones included, where that needs no set of rows; else None.

        Directories give the count of a single comparison, and of its negation: with at most two
        pages, and with none for columns that list their values.
        """
        if isinstance(self.predicate, Everything):
            return segment.count
        leaf, negated = only_leaf(self.predicate)
        if leaf is None or id(leaf) in self.words:
            return None
        if self.excludes(segment):
            return 0
        column = segment.lookup(leaf.field)
        if isinstance(leaf, ColumnTest):
            tested = self._count_passing(leaf, segment)
            if tested is None:
                return None
            matching = tested
        elif isinstance(leaf, Absent):
            matching = segment.count - column.present
        else:
            ranges = self.ranges[id(leaf)]
            if ranges.certain != ranges.possible:
                return None
            matching = sum(last - first for first, last in find_positions(column, ranges.certain))
        return segment.count - matching if negated else matching

    def _count_passing(self, test: ColumnTest, segment: OpenedSegment) -> int | None:
        found = self._found.get((segment.segment.uid, id(test)))
        if found is not None:
            return len(found.certain) if found.exact else None
        scan = self.scan(test, segment)
        return count_of(segment, test.field, scan.certain) if scan.exact else None

    def sort_range(self, field: str) -> KeyRange | None:
        """Keys of ``field`` among which those of all rows that match are; None where none is
        known."""
        return bound_keys(self.predicate, self.ranges, field)
