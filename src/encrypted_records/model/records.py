"""The types that packages exchange: plain records, and sealed rows and commits.

:mod:`encrypted_records.model.wire` puts the structs below on the wire, field by field and in this
order (docs/SPEC.md, section 7). All byte strings are raw, all integers unsigned.

Packed rows have their fields in one piece: as they travel, are digested, and are stored. A job
sends tens of thousands of rows at once. Creating an object for each field of each row, and then
packing them again, took the API most of its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from encrypted_records.model.ciphertext_lengths import BESIDE_CLASS, SEAL_VERSION, LeastClass
from encrypted_records.model.definition import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_GROUP_RECORDS = 1 << 20
#: Segments with up to this many records are minis: a single page with all columns.
MAX_MINI_RECORDS = 4096
#: Maximum entries for which the word columns of a mini have room.
MAX_MINI_WORDS = 1 << 17
PAGE_BYTES = 16 * 1024
#: Maximum rows that a commit may end.
MAX_KILLED = 1 << 20
#: Maximum versions by which a commit's ``seen`` may be behind the log.
MAX_BEHIND = 20_000
#: Maximum segments of up to this many rows that a schema may have when a commit adds a segment.
#: Merging reduces their number; the number of larger segments follows from the records.
MAX_SMALL_SEGMENTS = 256
SMALL_SEGMENT_ROWS = 1 << 19
#: Limits of one request to an API or to a mirror.
MAX_PAGE_REFS = 4096
MAX_ROW_REFS = 1000
MAX_DIGEST_REFS = 100
MAX_BLOCK_REFS = 64
MAX_NAMED_RECORDS = 100
#: Maximum bytes of log entries in a ManifestDelta.
DELTA_BYTES = 32 << 20

Uid = Annotated[bytes, Meta(min_length=16, max_length=16)]
KeyId = Annotated[bytes, Meta(min_length=8, max_length=8)]
Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]
#: Signature of a commit: 64 bytes, or none if the organization has no roster.
CommitSignature = Annotated[bytes, Meta(max_length=64)]
U32 = Annotated[int, Meta(ge=0, lt=2**32)]
U63 = Annotated[int, Meta(ge=0, le=2**63 - 1)]
#: Names a field of the schema, independent of its name.
FieldId = Annotated[int, Meta(ge=1, lt=2**32)]
#: A keyring version, or an epoch of a dataset.
KeyVersion = Annotated[int, Meta(ge=1, lt=2**32)]


@dataclass(frozen=True, slots=True)
class PlainRecord:
    """A record as its owner sees it. ``data`` holds accepted values; absent fields are left out."""

    record_id: bytes
    version: int
    data: Mapping[str, Value]


class _Sealed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


class RowRef(_Sealed, frozen=True, gc=False):
    """The place of a row: its group's uid and its ordinal there."""

    group: Uid
    ordinal: U32


class SealedRow(_Sealed, frozen=True):
    """A record, encrypted field by field, in the order of its group's ``fields``."""

    record_id: Uid
    version: U32
    fields: list[bytes]


class RowBatch(_Sealed, frozen=True):
    """Consecutive rows of one group, from ordinal ``first`` on; None is a hole: an ordinal without
    bytes."""

    group: Uid
    first: U32
    rows: Sequence[SealedRow | None]

    @property
    def present(self) -> list[SealedRow]:
        """The rows, without holes."""
        return [row for row in self.rows if row is not None]


class StoredRow(_Sealed, frozen=True):
    """A row as the API returns it."""

    group: Uid
    ordinal: U32
    row: SealedRow


