"""Sets of index keys that a comparison selects: ranges, values of another column, tested keys.

A leaf becomes ranges of sorted keys that *certainly* match and ranges that *possibly* do; no column
is needed to compute them. They differ only if strings longer than an index key's 48 bytes are
compared by order or prefix.

An index key holds the first 48 order bytes of a string and, for a longer string, a hash of the
whole (docs/SPEC.md, section 5). Long strings with the same first 48 bytes are a *class*: their keys
show which of them are equal, but not their order. Code that needs the order, or a text itself,
requests it (:class:`Texts`); the caller opens a record for each and tries again.

The values of a column are a set that another field's column is compared with. Both are sorted, so
that the comparison is a single pass over their keys. Numbers are first converted to the other
field's grid; numbers that are not on it cannot be values of that field. Long strings have index
keys under their schema's tails, and are passed as texts.

The distinct keys of a segment's column are tested singly. If the directory lists the keys, they are
tested there, and only the data pages of passing keys are needed; otherwise the whole column is
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.crypto import values
from encrypted_records.crypto.format import INDEX_KEY_BYTES, INDEX_KEY_PREFIX
from encrypted_records.crypto.keys import FieldKey, TailKey
from encrypted_records.errors import DoesNotOpen, InvalidQuery
from encrypted_records.index.columns.column import (
    Column,
    Edge,
    KeyRange,
    Keys,
    Lookup,
    key_type,
    last_with,
    longer_than_key,
    run_starts,
)
from encrypted_records.index.columns.dictionary import ColumnDictionary, ColumnTexts, Mask
from encrypted_records.index.columns.packing import matrix
from encrypted_records.index.ordinals import Ordinals, bitmap, of_masks, ordinals, take_masks
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment, PagedColumn
from encrypted_records.model import predicates
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.texts import comparable

#: Maximum number of records opened to decide the order of long strings, or to show them.
MAX_OPENED = 10_000
_CLASS_BYTES = INDEX_KEY_PREFIX + 1


class Texts:
    """Known and wanted long strings, by field and index key.

    ``wanted`` has the position of a row with each string.
    """

    def __init__(self, most: int = MAX_OPENED) -> None:
        """
        Args:
            most: maximum number of long strings that may be wanted at once.
        """
        self._most = most
        self._known: dict[tuple[str, bytes], str] = {}
        self.wanted: dict[tuple[str, bytes], int] = {}

    def learn(self, field: str, text: str, tail: TailKey) -> bytes:
        """Add a string of any length; returns its index key as it is in arrays."""
        key = values.string_key(values.order_bytes(text), tail).rstrip(b"\x00")
        self._known[field, key] = comparable(text)
        self.wanted.pop((field, key), None)
        return key

    def answer(self, field: str, key: bytes, text: object, tail: TailKey) -> None:
        """Add the value of the row that was opened for ``key``.

        Raises:
            DoesNotOpen: the row has another string than the index.
        """
        if not isinstance(text, str) or self.learn(field, text, tail) != key:
            raise DoesNotOpen("the index and a record contradict each other")

    def get(self, field: str, key: bytes) -> str | None:
        return self._known.get((field, key))

    def want(self, field: str, key: bytes, position: int) -> None:
        """
        Raises:
            InvalidQuery: ``too_many_long``; the answer would need more opened records than allowed.
        """
        self.wanted[field, key] = position
        if len(self.wanted) > self._most:
            raise InvalidQuery(
                f"more than {self._most} long strings would have to be decrypted for this answer",
                code="too_many_long",
                hint="narrow the condition, or leave out the field whose values begin alike",
            )

    def text(self, field: str, key: bytes, position: Callable[[], int]) -> str:
        """The text of an index key; an empty placeholder for a long text that is now wanted, of the
        row at ``position``."""
        if len(key) <= INDEX_KEY_PREFIX:
            return values.text_of(key)
        text = self.get(field, key)
        if text is None:
            self.want(field, key, position())
            return ""
        return text


def classes_of(keys: Keys) -> NDArray[Any]:
    """Keys reduced to the part that orders them: equal results of long strings are a class."""
    if keys.dtype.kind != "S" or keys.dtype.itemsize < INDEX_KEY_BYTES:
        return keys
    raw = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), INDEX_KEY_BYTES)
    names = np.zeros((len(keys), _CLASS_BYTES), np.uint8)
    names[:, :INDEX_KEY_PREFIX] = raw[:, :INDEX_KEY_PREFIX]
    # Order bytes have no zeros: with a last byte of 1, a class sorts after its first 48 bytes.
    names[:, INDEX_KEY_PREFIX] = raw[:, INDEX_KEY_PREFIX:].any(axis=1)
    return names.view(f"S{_CLASS_BYTES}").ravel()


def inner_ranks(field: str, keys: NDArray[np.bytes_], texts: Texts) -> NDArray[np.int64]:
    """The rank of the known keys within their class, from 1 on; 0 for all others."""
    distinct, at = np.unique(keys, return_inverse=True)
    ranks = np.zeros(len(distinct), np.int64)
    for members in find_mixed(distinct):
        opened = ((texts.get(field, bytes(distinct[key])), key) for key in members)
        # Code points sort like their UTF-8.
        known = sorted((text, key) for text, key in opened if text is not None)
        for rank, (_, key) in enumerate(known, 1):
            ranks[key] = rank
    return ranks[at]


def find_mixed(distinct: NDArray[np.bytes_]) -> list[list[int]]:
    """The positions of the classes with several of these sorted keys."""
    by_class = classes_of(distinct)
    alike = np.flatnonzero(by_class[1:] == by_class[:-1])
    groups: list[list[int]] = []
    for at in alike.tolist():
        if groups and groups[-1][-1] == at:
            groups[-1].append(at + 1)
        else:
            groups.append([at, at + 1])
    return groups


def span_of(keys: Keys) -> KeyRange:
    """The range from the first to the last of some keys; there must be a key."""
    first, last = keys[[0, -1]].tolist()
    return KeyRange(Edge(first, "left"), Edge(last, "right"))


def find_positions(column: Lookup, ranges: Sequence[KeyRange]) -> list[tuple[int, int]]:
    """The beginning and the end of each range's entries among the column's present entries; ranges
    without entries are left out.
    """
    if not column.present or not ranges:
        return []
    firsts = column.at_all([key_range.first for key_range in ranges])
    lasts = column.at_all([key_range.last for key_range in ranges])
    return [(first, last) for first, last in zip(firsts, lasts, strict=True) if first < last]


def holds_all(column: Lookup, ranges: Sequence[KeyRange]) -> bool:
    """Whether every row is known, without any page, to be in one of these ranges."""
    # Dates and serial numbers grow in storage order: most segments are completely in or out. For a
    # column in memory, its entries show that as quickly.
    return not isinstance(column, Column) and any(map(column.all_within, ranges))


#: The leaves that compare a value; :class:`~encrypted_records.model.predicates.Absent` does not.
Comparison = (
    predicates.NumberIn
    | predicates.NumberRange
    | predicates.TextIn
    | predicates.TextPrefix
    | predicates.TextRange
)


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """Disjoint key ranges in order; each key in ``certain`` is in ``possible``."""

    certain: tuple[KeyRange, ...]
    possible: tuple[KeyRange, ...]


def compute_ranges(leaf: Comparison, spec: FieldSpec, key: FieldKey) -> KeyRanges:
    """The keys of ``spec``'s columns that match ``leaf``."""
    match leaf:
        case predicates.NumberIn(_, points):
            return _exactly(*(_number(spec, point, point) for point in points))
        case predicates.NumberRange(_, low, high):
            return _exactly(_number(spec, low, high))
        case predicates.TextIn(_, texts) if spec.kind is KeyKind.UUID:
            keys = [values.uuid_key(text) for text in texts]
            return _exactly(*(KeyRange(Edge(key, "left"), Edge(key, "right")) for key in keys))
        case predicates.TextIn(_, texts):
            keys = [values.string_key(values.order_bytes(text), key.tail) for text in texts]
            return _exactly(*(KeyRange(Edge(key, "left"), Edge(key, "right")) for key in keys))
        case predicates.TextPrefix(_, prefix):
            return _prefix(values.order_bytes(prefix))
        case predicates.TextRange() if spec.kind is KeyKind.UUID:
            return _uuid_range(leaf)
        case predicates.TextRange():
            return _range(leaf)


