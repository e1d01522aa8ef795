"""The operator for a query on one segment: the first of a table whose rule applies.

The rules look at figures that directories have, never at what was fetched before, but for columns
by row that are kept in memory, which takes no request. Tuned numbers are in
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


#: Ways with their rules, the first of which that holds is taken.
Table = tuple[tuple[Way, Callable[[F], bool]], ...]


def choose(table: Table[F], figures: F) -> Way:
    return next(way for way, holds in table if holds(figures))


@dataclass(frozen=True, slots=True)
class ComparisonFigures:
    """``cost`` is of the comparison, ``pages`` of the whole column. ``is_kept``: the column is kept
    by row; ``keeps``: it would be, if it were brought."""

    cost: ReadCost
    pages: int
    is_kept: bool
    keeps: bool
    limits: ReadingLimits
    most_of_column: float

    @property
    def is_wide(self) -> bool:
        """Whether it takes more than is taken at once."""
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
    """Figures of a column that is not here, and whose keys no directory lists.

    ``fits``: whether it can be expected to be kept with its keys, once a sample told that."""

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
    """``entries``: those that comparisons take of all segments. ``is_in_order``: the segment's rows
    have the order of storing."""

    entries: int
    few: int
    is_exact: bool
    is_in_order: bool


#: The first rows of a segment in the order of storing, where some are enough.
OLDEST: Table[OldestFigures] = (
    (
        Way.PREFIX,
        lambda figures: figures.entries > figures.few and figures.is_exact and figures.is_in_order,
    ),
    (Way.SET, lambda figures: True),
)


@dataclass(frozen=True, slots=True)
class CountFigures:
    """``decided``: whether directories say that all rows match, or that none does; ``is_alone``:
    they leave a single comparison open, or its negation. ``dead``: whether some rows are.
    ``by_row``: whether a column by row is the way to look these up, if there are any."""

    decided: bool | None
    is_alone: bool
    dead: bool
    by_row: bool


#: How many rows of a segment match comparisons that keys decide.
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
    values; ``is_kept``: it is kept by row. ``stays``: what is brought for this question stays for
    others. ``can``: rows can be looked up at all; ``is_wide`` as of :class:`ComparisonFigures`."""

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
        """The share of the column's pages from which on the whole column is fetched."""
        few_values = self.stays and self.listed
        return self.sizes.most_of_listed if few_values else self.sizes.most_of_column


#: Whether some rows match a comparison: by the set of all that do, or looked up by row.
LOOKUP: Table[LookupFigures] = (
    (Way.SET, lambda figures: not figures.can or figures.cost.entries <= figures.sizes.few_entries),
    (Way.KEPT, lambda figures: figures.is_kept),
    (Way.SET, lambda figures: figures.cost.pages <= figures.pages * figures.share),
    (Way.BY_ROW, lambda figures: figures.listed or figures.is_wide),
    (Way.SET, lambda figures: True),
)


@dataclass(frozen=True, slots=True)
class SortFigures:
    """``by_row``: how many comparisons a column by row is to tell; ``wide``: whether one that none
    tells takes many entries. ``range_entries``: of the range of the field that is sorted by, 0
    where there is none or all rows are in it."""

    by_row: int
    wide: bool
    range_entries: int
    few_entries: int


#: The first rows of an order in a large segment.
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
        segment: the directory must be here.
    """
    can = not isinstance(leaf, AbsentLeaf)
    pages = len(segment.directories[leaf.field].ends) if segment.has_column(leaf.field) else 0
    cost = leaf.cost(segment)
    return ComparisonFigures(
        cost, pages, can and is_kept, can and keeps, sizes.reading, sizes.most_of_column
    )
