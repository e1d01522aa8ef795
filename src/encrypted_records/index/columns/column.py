"""A sorted column: the values of one field of a segment, with their rows (docs/SPEC.md, section 5).

A column lists local ordinals in the order (absent first, then by index key, then by ordinal), and
the keys of the rows that have a value. Operations on many entries use numpy. A search uses ranges
of keys.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto import values
from encrypted_records.crypto.format import INDEX_KEY_BYTES, INDEX_KEY_PREFIX, UUID_KEY_BYTES
from encrypted_records.crypto.keys import FieldKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.model.definition import FieldSpec, Value
from encrypted_records.model.field_types.base import KeyKind

#: uint64 offsets for numbers, fixed-width byte strings for texts.
Keys = NDArray[Any]

_HEAD = struct.Struct(">I")
_NUMBER_KEYS = np.dtype(">u8")
_STORED_KEYS: dict[KeyKind, np.dtype[Any]] = {
    KeyKind.TEXT: np.dtype(f"S{INDEX_KEY_BYTES}"),
    KeyKind.POINT: _NUMBER_KEYS,
    KeyKind.UUID: np.dtype(f"S{UUID_KEY_BYTES}"),
    KeyKind.WORDS: _NUMBER_KEYS,
}
_ORDINAL = np.dtype(">u4")


def key_type(kind: KeyKind) -> np.dtype[Any]:
    """The type of keys in memory, in this machine's byte order."""
    return stored_key_type(kind).newbyteorder("=")


def stored_key_type(kind: KeyKind) -> np.dtype[Any]:
    """The type of keys in sealed pages."""
    return _STORED_KEYS[kind]


def longest_of(keys: Keys) -> int:
    """Bytes of the longest of these keys; at least 1."""
    if keys.dtype.kind != "S" or not len(keys):
        return keys.dtype.itemsize
    by_byte = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), -1)
    used = np.flatnonzero(by_byte.any(axis=0))
    return int(used[-1]) + 1 if len(used) else 1


@dataclass(frozen=True, eq=False, slots=True)
class EntryBlock:
    """Entries in order. ``keys`` are distinct, and empty if the rows are absent. Texts may be
    narrower than the type of keys; a key that is searched among them must not be truncated to their
    width (:func:`search`).

    The entries of ``keys[i]`` are ``ordinals[starts[i]:starts[i + 1]]``.
    """

    ordinals: Ordinals
    keys: Keys
    starts: Ordinals

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return measure(self.ordinals, self.keys, self.starts) + OBJECT_BYTES

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of entries of each key."""
        counts = np.empty(len(self.starts), np.int64)
        if len(counts):
            np.subtract(self.starts[1:], self.starts[:-1], out=counts[:-1])
            counts[-1] = len(self.ordinals) - int(self.starts[-1])
        return counts

    def expand(self) -> Keys:
        """The key of every entry."""
        return np.repeat(self.keys, self.counts)

    def runs_of(self, entries: NDArray[np.intp]) -> NDArray[np.intp]:
        """The index of each entry's key."""
        # Numbers of another width would make numpy copy all starts.
        return self.starts.searchsorted(entries.astype(np.uint32), "right") - 1

    def part(self, first: int, last: int) -> EntryBlock:
        """The entries first..last-1 of present rows; not empty."""
        # Same width as the starts, as in ``runs_of``.
        begin = int(self.starts.searchsorted(np.uint32(first), "right")) - 1
        end = int(self.starts.searchsorted(np.uint32(last), "left"))
        starts = self.starts[begin:end] - np.uint32(first)
        starts[0] = 0  # for a run that begins earlier
        return EntryBlock(self.ordinals[first:last], self.keys[begin:end], starts)

    def select(self, kept: NDArray[np.bool_]) -> EntryBlock | None:
        """The entries selected by the mask ``kept``, in order; None if nothing is left."""
        if kept.all():
            return self
        if not kept.any():
            return None
        if not len(self.keys):
            return EntryBlock(self.ordinals[kept], self.keys, self.starts)
        counts = np.add.reduceat(kept, self.starts.astype(np.intp), dtype=np.int64)
        runs = counts > 0
        starts = (np.cumsum(counts) - counts)[runs].astype(np.uint32)
        return EntryBlock(self.ordinals[kept], self.keys[runs], starts)


def run_starts(keys: Keys) -> NDArray[np.intp]:
    """The positions at which the distinct keys of a sorted column begin."""
    if not len(keys):
        return np.zeros(0, np.intp)
    return np.concatenate(([0], np.flatnonzero(keys[1:] != keys[:-1]) + 1))


