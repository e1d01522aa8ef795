"""Row-major columns: their distinct keys, and the code of each row's key.

Sorting and measuring look up rows, and need each distinct key once. A dictionary takes one to four
bytes per row and its keys; a proxy keeps it after opening a whole column. If there are too many
keys, the proxy keeps a :class:`PageMap`, which has no keys. Texts of a dictionary are tested in
chunks of bytes; sums are kept separately.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from encrypted_records.crypto import values
from encrypted_records.crypto.format import INDEX_KEY_PREFIX
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns.column import (
    OBJECT_BYTES,
    Column,
    EntryBlock,
    Keys,
    key_type,
    measure,
    run_starts,
)
from encrypted_records.index.columns.directory import Outline
from encrypted_records.index.columns.packing import matrix
from encrypted_records.index.ordinals import PIECE, Ordinals, ordinals
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.texts import TextTest, folded

#: Keys per chunk; other threads get a turn after each chunk.
CHUNK = 1 << 14
#: With more operands than this, each text is looked up among them.
_FEW = 4

Mask = NDArray[np.bool_]
#: Called from time to time by long work; raises if its result is no longer needed.
GoOn = Callable[[], None]


def go_on_always() -> None:
    """A no-op for work that cannot be cancelled."""


class ColumnTexts:
    """Texts of the keys of one segment's column."""

    def __init__(self, keys: Keys) -> None:
        """
        Raises:
            DoesNotOpen: a key is not a text.
        """
        self._chunks = [_TextChunk(keys[at : at + CHUNK]) for at in range(0, len(keys), CHUNK)]

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(chunk.size for chunk in self._chunks)

    def test(self, test: TextTest, go_on: GoOn = go_on_always) -> tuple[Mask, Mask]:
        """Masks of the keys whose texts certainly pass, and of the keys whose texts possibly pass.

        Args:
            go_on: called after each chunk; raises to stop the work.
        """
        certain, possible = [np.zeros(0, np.bool_)], [np.zeros(0, np.bool_)]
        for chunk in self._chunks:
            passed = chunk.test(test)
            certain.append(passed)
            possible.append(passed | chunk.long)
            go_on()
        return np.concatenate(certain), np.concatenate(possible)