class Group(_Sealed, frozen=True):
    """An immutable batch of rows sealed under one key version and one definition.

    ``fields`` are the ids of the fields whose ciphertexts each row has, in order; ``classes``
    states the allowed lengths of each of them; ``definition`` is the digest of the definition that
    describes them; ``rows`` is the salted digest of the rows
    (:mod:`encrypted_records.model.digests`).
    """

    uid: Uid
    key_version: U32
    count: Annotated[int, Meta(ge=1, le=MAX_GROUP_RECORDS)]
    fields: Annotated[list[FieldId], Meta(min_length=1, max_length=512)]
    classes: Annotated[list[LeastClass], Meta(min_length=1, max_length=512)]
    definition: Digest
    rows: Digest


class Segment(_Sealed, frozen=True):
    """An immutable index over one or more groups.

    ``groups`` are (uid, base): a row's local ordinal is base + its ordinal in the group. ``count``
    rows are indexed; ``purged`` rows of the groups were dead, and a merge left them out, so that
    count + purged is the sum of the groups' counts. ``pages`` is the number of pages that the API
    stores under (uid, number); ``digest`` is the salted digest of the header and all pages.
    ``definition`` is the digest of the definition whose bounds its keys have.
    """

    uid: Uid
    form: Literal["mini", "paged"]
    key_version: U32
    count: U32
    purged: U32
    groups: Annotated[list[tuple[Uid, U32]], Meta(min_length=1)]
    pages: Annotated[int, Meta(ge=1, lt=2**32)]
    digest: Digest
    definition: Digest


class SegmentHeader(_Sealed, frozen=True):
    """A segment's sealed header, and the salt of its digest. They are stored with the pages, and
    deleted with the last of them.
    """

    segment: Uid
    salt: Digest
    data: Annotated[bytes, Meta(min_length=1, max_length=1 << 20)]


class GroupSalt(_Sealed, frozen=True):
    """The salt of a group's digest. It is stored with the rows, and deleted with the
    last of them.
    """

    group: Uid
    salt: Digest


class RowDigests(_Sealed, frozen=True):
    """The proof of a row of a group: the concatenated digests of the rows of its run, which begins
    at ordinal ``first``, and those of all runs of the group.
    """

    group: Uid
    salt: Digest
    first: U32
    rows: bytes
    runs: bytes


class BlockRef(_Sealed, frozen=True):
    """A block of rows, 64 of a group from ordinal ``first`` on, and a field of them."""

    group: Uid
    first: U32
    field: FieldId


class RowName(_Sealed, frozen=True):
    """The record of a row, and one of its sealed fields, which opens for that record only."""

    record_id: Uid
    version: U32
    sealed: bytes


class BlockNames(_Sealed, frozen=True):
    """The rows of a :class:`BlockRef`; None is a hole."""

    group: Uid
    first: U32
    field: FieldId
    rows: list[RowName | None]


class PageDigests(_Sealed, frozen=True):
    """The concatenated digests of all pages of a segment, by page number."""

    segment: Uid
    pages: bytes


class Page(_Sealed, frozen=True):
    segment: Uid
    number: U32
    data: bytes


class PageRef(_Sealed, frozen=True):
    segment: Uid
    number: U32


class KilledRows(_Sealed, frozen=True):
    """Rows of one group that die, or have no bytes: their ordinals as maximal ascending (first,
    count) runs.
    """

    group: Uid
    runs: Annotated[list[tuple[U32, Annotated[int, Meta(ge=1, lt=2**32)]]], Meta(min_length=1)]

    @property
    def count(self) -> int:
        return sum(count for _, count in self.runs)

    @property
    def end(self) -> int:
        """The ordinal after the last one."""
        first, count = self.runs[-1]
        return first + count

    @property
    def in_order(self) -> bool:
        """Whether the runs are ascending and do not touch."""
        ends = [first + count for first, count in self.runs]
        return all(first > end for end, (first, _) in zip(ends, self.runs[1:], strict=False))

    def rows(self) -> Iterator[RowRef]:
        for first, count in self.runs:
            for ordinal in range(first, first + count):
                yield RowRef(self.group, ordinal)

    @classmethod
    def gather(cls, rows: Iterable[RowRef]) -> list[KilledRows]:
        """Rows in any order, without duplicates, as runs of their groups."""
        runs: dict[bytes, list[tuple[int, int]]] = {}
        for row in sorted(rows, key=lambda row: (row.group, row.ordinal)):
            group_runs = runs.setdefault(row.group, [])
            if group_runs and sum(group_runs[-1]) == row.ordinal:
                group_runs[-1] = (group_runs[-1][0], group_runs[-1][1] + 1)
            else:
                group_runs.append((row.ordinal, 1))
        return [cls(group, group_runs) for group, group_runs in runs.items()]


