"""The snapshot, definition and limits of one question, and the rows that it counts on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.asking import Asking, Open, Stopped
from encrypted_records.index.query.long_strings import Texts
from encrypted_records.index.query.sizes import STANDARD, Sizes
from encrypted_records.index.segments.loaded import (
    KeptSegment,
    LoadedSegment,
    OpenedSegment,
    load,
)
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.records import Segment


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
    """The workspace of one query: a snapshot, and the definition by which keys are compared.

    It owns the opened segments, each opened once, with all their loaded pages and columns. While
    the query runs, nothing else changes except ``counted``, which EXPLAIN shows, and whether the
    query was cancelled.
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
    keeps_column: Callable[[LoadedSegment, str], bool]
    sizes: Sizes = STANDARD
    #: whether all rows that match are counted, and none is left out because others are enough
    is_explained: bool = False
    counted: Counted = field(default_factory=Counted)
    #: by uid
    opened: dict[bytes, OpenedSegment] = field(default_factory=dict)
    _is_awaited: bool = True

    def open(self, segments: Sequence[Segment]) -> Asking[list[OpenedSegment]]:
        """Segments of the snapshot, in this order.

        Raises:
            DoesNotOpen: a mini or a header does not open.
        """
        wanted = tuple(segment for segment in segments if segment.uid not in self.opened)
        if wanted:
            found: list[KeptSegment] = yield Open(wanted)
            self.opened |= {kept.segment.uid: load(kept) for kept in found}
        return [self.opened[segment.uid] for segment in segments]

    def texts(self) -> Texts:
        """For long strings that are to be opened."""
        return Texts(self.most_opened)

    def stop(self) -> None:
        """Cancel the query, because its answer is no longer needed."""
        self._is_awaited = False

    def go_on(self) -> None:
        """Check for cancellation; long computations call this from time to time.

        Raises:
            Stopped: the query was cancelled.
        """
        if not self._is_awaited:
            raise Stopped