class _JoinedTexts:
    """Texts between zero bytes, and the positions of the zeros."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.zeros = np.flatnonzero(np.frombuffer(data, np.uint8) == 0).astype(np.uint32)

    @property
    def size(self) -> int:
        return len(self.data) + self.zeros.nbytes

    def __len__(self) -> int:
        return len(self.zeros) - 1

    def texts(self) -> list[str]:
        return self.data.decode().split("\0")[1:-1]

    def find(self, before: str, text: str, behind: str) -> Mask:
        """A mask of the texts that contain ``text``; ``before`` or ``behind`` is a zero to match
        only the beginning or the end."""
        found: list[int] = []
        data, end = self.data, int(self.zeros[-1])
        needle = (before + text + behind).encode()
        if "\0" in text:
            return np.zeros(len(self), np.bool_)
        at = data.find(needle)
        while 0 <= at < end:
            found.append(at)
            at = data.find(needle, data.find(b"\0", at + 1))
        return self._mask(np.searchsorted(self.zeros, found, "right") - 1)

    def match(self, pattern: Any) -> Mask:
        """A mask of the texts that a pattern for lines matches; no text may have a line break."""
        data = self.data.replace(b"\0", b"\n")
        found: list[int] = []
        at = 1
        while at < len(data) and (match := pattern.search(data, at)) is not None:
            start = match.start()
            if start >= len(data):
                break
            found.append(start)
            at = data.find(b"\n", start) + 1
        return self._mask(np.searchsorted(self.zeros, found, "left") - 1)

    def lengths(self) -> NDArray[np.int64]:
        """The length of each text in bytes."""
        zeros = self.zeros.astype(np.int64)
        return zeros[1:] - zeros[:-1] - 1

    def _mask(self, indices: NDArray[np.intp]) -> Mask:
        mask = np.zeros(len(self), np.bool_)
        mask[indices] = True
        return mask


class _TextChunk:
    def __init__(self, keys: Keys) -> None:
        cells = matrix(keys)
        self.long: Mask = np.any(cells[:, INDEX_KEY_PREFIX:], axis=1)
        cells = cells[:, :INDEX_KEY_PREFIX]
        escaped: Mask = np.any(cells == 1, axis=1)
        # Only these can contain a line break. Both kinds are usually few.
        self._single = {
            int(at): values.text_of(bytes(keys[at])) for at in np.flatnonzero(escaped & ~self.long)
        }
        #: the prefixes of long strings, except those with an escape
        self._begun = {
            int(at): bytes(keys[at])[:INDEX_KEY_PREFIX]
            for at in np.flatnonzero(self.long & ~escaped)
        }
        framed = np.zeros((len(keys), 1 + INDEX_KEY_PREFIX), np.uint8)
        framed[:, 1:] = np.where((self.long | escaped)[:, None], np.uint8(0), cells)
        kept = framed != 0
        kept[:, 0] = True
        self._plain = _JoinedTexts(framed[kept].tobytes() + b"\0")
        try:
            self._plain.data.decode()
        except UnicodeDecodeError:
            raise DoesNotOpen("an index key contains no text") from None
        self._empty = np.logical_or(self.long, escaped)
        self._folded: _JoinedTexts | None = None

    @property
    def size(self) -> int:
        one_by_one = 100 * (len(self._single) + len(self._begun))
        other = self._folded is not None and self._folded is not self._plain
        alike = self._folded.size if self._folded is not None and other else 0
        return self._plain.size + alike + one_by_one + 2 * len(self._empty)

    def test(self, test: TextTest) -> Mask:
        """A mask of the texts that certainly pass."""
        passed = self._passed(self._joined(fold=test.fold), test)
        passed[self._empty] = False
        for at, text in self._single.items():
            passed[at] = test.fits(text)
        if test.how == "contains" and not test.fold:
            needle = test.texts[0].encode()
            for at, begun in self._begun.items():
                passed[at] = needle in begun
        return passed

    def _joined(self, *, fold: bool) -> _JoinedTexts:
        if not fold:
            return self._plain
        if self._folded is None:
            data = self._plain.data
            alike = data.lower() if data.isascii() else folded(data.decode()).encode()
            self._folded = self._plain if alike == data else _JoinedTexts(alike)
        return self._folded

    def _passed(self, texts: _JoinedTexts, test: TextTest) -> Mask:
        first = test.texts[0]
        match test.how:
            case "contains" | "ends_with" if not first:
                return np.ones(len(texts), np.bool_)
            case "contains":
                return texts.find("", first, "")
            case "prefix":
                return texts.find("\0", first, "")
            case "ends_with":
                return texts.find("", first, "\0")
            case "any_of":
                return _any_of(texts, test.texts)
            case "has_words" | "has_phrase":
                return _with_words(texts, test)
            case "near":
                return _near(texts, first, test.within)
            case _:
                return _match(texts, test)


def _any_of(texts: _JoinedTexts, wanted: tuple[str, ...]) -> Mask:
    if len(wanted) <= _FEW:
        mask = np.zeros(len(texts), np.bool_)
        for text in wanted:
            mask |= texts.find("\0", text, "\0")
        return mask
    known = set(wanted)
    return np.array([text in known for text in texts.texts()], np.bool_)


def _with_words(texts: _JoinedTexts, test: TextTest) -> Mask:
    likely = np.ones(len(texts), np.bool_)
    for word in test.texts:
        likely &= texts.find("", word, "")
    if likely.any():
        all_texts = texts.texts()
        for at in np.flatnonzero(likely).tolist():
            likely[at] = test.passes(all_texts[at])
    return likely


def _near(texts: _JoinedTexts, wanted: str, within: int) -> Mask:
    # An edit changes up to four bytes.
    apart = np.abs(texts.lengths() - len(wanted.encode()))
    likely = np.flatnonzero(apart <= 4 * within)
    mask = np.zeros(len(texts), np.bool_)
    if len(likely):
        all_texts = texts.texts()
        choices = [all_texts[at] for at in likely.tolist()]
        (distances,) = process.cdist(
            [wanted], choices, scorer=Levenshtein.distance, score_cutoff=within, dtype=np.int32
        )
        mask[likely] = distances <= within
    return mask


def _match(texts: _JoinedTexts, test: TextTest) -> Mask:
    pattern = test.by_line()
    listed_texts = texts.texts() if pattern is None or b"\n" in texts.data else []
    if pattern is None:
        return np.array([test.passes(text) for text in listed_texts], np.bool_)
    mask = texts.match(pattern)
    for at, text in enumerate(listed_texts):
        if "\n" in text:
            mask[at] = test.passes(text)
    return mask


Codes = NDArray[np.int64]
#: Stored codes, one per row.
RowCodes = NDArray[np.unsignedinteger]


class Dictionary(Protocol):
    """A field of some rows: the sorted, distinct ``keys``, and the code of each row.

    ``long`` tells whether a key may belong to a long string (``index.query.key_sets``).
    """

    @property
    def keys(self) -> Keys: ...

    @property
    def long(self) -> bool: ...

    def codes_of(self, rows: Ordinals) -> NDArray[np.integer]:
        """The code of each row: 0 if the field is absent, else 1 + the index of its key."""


@dataclass(frozen=True, eq=False, slots=True)
class ColumnDictionary:
    """The codes of all rows of a segment. ``counts`` has the number of rows of each code."""

    keys: Keys
    codes: RowCodes
    counts: Codes
    long: bool

    #: the keys as texts, once they were tested
    _texts: list[ColumnTexts] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes in memory; more once texts were tested."""
        texts = sum(text.size + 10 * OBJECT_BYTES for text in self._texts)
        return measure(self.keys, self.codes, self.counts) + texts + OBJECT_BYTES

    @property
    def texts(self) -> ColumnTexts:
        """The keys of a string column as texts to test.

        Raises:
            DoesNotOpen: a key is not a text.
        """
        if not self._texts:
            self._texts.append(ColumnTexts(self.keys))
        return self._texts[0]

    def codes_of(self, rows: Ordinals) -> RowCodes:
        return self.codes.take(rows)