class CommitBody(_Sealed, frozen=True):
    """One change to a schema's data or definition, as stated and authenticated by its writer.

    ``definition`` is the digest of the definition that applies from this commit on, and
    ``definition_text`` its canonical text if the commit changes it, otherwise empty. ``key_id`` and
    ``key_version`` name the key that authenticates the commit and seals all that it adds;
    ``roster`` and ``roster_digest`` name the newest entry of the organization's roster that
    ``member``, who signs the commit, had read (without a roster: 0, and zero bytes for both);
    ``counter`` and ``previous`` chain one writer's commits; ``seen`` and ``seen_digest`` name the
    newest log version the writer had verified; ``requests`` are the ids of the stored requests, or
    of the job, by which a retry is recognised; ``exact``: no commit after ``seen`` has added
    records; ``ended`` are groups that the added groups replace; ``holes`` are ordinals of the
    added groups without bytes. Rows and pages are covered by the digests in groups and segments.
    """

    format: Literal[1]
    id: Uid
    schema: Uid
    key_id: KeyId
    key_version: KeyVersion
    roster: U63
    roster_digest: Digest
    member: Uid
    definition: Digest
    definition_text: Annotated[bytes, Meta(max_length=2 << 20)]
    writer: Uid
    counter: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    previous: Digest
    seen: U63
    seen_digest: Digest
    groups: list[Group]
    segments: list[Segment]
    killed: list[KilledRows]
    replaced: list[Uid]
    requests: list[Uid]
    exact: Literal[0, 1]
    ended: list[Uid]
    holes: list[KilledRows]

    @property
    def killed_count(self) -> int:
        return sum(kills.count for kills in self.killed)

    @property
    def of_one_key(self) -> bool:
        """Whether everything that the commit adds has the key version that it names."""
        versions = {group.key_version for group in self.groups}
        versions |= {segment.key_version for segment in self.segments}
        return versions <= {self.key_version}

    @property
    def definitions_of_added(self) -> set[bytes]:
        """The definitions that the added groups and segments name."""
        return {group.definition for group in self.groups} | {
            segment.definition for segment in self.segments
        }

    @property
    def changes_data(self) -> bool:
        """Whether it changes more than the definition."""
        return bool(
            self.groups or self.segments or self.killed or self.replaced or self.ended or self.holes
        )

    @property
    def compacts(self) -> bool:
        """Whether it ends groups whose segment stays (docs/SPEC.md, section 7.7.2)."""
        return bool(self.ended) and not self.replaced

    @property
    def adds_records(self) -> bool:
        """Whether it adds groups that do not replace others."""
        return bool(self.groups) and not self.ended


class Commit(_Sealed, frozen=True):
    """The encoded :class:`CommitBody`, its HMAC, and the member's signature over its digest. The
    body is stored as bytes, so that it is encoded only once.
    """

    body: bytes
    mac: Digest
    signature: CommitSignature


class LogEntry(_Sealed, frozen=True):
    """The commit that took the schema to ``version``."""

    version: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    commit: Commit


class ManifestDelta(_Sealed, frozen=True):
    """The log after the version the caller named, up to ``version``.

    ``key_id`` is the key id of the newest commit, None before the first commit. ``headers`` are
    those of the live segments that the entries add.
    """

    schema: Uid
    version: U63
    key_id: KeyId | None
    definition: Digest
    entries: list[LogEntry]
    headers: list[SegmentHeader]


