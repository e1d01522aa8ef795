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
from encrypted_records.index.query.asking import ask_for
from encrypted_records.index.query.bounds import take_range
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.query.reading_tests import count_missing, list_wide
from encrypted_records.index.query.row_filters import (
    ColumnFilter,
    ConditionFilter,
    filter_column,
)
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment
from encrypted_records.model.predicates import Absent, Everything, Leaf, leaves_of
from encrypted_records.proxy.process.offload import here
from encrypted_records.proxy.search.context import QueryContext
from encrypted_records.proxy.search.match import MOST_OF_COLUMN, SegmentMatches, resolve


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


async def resolve_sorted(
    context: QueryContext, plan: Plan, field: str, stored: int
) -> list[SegmentMatches | SegmentFilter]:
    """The matches of live segments, for a search that wants the first rows by ``field``.

    Args:
        stored: rows of the schema, of which alone matches are wanted.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`QueryContext.segments`.
    """
    snapshot = context.snapshot
    filters: list[SegmentFilter] = []
    left = list(snapshot.segments)
    if _is_worth_it(context, plan):
        key_range, predicate = take_range(plan.predicate, plan.ranges, field)
        rest = replace(plan, predicate=predicate)
        with context.stats.stage("fetch_pages"):
            segments = await context.segments(plan.missing_to_find)
        left = []
        for segment in segments:
            if plan.excludes(segment):
                continue
            wide = _list_columns(context, rest, segment, (field, key_range))
            if wide is None:
                left.append(segment.segment)
                continue
            assert isinstance(segment, PagedSegment)
            later = BitMap()
            if stored < snapshot.stored:
                later = snapshot.places(segment.segment).later(stored)
            filters.append(SegmentFilter(segment, rest, tuple(wide), later))
    answers = await resolve(context, plan, left) if left else []
    return [*(one.within(snapshot, stored) for one in answers), *filters]


def _is_worth_it(context: QueryContext, plan: Plan) -> bool:
    """Whether rows are many and keys decide the condition."""
    every = sum(segment.count for segment in context.snapshot.segments)
    if every <= context.sizes.few_rows or isinstance(plan.predicate, Everything):
        return False
    leaves = leaves_of(plan.predicate)
    return all(isinstance(leaf, Absent) or plan.is_exact(leaf) for leaf in leaves)


def _list_columns(
    context: QueryContext,
    rest: Plan,
    segment: OpenedSegment,
    sorted_by: tuple[str, KeyRange | None],
) -> list[Leaf] | None:
    """The comparisons of a segment that columns by row are to tell; None where a set of the rows
    that match is made as soon. Directories are here."""
    if not isinstance(segment, PagedSegment):
        return None
    found: list[Leaf] = []
    for leaf in leaves_of(rest.predicate):
        if comes_by_row(context, rest, segment, leaf):
            found.append(leaf)
        elif count_missing(rest, segment, leaf)[1] > context.sizes.few_entries:
            return None
    field, key_range = sorted_by
    if found or key_range is None:
        return found or None
    column = segment.lookup(field)
    if not segment.has_column(field) or column.all_within(key_range):
        return None
    directory = segment.directories[field]
    pages_of = directory.pages(key_range)
    entries = directory.start(pages_of.stop) - directory.start(pages_of.start)
    return found if entries > context.sizes.few_entries else None


def comes_by_row(context: QueryContext, plan: Plan, segment: PagedSegment, leaf: Leaf) -> bool:
    """Whether a column by row is the way to tell what a comparison of many entries selects: it is
    kept, or such a share of its pages is needed that it is worth to bring it; of one with many
    values, from the same size on as for any comparison. Its directory is here."""
    pages, entries = count_missing(plan, segment, leaf)
    if entries <= context.sizes.few_entries or isinstance(leaf, Absent):
        return False
    if context.fetcher.use_cached(segment, leaf.field):
        del segment.columns[leaf.field]
        return True
    directory = segment.directories[leaf.field]
    if pages <= len(directory.ends) * MOST_OF_COLUMN:
        return False
    return directory.listed or leaf in list_wide(plan, segment, context.sizes.reading)


async def open_column(
    context: QueryContext, plan: Plan, segment: PagedSegment, leaf: Leaf
) -> ColumnFilter:
    """What tells the rows of a comparison; the column is brought by row, and does not stay in the
    segment.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`QueryContext.segments`.
    """
    field, limits = leaf.field, context.sizes.reading
    if not context.fetcher.use_cached(segment, field):
        async with context.fetcher.turn(context.upstream, segment):
            with context.stats.stage("fetch_pages"):
                await context.fetcher.by_row(context.upstream, segment, field)
    reading = filter_column(segment, field, [plan.ranges[id(leaf)].possible], limits)
    (found,) = await context.answer(ask_for(segment, reading, passing=False), here, light=True)
    del segment.columns[field]
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


async def open_filters(
    context: QueryContext, batch: Sequence[SegmentFilter]
) -> dict[bytes, ConditionFilter]:
    """By the segment's uid, what tells the rows that match; columns by row are brought.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`QueryContext.segments`.
    """
    by_uid = {one.uid: one for one in batch}
    with context.stats.stage("fetch_pages"):
        await context.fill(
            [one.segment for one in batch],
            lambda segment: by_uid[segment.segment.uid].missing(segment),
        )
    return {uid: await _open(context, one) for uid, one in by_uid.items()}


async def _open(context: QueryContext, one: SegmentFilter) -> ConditionFilter:
    filters: dict[int, ColumnFilter] = {}
    sets: dict[int, BitMap] = {}
    for leaf in leaves_of(one.rest.predicate):
        if leaf in one.wide:
            filters[id(leaf)] = await open_column(context, one.rest, one.segment, leaf)
        else:
            alone = replace(one.rest, predicate=leaf)
            sets[id(leaf)] = alone.match(one.segment).certain
    dead = context.snapshot.dead_rows(one.segment.segment) | one.later
    return ConditionFilter(one.rest.predicate, filters, sets, dead)