@dataclass(frozen=True, eq=False, slots=True)
class PageMap:
    """All rows of a segment, each with the page of its key: 0 if the field is absent, else 1 + the
    index of the page among those of present rows, in key order."""

    pages: RowCodes

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self.pages.nbytes


#: A whole row-major column, with or without its keys.
ByRow = ColumnDictionary | PageMap


@dataclass(frozen=True, eq=False, slots=True)
class PartialDictionary:
    """Rows of a segment in ascending order, each with its code."""

    keys: Keys
    rows: Ordinals
    codes: Codes
    long: bool

    def codes_of(self, rows: Ordinals) -> Codes:
        """The codes of rows, which must be in this dictionary."""
        return self.codes[np.searchsorted(self.rows, rows)]


def code_type(highest: int) -> np.dtype[np.unsignedinteger]:
    """The narrowest type for numbers up to ``highest``."""
    return np.min_scalar_type(highest)


def build_column_dictionary(column: Column, covered: int) -> ColumnDictionary:
    """The dictionary of ``column``, in a segment whose groups have ``covered`` rows."""
    starts = run_starts(column.keys)
    keys = column.keys[starts]
    lengths = np.diff(np.append(starts, column.present))
    kind = code_type(len(keys))
    codes = np.zeros(covered, kind)
    codes[column.rows(0, column.present)] = np.repeat(
        np.arange(1, len(keys) + 1).astype(kind), lengths
    )
    counts: Codes = np.concatenate(([column.absent], lengths)).astype(np.int64)
    return ColumnDictionary(keys, codes, counts, has_long(keys))


def build_partial_dictionary(
    rows: Ordinals, keys: Keys, absent: Ordinals, key_of: Ordinals | None = None
) -> PartialDictionary:
    """The dictionary of rows with keys and rows without a key, in any order.

    Args:
        key_of: the index of each row's key; if None, row i has key i.
    """
    distinct, codes = np.unique(keys, return_inverse=True)
    if key_of is not None:
        codes = codes[key_of]
    all_rows = np.concatenate((rows, absent))
    numbers: Codes = np.concatenate((codes + 1, np.zeros(len(absent), np.int64)))
    order = np.argsort(all_rows)
    return PartialDictionary(distinct, all_rows[order], numbers[order], has_long(distinct))


def has_long(keys: Keys) -> bool:
    """Whether any of these keys belongs to a string longer than an index key."""
    return keys.dtype.kind == "S" and bool(matrix(keys)[:, INDEX_KEY_PREFIX:].any())


#: Bytes of a key's count, and the types of the rows' codes during building.
_COUNT, _NARROW, _WIDE = np.dtype(np.int64), np.dtype(np.uint16), np.dtype(np.uint32)


def by_row_bytes(keys: int, width: int, covered: int) -> int:
    """The memory in bytes that :class:`ByRowBuilder` takes for ``keys`` keys of ``width`` bytes
    each.
    """
    numbers = _NARROW if keys < np.iinfo(_NARROW).max else _WIDE
    return keys * (width + _COUNT.itemsize) + covered * numbers.itemsize


