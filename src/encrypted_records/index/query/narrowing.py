"""Narrowing: the rows of a large segment that can be among the first of an order, field by field.

In the order of a field, rows before the last wanted row are kept, and rows equal to it continue to
the next field. A row-major column with its keys is sufficient for that; without keys, the pages
that contain the last row are read. So a few of millions of rows are left, and keys are looked up
only for these.

Thresholds bound the first rows of all segments, from the segments read so far. Rows with the same
value of the first field may be in all segments; then pages of the second field must be read in
each. If one of the two fields grows with time, the last or the first segment has all first rows:
least and greatest values rule the others out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.columns.column import Edge, alike
from encrypted_records.index.columns.dictionary import Codes, Dictionary, PageMap, PartialDictionary
from encrypted_records.index.columns.directory import Outline
from encrypted_records.index.log.snapshot import GroupPlaces
from encrypted_records.index.ordinals import Ordinals, bitmap, in_parts, ordinals
from encrypted_records.index.query.asking import WORK, Asking, Work, bring_by_row
from encrypted_records.index.query.key_sets import classes_of
from encrypted_records.index.query.row_lookups import only_rows, read_rows
from encrypted_records.index.query.sort import SortPosition
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.reading import STANDARD, ReadingLimits
from encrypted_records.model.queries import SortKey

#: A value in sort order; an absent value sorts before all others.
Value = tuple[int | bytes, ...]
NONE: Value = ()
#: A value for each field.
Best = tuple[Value, ...]
T = TypeVar("T")
#: Maximum number of rows; with more it takes longer than it saves.
_MOST = 4096


class Threshold:
    """The values of the first two fields of the last wanted row; in an order by one field, all rows
    have the same second value."""

    def __init__(self, order: Sequence[SortKey], want: int) -> None:
        self._descending = [key.descending for key in order[:2]]
        self._want = want
        self._first_rows: list[tuple[Value, ...]] = []
        self._is_known = 0 < want <= _MOST

    @property
    def is_known(self) -> bool:
        """Whether enough rows are known."""
        return self._is_known and len(self._first_rows) >= self._want

    def add(self, rows: BitMap, fields: Sequence[Dictionary]) -> None:
        """Add a few matching rows, and their fields. The order of long strings is unknown, so that
        a long string makes the threshold unknown."""
        fields = fields[: len(self._descending)]
        if any(field.long for field in fields):
            self._is_known = False
        if not self._is_known or len(rows) > _MOST:
            return
        row_ordinals = ordinals(rows)
        values = zip(*(_values(field, row_ordinals) for field in fields), strict=True)
        every_row = self._in_order(enumerate([*self._first_rows, *values]))
        self._first_rows = [row for _, row in every_row][: self._want]

    def in_order(self, best: Mapping[bytes, Best]) -> list[bytes]:
        """Segments by their best rows."""
        return [uid for uid, _ in self._in_order(best.items())]

    def best(self, directories: Sequence[Outline | None]) -> Best:
        """The best value of each field in a segment.

        Args:
            directories: the segment's; None for a field without a column.
        """
        return tuple(map(_first_value, directories, self._descending))

    def excludes(self, best: Best) -> bool:
        """Whether a segment without better values cannot have any of the first rows."""
        return self.is_known and self._is_behind(best, self._first_rows[-1])

    def left(self, rows: BitMap, first: PartialDictionary, best: Best) -> BitMap:
        """The rows of a segment that can be among the first of all segments.

        Args:
            best: as for :meth:`excludes`.
        """
        if not self.is_known or first.long:
            return rows
        last = self._first_rows[-1][0]
        place = 0.0
        if last != NONE:
            place = 0.5
        if last != NONE and len(first.keys):
            at = int(np.searchsorted(first.keys, np.array(last[0], first.keys.dtype)))
            is_there = at < len(first.keys) and (first.keys[at].item(),) == last
            place = at + (1.0 if is_there else 0.5)
        row_ordinals = ordinals(rows)
        codes = first.codes_of(row_ordinals)
        kept = codes > place if self._descending[0] else codes < place
        if not self._is_behind((last, *best[1:]), self._first_rows[-1]):
            kept |= codes == place
        return bitmap(row_ordinals[kept])

    def _in_order(self, named: Iterable[tuple[T, Best]]) -> list[tuple[T, Best]]:
        found = list(named)
        for level in reversed(range(len(self._descending))):
            found.sort(key=lambda pair: pair[1][level], reverse=self._descending[level])
        return found

    def _is_behind(self, values: Best, others: Best) -> bool:
        for value, other, descending in zip(values, others, self._descending, strict=True):
            if value != other:
                return value < other if descending else value > other
        return False


def _first_value(directory: Outline | None, descending: bool) -> Value:
    if directory is None or not directory.present or (directory.absent and not descending):
        return NONE
    least, greatest = directory.outermost.tolist()
    return (greatest,) if descending else (least,)


def _values(dictionary: Dictionary, rows: Ordinals) -> list[Value]:
    codes, places = np.unique(dictionary.codes_of(rows), return_inverse=True)
    present = codes[codes > 0]
    values: list[Value] = [NONE] * (len(codes) - len(present))
    values += [(key,) for key in dictionary.keys[present - 1].tolist()]
    return [values[at] for at in places.tolist()]


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The remaining rows, and the sort fields as far as they are needed for these."""

    rows: BitMap
    dictionaries: Mapping[str, Dictionary]


