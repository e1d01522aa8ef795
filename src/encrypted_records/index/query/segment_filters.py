"""Segments of which a sorted search needs no set of all rows that match.

The first rows in the order of a field are next to each other in its column. Where the condition is
a range of that field, they are known by where they lie; and what else it asks for is looked up for
some rows at a time, in columns by row (``index.query.row_filters``). Half of a large segment takes
as long as a thousandth then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyroaring import BitMap

from encrypted_records.index.columns.dictionary import code_type
from encrypted_records.index.columns.key_range import KeyRange
from encrypted_records.index.query.asking import (
    Asking,
    Need,
    Open,
    Work,
    ask_for,
    bring_together,
)
from encrypted_records.index.query.bounds import take_range
from encrypted_records.index.query.matching import MOST_OF_COLUMN, Matching, SegmentMatches
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.query.reading_tests import count_compared, list_wide
from encrypted_records.index.query.row_filters import (
    ColumnFilter,
    ConditionFilter,
    filter_column,
)
from encrypted_records.index.query.workspace import Workspace
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment, scope
from encrypted_records.model.predicates import Absent, Everything, Leaf, leaves_of
from encrypted_records.model.queries import SortKey

#: The same share of a column of few values, which takes a byte or two of each row: of one that
#: stays, the next question needs no set.
MOST_OF_LISTED = 1 / 64


@dataclass(frozen=True, slots=True)
class SegmentFilter:
    """A segment whose rows match if their keys are in a range, where the condition has one of the
    field that is sorted by, and if they fulfil ``rest``, of which columns by row tell ``wide``."""

    segment: PagedSegment
    rest: Plan
    wide: tuple[Leaf, ...]
    #: rows that do not count: those that were stored later than the first page of the answer
    later: BitMap

    @property
    def uid(self) -> bytes:
        return self.segment.segment.uid

    @property
    def size(self) -> int:
        """Bytes that its columns by row take, about."""
        directories = (self.segment.directories[leaf.field] for leaf in self.wide)
        widths = (code_type(max(len(one.starts), one.present_pages)) for one in directories)
        return sum(width.itemsize for width in widths) * self.segment.covered

    def missing(self, segment: OpenedSegment) -> set[int]:
        """The pages of comparisons that no column by row tells."""
        assert isinstance(segment, PagedSegment)
        narrow = (leaf for leaf in leaves_of(self.rest.predicate) if leaf not in self.wide)
        return set().union(*(self.rest.missing_to_compare(leaf, segment) for leaf in narrow))


@dataclass(frozen=True, slots=True)
class UnreadSegment:
    """A large segment of which nothing but directories was looked at: whether it can have any of
    the first rows is not known yet. ``later`` as for :class:`SegmentFilter`."""

    segment: PagedSegment
    later: BitMap

    @property
    def uid(self) -> bytes:
        return self.segment.segment.uid


def find_sorted(
    space: Workspace, plan: Plan, order: Sequence[SortKey], stored: int
) -> Asking[list[SegmentMatches | UnreadSegment]]:
    """The live segments, for a search that wants the first rows of an order: of small ones the
    matches, and so of all where rows are few or keys do not decide the condition.

    Args:
        stored: rows of the schema, of which alone matches are wanted.

    Raises:
        DoesNotOpen: a page or a column does not open.
    """
    snapshot = space.snapshot
    unread: list[UnreadSegment] = []
    left = list(snapshot.segments)
    if _is_worth_it(space, plan):
        names = ranked_fields(order)

        def missing(segment: OpenedSegment) -> set[int]:
            if plan.excludes(segment) or not isinstance(segment, PagedSegment):
                return set()
            return segment.missing_directories({*plan.columns, *names})

        segments: list[OpenedSegment] = yield Open(snapshot.segments)
        yield Work("fetch_pages")
        yield from bring_together(segments, missing)
        left = [one.segment for one in segments if not isinstance(one, PagedSegment)]
        for segment in segments:
            if isinstance(segment, PagedSegment) and not plan.excludes(segment):
                later = BitMap()
                if stored < snapshot.stored:
                    later = snapshot.places(segment.segment).later(stored)
                unread.append(UnreadSegment(segment, later))
    answers = (yield from Matching(space, plan).find(left)) if left else []
    return [*(one.within(snapshot, stored) for one in answers), *unread]


def ranked_fields(order: Sequence[SortKey]) -> list[str]:
    """The fields whose directories tell which segments have the best values."""
    return [one.field for one in order[:2]]


def _is_worth_it(space: Workspace, plan: Plan) -> bool:
    """Whether rows are many and keys decide the condition."""
    every = sum(segment.count for segment in space.snapshot.segments)
    if every <= space.sizes.few_to_sort or isinstance(plan.predicate, Everything):
        return False
    leaves = leaves_of(plan.predicate)
    return all(isinstance(leaf, Absent) or plan.is_exact(leaf) for leaf in leaves)


@dataclass(frozen=True, slots=True)
class FilterPlan:
    """A plan for a sorted search: rows match if their keys are in ``key_range``, where the
    condition has one of the ``field`` that is sorted by, and if they fulfil ``rest``."""

    field: str
    key_range: KeyRange | None
    rest: Plan

    @classmethod
    def of(cls, plan: Plan, field: str) -> FilterPlan:
        key_range, predicate = take_range(plan.predicate, plan.ranges, field)
        return cls(field, key_range, replace(plan, predicate=predicate))

    def filter(self, space: Workspace, one: UnreadSegment, *, stays: bool) -> SegmentFilter | None:
        """What tells the rows of a segment that match; None where a set of them is made as soon.
        Directories are here.

        Args:
            stays: whether there is room in memory for the columns by row that are brought.
        """
        wide = self._list_wide(space, one.segment, stays=stays)
        return None if wide is None else SegmentFilter(one.segment, self.rest, wide, one.later)

    def _list_wide(
        self, space: Workspace, segment: PagedSegment, *, stays: bool
    ) -> tuple[Leaf, ...] | None:
        """The comparisons that columns by row are to tell."""
        found: list[Leaf] = []
        for leaf in leaves_of(self.rest.predicate):
            if comes_by_row(space, self.rest, segment, leaf, stays=stays):
                found.append(leaf)
            elif count_compared(self.rest, segment, leaf)[1] > space.sizes.few_entries:
                return None
        if found or self.key_range is None:
            return tuple(found) or None
        column = segment.lookup(self.field)
        if not segment.has_column(self.field) or column.all_within(self.key_range):
            return None
        directory = segment.directories[self.field]
        pages_of = directory.pages(self.key_range)
        entries = directory.start(pages_of.stop) - directory.start(pages_of.start)
        return () if entries > space.sizes.few_entries else None


def comes_by_row(
    space: Workspace, plan: Plan, segment: PagedSegment, leaf: Leaf, *, stays: bool = False
) -> bool:
    """Whether a column by row is the way to tell what a comparison of many entries selects: it is
    kept, or such a share of its pages is needed that it is worth to bring it; of one with many
    values, from the same size on as for any comparison. Its directory is here.

    Args:
        stays: whether it is brought for questions that follow, too, if it has few values.
    """
    pages, entries = count_compared(plan, segment, leaf)
    if entries <= space.sizes.few_entries or isinstance(leaf, Absent):
        return False
    if space.keeps_column(segment, leaf.field):
        return True
    directory = segment.directories[leaf.field]
    share = MOST_OF_LISTED if stays and directory.listed else MOST_OF_COLUMN
    if pages <= len(directory.ends) * share:
        return False
    return directory.listed or leaf in list_wide(plan, segment, space.sizes.reading)


def open_column(
    space: Workspace, plan: Plan, segment: PagedSegment, leaf: Leaf
) -> Asking[ColumnFilter]:
    """The filter that tells the rows of a comparison; the column is fetched by row.

    Raises:
        DoesNotOpen: a page or a column does not open.
    """
    field, limits = leaf.field, space.sizes.reading
    with scope(segment):
        yield Need(segment, kept=(field,), light=True)
        if field not in segment.columns:
            yield Need(segment, by_row=(field,))
        reading = filter_column(segment, field, [plan.ranges[id(leaf)].possible], limits)
        (found,) = yield from ask_for(segment, reading, passing=False, light=True)
    return found


def in_batches(filters: Sequence[SegmentFilter], most: int) -> Iterator[list[SegmentFilter]]:
    """So many at a time that their columns by row take no more than so many bytes, if one's do."""
    batch: list[SegmentFilter] = []
    held = 0
    for one in filters:
        if batch and held + one.size > most:
            yield batch
            batch, held = [], 0
        batch.append(one)
        held += one.size
    if batch:
        yield batch