def _exactly(*ranges: KeyRange | None) -> KeyRanges:
    known = tuple(key_range for key_range in ranges if key_range is not None)
    return KeyRanges(known, known)


def _number(spec: FieldSpec, low: int, high: int) -> KeyRange | None:
    lowest = spec.numbers.lowest
    first, last = max(low - lowest, 0), min(high - lowest, 2**64 - 1)
    # Offsets outside 64 bits are not keys.
    return KeyRange(Edge(first, "left"), Edge(last, "right")) if first <= last else None


def _prefix(ordered: bytes) -> KeyRanges:
    if values.is_long(ordered):
        return KeyRanges((), (longer_than_key(ordered),))
    return _exactly(KeyRange(Edge(ordered, "left"), last_with(ordered)))


def _uuid_range(leaf: predicates.TextRange) -> KeyRanges:
    """Canonically spelled uuids sort like their bytes."""
    first, last = Edge(b"", "left"), last_with(b"")
    if leaf.low is not None:
        first = Edge(values.uuid_key(leaf.low), "left" if leaf.low_included else "right")
    if leaf.high is not None:
        last = Edge(values.uuid_key(leaf.high), "right" if leaf.high_included else "left")
    return _exactly(*_unless_empty(first, last))


def _range(leaf: predicates.TextRange) -> KeyRanges:
    certain_first = possible_first = Edge(b"", "left")
    certain_last = possible_last = last_with(b"")
    if leaf.low is not None:
        ordered = values.order_bytes(leaf.low)
        if values.is_long(ordered):
            possible_first, certain_first = longer_than_key(ordered)
        else:
            possible_first = certain_first = Edge(ordered, "left" if leaf.low_included else "right")
    if leaf.high is not None:
        ordered = values.order_bytes(leaf.high)
        if values.is_long(ordered):
            certain_last, possible_last = longer_than_key(ordered)
        else:
            possible_last = certain_last = Edge(ordered, "right" if leaf.high_included else "left")
    return KeyRanges(
        _unless_empty(certain_first, certain_last), _unless_empty(possible_first, possible_last)
    )


