"""The tuned numbers of questions: each with its unit, and the benchmark that chose it
(docs/decisions/questions.md, memory.md and search-cost.md have the figures).

Those of one reading are in :class:`~encrypted_records.index.segments.reading.ReadingLimits`, those
of a scan in :class:`~encrypted_records.index.query.sorted_scan.ScanLimits`; both are fields here.
"""

from __future__ import annotations

from dataclasses import dataclass

from encrypted_records.index.query.sorted_scan import STANDARD as SCAN
from encrypted_records.index.query.sorted_scan import ScanLimits
from encrypted_records.index.segments.reading import STANDARD as READING
from encrypted_records.index.segments.reading import ReadingLimits


@dataclass(frozen=True, slots=True)
class WorkSizes:
    """The duration of work, counted in column entries. Chosen by ``bench.search``."""

    #: entries that are worked on sooner than a thread has begun
    on_loop: int = 1 << 14
    #: entries of work in a thread of its own; work on more waits in line
    in_thread: int = 1 << 20
    #: entries that take as long as to put a row in order
    a_row: int = 8
    #: entries that take as long as to test a text
    a_text: int = 64
    #: entries that take as long as to look a value up
    a_value: int = 2048
    #: segments times values that are looked up in some ten milliseconds
    lookups: int = 500
    #: entries that are looked through for first rows in a third of a millisecond
    looked_through: int = 1 << 19


WORK = WorkSizes()


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes from which on a query is answered in another way (:mod:`.choices`)."""

    #: rows of all segments, from which on pages are counted before they are brought
    #: (``bench.scale``)
    few_rows: int = 1 << 21
    #: rows of all segments, from which on a sorted search looks up whether rows match
    #: (``bench.scale``)
    few_to_sort: int = 1 << 18
    #: pages, and entries in them, of all segments together; with more, the pages of one segment
    #: are in memory at a time (``bench.large_segments``)
    many_pages: int = 1024
    many_entries: int = 1 << 22
    #: rows times fields up to which all columns that are measured come in one request
    #: (``bench.large_segments``)
    few_values: int = 1 << 22
    #: entries of which a set of rows is made in a millisecond (``bench.index_core``)
    few_entries: int = 1 << 16
    #: rows of a segment of which sets are made for the first ones in the order of storing: as many
    #: as one part of a set has (``bench.search``)
    prefix_rows: int = 1 << 16
    #: share of a column's pages from which on it is brought by row and kept
    #: (``bench.large_segments``)
    most_of_column: float = 0.25
    #: the same of a column of few values, which takes a byte or two of each row (``bench.scale``)
    most_of_listed: float = 1 / 64
    #: bytes of the columns by row that are looked into at once (``bench.scale``)
    held: int = 32 << 20
    #: rows of a segment from which on work on it waits for its turn at memory
    #: (``bench.large_segments``)
    alone_rows: int = 1 << 18
    work: WorkSizes = WORK
    reading: ReadingLimits = READING
    scan: ScanLimits = SCAN


STANDARD = Sizes()