@dataclass(frozen=True, slots=True)
class NarrowRequest:
    """Requests ``want`` rows of ``among`` after ``after``, in an order. ``dictionaries`` have
    fields of all of these rows, so that their columns are not needed."""

    order: Sequence[SortKey]
    among: BitMap
    want: int
    after: SortPosition | None
    places: GroupPlaces
    dictionaries: Mapping[str, Dictionary]


def narrow(
    segment: LoadedSegment, request: NarrowRequest, limits: ReadingLimits = STANDARD
) -> Asking[Narrowed]:
    """All rows that can be among the wanted rows, and few others.

    Raises:
        DoesNotOpen: a column that is needed does not open.
    """
    yield Work("order", len(request.among) * WORK.a_row)
    work = _Narrowing(segment, request, limits)
    rows = yield from work.cut(0, request.among, request.want, after=request.after is not None)
    dictionaries: dict[str, Dictionary] = dict(request.dictionaries)
    for order in request.order:
        if order.field not in dictionaries:
            dictionaries[order.field] = yield from work.dictionary(order.field, rows)
    return Narrowed(rows, dictionaries)


@dataclass(frozen=True, slots=True)
class _RankCut:
    """Rows before the last wanted row, and rows equal to it, by this field; ``open`` if only
    records decide the order of the equal rows."""

    before: BitMap
    equal: BitMap
    open: bool


@dataclass(frozen=True, slots=True)
class _Split:
    """Rows after a key, rows equal to it, and rows of its class with another key."""

    later: BitMap
    equal: BitMap
    unlike: BitMap


