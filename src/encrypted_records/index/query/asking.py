"""Questions that say, step by step, what they lack, and how long their work takes.

Each is a generator, so that fetching and deciding stay apart: a driver fetches what it yields, and
resumes it with that. An error of a fetch is raised where it was yielded. Each step is one
request at most, but for pages, rows and segments that are more than a request takes. How steps are
put together is in :mod:`.bringing`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from encrypted_records.index.columns.dictionary import ByRow
from encrypted_records.index.columns.sums import ColumnSums
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.model.records import RowRef, Segment

T = TypeVar("T")


class Stopped(Exception):
    """The query was cancelled, because its answer is no longer needed."""


@dataclass(frozen=True, slots=True)
class Open:
    """Segments of a snapshot. They are sent back, opened and in this order: minis as a whole, and
    large ones without a page."""

    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows, at least one. Their records are sent back, in this order.

    ``alone`` if they would take the place of all rows that other questions use; ``ranked`` if which
    they are tells of an order by values (:meth:`RowFetcher.open_rows`).
    """

    refs: tuple[RowRef, ...]
    alone: bool = False
    ranked: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """Parts of a segment: ``pages`` to put in, and fields whose ``directories`` are. Pages in
    ``passing`` are looked at once, and taken out again. A ``light`` need takes little memory; any
    other, even of nothing, waits for the question's turn at memory."""

    segment: LoadedSegment
    pages: frozenset[int] = frozenset()
    directories: tuple[str, ...] = ()
    passing: bool = False
    light: bool = False


@dataclass(frozen=True, slots=True)
class Together:
    """Pages of several segments, to bring with one request. There is one need of each segment,
    and all are ``light``: they are in memory at once."""

    needs: tuple[Need, ...]


@dataclass(frozen=True, slots=True)
class KeptColumn:
    """A column by row. It is sent back if it is kept, and None if it is not; nothing is fetched."""

    segment: LoadedSegment
    field: str


@dataclass(frozen=True, slots=True)
class KeptSums:
    """The same of what a column adds up to; ``again`` if it was looked for just before."""

    segment: LoadedSegment
    field: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """A column by row or its sums, for questions that follow. It may be kept already, and have
    grown: things that are made of a column's keys are kept with it."""

    segment: LoadedSegment
    field: str
    made: ByRow | ColumnSums


@dataclass(frozen=True, slots=True)
class Work:
    """About how many entries of columns are worked on until the next step of this kind, and the
    stage under which that counts in statistics, if it does. The number says where it is done: what
    takes long must not keep others waiting. ``long`` where it takes long whatever the number.

    The work before it is sent back, to go on with."""

    stage: str | None
    entries: int = 0
    long: bool = False


Step = Open | Rows | Need | Together | KeptColumn | KeptSums | Keep | Work
#: The type of the value that is sent back follows from the step.
Asking = Generator[Step, Any, T]