class ByRowBuilder:
    """Builds a row-major column. Call :meth:`take` once for each page."""

    def __init__(self, kind: KeyKind, directory: Outline, covered: int, most: int) -> None:
        """
        Args:
            covered: the number of rows of the segment's groups.
            most: maximum bytes of a :class:`ColumnDictionary`.
        """
        self._kind: KeyKind = kind
        self._directory = directory
        self._most = most
        self._codes: RowCodes = np.zeros(covered, _NARROW)
        #: by index among the pages of present rows: the page's keys, their first code, their counts
        self._pages: dict[int, tuple[Keys, int, Codes]] | None = {}
        self._next = 1
        self._bytes = 0

    def take(self, page: int, block: EntryBlock) -> None:
        """
        Args:
            page: its number in the column.
        """
        page -= self._directory.leading
        if page < 0:
            return  # the codes of absent rows are already 0
        # numpy buffers indexes of other types, which takes twice as long.
        rows = block.ordinals.astype(np.intp)
        if self._pages is None:
            self._codes[rows] = page + 1
            return
        count = len(block.keys)
        lengths = block.counts.astype(_COUNT)
        more = block.keys.nbytes + lengths.nbytes
        numbers = _WIDE if self._next + count > np.iinfo(_NARROW).max else self._codes.dtype
        if self._bytes + more + len(self._codes) * numbers.itemsize > self._most:
            # Before codes become wider, or both arrays would be in memory.
            self._leave_keys(self._pages)
            self._codes[rows] = page + 1
            return
        self._codes = self._codes.astype(numbers, copy=False)
        numbered = np.arange(self._next, self._next + count).astype(numbers)
        self._codes[rows] = np.repeat(numbered, lengths)
        self._pages[page] = (block.keys, self._next, lengths)
        self._next += count
        self._bytes += more

    def finish(self) -> ByRow:
        if self._pages is None:
            return PageMap(self._codes)
        pages = [self._pages[page] for page in sorted(self._pages) if len(self._pages[page][0])]
        # The keys of pages in order are sorted; the same key may end a page and begin the next.
        again = {
            at
            for at, (before, after) in enumerate(pairwise(pages), 1)
            if before[0][-1] == after[0][0]
        }
        distinct = sum(len(keys) for keys, _, _ in pages) - len(again)
        table = np.zeros(self._next, code_type(distinct))
        counts = np.zeros(distinct + 1, np.int64)
        counts[0] = self._directory.absent
        parts: list[Keys] = [np.zeros(0, key_type(self._kind))]
        end = 1
        for at, (keys, first, lengths) in enumerate(pages):
            same = int(at in again)
            begin, end = end - same, end - same + len(keys)
            table[first : first + len(keys)] = np.arange(begin, end)
            counts[begin:end] += lengths
            parts.append(keys[same:])
        self._exchange(table)
        merged = np.concatenate(parts)
        return ColumnDictionary(merged, self._codes, counts, has_long(merged))

    def _leave_keys(self, pages: dict[int, tuple[Keys, int, Codes]]) -> None:
        table = np.zeros(self._next, code_type(self._directory.present_pages))
        for page, (keys, first, _) in pages.items():
            table[first : first + len(keys)] = page + 1
        self._exchange(table)
        self._pages = None

    def _exchange(self, table: RowCodes) -> None:
        """Replace each row's code by its entry in ``table``."""
        if table.dtype.itemsize == self._codes.dtype.itemsize:
            changed = self._codes
        else:
            changed = np.zeros(len(self._codes), table.dtype)
        for first in range(0, len(self._codes), PIECE):
            codes = self._codes[first : first + PIECE]
            changed[first : first + PIECE] = table.take(codes)
        self._codes = changed


#: Maximum bytes per member of a roaring bitmap.
_MEMBER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Halves:
    """The sums of the upper and of the lower 32 bits of keys. A schema has too few rows for them to
    overflow 64 bits."""

    upper: int = 0
    lower: int = 0

    @classmethod
    def of(cls, keys: Keys, counts: Codes | None = None) -> Halves:
        """The halves of numbers, weighted by ``counts``; None counts each number once."""
        upper, lower = split_halves(keys)
        if counts is not None:
            many = counts.astype(np.uint64)
            upper, lower = upper * many, lower * many
        return cls(int(upper.sum(dtype=np.uint64)), int(lower.sum(dtype=np.uint64)))

    def __add__(self, other: Halves) -> Halves:
        return Halves(self.upper + other.upper, self.lower + other.lower)

    def __sub__(self, other: Halves) -> Halves:
        return Halves(self.upper - other.upper, self.lower - other.lower)


@dataclass(frozen=True, eq=False, slots=True)
class ColumnSums:
    """``halves`` are the sums over all indexed rows of the segment. ``rows`` were also looked up;
    ``present`` are the rows among them that have a key, ascending, with their ``keys``."""

    halves: Halves
    rows: BitMap
    present: Ordinals
    keys: Keys

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return measure(self.present, self.keys) + len(self.rows) * _MEMBER_BYTES + 4 * OBJECT_BYTES

    def has(self, rows: BitMap) -> bool:
        """Whether these rows were looked up."""
        return rows.issubset(self.rows)

    def keys_of(self, rows: BitMap) -> Keys:
        """The keys of those of some looked-up rows that have a key, in any order."""
        if len(rows) == len(self.rows):
            return self.keys
        return self.keys[np.isin(self.present, ordinals(rows), assume_unique=True)]


def split_halves(keys: Keys) -> tuple[Keys, Keys]:
    """The upper and the lower 32 bits of numbers."""
    return keys >> np.uint64(32), keys & np.uint64(2**32 - 1)