@dataclass(frozen=True, slots=True)
class _Narrowing:
    segment: LoadedSegment
    request: NarrowRequest
    limits: ReadingLimits

    def cut(self, level: int, rows: BitMap, want: int, *, after: bool) -> Asking[BitMap]:
        """
        Args:
            level: the index of the deciding sort field; earlier fields are equal.
            after: whether earlier fields equal the start's, too, so that rows before it are
                excluded.
        """
        request = self.request
        start = request.after if after else None
        if not rows or (start is None and len(rows) <= want):
            return rows
        if level == len(request.order):
            return request.places.first(rows, want, after=start.position if start else None)
        field = request.order[level]
        if start is not None:
            split = yield from self._split(field, rows, start.keys[level])
            equal = yield from self.cut(level + 1, split.equal, want, after=True)
            later = yield from self.cut(level, split.later, want, after=False)
            return split.unlike | equal | later
        found = yield from self._cut(field, rows, want)
        if found.open:
            return found.before | found.equal
        left = want - len(found.before)
        return found.before | (yield from self.cut(level + 1, found.equal, left, after=False))

    def dictionary(self, name: str, rows: BitMap) -> Asking[Dictionary]:
        """A field of some rows."""
        column = yield from self._column(name)
        if isinstance(column, PageMap):
            return (yield from read_rows(self.segment, name, column, rows, self.limits))
        return only_rows(column, rows)

    def _column(self, name: str) -> Asking[Dictionary | PageMap]:
        if name in self.request.dictionaries:
            return self.request.dictionaries[name]
        yield from bring_by_row(self.segment, name, self.limits)
        column = self.segment.columns.get(name)
        return self.segment.dictionary(name) if column is None else column

    def _cut(self, order: SortKey, rows: BitMap, want: int) -> Asking[_RankCut]:
        column = yield from self._column(order.field)
        if not isinstance(column, PageMap):
            column = only_rows(column, rows)
            return _cut_by(column, _ranks(column)[0], rows, want, order)
        group_of = self._linked(order.field)
        before, equal = _cut_codes(column.pages, group_of, rows, want, descending=order.descending)
        inner = yield from read_rows(self.segment, order.field, column, equal, self.limits)
        found = _cut_by(inner, _ranks(inner)[0], equal, want - len(before), order)
        return _RankCut(before | found.before, found.equal, found.open)

    def _split(self, order: SortKey, rows: BitMap, key: int | bytes | None) -> Asking[_Split]:
        column = yield from self._column(order.field)
        if not isinstance(column, PageMap):
            return _split_by(only_rows(column, rows), rows, key, order)
        directory = self.segment.directories[order.field]
        pages = directory.present_pages
        if key is None:
            absent = _select(column.pages, np.arange(pages + 1) == 0, rows)
            return _Split(BitMap() if order.descending else rows - absent, absent, BitMap())
        edges = [_page_of(directory, edge) for edge in alike(key)]
        numbers = np.arange(pages + 1) - 1
        near_pages = (numbers >= edges[0]) & (numbers <= edges[1])
        near = _select(column.pages, near_pages & (numbers >= 0), rows)
        behind = (numbers < edges[0]) if order.descending else (numbers > edges[1])
        later = _select(column.pages, behind, rows)
        inner = yield from read_rows(self.segment, order.field, column, near, self.limits)
        found = _split_by(inner, near, key, order)
        return _Split(found.later | later, found.equal, found.unlike)

    def _linked(self, name: str) -> Codes:
        """For each code of a page map, 0 for absent, a number that pages share if a value, or a
        class of long strings, continues from one page to the next.
        """
        directory = self.segment.directories[name]
        new = np.ones(directory.present_pages + 1, np.int64)
        new[0] = 0
        if directory.present_pages:
            new[2:] = ~directory.links(alike=True)
        return np.cumsum(new)


def _page_of(directory: Outline, edge: Edge) -> int:
    """The page of present rows that contains an edge or follows it."""
    before = directory.exact(edge)
    if before is None:
        return directory.locate(edge)[0] - directory.leading
    page = int(np.searchsorted(directory.ends, directory.absent + before, "right"))
    return page - directory.leading


def _ranks(dictionary: Dictionary) -> tuple[Codes, NDArray[np.bool_]]:
    """For each code, the number of its class (0 for absent); for each class, whether it has several
    keys.
    """
    if not dictionary.long:
        ranks = np.arange(len(dictionary.keys) + 1)
        return ranks, np.zeros(len(ranks), np.bool_)
    by_class = classes_of(dictionary.keys)
    new = np.ones(len(by_class) + 1, np.int64)
    new[0] = 0
    new[2:] = by_class[1:] != by_class[:-1]
    ranks = np.cumsum(new)
    return ranks, np.bincount(ranks, minlength=int(ranks[-1]) + 1) > 1


