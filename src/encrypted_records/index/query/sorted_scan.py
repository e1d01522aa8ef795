"""The first rows of an answer in the order of a field, read from one end of its sorted column.

The first ten of a million rows are in a page or two. A scan reads entries until it has enough rows
of the answer, and then to the last entry that the index cannot distinguish from the previous entry:
other fields, storage order or opened records decide among those. If that takes long, the scan gives
up, because the whole row-major column is faster.

Like :meth:`.condition.Condition.missing`, a scan names the missing pages, and starts again with
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from pyroaring import BitMap

from encrypted_records.index.columns.column import (
    EntryBlock,
    KeyRange,
    Keys,
    Lookup,
    alike,
    key_type,
)
from encrypted_records.index.columns.dictionary import PartialDictionary, build_partial_dictionary
from encrypted_records.index.log.snapshot import GroupPlaces
from encrypted_records.index.ordinals import Ordinals, bitmap, finder, ordinals
from encrypted_records.index.segments.loaded import OpenedSegment
from encrypted_records.model.definition import column_spec
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.queries import SortKey


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """The limits of a scan.

    ``step`` entries are read first, and twice as many each time after. No more than ``share`` of a
    column is read, and no more than ``most`` entries; a scan starts only where it can be expected
    to end ``spare`` entries earlier. Up to ``equal_rows`` equal rows are left for the caller to
    sort.
    """

    step: int = 2048
    share: float = 0.25
    spare: int = 4096
    equal_rows: int = 1024
    most: int = 1 << 20


STANDARD = ScanLimits()


@dataclass(frozen=True, slots=True)
class Start:
    """The start after the row at ``position``, whose index key is ``key``; None if the field is
    absent.
    """

    key: int | bytes | None
    position: int


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A request to scan for ``want`` rows in the order of the field of ``order``.

    ``among`` returns the matching rows of a set of rows, for keys in ``key_range``; if the
    condition bounds the field, this range contains the keys of all matches. About ``count`` rows
    match. If ``alone``, no other field follows in the order, and rows with equal keys are limited
    to the first in storage order.
    """

    order: SortKey
    among: Callable[[BitMap], BitMap]
    count: int
    want: int
    start: Start | None
    key_range: KeyRange | None
    alone: bool
    places: GroupPlaces


@dataclass(frozen=True, slots=True)
class ScanResult:
    """All rows that can be among the first, and each row's field."""

    rows: BitMap
    dictionary: PartialDictionary


