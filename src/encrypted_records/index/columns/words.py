"""The column of the words of a field (docs/SPEC.md, section 5.1).

It has an entry for each row, with the number of words that the row has room for and whether they
are listed, and an entry for each distinct word of each row that lists its words. A row with more
words than room is *undecided*: a word query opens its record.

A segment lists a limited number of words. If there are more, the rows with the most words become
undecided; among rows with equally many words, the last. These rows are known only after all words,
but the entries before the words state them, so a stream is read twice: first to count, then to
leave words out. Meanwhile, up to five bytes per row and the set of undecided rows are in memory.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.crypto import values
from encrypted_records.crypto.format import UNDECIDED_FROM, WORDS_FROM
from encrypted_records.crypto.keys import FieldKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns.column import (
    Column,
    Edge,
    EntryBlock,
    KeyRange,
    Keys,
    in_order,
)
from encrypted_records.index.ordinals import Ordinals, ordinals
from encrypted_records.model.ciphertext_lengths import LeastClass, padded_length
from encrypted_records.model.definition import Value
from encrypted_records.model.texts import comparable, folded, is_known, words_of

#: Maximum number of words that a segment lists: the larger of a total and a number per row.
MOST_LISTED, MOST_A_ROW = 1 << 25, 32
#: The undecided rows.
UNDECIDED = KeyRange(Edge(UNDECIDED_FROM, "left"), Edge(WORDS_FROM, "left"))

_HEAD = struct.Struct(">I")
_ORDINAL = np.dtype(">u4")
_KEY = np.dtype(">u8")
_WORDS = np.uint64(WORDS_FROM)
_STATED = np.uint64(UNDECIDED_FROM)


def room_of(length: int) -> int:
    """The number of words for which a row has room, by the length class of its sealed text."""
    return min(length, 64) // 3 + max(0, length - 64) // 6


def build(key: FieldKey, texts: Sequence[Value], stated: LeastClass) -> Column:
    """The column over rows whose local ordinals are 0, 1, 2, ...

    Args:
        key: of the word column, under the log's first key version.
        texts: each row's text, None where absent.
        stated: the group's statement about the field.
    """
    known: dict[str, int] = {}
    ordinals: list[int] = []
    keys: list[int] = []
    for ordinal, text in enumerate(texts):
        words: set[str] = set()
        certain, length = True, stated.length
        if isinstance(text, str):
            if not stated.only:
                length = max(length, padded_length(len(text.encode()) + 1))
            alike = folded(comparable(text))
            words = set(words_of(alike))
            certain = len(words) <= room_of(length) and is_known(alike)
        ordinals.append(ordinal)
        keys.append(room_of(length) if certain else UNDECIDED_FROM + room_of(length))
        for word in words if certain else ():
            of_word = known.get(word)
            if of_word is None:
                of_word = known[word] = values.word_key(word, key.tail)
            ordinals.append(ordinal)
            keys.append(of_word)
    return _sort(np.array(ordinals, np.uint32), np.array(keys, np.uint64))


def undecided(rows: Ordinals) -> Column:
    """The column of rows whose words were not listed, identical to that of a segment without a word
    column.
    """
    return Column(rows, np.full(len(rows), _STATED))


def count_entries(column: Column) -> int:
    """The number of entries that the column has room for; it depends only on the lengths of sealed
    values.
    """
    heads = column.keys[: _count_rows(column)]
    return len(heads) + int((heads & ~_STATED).sum())


def count_rows(block: EntryBlock) -> int:
    """The number of leading entries of a block that represent rows."""
    run = int(block.keys.searchsorted(_WORDS, "left"))
    return int(block.starts[run]) if run < len(block.starts) else len(block.ordinals)


def count_room(block: EntryBlock) -> int:
    """The number of entries that a part of a column has room for; see :func:`count_entries`."""
    rows = count_rows(block)
    if not rows:
        return 0
    heads = block.part(0, rows)
    lengths = np.diff(np.append(heads.starts, np.uint32(rows))).astype(np.uint64)
    return rows + int(((heads.keys & ~_STATED) * lengths).sum())


def rows_of(column: Column) -> Ordinals:
    """The rows of the column, ascending."""
    rows: Ordinals = np.sort(column.ordinals[: _count_rows(column)])
    return rows


def most_listed(rows: int) -> int:
    """The maximum number of words that a segment of ``rows`` rows lists; beyond it, the rows with
    the most words are undecided.
    """
    return max(MOST_LISTED, MOST_A_ROW * rows)


def limit(column: Column, most: int | None = None) -> Column:
    """Limit the column to ``most`` words (default: :func:`most_listed`)."""
    heads = _count_rows(column)
    if most is None:
        most = most_listed(heads)
    if len(column.keys) - heads <= most:
        return column
    counts = np.bincount(column.ordinals[heads:])
    order = np.argsort(counts, kind="stable")
    dropped = np.zeros(max(len(counts), int(column.ordinals.max()) + 1), np.bool_)
    dropped[order[np.cumsum(counts[order]) > most]] = True
    kept = ~dropped[column.ordinals]
    kept[:heads] = True
    keys = column.keys.copy()
    keys[:heads][dropped[column.ordinals[:heads]]] |= _STATED
    return _sort(column.ordinals[kept], keys[kept])


def _sort(ordinals: Ordinals, keys: Keys) -> Column:
    order = np.lexsort((ordinals, keys))
    return Column(ordinals[order], keys[order])


def _count_rows(column: Column) -> int:
    return int(np.searchsorted(column.keys, _WORDS, "left"))


def encoded_size(room: int) -> int:
    """The size in bytes of :func:`encode` for a column with room for ``room`` entries."""
    return _HEAD.size + room * (_ORDINAL.itemsize + _KEY.itemsize)


def encode(column: Column) -> bytes:
    """Encode the number of entries, ordinals and keys, with zeros for unused room."""
    plain = _HEAD.pack(len(column.keys)) + column.ordinals.astype(_ORDINAL).tobytes()
    plain += column.keys.astype(_KEY).tobytes()
    return plain.ljust(encoded_size(count_entries(column)), b"\0")


def decode(data: bytes, rows: Ordinals, room: int) -> Column:
    """Undo :func:`encode` for these rows; only its exact output is accepted.

    Raises:
        DoesNotOpen: not the encoding of a column of these rows with such room.
    """
    if len(data) != encoded_size(room):
        raise DoesNotOpen("an encrypted column has the wrong size")
    (count,) = _HEAD.unpack_from(data)
    if count > room:
        raise DoesNotOpen("an encrypted column has more entries than room")
    ordinals = np.frombuffer(data, _ORDINAL, count, _HEAD.size).astype(np.uint32)
    at = _HEAD.size + ordinals.nbytes
    keys: NDArray[np.uint64] = np.frombuffer(data, _KEY, count, at).astype(np.uint64)
    end = at + keys.nbytes
    if not in_order(ordinals, keys) or data.count(0, end) != len(data) - end:
        raise DoesNotOpen("an encrypted column is not in order")
    column = Column(ordinals, keys)
    check(column, room)
    if not np.array_equal(rows_of(column), rows) or not np.isin(ordinals, rows).all():
        raise DoesNotOpen("a column lists other rows than its segment has")
    return column


def check(column: Column, room: int) -> None:
    """
    Raises:
        DoesNotOpen: the rows state other room than the segment's header, or have more words.
    """
    if column.absent or count_entries(column) != room or len(column.keys) > room:
        raise other_room()


def other_room() -> DoesNotOpen:
    return DoesNotOpen("a column of words has another room than its segment says")


#: Number of rows that are processed at a time.
_PIECE = 1 << 16


class WordCounts:
    """Counts the words that each row lists: :meth:`add` all blocks, in any order."""

    def __init__(self, rows: int) -> None:
        """
        Args:
            rows: above all local ordinals.
        """
        self._counts = np.zeros(rows, np.uint32)

    def add(self, block: EntryBlock) -> None:
        listed = block.ordinals[count_rows(block) :]
        np.add.at(self._counts, listed, np.uint32(1))

    def find_beyond(self, most: int) -> NDArray[np.bool_] | None:
        """A mask of the rows whose words are left out, so that at most ``most`` words stay; None if
        no row is left out.
        """
        sizes = np.zeros(1, np.int64)
        for piece in self._pieces():
            longer, found = sorted((sizes, np.bincount(piece)), key=len, reverse=True)
            longer[: len(found)] += found
            sizes = longer
        totals = np.cumsum(sizes * np.arange(len(sizes)))
        if totals[-1] <= most:
            return None
        # All rows with fewer words than this fit, and some of the rows with exactly this many.
        edge = int(np.searchsorted(totals, most, "right"))
        fit = (most - int(totals[edge - 1])) // edge
        beyond = np.zeros(len(self._counts), np.bool_)
        for at, piece in enumerate(self._pieces()):
            mask_piece = beyond[at * _PIECE : at * _PIECE + len(piece)]
            np.greater(piece, edge, out=mask_piece)
            alike = np.flatnonzero(piece == edge)
            mask_piece[alike[fit:]] = True
            fit = max(0, fit - len(alike))
        return beyond

    def _pieces(self) -> Iterator[NDArray[np.uint32]]:
        for at in range(0, len(self._counts), _PIECE):
            yield self._counts[at : at + _PIECE]


def leave_out(blocks: Iterable[EntryBlock], beyond: NDArray[np.bool_]) -> Iterator[EntryBlock]:
    """A word column in order, without the words of the rows ``beyond``, which become undecided."""
    undecided: dict[int, BitMap] = {}
    for block in blocks:
        rows = count_rows(block)
        if rows:
            heads = block.part(0, rows)
            gone = beyond[heads.ordinals]
            changed = heads.select(gone)
            if changed is not None:
                _note(undecided, replace(changed, keys=changed.keys | _STATED))
            kept = heads.select(~gone)
            if kept is not None:
                # Rows undecided before may sort between rows that become undecided.
                decided = int(kept.keys.searchsorted(_STATED, "left"))
                at = int(kept.starts[decided]) if decided < len(kept.starts) else len(kept.ordinals)
                if at:
                    yield kept.part(0, at)
                if at < len(kept.ordinals):
                    _note(undecided, kept.part(at, len(kept.ordinals)))
        if rows < len(block.ordinals):
            yield from _in_order(undecided)
            listed = block.part(rows, len(block.ordinals)) if rows else block
            left = listed.select(~beyond[listed.ordinals])
            if left is not None:
                yield left
    yield from _in_order(undecided)


def _note(undecided: dict[int, BitMap], heads: EntryBlock) -> None:
    runs = np.split(heads.ordinals, heads.starts[1:])
    for key, rows in zip(heads.keys.tolist(), runs, strict=True):
        undecided.setdefault(key, BitMap()).update(BitMap(array("I", rows.tobytes())))


def _in_order(undecided: dict[int, BitMap]) -> Iterator[EntryBlock]:
    """All noted entries in order; the notes are cleared."""
    for key in sorted(undecided):
        rows = undecided.pop(key)
        for at in range(0, len(rows), _PIECE):
            piece = ordinals(rows[at : at + _PIECE])
            yield EntryBlock(piece, np.array([key], np.uint64), np.zeros(1, np.uint32))