def _unless_empty(first: Edge, last: Edge) -> tuple[KeyRange, ...]:
    return (KeyRange(first, last),) if _comparable(first) < _comparable(last) else ()


def _comparable(edge: Edge) -> tuple[bytes, bool]:
    """A sortable form of edges; string keys compare as if padded with zeros."""
    assert isinstance(edge.key, bytes)
    return edge.key.ljust(INDEX_KEY_BYTES, b"\0"), edge.side == "right"


#: Up to this many values, each is looked up like the value of a comparison.
FEW = 1000
#: The greatest key of a number.
_LAST = 2**64 - 1


@dataclass(frozen=True, eq=False, slots=True)
class KeyMembers:
    """``keys`` are sorted and distinct, on the grid of ``spec``, the compared field, without long
    strings. ``long`` are the long strings, in the form in which texts are compared."""

    spec: FieldSpec
    keys: Keys
    long: frozenset[str] = frozenset()

    def has_point(self, point: int) -> bool:
        offset = point - self.spec.numbers.lowest
        return 0 <= offset <= _LAST and self._has(np.array([offset], np.uint64))

    def has_text(self, text: str) -> bool:
        if self.spec.kind is KeyKind.UUID:
            return self._has(values.uuid_keys([text]))
        ordered = values.order_bytes(text)
        if values.is_long(ordered):
            return text in self.long
        return self._has(np.array([ordered], f"S{INDEX_KEY_BYTES}"))

    def _has(self, key: Keys) -> bool:
        return bool(held_in(key, self.keys)[0])

    def index_keys(self, tail: TailKey) -> Keys:
        """The index keys of all values, sorted.

        Args:
            tail: of the compared field.
        """
        if not self.long:
            return self.keys
        longer = values.string_keys(list(self.long), tail)
        return np.sort(np.concatenate((self.keys, longer)), kind="stable")


