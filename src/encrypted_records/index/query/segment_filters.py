"""Segments for which a sorted search needs no set of all matching rows.

The first rows in the order of a field are next to each other in its column. If the condition is a
range of that field, the rows' positions in the column decide it. The rest of the condition is
looked up for some rows at a time, in row-major columns (:mod:`.row_lookups`). So half of a large
segment takes as long as a thousandth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyroaring import BitMap

from encrypted_records.index.columns.column import KeyRange
from encrypted_records.index.columns.dictionary import code_type
from encrypted_records.index.query.asking import (
    Asking,
    Work,
    Workspace,
    ask_for,
    bring_by_row,
    bring_kept,
    bring_together,
)
from encrypted_records.index.query.candidates import Matches
from encrypted_records.index.query.choices import (
    LOOKUP,
    SORT,
    LookupFigures,
    SortFigures,
    Way,
    choose,
    comparison_figures,
)
from encrypted_records.index.query.condition import (
    Condition,
    Every,
    Node,
    combine,
    estimate,
    leaves_of,
    take_range,
)
from encrypted_records.index.query.leaves import LeafOperator, RangeLeaf, SegmentMemo
from encrypted_records.index.query.matching import Matching, SegmentMatches
from encrypted_records.index.query.row_lookups import ColumnFilter
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment, scope
from encrypted_records.model.queries import SortKey


@dataclass(frozen=True, slots=True)
class ConditionFilter:
    """The rows of a segment that match a condition decided by keys, without ``dead`` rows. Each
    comparison, by its number, has a filter of its column or the set of its rows."""

    condition: Node
    filters: Mapping[int, ColumnFilter]
    sets: Mapping[int, BitMap]
    dead: BitMap

    def of(self, rows: BitMap) -> BitMap:
        """The matching rows among ``rows``; the segment must index all of ``rows``."""
        live = rows - self.dead
        found = {number: matching.of(live) for number, matching in self.filters.items()}
        found |= {number: matching & live for number, matching in self.sets.items()}
        exact = {number: Matches.exactly(matching) for number, matching in found.items()}
        return combine(self.condition, live, exact).certain

    def estimate(self, total: int) -> int:
        """Estimated number of matches among ``total`` rows."""
        counts = {number: matching.count for number, matching in self.filters.items()}
        counts |= {number: len(matching) for number, matching in self.sets.items()}
        return estimate(self.condition, total, counts)


@dataclass(frozen=True, slots=True)
class SegmentFilter:
    """A segment whose rows match if their keys are in the condition's range of the sort field, if
    it has such a range, and if they satisfy ``rest``. Row-major columns decide its comparisons
    ``wide``."""

    segment: LoadedSegment
    rest: Node
    wide: tuple[RangeLeaf, ...]
    #: excluded rows: stored later than the first page of the answer
    later: BitMap

    @property
    def uid(self) -> bytes:
        return self.segment.segment.uid

    @property
    def size(self) -> int:
        """Approximate bytes of its row-major columns."""
        directories = (self.segment.directories[leaf.field] for leaf in self.wide)
        widths = (
            code_type(max(len(directory.starts), directory.present_pages))
            for directory in directories
        )
        return sum(width.itemsize for width in widths) * self.segment.covered

    def missing(self, segment: OpenedSegment) -> set[int]:
        """The missing pages of comparisons that no row-major column decides."""
        assert isinstance(segment, LoadedSegment)
        narrow = (leaf for leaf in leaves_of(self.rest) if leaf not in self.wide)
        return set().union(*(leaf.missing(segment, SegmentMemo()) for leaf in narrow))


@dataclass(frozen=True, slots=True)
class UnreadSegment:
    """A large segment of which only directories were read: it is not known yet whether it can have
    any of the first rows. ``later`` as for :class:`SegmentFilter`."""

    segment: LoadedSegment
    later: BitMap

    @property
    def uid(self) -> bytes:
        return self.segment.segment.uid


def find_sorted(
    space: Workspace, condition: Condition, order: Sequence[SortKey], stored: int
) -> Asking[list[SegmentMatches | UnreadSegment]]:
    """The live segments, for a search for the first rows of an order. Small segments are returned
    as matches, and so are all segments if rows are few or keys do not decide the condition.

    Args:
        stored: matches are wanted only among the first ``stored`` rows of the schema.

    Raises:
        DoesNotOpen: a page or a column does not open.
    """
    snapshot = space.snapshot
    unread: list[UnreadSegment] = []
    left = list(snapshot.segments)
    if _is_worth_it(space, condition):
        names = ranked_fields(order)

        def missing(segment: OpenedSegment) -> set[int]:
            if condition.excludes(segment) or not isinstance(segment, LoadedSegment):
                return set()
            return segment.missing_directories({*condition.columns, *names})

        segments = yield from space.open(snapshot.segments)
        yield Work("fetch_pages")
        yield from bring_together(segments, missing)
        left = [segment.segment for segment in segments if not isinstance(segment, LoadedSegment)]
        for segment in segments:
            if isinstance(segment, LoadedSegment) and not condition.excludes(segment):
                later = BitMap()
                if stored < snapshot.stored:
                    later = snapshot.places(segment.segment).later(stored)
                unread.append(UnreadSegment(segment, later))
    answers = (yield from Matching(space, condition).find(left)) if left else []
    return [*(answer.within(snapshot, stored) for answer in answers), *unread]


def ranked_fields(order: Sequence[SortKey]) -> list[str]:
    """The fields whose directories show which segments have the best values."""
    return [key.field for key in order[:2]]


def _is_worth_it(space: Workspace, condition: Condition) -> bool:
    """Whether there are many rows and keys decide the condition."""
    total = sum(segment.count for segment in space.snapshot.segments)
    has_leaves = condition.root != Every()
    return total > space.sizes.few_to_sort and has_leaves and condition.is_exact


@dataclass(frozen=True, slots=True)
class FilterPlan:
    """A condition for a sorted search: rows match if their keys are in ``key_range``, the range of
    the sort ``field``, if any, and if they satisfy ``rest``."""

    field: str
    key_range: KeyRange | None
    rest: Node

    @classmethod
    def of(cls, condition: Condition, field: str) -> FilterPlan:
        return cls(field, *take_range(condition.root, field))

    def filter(
        self, space: Workspace, segment: UnreadSegment, *, stays: bool
    ) -> SegmentFilter | None:
        """A filter for the matching rows of the segment; None if making a set of all matches costs
        no more. The directories are loaded.

        Args:
            stays: whether there is enough memory to keep the row-major columns that are fetched.
        """
        found: list[RangeLeaf] = []
        wide = False
        for leaf in leaves_of(self.rest):
            if comes_by_row(space, segment.segment, leaf, stays=stays):
                assert isinstance(leaf, RangeLeaf)
                found.append(leaf)
            else:
                wide |= leaf.cost(segment.segment).entries > space.sizes.few_entries
        entries = self._count_range(segment.segment)
        figures = SortFigures(len(found), wide, entries, space.sizes.few_entries)
        if choose(SORT, figures) is Way.SET:
            return None
        return SegmentFilter(segment.segment, self.rest, tuple(found), segment.later)

    def _count_range(self, segment: LoadedSegment) -> int:
        """The number of entries in the range of the sort field; 0 if all rows are in it."""
        if self.key_range is None or not segment.has_column(self.field):
            return 0
        if segment.lookup(self.field).all_within(self.key_range):
            return 0
        directory = segment.directories[self.field]
        pages = directory.pages(self.key_range)
        return directory.start(pages.stop) - directory.start(pages.start)


def comes_by_row(
    space: Workspace, segment: LoadedSegment, leaf: LeafOperator, *, stays: bool = False
) -> bool:
    """Whether to evaluate a comparison of many entries by a row-major column: it is kept, or so
    many of its pages are needed that fetching all is worthwhile; with many values, from the same
    share as for any comparison. Its directory must be loaded.

    Args:
        stays: whether the fetched column also stays for later queries, if it has few values.
    """
    can = isinstance(leaf, RangeLeaf) and segment.has_column(leaf.field)
    compared = comparison_figures(leaf, segment, space.sizes)
    figures = LookupFigures(
        can=can,
        cost=compared.cost,
        pages=compared.pages,
        listed=can and segment.directories[leaf.field].listed,
        is_kept=can and space.keeps_column(segment, leaf.field),
        stays=stays,
        is_wide=compared.is_wide,
        sizes=space.sizes,
    )
    return choose(LOOKUP, figures) is not Way.SET


def open_column(space: Workspace, segment: LoadedSegment, leaf: RangeLeaf) -> Asking[ColumnFilter]:
    """The filter for the rows of a comparison; the row-major column is fetched.

    Raises:
        DoesNotOpen: a page or a column does not open.
    """
    field, limits = leaf.field, space.sizes.reading
    with scope(segment):
        yield from bring_kept(segment, field)
        yield from bring_by_row(segment, field, limits)
        reading = leaf.filter(segment, limits)
        return (yield from ask_for(segment, reading, passing=False, light=True))


def in_batches(filters: Sequence[SegmentFilter], most: int) -> Iterator[list[SegmentFilter]]:
    """Batches of filters whose row-major columns together take up to ``most`` bytes; a single
    larger filter is a separate batch.
    """
    batch: list[SegmentFilter] = []
    batch_bytes = 0
    for segment in filters:
        if batch and batch_bytes + segment.size > most:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(segment)
        batch_bytes += segment.size
    if batch:
        yield batch


def open_filters(
    space: Workspace, batch: Sequence[SegmentFilter]
) -> Asking[dict[bytes, ConditionFilter]]:
    """Open the filters for matching rows, by segment uid; their row-major columns are fetched.

    Raises:
        DoesNotOpen: a page or a column does not open.
    """
    by_uid = {opened.uid: opened for opened in batch}
    segments = [opened.segment for opened in batch]
    with scope(*segments):
        yield from bring_together(
            segments, lambda segment: by_uid[segment.segment.uid].missing(segment)
        )
        opened: dict[bytes, ConditionFilter] = {}
        for uid, segment_filter in by_uid.items():
            opened[uid] = yield from _open(space, segment_filter)
        return opened


def _open(space: Workspace, segment: SegmentFilter) -> Asking[ConditionFilter]:
    filters: dict[int, ColumnFilter] = {}
    sets: dict[int, BitMap] = {}
    for leaf in leaves_of(segment.rest):
        if leaf in segment.wide:
            assert isinstance(leaf, RangeLeaf)
            filters[leaf.number] = yield from open_column(space, segment.segment, leaf)
        else:
            sets[leaf.number] = leaf.rows(segment.segment, SegmentMemo()).certain
    dead = space.snapshot.dead_rows(segment.segment.segment) | segment.later
    return ConditionFilter(segment.rest, filters, sets, dead)
