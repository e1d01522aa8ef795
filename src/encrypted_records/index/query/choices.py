"""Select the way to answer a query on a segment: the first in a table whose rule applies.

The rules use figures from directories, never what was fetched before, except for row-major columns
that are kept in memory and take no request. Tuned numbers are in
:class:`~encrypted_records.index.query.asking.Sizes`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from encrypted_records.index.query.asking import Sizes
from encrypted_records.index.query.leaves import AbsentLeaf, LeafOperator, ReadCost
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.reading import ReadingLimits

F = TypeVar("F")


class Way(enum.Enum):
    """A way of finding or counting rows."""

    NONE = "the zones in the header exclude every row"
    ALL = "the directory shows that every row matches"
    AT_ONCE = "the pages of the range, or of the column, in one request"
    KEPT = "the row-major column that is kept"
    BY_ROW = "the row-major column, which is fetched and kept"
    WINDOWS = "the pages, a window at a time"
    SAMPLE = "a few pages, to estimate the number of different keys"
    PREFIX = "only the first rows in the order of storing"
    SET = "the set of all rows that match"
    ENDS = "the pages in which the range begins and ends"
    ENDS_LESS_DEAD = "these pages, with dead rows looked up by row"
    FILTER = "rows of the sorted column, looked up by row"


#: Ways with their rules; the first way whose rule holds is used.
Table = tuple[tuple[Way, Callable[[F], bool]], ...]


def choose(table: Table[F], figures: F) -> Way:
    return next(way for way, holds in table if holds(figures))


@dataclass(frozen=True, slots=True)
class ComparisonFigures:
    """``cost`` is of the comparison, ``pages`` of the whole column. ``is_kept``: the row-major
    column is kept; ``keeps``: it would be kept if it were fetched."""

    cost: ReadCost
    pages: int
    is_kept: bool
    keeps: bool
    limits: ReadingLimits
    most_of_column: float

    @property
    def is_wide(self) -> bool:
        """Whether its pages or entries exceed what is read at once."""
        return self.cost.pages > self.limits.few or (
            self.cost.pages > 1 and self.cost.entries > self.limits.entries
        )


#: The rows of a comparison.
COMPARISON: Table[ComparisonFigures] = (
    (Way.AT_ONCE, lambda figures: not figures.is_wide),
    (Way.KEPT, lambda figures: figures.is_kept),
    (
        Way.BY_ROW,
        lambda figures: (
            figures.keeps and figures.cost.pages > figures.pages * figures.most_of_column
        ),
    ),
    (Way.WINDOWS, lambda figures: True),
)


@dataclass(frozen=True, slots=True)
class TestFigures:
    """Figures of a column that is not loaded and whose directory lists no keys.

    ``fits``: whether it can probably be kept with its keys; None before sampling."""

    __test__ = False  # not one of pytest's

    is_kept: bool
    pages: int
    few: int
    fits: bool | None = None


#: The rows that pass a test of each distinct key.
TEST: Table[TestFigures] = (
    (Way.KEPT, lambda figures: figures.is_kept),
    (Way.AT_ONCE, lambda figures: figures.pages <= figures.few),
    (Way.SAMPLE, lambda figures: figures.fits is None),
    (Way.BY_ROW, lambda figures: bool(figures.fits)),
    (Way.WINDOWS, lambda figures: True),
)


@dataclass(frozen=True, slots=True)
class OldestFigures:
    """``entries``: the entries that comparisons read in all segments. ``is_in_order``: the
    segment's rows are in storage order."""

    entries: int
    few: int
    is_exact: bool
    is_in_order: bool


#: The first rows of a segment in storage order, if some are enough.
OLDEST: Table[OldestFigures] = (
    (
        Way.PREFIX,
        lambda figures: figures.entries > figures.few and figures.is_exact and figures.is_in_order,
    ),
    (Way.SET, lambda figures: True),
)


@dataclass(frozen=True, slots=True)
class CountFigures:
    """``decided``: whether directories show that all rows match (True) or no row (False).
    ``is_alone``: they leave only a single comparison or its negation open. ``dead``: whether some
    rows are dead. ``by_row``: whether dead rows are best looked up in a row-major column."""

    decided: bool | None
    is_alone: bool
    dead: bool
    by_row: bool


#: The number of rows of a segment that match comparisons decided by keys.
COUNT: Table[CountFigures] = (
    (Way.NONE, lambda figures: figures.decided is False),
    (Way.ALL, lambda figures: figures.decided is True),
    (Way.ENDS, lambda figures: figures.is_alone and not figures.dead),
    (Way.ENDS_LESS_DEAD, lambda figures: figures.is_alone and figures.by_row),
    (Way.SET, lambda figures: True),
)


@dataclass(frozen=True, slots=True)
class LookupFigures:
    """``cost`` is of the comparison, ``pages`` of the whole column; ``listed``: the column has few
    values; ``is_kept``: it is kept row-major. ``stays``: data fetched for this query stays for
    others. ``can``: rows can be looked up at all; ``is_wide`` as in :class:`ComparisonFigures`."""

    can: bool
    cost: ReadCost
    pages: int
    listed: bool
    is_kept: bool
    stays: bool
    is_wide: bool
    sizes: Sizes

    @property
    def share(self) -> float:
        """The share of the column's pages from which the whole column is fetched."""
        few_values = self.stays and self.listed
        return self.sizes.most_of_listed if few_values else self.sizes.most_of_column


#: Whether some rows match a comparison: by the set of all matching rows, or looked up by row.
LOOKUP: Table[LookupFigures] = (
    (Way.SET, lambda figures: not figures.can or figures.cost.entries <= figures.sizes.few_entries),
    (Way.KEPT, lambda figures: figures.is_kept),
    (Way.SET, lambda figures: figures.cost.pages <= figures.pages * figures.share),
    (Way.BY_ROW, lambda figures: figures.listed or figures.is_wide),
    (Way.SET, lambda figures: True),
)


@dataclass(frozen=True, slots=True)
class SortFigures:
    """``by_row``: the number of comparisons to answer by row-major columns; ``wide``: whether
    another comparison reads many entries. ``range_entries``: the entries of the sort field's range,
    0 if there is no range or all rows are in it."""

    by_row: int
    wide: bool
    range_entries: int
    few_entries: int


#: The first rows of a sort order in a large segment.
SORT: Table[SortFigures] = (
    (Way.SET, lambda figures: figures.wide),
    (Way.FILTER, lambda figures: figures.by_row > 0 or figures.range_entries > figures.few_entries),
    (Way.SET, lambda figures: True),
)


def comparison_figures(
    leaf: LeafOperator,
    segment: LoadedSegment,
    sizes: Sizes,
    *,
    is_kept: bool = False,
    keeps: bool = False,
) -> ComparisonFigures:
    """
    Args:
        segment: the directory must be loaded.
    """
    can = not isinstance(leaf, AbsentLeaf)
    pages = len(segment.directories[leaf.field].ends) if segment.has_column(leaf.field) else 0
    cost = leaf.cost(segment)
    return ComparisonFigures(
        cost, pages, can and is_kept, can and keeps, sizes.reading, sizes.most_of_column
    )