class Receipt(_Sealed, frozen=True):
    """The API's receipt for a commit that it stores: ``id`` took ``schema`` to ``version``."""

    id: Uid
    schema: Uid
    version: Annotated[int, Meta(ge=1, le=2**63 - 1)]


#: Numbers the attempts to send a part.
ATTEMPT_HEADER = "X-ERS-Attempt"


class Part(_Sealed, frozen=True):
    """Rows and pages that are staged before their commit, which makes them visible.

    ``staging`` identifies the parts of a commit: the id of a job, or of a merge. ``sequence``
    identifies a part; another part of the same number replaces it. ``groups`` and ``segments`` are
    those of its rows and pages; other parts may bring more rows and pages of them. ``stands`` is 1
    if the groups replace others, which their commit ends.
    """

    staging: Uid
    sequence: U32
    definition: Digest
    groups: list[Group]
    segments: list[Segment]
    stands: Literal[0, 1]


@dataclass(frozen=True, slots=True)
class PartUpload:
    """A part with its rows and pages, and their salts and headers."""

    part: Part
    rows: tuple[PackedRowBatch, ...] = ()
    pages: tuple[Page, ...] = ()
    salts: tuple[GroupSalt, ...] = ()
    headers: tuple[SegmentHeader, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitUpload:
    """A commit with its rows and pages, and their salts and headers."""

    commit: Commit
    rows: tuple[RowBatch | PackedRowBatch, ...] = ()
    pages: tuple[Page, ...] = ()
    salts: tuple[GroupSalt, ...] = ()
    headers: tuple[SegmentHeader, ...] = ()


_fields = msgspec.msgpack.Decoder(list[bytes])
#: Heads of byte strings in MessagePack: the mark, the width of the length after it, and the least
#: length with this mark.
_HEADS = ((0xC4, 1, 0), (0xC5, 2, 1 << 8), (0xC6, 4, 1 << 16))
_LONGEST_HEAD = 5
#: MessagePack puts the length of a list into its mark for up to this many values.
_SHORT_LIST = 15
_VERSION = bytes((SEAL_VERSION,))
#: Rows of up to this many distinct lengths are checked by length.
_MOST_SIZES = 16


class PackedRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A :class:`SealedRow` on the wire, whose ``packed`` is the MessagePack of its
    fields."""

    record_id: Uid
    version: U32
    packed: msgspec.Raw

    @property
    def fields(self) -> list[bytes]:
        """
        Raises:
            msgspec.DecodeError: ``packed`` is not a list of byte strings.
        """
        return _fields.decode(self.packed)


class PackedRowBatch(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A :class:`RowBatch` on the wire, of packed rows; None is a hole."""

    group: Uid
    first: U32
    rows: list[PackedRow | None]

    @property
    def present(self) -> list[SealedRow]:
        """The rows with separate fields, without holes."""
        return [row for row in sealed_rows(self) if row is not None]


def sealed_rows(batch: RowBatch | PackedRowBatch) -> list[SealedRow | None]:
    """A batch's rows with separate fields; None is a hole."""
    return [
        SealedRow(row.record_id, row.version, row.fields) if isinstance(row, PackedRow) else row
        for row in batch.rows
    ]


def pack_bodies(columns: Sequence[Sequence[bytes]]) -> list[bytes]:
    """The ``packed`` of some rows.

    Args:
        columns: for each field, the ciphertexts of all rows, without the version byte at their
            beginning.
    """
    parts: list[Iterable[bytes]] = [repeat(_list_head(len(columns)))]
    for column in columns:
        heads = {size: _head(size + 1) + _VERSION for size in set(map(len, column))}
        alike = len(heads) == 1
        parts.append(repeat(*heads.values()) if alike else [heads[len(value)] for value in column])
        parts.append(column)
    return list(map(b"".join, zip(*parts, strict=False)))


def _head(size: int) -> bytes:
    """The head of a MessagePack byte string of this size."""
    mark, width = next((mark, width) for mark, width, least in _HEADS[::-1] if size >= least)
    return bytes((mark,)) + size.to_bytes(width, "big")


def are_packed_fields(packed: Sequence[msgspec.Raw], classes: Sequence[LeastClass]) -> bool:
    """Whether each item is the canonical MessagePack of one ciphertext for each class, with the
    version byte and a length that the class allows.

    Mostly all rows have the same few lengths, and rows of the same length have the same structure:
    then only the first row of a length is parsed, and the headers of the others are compared with
    its headers. If some differ, all rows of that length are parsed; if lengths are many, all rows.
    """
    import numpy as np  # noqa: PLC0415 - clients are installed without it

    sizes = set(map(len, packed))
    if len(sizes) > _MOST_SIZES:
        return _are_packed(packed, classes)
    for size in sizes:
        of_size = packed if len(sizes) == 1 else [raw for raw in packed if len(raw) == size]
        if not _are_packed(of_size[:1], classes):
            return False
        heads = _places_of_heads(of_size[0], len(classes))
        rows = np.frombuffer(b"".join(of_size), np.uint8).reshape(len(of_size), size)
        if not np.all(rows[:, heads] == rows[0, heads]) and not _are_packed(of_size, classes):
            return False
    return True


def _places_of_heads(packed: msgspec.Raw, count: int) -> list[int]:
    """The positions of all bytes of a valid row except the bodies of its ciphertexts."""
    at = len(_list_head(count))
    places = list(range(at))
    for field in _fields.decode(packed):
        body = at + len(_head(len(field))) + 1
        places += range(at, body)
        at = body + len(field) - 1
    return places


def _are_packed(packed: Sequence[msgspec.Raw], classes: Sequence[LeastClass]) -> bool:
    """Whether rows are packed, checked by column over all rows at once; see
    :func:`are_packed_fields`.
    """
    import numpy as np  # noqa: PLC0415 - as above

    lengths = np.fromiter(map(len, packed), np.int64, len(packed))
    ends = np.cumsum(lengths)
    # After the last row, padding leaves room for the head that a truncated row would have next.
    data = np.frombuffer(b"".join([*packed, bytes(_LONGEST_HEAD)]), np.uint8)
    at = ends - lengths
    for byte in _list_head(len(classes)):
        if not _is_all(data, at, ends, byte):
            return False
        at = at + 1
    for stated in classes:
        sizes, at = _sizes(data, at)
        if not all(stated.may_be(size - BESIDE_CLASS) for size in set(sizes.tolist())):
            return False
        if not _is_all(data, at, ends, SEAL_VERSION):
            return False
        at = at + sizes
        if np.any(at > ends):
            return False
    return bool(np.all(at == ends))


def _list_head(count: int) -> bytes:
    if count <= _SHORT_LIST:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big")


def _is_all(
    data: NDArray[np.uint8], at: NDArray[np.int64], ends: NDArray[np.int64], byte: int
) -> bool:
    """Whether each row has this byte at the given position."""
    import numpy as np  # noqa: PLC0415 - as above

    return bool(np.all(at < ends) and np.all(data[at] == byte))


def _sizes(
    data: NDArray[np.uint8], at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The size of the byte string at each position, -1 if none begins there in canonical form; and
    the positions of their contents.
    """
    import numpy as np  # noqa: PLC0415 - as above

    marks = data[at]
    sizes = np.full(len(at), -1, np.int64)
    begin = at.copy()
    for mark, width, least in _HEADS:
        marked = np.flatnonzero(marks == mark)
        if not len(marked):
            continue
        size = np.zeros(len(marked), np.int64)
        for place in range(width):
            size = size << 8 | data[at[marked] + 1 + place]
        sizes[marked] = np.where(size >= least, size, -1)
        begin[marked] += 1 + width
        if len(marked) == len(at):
            break
    return sizes, begin