def _cut_by(
    dictionary: Dictionary, ranks: Codes, rows: BitMap, want: int, order: SortKey
) -> _RankCut:
    mixed = _ranks(dictionary)[1]
    before, equal = _cut_ranks(dictionary, ranks, rows, want, descending=order.descending)
    if not equal:
        return _RankCut(before, equal, open=False)
    (code,) = dictionary.codes_of(ordinals(BitMap([equal[0]]))).tolist()
    return _RankCut(before, equal, open=bool(mixed[ranks[code]]))


def _cut_ranks(
    dictionary: Dictionary, ranks: Codes, rows: BitMap, want: int, *, descending: bool
) -> tuple[BitMap, BitMap]:
    counts = np.zeros(int(ranks[-1]) + 1, np.int64)
    for part in in_parts(rows):
        counts += np.bincount(ranks.take(dictionary.codes_of(part)), minlength=len(counts))
    last = _last_rank(counts, want, descending=descending)
    before: list[Ordinals] = []
    equal: list[Ordinals] = []
    for part in in_parts(rows):
        ranks_of_rows = ranks.take(dictionary.codes_of(part))
        before.append(part[ranks_of_rows > last if descending else ranks_of_rows < last])
        equal.append(part[ranks_of_rows == last])
    return bitmap(*before), bitmap(*equal)


def _cut_codes(
    codes: NDArray[np.unsignedinteger],
    ranks: Codes,
    rows: BitMap,
    want: int,
    *,
    descending: bool,
) -> tuple[BitMap, BitMap]:
    counts = np.zeros(int(ranks[-1]) + 1, np.int64)
    for part in in_parts(rows):
        counts += np.bincount(ranks.take(codes.take(part)), minlength=len(counts))
    last = _last_rank(counts, want, descending=descending)
    before = ranks > last if descending else ranks < last
    return _select(codes, before, rows), _select(codes, ranks == last, rows)


def _last_rank(counts: Codes, want: int, *, descending: bool) -> int:
    """The rank of the last wanted row; there must be more rows."""
    upto = np.cumsum(counts[::-1] if descending else counts)
    at = int(np.searchsorted(upto, want))
    return len(counts) - 1 - at if descending else at


def _select(codes: NDArray[np.unsignedinteger], chosen: NDArray[np.bool_], rows: BitMap) -> BitMap:
    """The rows with a chosen code."""
    pieces: Iterable[Ordinals] = (part[chosen.take(codes.take(part))] for part in in_parts(rows))
    return bitmap(*pieces)


def _split_by(
    dictionary: Dictionary, rows: BitMap, key: int | bytes | None, order: SortKey
) -> _Split:
    ranks, _ = _ranks(dictionary)
    same, rank = 0, 0.0
    if key is not None and len(dictionary.keys):
        wanted = np.array([key], dictionary.keys.dtype)
        by_class = classes_of(dictionary.keys) if dictionary.long else dictionary.keys
        name = classes_of(wanted) if dictionary.long else wanted
        below = int(np.searchsorted(by_class, name[0]))
        is_there = below < len(by_class) and by_class[below] == name[0]
        rank = float(ranks[below + 1]) if is_there else float(ranks[below]) + 0.5
        at = int(np.searchsorted(dictionary.keys, wanted[0]))
        same = at + 1 if at < len(dictionary.keys) and dictionary.keys[at] == wanted[0] else -1
    elif key is not None:
        same, rank = -1, 0.5
    later: list[Ordinals] = []
    equal: list[Ordinals] = []
    unlike: list[Ordinals] = []
    for part in in_parts(rows):
        codes = dictionary.codes_of(part)
        ranks_of_rows = ranks.take(codes)
        later.append(part[ranks_of_rows < rank if order.descending else ranks_of_rows > rank])
        equal.append(part[codes == same])
        unlike.append(part[(ranks_of_rows == rank) & (codes != same)])
    return _Split(bitmap(*later), bitmap(*equal), bitmap(*unlike))
