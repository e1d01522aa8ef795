"""The snapshot, definition and limits of one question, and the rows that it counts on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query import sorted_scan
from encrypted_records.index.query.asking import Stopped
from encrypted_records.index.query.long_strings import Texts
from encrypted_records.index.query.sorted_scan import ScanLimits
from encrypted_records.index.segments.paged import PagedSegment
from encrypted_records.index.segments.reading import STANDARD, ReadingLimits
from encrypted_records.model.definition import SchemaDefinition


@dataclass(frozen=True, slots=True)
class Sizes:
    """From which sizes on a question is answered segment by segment.

    Over segments with more than ``few_to_sort`` rows in all, a sorted search looks up whether the
    rows that come next match. For segments with more than ``few_rows`` rows in all, pages are
    counted before they are brought in; with more than ``many_pages``, or ``many_entries`` in them,
    one segment's are in memory at a time. Up to ``few_values`` values, all columns that are
    measured are brought in one request. A set of rows is made of ``few_entries`` entries of a
    column in a millisecond. Filters that tell for some rows whether they match may take ``held``
    bytes at once. Work on a segment of more than ``alone_rows`` rows waits for its turn at the
    memory of questions.
    """

    few_rows: int = 1 << 21
    few_to_sort: int = 1 << 18
    many_pages: int = 1024
    many_entries: int = 1 << 22
    few_values: int = 1 << 22
    few_entries: int = 1 << 16
    held: int = 32 << 20
    alone_rows: int = 1 << 18
    reading: ReadingLimits = STANDARD
    scan: ScanLimits = sorted_scan.STANDARD


@dataclass
class Counted:
    """``certain`` and ``unsure`` are rows as the index alone answered, ``rows`` those that were
    opened; ``scanned`` the fields whose distinct values were tested one by one."""

    certain: int = 0
    unsure: int = 0
    rows: int = 0
    scanned: set[str] = field(default_factory=set)


@dataclass
class Workspace:
    """One question's snapshot, and the definition by which keys are compared.

    Nothing in it changes while the question is asked but ``counted``, which EXPLAIN shows, and
    whether anybody waits.
    """

    snapshot: Snapshot
    definition: SchemaDefinition
    #: the key of the tails in the index keys of this snapshot's segments
    tails: SchemaKey
    #: records that may be opened to decide texts that the index does not hold as a whole
    most_opened: int
    #: more rows than these would take the place of all that other questions use
    most_kept: int
    #: more rows than these in an order by values are not hidden as those of any search are
    most_hidden: int
    #: whether columns by row of so many rows and fields stay for questions that follow
    keeps_columns: Callable[[int, int], bool]
    #: whether a segment's column by row is kept
    keeps_column: Callable[[PagedSegment, str], bool]
    sizes: Sizes = Sizes()
    #: whether all rows that match are counted, and none is left out because others are enough
    is_explained: bool = False
    counted: Counted = field(default_factory=Counted)
    _is_awaited: bool = True

    def texts(self) -> Texts:
        """For long strings that are to be opened."""
        return Texts(self.most_opened)

    def stop(self) -> None:
        """Nobody waits for the answer any more."""
        self._is_awaited = False

    def go_on(self) -> None:
        """For work to call from time to time that takes long.

        Raises:
            Stopped: nobody waits for it.
        """
        if not self._is_awaited:
            raise Stopped