def held_in(keys: Keys, wanted: Keys) -> Mask:
    """A mask of the keys, in any order, that are among the sorted keys ``wanted``."""
    if not len(keys) or not len(wanted):
        return np.zeros(len(keys), np.bool_)
    at = np.searchsorted(wanted, keys)
    at[at == len(wanted)] = 0
    mask: Mask = wanted[at] == keys
    return mask


def are_alike(spec: FieldSpec, other: FieldSpec) -> bool:
    """Whether values of two fields can be equal: they have the same format, or no format and are
    both texts or both numbers."""
    kind, other_kind = spec.field_type, other.field_type
    return kind is other_kind or (kind.is_number and other_kind.is_number)


def join_keys(parts: Sequence[Keys], spec: FieldSpec) -> Keys:
    """The sorted, distinct keys of several columns of a field together."""
    none: Keys = np.zeros(0, key_type(spec.kind))
    # Sorted inputs are merged, which takes a tenth of the time of sorting.
    keys = np.sort(np.concatenate((none, *(part for part in parts if len(part)))), kind="stable")
    return keys[run_starts(keys)]


def are_long(keys: Keys) -> Mask:
    """A mask of the keys whose strings are longer than an index key."""
    if keys.dtype.kind != "S" or keys.dtype.itemsize < INDEX_KEY_BYTES:
        return np.zeros(len(keys), np.bool_)
    long: Mask = np.any(matrix(keys)[:, INDEX_KEY_PREFIX:], axis=1)
    return long


def compare_with(
    spec: FieldSpec, other: FieldSpec, keys: Keys, long: Collection[str], *, few: int = FEW
) -> predicates.Predicate:
    """The comparison of ``spec`` with the values of ``other`` that have these keys.

    Args:
        keys: sorted and distinct, none of a long string.
        long: the long strings, in the form in which texts are compared.
        few: up to this many values, each is looked up separately.
    """
    if not spec.is_of_texts:
        keys = to_grid(spec, other, keys)
    if len(keys) + len(long) > few:
        return predicates.InColumn(spec.name, KeyMembers(spec, keys, frozenset(long)))
    if spec.kind is KeyKind.TEXT:
        return predicates.TextIn(
            spec.name, frozenset((*map(values.text_of, map(bytes, keys)), *long))
        )
    if spec.kind is KeyKind.UUID:
        return predicates.TextIn(spec.name, frozenset(map(values.from_uuid_key, map(bytes, keys))))
    lowest = spec.numbers.lowest
    return predicates.NumberIn(spec.name, frozenset(lowest + key for key in keys.tolist()))