class Lookup(Protocol):
    """A sorted column for lookups: completely in memory, or with some pages loaded.

    The ``missing_*`` methods name the pages that the corresponding methods still need.
    """

    @property
    def absent(self) -> int: ...

    @property
    def present(self) -> int: ...

    def at(self, edge: Edge) -> int:
        """The number of keys before ``edge``."""

    def at_all(self, edges: Sequence[Edge]) -> list[int]:
        """:meth:`at` for each edge."""

    def pieces(self, first: int, last: int) -> list[Ordinals]:
        """The rows of the present entries first..last-1, split by page."""

    def entries(self, first: int, last: int) -> list[EntryBlock]:
        """The present entries first..last-1; not empty."""

    def absent_rows(self) -> Ordinals: ...

    def all_within(self, key_range: KeyRange) -> bool:
        """Whether every row is known, without any page, to have a value in ``key_range``."""

    def missing_entries(self, first: int, last: int) -> set[int]:
        """Missing pages of the present entries first..last-1."""

    def missing_for(self, key_range: KeyRange) -> set[int]:
        """Missing pages of the rows of ``key_range``."""

    def missing_to_count(self, key_range: KeyRange) -> set[int]:
        """Missing pages at the beginning and end of ``key_range``."""

    def missing_absent(self) -> set[int]:
        """Missing pages of the absent rows."""


@dataclass(frozen=True, eq=False, slots=True)
class Column:
    """Entries sorted by (absent first, key, ordinal).

    ``ordinals`` has one entry per row; ``keys`` has one per row with a value, so that the row of
    ``keys[i]`` is ``ordinals[absent + i]``.
    """

    ordinals: Ordinals
    keys: Keys

    @property
    def absent(self) -> int:
        """The number of rows without a value; their ordinals come first."""
        return len(self.ordinals) - len(self.keys)

    @property
    def present(self) -> int:
        """The number of rows with a value."""
        return len(self.keys)

    def at(self, edge: Edge) -> int:
        """The number of keys before ``edge``."""
        return int(self.keys.searchsorted(np.array(edge.key, self.keys.dtype), edge.side))

    def at_all(self, edges: Sequence[Edge]) -> list[int]:
        # Searching edges singly would spend most of the time on creating arrays of one key.
        wanted = np.array([edge.key for edge in edges], self.keys.dtype)
        right = np.array([edge.side == "right" for edge in edges], np.bool_)
        positions = self.keys.searchsorted(wanted, "left")
        positions[right] = self.keys.searchsorted(wanted[right], "right")
        plain: list[int] = positions.tolist()
        return plain

    def rows(self, first: int, last: int) -> Ordinals:
        """The rows of ``keys[first:last]``."""
        return self.ordinals[self.absent + first : self.absent + last]

    def pieces(self, first: int, last: int) -> list[Ordinals]:
        return [self.rows(first, last)]

    def entries(self, first: int, last: int) -> list[EntryBlock]:
        keys = self.keys[first:last]
        starts = run_starts(keys)
        return [EntryBlock(self.rows(first, last), keys[starts], starts.astype(np.uint32))]

    def absent_rows(self) -> Ordinals:
        return self.ordinals[: self.absent]

    def all_within(self, key_range: KeyRange) -> bool:
        return (
            not self.absent
            and self.at(key_range.first) == 0
            and self.at(key_range.last) == self.present
        )

    # A column in memory lacks nothing.

    def missing_entries(self, first: int, last: int) -> set[int]:
        return set()

    def missing_for(self, key_range: KeyRange) -> set[int]:
        return set()

    def missing_to_count(self, key_range: KeyRange) -> set[int]:
        return set()

    def missing_absent(self) -> set[int]:
        return set()


def build(spec: FieldSpec, key: FieldKey, column: Sequence[Value]) -> Column:
    """The column of ``spec`` over rows whose local ordinals are 0, 1, 2, ...

    Args:
        key: the field's key, under the log's first key version (docs/SPEC.md, section 2).
        column: each row's accepted value, None where absent.
    """
    present = values.present_values(column)
    all_ordinals = np.arange(len(column), dtype=np.uint32)
    missing, ordinals = all_ordinals[:0], all_ordinals
    if len(present) < len(column):
        is_present = np.array([value is not None for value in column], np.bool_)
        missing, ordinals = all_ordinals[~is_present], all_ordinals[is_present]
    numbers = values.few_values(present) if spec.kind is KeyKind.TEXT else None
    if numbers is None:
        return _sort(missing, ordinals, keys_of(spec, key, present))
    # Several texts can have the same key.
    keys, ranks = np.unique(keys_of(spec, key, list(numbers)), return_inverse=True)
    number_of_each = np.fromiter(map(numbers.__getitem__, present), np.intp, len(present))
    # numpy sorts small integers in one pass.
    each = ranks[number_of_each].astype(np.uint16 if len(keys) <= 1 << 16 else np.uint32)
    order = np.argsort(each, kind="stable")
    return Column(np.concatenate((missing, ordinals[order])), keys[each[order]])


def keys_of(spec: FieldSpec, key: FieldKey, present: Sequence[Value]) -> Keys:
    """The key of each value, in order; no value is absent. ``key`` as for :func:`build`."""
    if spec.kind is KeyKind.TEXT:
        return values.string_keys(present, key.tail)  # type: ignore[arg-type] # of a string field
    if spec.kind is KeyKind.UUID:
        return values.uuid_keys(present)
    return values.to_offsets(spec, present)


def absent(rows: Ordinals, kind: KeyKind) -> Column:
    """The column of a field that none of these rows has."""
    return Column(rows, np.zeros(0, key_type(kind)))


