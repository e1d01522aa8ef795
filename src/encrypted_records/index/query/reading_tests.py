"""What comparisons select of a large segment, from its pages a window at a time.

Of each window only the rows that pass are kept, as bits. So a test of texts takes no memory for the
texts of a column, and a range over half of a segment none for its pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.columns.column import Keys, key_type
from encrypted_records.index.columns.key_range import KeyRange
from encrypted_records.index.columns.texts import ColumnTexts, Mask
from encrypted_records.index.ordinals import Ordinals, mask_of, of_mask
from encrypted_records.index.query.column_scan import needs_whole
from encrypted_records.index.query.long_strings import Texts
from encrypted_records.index.query.matches import Matches
from encrypted_records.index.query.members import held_in
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.query.row_filters import entries_between, filter_column
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment
from encrypted_records.index.segments.reading import (
    STANDARD,
    Reading,
    ReadingLimits,
    Window,
    fill_up,
    read_column,
    read_pages,
)
from encrypted_records.model.predicates import Absent, ColumnTest, InColumn, Leaf, leaves_of
from encrypted_records.model.text_tests import TextTest
from encrypted_records.model.word_columns import column_spec


def test_column(
    plan: Plan,
    segment: PagedSegment,
    tests: Sequence[ColumnTest],
    go_on: Callable[[], None] = lambda: None,
    limits: ReadingLimits = STANDARD,
) -> Reading[None]:
    """Tell a plan the rows that pass some tests, all of one field.

    Args:
        go_on: as for :meth:`ColumnTexts.test`.

    Raises:
        DoesNotOpen: as :func:`read_column`, or a key holds no text.
    """
    field = tests[0].field
    masks = [(_no_rows(segment), _no_rows(segment)) for _ in tests]

    def take(window: Window) -> None:
        entries = WindowEntries(segment, field, window)
        texts: list[ColumnTexts] = []
        for test, (certain, possible) in zip(tests, masks, strict=True):
            if isinstance(test, InColumn):
                sure = maybe = held_in(entries.keys, plan.keys[id(test)])
            else:
                texts = texts or [ColumnTexts(entries.keys)]
                sure, maybe = texts[0].test(test, go_on)
                _use_known(test, entries.keys, plan.known, sure, maybe)
            certain[entries.rows_of(sure)] = True
            possible[entries.rows_of(maybe)] = True
        go_on()

    yield from read_column(segment, field, take, limits)
    for test, (certain, possible) in zip(tests, masks, strict=True):
        plan.keep(segment, test, Matches(of_mask(certain), of_mask(possible)))


def want_undecided(
    plan: Plan,
    segment: PagedSegment,
    tests: Sequence[TextTest],
    rows: BitMap,
    position: Callable[[int], int],
    limits: ReadingLimits = STANDARD,
) -> Reading[None]:
    """Want the long strings of some rows that leave these tests, all of one field, open.

    Args:
        position: the position of a row.

    Raises:
        DoesNotOpen: as :func:`read_column`.
        InvalidQuery: as :meth:`Texts.want`.
    """
    field = tests[0].field
    wanted = mask_of(rows, segment.covered)

    def take(window: Window) -> None:
        entries = WindowEntries(segment, field, window)
        texts = ColumnTexts(entries.keys)
        undecided = np.zeros(len(entries.keys), np.bool_)
        for test in tests:
            sure, maybe = texts.test(test)
            undecided |= maybe & ~sure
        for at in np.flatnonzero(undecided).tolist():
            own = entries.rows(at)
            held = own[wanted[own]]
            key = bytes(entries.keys[at])
            if len(held) and plan.known.get(field, key) is None:
                plan.known.want(field, key, position(int(held[0])))

    yield from read_column(segment, field, take, limits)


def list_unread(plan: Plan, segment: OpenedSegment) -> list[ColumnTest]:
    """The tests of columns that are not here by row, and whose keys no directory lists."""
    if plan.excludes(segment):
        return []
    left = (test for test in plan.tests if not plan.is_kept(segment, test))
    return [test for test in left if needs_whole(segment, test.field)]


def _list_comparisons(plan: Plan, segment: OpenedSegment) -> list[Leaf]:
    """Those with keys, of which it is not known yet which rows they select."""
    if plan.excludes(segment):
        return []
    return [
        leaf
        for leaf in leaves_of(plan.predicate)
        if not isinstance(leaf, ColumnTest)
        and id(leaf) not in plan.words
        and not plan.is_kept(segment, leaf)
    ]


def list_wide(plan: Plan, segment: OpenedSegment, limits: ReadingLimits = STANDARD) -> list[Leaf]:
    """The comparisons that take more pages or entries of a segment than are taken at once;
    directories are here."""
    if not isinstance(segment, PagedSegment):
        return []
    every = _list_comparisons(plan, segment)
    return [leaf for leaf in every if _is_wide(plan, segment, leaf, limits)]


def _is_wide(plan: Plan, segment: PagedSegment, leaf: Leaf, limits: ReadingLimits) -> bool:
    pages, entries = count_missing(plan, segment, leaf)
    return pages > limits.few or (pages > 1 and entries > limits.entries)


def count_entries(plan: Plan, segment: OpenedSegment) -> int:
    """How many entries the pages have that the comparisons of a segment need; directories are
    here."""
    if not isinstance(segment, PagedSegment):
        return 0
    every = _list_comparisons(plan, segment)
    return sum(count_missing(plan, segment, leaf)[1] for leaf in every)


def count_missing(plan: Plan, segment: PagedSegment, leaf: Leaf) -> tuple[int, int]:
    """The pages that a comparison needs and that are not here, and the entries of these; the
    directory is here."""
    missing = plan.missing_to_compare(leaf, segment)
    if not missing:
        return 0, 0
    directory = segment.directories[leaf.field]
    pages = np.isin(directory.numbers, np.fromiter(missing, np.uint32))
    return len(missing), int(directory.page_entries[pages].sum())


def count_compared(plan: Plan, segment: PagedSegment, leaf: Leaf) -> tuple[int, int]:
    """The same of all pages that a comparison needs, whether they are here or not; of very many,
    sooner than to name them."""
    if not segment.has_column(leaf.field):
        return 0, 0
    directory = segment.directories[leaf.field]
    if isinstance(leaf, Absent):
        return directory.leading, directory.absent
    ranges = plan.ranges[id(leaf)]
    if ranges.certain == ranges.possible and plan.holds_all(segment, leaf):
        return 0, 0
    every = [some for some in map(directory.pages, ranges.possible) if some]
    if len(every) > 1:
        pages = np.unique(np.concatenate([np.arange(one.start, one.stop) for one in every]))
        return len(pages), int(directory.page_entries[pages].sum())
    return sum(map(len, every)), sum(
        directory.start(one.stop) - directory.start(one.start) for one in every
    )


def compare_column(
    plan: Plan, segment: PagedSegment, leaf: Leaf, limits: ReadingLimits = STANDARD
) -> Reading[None]:
    """Tell a plan the rows that a comparison selects, which takes many pages.

    Raises:
        DoesNotOpen: a page does not open.
    """
    field = leaf.field
    if isinstance(leaf, Absent):
        rows = yield from _read_absent(segment, field, limits)
        plan.keep(segment, leaf, Matches.exactly(rows))
        return
    ranges = plan.ranges[id(leaf)]
    if ranges.certain == ranges.possible:
        (possible,) = yield from _read_between(segment, field, [ranges.possible], limits)
        plan.keep(segment, leaf, Matches.exactly(possible))
        return
    both = [ranges.certain, ranges.possible]
    plan.keep(segment, leaf, Matches(*(yield from _read_between(segment, field, both, limits))))


class WindowEntries:
    """The present entries of some pages: ``keys`` in the order of the pages, in which one may come
    twice, and the rows of each."""

    def __init__(self, segment: PagedSegment, field: str, window: Window) -> None:
        leading = segment.directories[field].leading
        blocks = [block for page, block in window if page >= leading]
        none: Keys = np.zeros(0, key_type(column_spec(segment.definition, field).kind))
        self.keys = np.concatenate([none, *(block.keys for block in blocks)])
        self.ordinals: Ordinals = np.concatenate(
            [np.zeros(0, np.uint32), *(block.ordinals for block in blocks)]
        )
        self.lengths: NDArray[np.int64] = np.concatenate(
            [np.zeros(0, np.int64), *(block.counts for block in blocks)]
        )
        self._ends = np.cumsum(self.lengths)

    def rows(self, at: int) -> Ordinals:
        """Those of one key."""
        end = int(self._ends[at])
        return self.ordinals[end - int(self.lengths[at]) : end]

    def rows_of(self, keys: Mask) -> Ordinals:
        """Those of some keys."""
        if not keys.any():
            return self.ordinals[:0]
        return self.ordinals[np.repeat(keys, self.lengths)]

    def key_of_entries(self) -> NDArray[np.intp]:
        """For each entry which of the keys is its own."""
        return np.repeat(np.arange(len(self.keys)), self.lengths)


def _use_known(test: TextTest, keys: Keys, known: Texts, sure: Mask, maybe: Mask) -> None:
    for at in np.flatnonzero(maybe & ~sure).tolist():
        text = known.get(test.field, bytes(keys[at]))
        if text is not None:
            sure[at] = maybe[at] = test.fits(text)


def _read_absent(segment: PagedSegment, field: str, limits: ReadingLimits) -> Reading[BitMap]:
    directory = segment.directories[field]
    rows = _no_rows(segment)

    def take(window: Window) -> None:
        for page, block in window:
            if page < directory.leading:
                rows[block.ordinals.astype(np.intp)] = True

    pages = fill_up(segment, field, range(directory.leading))
    yield from read_pages(segment, field, pages, take, limits)
    return of_mask(rows)


def _read_between(
    segment: PagedSegment, field: str, every: Sequence[Sequence[KeyRange]], limits: ReadingLimits
) -> Reading[list[BitMap]]:
    """The rows of some key ranges, and of some others; pages are read once for all of these."""
    if field in segment.columns:
        filters = yield from filter_column(segment, field, every, limits)
        return [one.all_rows() for one in filters]
    directory = segment.directories[field]
    masks = [_no_rows(segment) for _ in every]
    wanted: dict[int, list[tuple[Mask, KeyRange]]] = {}
    for mask, ranges in zip(masks, every, strict=True):
        for key_range in ranges:
            for page in directory.pages(key_range):
                wanted.setdefault(page, []).append((mask, key_range))

    def take(window: Window) -> None:
        for page, block in window:
            for mask, key_range in wanted.get(page, ()):
                # As in ``by_row``: by other numbers, numpy takes twice as long.
                mask[entries_between(block, key_range).astype(np.intp)] = True

    yield from read_pages(segment, field, fill_up(segment, field, wanted), take, limits)
    return [of_mask(mask) for mask in masks]


def _no_rows(segment: PagedSegment) -> NDArray[np.bool_]:
    return np.zeros(segment.covered, np.bool_)