@dataclass(frozen=True, slots=True)
class NeedPages:
    """The scan cannot go further without these pages."""

    numbers: set[int]


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The scan would take longer than reading the whole row-major column."""


@dataclass(frozen=True, slots=True)
class _ScannedPart:
    """The result for one part of a column: the rows after the start, the rows that the index cannot
    distinguish from the start, and, as ``blocks``, the entries that were read for them.
    """

    later: BitMap = field(default_factory=BitMap)
    at_start: BitMap = field(default_factory=BitMap)
    blocks: Sequence[EntryBlock] = ()

    @property
    def rows(self) -> BitMap:
        return self.later | self.at_start


class SortedScan:
    """A scan of a segment: load :meth:`missing_pages` until there are none, then call
    :meth:`result`."""

    def __init__(
        self, segment: OpenedSegment, request: ScanRequest, limits: ScanLimits = STANDARD
    ) -> None:
        self._segment = segment
        self._request = request
        self._limits = limits
        self._outcome: ScanResult | GaveUp | None = None

    def missing_pages(self) -> set[int]:
        """The pages to put into the segment before the scan can continue; directories first.

        Raises:
            DoesNotOpen: a column that is needed does not open.
        """
        if self._outcome is None:
            outcome = self._run()
            if isinstance(outcome, NeedPages):
                return outcome.numbers
            self._outcome = outcome
        return set()

    def result(self) -> ScanResult | None:
        """The result of the scan; None if it gave up. All pages must be loaded."""
        assert self._outcome is not None
        return self._outcome if isinstance(self._outcome, ScanResult) else None

    def _run(self) -> ScanResult | NeedPages | GaveUp:
        order, want = self._request.order, self._request.want
        missing = self._segment.missing_directories([order.field])
        if missing:
            return NeedPages(missing)
        column = self._segment.lookup(order.field)
        if not self._is_worth_it(column.present):
            return GaveUp()
        absent = present = _ScannedPart()
        passes = (False, True) if order.descending else (True, False)
        for of_absent in passes:
            left = want - len(absent.later) - len(present.later)
            if left <= 0:
                break
            part = self._scan_absent(column) if of_absent else self._scan_present(column, left)
            if not isinstance(part, _ScannedPart):
                return part
            absent, present = (part, present) if of_absent else (absent, part)
        rows = absent.rows | present.rows
        kind = column_spec(self._segment.definition, order.field).kind
        return ScanResult(rows, _dictionary_of(rows, absent.rows, present.blocks, kind))

    def _is_worth_it(self, present: int) -> bool:
        """Whether the scan is likely to be short."""
        expected = self._request.want * present / max(1, self._request.count)
        return expected + self._limits.spare < self._most_of(present)

    def _most_of(self, present: int) -> float:
        """Maximum number of entries to read of ``present`` entries."""
        return min(self._limits.share * present, self._limits.most)

    def _scan_absent(self, column: Lookup) -> _ScannedPart | NeedPages:
        """Scan the rows without the field, which are all equal."""
        request, start = self._request, self._request.start
        if start is not None and start.key is not None and not request.order.descending:
            return _ScannedPart()
        if request.key_range is not None or not column.absent:
            return _ScannedPart()
        missing = column.missing_absent()
        if missing:
            return NeedPages(missing)
        rows = request.among(bitmap(column.absent_rows()))
        if start is not None and start.key is None:
            return _ScannedPart(at_start=self._cut(rows, after=start.position))
        return _ScannedPart(later=self._cut(rows, after=None))

    def _scan_present(self, column: Lookup, want: int) -> _ScannedPart | NeedPages | GaveUp:
        """Scan for ``want`` or more of the rows with the field."""
        request, start = self._request, self._request.start
        entries = _DirectedEntries(column, descending=request.order.descending)
        if not entries.count or (
            start is not None and start.key is None and request.order.descending
        ):
            return _ScannedPart()
        low, high = 0, entries.count
        if request.key_range is not None:
            bounds = entries.find(request.key_range)
            if isinstance(bounds, NeedPages):
                return bounds
            low, high = bounds
        part = _ScannedPart()
        if start is not None and start.key is not None:
            bounds = entries.find(alike(start.key))
            if isinstance(bounds, NeedPages):
                return bounds
            if bounds[1] - bounds[0] > self._limits.most:
                return GaveUp()
            equal = entries.read(max(low, bounds[0]), min(high, bounds[1]))
            if isinstance(equal, NeedPages):
                return equal
            part = _ScannedPart(
                at_start=self._pick_equal(equal, after=start.position), blocks=equal
            )
            low = max(low, bounds[1])
        return self._scan_entries(entries, low, high, want, part)

    def _scan_entries(
        self, entries: _DirectedEntries, low: int, high: int, want: int, part: _ScannedPart
    ) -> _ScannedPart | NeedPages | GaveUp:
        """Add rows of the entries from ``low`` on to ``part``, until there are enough."""
        blocks = list(part.blocks)
        rows = BitMap()
        step, scanned = self._limits.step, 0
        while low < high and len(rows) < want:
            if scanned > self._most_of(entries.count):
                return GaveUp()
            scanned_blocks = entries.read(low, min(high, low + step))
            if isinstance(scanned_blocks, NeedPages):
                return scanned_blocks
            # Entries equal to the last entry are handled separately.
            bounds = entries.find(alike(entries.last_key(scanned_blocks)))
            if isinstance(bounds, NeedPages):
                return bounds
            first, last = max(low, bounds[0]), min(high, bounds[1])
            if last - first > self._limits.most:
                return GaveUp()
            before, equal = entries.read(low, first), entries.read(first, last)
            if isinstance(before, NeedPages):
                return before
            if isinstance(equal, NeedPages):
                return equal
            rows |= self._pick(before) | self._pick_equal(equal, after=None)
            blocks += before + equal
            low = last
            scanned += max(step, last - first)
            step *= 2
        return _ScannedPart(rows, part.at_start, blocks)

    def _pick(self, blocks: Sequence[EntryBlock]) -> BitMap:
        """The rows of the answer in these entries."""
        return self._request.among(bitmap(*(block.ordinals for block in blocks)))

    def _pick_equal(self, blocks: Sequence[EntryBlock], *, after: int | None) -> BitMap:
        """The rows of the answer in entries that the index cannot distinguish; as :meth:`_cut`."""
        rows = self._pick(blocks)
        keys = {key for block in blocks for key in block.keys.tolist()}
        # Only opened records give the order of long strings with the same prefix.
        return rows if len(keys) > 1 else self._cut(rows, after=after)

    def _cut(self, rows: BitMap, *, after: int | None) -> BitMap:
        """The first of many equal rows in storage order, after a position."""
        want = self._request.want
        if not self._request.alone or len(rows) <= max(self._limits.equal_rows, want):
            return rows
        return self._request.places.first(rows, want, after=after)


class _DirectedEntries:
    """The present entries of a column in scan order, numbered from the start of the scan.

    A descending scan sees the column mirrored, so that other code is independent of the direction.
    """

    def __init__(self, column: Lookup, *, descending: bool) -> None:
        self._column = column
        self._descending = descending
        self.count = column.present

    def find(self, key_range: KeyRange) -> tuple[int, int] | NeedPages:
        """The bounds of a key range's entries."""
        missing = self._column.missing_to_count(key_range)
        if missing:
            return NeedPages(missing)
        return self._mirror(self._column.at(key_range.first), self._column.at(key_range.last))

    def read(self, first: int, last: int) -> list[EntryBlock] | NeedPages:
        """The entries first..last-1, in no particular order; no entries if the range is empty."""
        if first >= last:
            return []
        begin, end = self._mirror(first, last)
        missing = self._column.missing_entries(begin, end)
        return NeedPages(missing) if missing else self._column.entries(begin, end)

    def last_key(self, blocks: Sequence[EntryBlock]) -> int | bytes:
        """The last key in scan order of entries from :meth:`read`."""
        key = blocks[0].keys[0] if self._descending else blocks[-1].keys[-1]
        plain: int | bytes = key.item()
        return plain

    def _mirror(self, first: int, last: int) -> tuple[int, int]:
        return (self.count - last, self.count - first) if self._descending else (first, last)


def _dictionary_of(
    rows: BitMap, absent: BitMap, blocks: Sequence[EntryBlock], kind: KeyKind
) -> PartialDictionary:
    """The field of ``rows``: ``absent`` lack it, ``blocks`` have the keys of the others."""
    kept: list[Ordinals] = [np.zeros(0, np.uint32)]
    # Even if all rows lack the field, they are compared with keys of its type.
    keys: list[Keys] = [np.zeros(0, key_type(kind))]
    highest = [int(block.ordinals.max()) for block in blocks]
    find = finder(rows, 1 + max([*highest, rows.max() if rows else 0]))
    key_of: list[Ordinals] = [np.zeros(0, np.uint32)]
    count = 0
    for block in blocks:
        at = find(block.ordinals)
        kept.append(block.ordinals[at])
        runs = block.runs_of(at)
        places = np.arange(len(runs))
        if kind.of_bytes:
            # Many rows may have the same text, and sorting texts takes long.
            runs, places = np.unique(runs, return_inverse=True)
        keys.append(block.keys[runs])
        key_of.append((places + count).astype(np.uint32))
        count += len(runs)
    return build_partial_dictionary(
        np.concatenate(kept), np.concatenate(keys), ordinals(absent), np.concatenate(key_of)
    )