def to_grid(spec: FieldSpec, other: FieldSpec, keys: Keys) -> Keys:
    """The keys of ``other``'s values on the grid of ``spec``, without values that ``spec`` cannot
    have.

    Both are sorted; exact, whatever bounds and decimals the fields have.
    """
    mine, theirs = spec.numbers, other.numbers
    keys = keys.astype(np.uint64)
    more = mine.precision - theirs.precision
    if more < 0:
        # Only one in several of their points is on our grid.
        step = 10**-more
        first = -theirs.lowest % step
        keys = keys[keys % np.uint64(step) == np.uint64(first)] // np.uint64(step)
        lowest, factor = (theirs.lowest + first) // step, 1
    else:
        lowest, factor = theirs.lowest, 10**more
    # Ours is (lowest + key) * factor, from our lowest to our highest.
    begin = max(0, -(-mine.lowest // factor) - lowest)
    end = min(_LAST, mine.highest // factor - lowest)
    if end < begin:
        return keys[:0]
    keys = keys[np.searchsorted(keys, np.uint64(begin)) :]
    keys = keys[: np.searchsorted(keys, np.uint64(end), "right")]
    # The remaining results fit 64 bits, and unsigned arithmetic wraps around.
    shift = (lowest * factor - mine.lowest) % 2**64
    return keys * np.uint64(factor) + np.uint64(shift)


def is_whole(segment: OpenedSegment, field: str) -> bool:
    """Whether a column is completely in memory, or is empty."""
    return not isinstance(segment, LoadedSegment) or segment.has_keys(field)


def needs_whole(segment: OpenedSegment, field: str) -> bool:
    """Whether a whole column must be loaded before its keys are tested; its directory must be
    loaded."""
    if is_whole(segment, field):
        return False
    assert isinstance(segment, LoadedSegment)
    return not segment.directories[field].listed


def distinct_keys(segment: OpenedSegment, field: str) -> ListedKeys | WholeKeys:
    """
    Raises:
        DoesNotOpen: the column does not open.
    """
    if needs_whole(segment, field) or is_whole(segment, field):
        return WholeKeys(segment.dictionary(field))
    column = segment.lookup(field)
    assert isinstance(column, PagedColumn)
    return ListedKeys(column)


@dataclass(frozen=True, eq=False, slots=True)
class WholeKeys:
    """The distinct keys of a row-major column in memory."""

    dictionary: ColumnDictionary

    @property
    def keys(self) -> Keys:
        return self.dictionary.keys

    @property
    def texts(self) -> ColumnTexts:
        return self.dictionary.texts

    def missing(self, mask: Mask) -> set[int]:
        return set()

    def rows_of(self, mask: Mask) -> BitMap:
        """The rows of the keys in ``mask``."""
        if not mask.any():
            return BitMap()
        return of_masks(take_masks(np.concatenate(([False], mask)), self.dictionary.codes))

    def count_of(self, mask: Mask) -> int:
        """The number of rows with the keys in ``mask``, including dead rows."""
        return int(self.dictionary.counts[1:][mask].sum()) if mask.any() else 0

    def holders(self, mask: Mask, rows: BitMap) -> Iterable[tuple[int, int]]:
        """The keys in ``mask`` that some of ``rows`` have, each with one such row."""
        wanted = ordinals(rows)
        codes = self.dictionary.codes_of(wanted)
        distinct, places = np.unique(codes, return_index=True)
        for code, place in zip(distinct.tolist(), places.tolist(), strict=True):
            if code and mask[code - 1]:
                yield code - 1, int(wanted[place])


@dataclass(frozen=True, eq=False, slots=True)
class ListedKeys:
    """The distinct keys of a column whose directory lists them."""

    column: PagedColumn

    @property
    def keys(self) -> Keys:
        return self.column.directory.runs

    @property
    def texts(self) -> ColumnTexts:
        return ColumnTexts(self.keys)

    def missing(self, mask: Mask) -> set[int]:
        """Missing pages that :meth:`rows_of` needs for the keys in ``mask``."""
        return set().union(*(self.column.missing_entries(*span) for span in self._spans(mask)))

    def rows_of(self, mask: Mask) -> BitMap:
        """The rows of the keys in ``mask``."""
        pieces: list[Ordinals] = []
        for first, last in self._spans(mask):
            pieces += self.column.pieces(first, last)
        return bitmap(*pieces) if pieces else BitMap()

    def count_of(self, mask: Mask) -> int:
        """The number of rows with the keys in ``mask``, including dead rows."""
        return sum(last - first for first, last in self._spans(mask))

    def holders(self, mask: Mask, rows: BitMap) -> Iterable[tuple[int, int]]:
        """The keys in ``mask`` that some of ``rows`` have, each with one such row."""
        for at in np.flatnonzero(mask).tolist():
            alone = np.zeros(len(mask), np.bool_)
            alone[at] = True
            matching = self.rows_of(alone) & rows
            if matching:
                yield at, matching[0]

    def _spans(self, mask: Mask) -> list[tuple[int, int]]:
        """The bounds of the keys' entries; adjacent bounds are joined."""
        starts = self.column.directory.starts.astype(np.int64)
        edges: NDArray[np.int64] = np.append(starts, self.column.present)
        steps = np.diff(np.concatenate(([False], mask, [False])).astype(np.int8))
        firsts, lasts = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
        return list(zip(edges[firsts].tolist(), edges[lasts].tolist(), strict=True))