def open_filters(
    space: Workspace, batch: Sequence[SegmentFilter]
) -> Asking[dict[bytes, ConditionFilter]]:
    """By the segment's uid, what tells the rows that match; columns by row are brought.

    Raises:
        DoesNotOpen: a page or a column does not open.
    """
    by_uid = {one.uid: one for one in batch}
    segments = [one.segment for one in batch]
    with scope(*segments):
        yield from bring_together(
            segments, lambda segment: by_uid[segment.segment.uid].missing(segment)
        )
        opened: dict[bytes, ConditionFilter] = {}
        for uid, one in by_uid.items():
            opened[uid] = yield from _open(space, one)
        return opened


def _open(space: Workspace, one: SegmentFilter) -> Asking[ConditionFilter]:
    filters: dict[int, ColumnFilter] = {}
    sets: dict[int, BitMap] = {}
    for leaf in leaves_of(one.rest.predicate):
        if leaf in one.wide:
            filters[id(leaf)] = yield from open_column(space, one.rest, one.segment, leaf)
        else:
            alone = replace(one.rest, predicate=leaf)
            sets[id(leaf)] = alone.match(one.segment).certain
    dead = space.snapshot.dead_rows(one.segment.segment) | one.later
    return ConditionFilter(one.rest.predicate, filters, sets, dead)