def _sort(missing: Ordinals, ordinals: Ordinals, keys: Keys) -> Column:
    """Sort entries whose equal keys already have ascending ordinals.

    numpy's stable sort merges runs that are already sorted, so concatenated columns sort fast.
    """
    order = np.argsort(keys, kind="stable")
    return Column(np.concatenate((missing, ordinals[order])), keys[order])


def join(parts: Sequence[Column], kind: KeyKind) -> Column:
    """Join several columns of a field; the ordinals of each are above those of the previous."""
    missing = np.concatenate([column.absent_rows() for column in parts])
    ordinals = np.concatenate([column.ordinals[column.absent :] for column in parts])
    keys: Keys = np.concatenate([column.keys.astype(key_type(kind)) for column in parts])
    return _sort(missing, ordinals, keys)


def encoded_size(kind: KeyKind, count: int) -> int:
    """Bytes of :func:`encode` for ``count`` rows; they depend only on the count and type."""
    return _HEAD.size + count * (_ORDINAL.itemsize + stored_key_type(kind).itemsize)


def encode(column: Column, kind: KeyKind) -> bytes:
    """Encode the number of absent rows, ordinals and keys; absent rows have zeros as keys."""
    keys = np.zeros(len(column.ordinals), stored_key_type(kind))
    keys[: len(column.keys)] = column.keys
    return _HEAD.pack(column.absent) + column.ordinals.astype(_ORDINAL).tobytes() + keys.tobytes()


def decode(data: bytes, kind: KeyKind, count: int) -> Column:
    """Undo :func:`encode` for ``count`` rows; only its exact output is accepted.

    Raises:
        DoesNotOpen: not the encoding of a column of that many rows.
    """
    if len(data) != encoded_size(kind, count):
        raise DoesNotOpen("an encrypted column has the wrong size")
    (missing,) = _HEAD.unpack_from(data)
    ordinals = np.frombuffer(data, _ORDINAL, count, _HEAD.size).astype(np.uint32)
    at = _HEAD.size + count * _ORDINAL.itemsize
    if missing > count:
        raise DoesNotOpen("an encrypted column counts more absent rows than rows")
    keys = np.frombuffer(data, stored_key_type(kind), count - missing, at)
    end = at + keys.nbytes
    if not in_order(ordinals, keys) or data.count(0, end) != len(data) - end:
        raise DoesNotOpen("an encrypted column is not in order")
    return Column(ordinals, keys.astype(key_type(kind)))


def in_order(ordinals: Ordinals, keys: NDArray[Any]) -> bool:
    """Whether the entries are in order; binary search would miss rows of an unsorted column."""
    absent = len(ordinals) - len(keys)
    rising = ordinals[:-1] < ordinals[1:]
    below, equal = keys[:-1] < keys[1:], keys[:-1] == keys[1:]
    return bool(np.all(rising[: max(0, absent - 1)]) and np.all(below | (equal & rising[absent:])))


#: Approximate memory overhead of a Python object, in bytes.
OBJECT_BYTES = 112


def measure(*arrays: NDArray[Any]) -> int:
    """Bytes of these arrays; a view counts the whole buffer that it keeps alive."""
    return sum(_measure(array) for array in arrays)


def _measure(array: NDArray[Any]) -> int:
    owner: Any = array
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    if owner is array:
        return int(array.nbytes) + OBJECT_BYTES
    size = owner.nbytes if hasattr(owner, "nbytes") else len(owner)
    return int(max(array.nbytes, size)) + 2 * OBJECT_BYTES


class Edge(NamedTuple):
    """A point between sorted keys: before (left) or after (right) all keys equal to ``key``."""

    key: int | bytes
    side: Literal["left", "right"]


class KeyRange(NamedTuple):
    """The keys between two edges."""

    first: Edge
    last: Edge


def last_with(prefix: bytes) -> Edge:
    """The edge after all keys that begin with these order bytes (at most 48)."""
    return Edge(prefix.ljust(INDEX_KEY_BYTES, b"\xff"), "right")


def longer_than_key(ordered: bytes) -> KeyRange:
    """The keys of long strings whose first 48 order bytes are those of ``ordered``."""
    prefix = ordered[:INDEX_KEY_PREFIX]
    # A string that equals the prefix is not long.
    return KeyRange(Edge(prefix, "right"), last_with(prefix))


def alike(key: int | bytes) -> KeyRange:
    """The keys that the index treats as equal to ``key``: for a long string, all of its class."""
    if isinstance(key, bytes) and values.is_long(key):
        return longer_than_key(key)
    return KeyRange(Edge(key, "left"), Edge(key, "right"))


def search(keys: Keys, edge: Edge) -> int:
    """The number of these sorted keys before ``edge``, whose key may be longer."""
    side = edge.side
    if isinstance(edge.key, bytes) and len(edge.key.rstrip(b"\0")) > keys.dtype.itemsize:
        # numpy truncates the key to the array's width; keys equal to the truncated key sort before
        # it.
        side = "right"
    # The method, because the overhead of numpy's function exceeds the search itself.
    return int(keys.searchsorted(np.array(edge.key, keys.dtype), side))
