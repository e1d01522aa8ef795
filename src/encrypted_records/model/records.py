"""The types that packages exchange: plain records, and sealed rows and commits.

The structs below are what :mod:`encrypted_records.model.wire` puts on the wire, field by field and
in this order (docs/SPEC.md, section 7). All byte strings are raw, all integers unsigned.

Packed rows have their fields in one piece: as they travel, are digested, and are stored. A job
sends tens of thousands of rows at once. To make an object of each field of each, and pieces of them
again, took the API most of its time.
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
#: Up to this many records a segment is a mini: one page, with all of its columns.
MAX_MINI_RECORDS = 4096
#: Entries for which the columns of words of a mini have room.
MAX_MINI_WORDS = 1 << 17
PAGE_BYTES = 16 * 1024
#: Rows that one commit may end.
MAX_KILLED = 1 << 20
#: How many versions a commit's ``seen`` may be behind the log.
MAX_BEHIND = 20_000
#: How many segments of up to so many rows a schema may have when a commit adds one. Merging makes
#: fewer of them; larger ones are as many as the records need.
MAX_SMALL_SEGMENTS = 256
SMALL_SEGMENT_ROWS = 1 << 19
#: Limits of one request to an API or to a mirror.
MAX_PAGE_REFS = 4096
MAX_ROW_REFS = 1000
MAX_DIGEST_REFS = 100
MAX_BLOCK_REFS = 64
MAX_NAMED_RECORDS = 100
#: Log entries gathered into one ManifestDelta before the next begins, in bytes.
DELTA_BYTES = 32 << 20

Uid = Annotated[bytes, Meta(min_length=16, max_length=16)]
KeyId = Annotated[bytes, Meta(min_length=8, max_length=8)]
Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]
#: Of a commit: 64 bytes, or none where the organization has no roster.
CommitSignature = Annotated[bytes, Meta(max_length=64)]
U32 = Annotated[int, Meta(ge=0, lt=2**32)]
U63 = Annotated[int, Meta(ge=0, le=2**63 - 1)]
#: Names a field of the schema, whatever its name is.
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
    """A row as the API hands it out."""

    group: Uid
    ordinal: U32
    row: SealedRow


class Group(_Sealed, frozen=True):
    """An immutable batch of rows sealed under one key version and one definition.

    ``fields`` are the ids of the fields that each row's ciphertexts are of, in their order;
    ``classes`` says of each of them which lengths they may have; ``definition`` is the digest of
    the definition that says what they are; ``rows`` is the salted digest of the rows
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

    ``groups`` are (uid, base): a row's local ordinal is base + its ordinal in the group.
    ``count`` rows are indexed; ``purged`` rows of the groups were dead when a merge left them
    out, so that count + purged is the sum of the groups' counts. ``pages`` counts what the API
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
    """A segment's sealed header, and the salt of its digest: they lie with the pages, and go with
    the last of them."""

    segment: Uid
    salt: Digest
    data: Annotated[bytes, Meta(min_length=1, max_length=1 << 20)]


class GroupSalt(_Sealed, frozen=True):
    """The salt of a group's digest: it lies with the rows, and goes with the last of them."""

    group: Uid
    salt: Digest


class RowDigests(_Sealed, frozen=True):
    """The proof of a row of a group: the digests of the rows of its run, of which ``first`` is the
    ordinal of the first, and those of all runs of the group, each one after the other.
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
    """The record that a row belongs to, and one sealed field, which opens for that record alone."""

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
    """The digests of all pages of a segment, one after the other in the order of numbers."""

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
    """Rows of one group that die, or have no bytes: their ordinals as ascending (first, count)
    runs, each as long as it can be."""

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
        """Rows in any order, each once, as runs of their groups."""
        runs: dict[bytes, list[tuple[int, int]]] = {}
        for row in sorted(rows, key=lambda row: (row.group, row.ordinal)):
            own = runs.setdefault(row.group, [])
            if own and sum(own[-1]) == row.ordinal:
                own[-1] = (own[-1][0], own[-1][1] + 1)
            else:
                own.append((row.ordinal, 1))
        return [cls(group, own) for group, own in runs.items()]


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
        """Whether all that the commit adds is of the key version that it names."""
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
        """Whether it does anything but bring a definition."""
        return bool(
            self.groups or self.segments or self.killed or self.replaced or self.ended or self.holes
        )

    @property
    def compacts(self) -> bool:
        """Whether it ends groups whose segment stays (docs/SPEC.md, section 7.7.2)."""
        return bool(self.ended) and not self.replaced

    @property
    def adds_records(self) -> bool:
        """Whether it adds groups that stand for no others."""
        return bool(self.groups) and not self.ended


class Commit(_Sealed, frozen=True):
    """The encoded :class:`CommitBody`, its HMAC, and the member's signature over its digest. Bytes,
    so that nothing is encoded twice."""

    body: bytes
    mac: Digest
    signature: CommitSignature


class LogEntry(_Sealed, frozen=True):
    """The commit that took the schema to ``version``."""

    version: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    commit: Commit


class ManifestDelta(_Sealed, frozen=True):
    """The log after the version the caller named, up to ``version``.

    ``key_id`` is that of the newest commit, and None before the first. ``headers`` are those of the
    segments that the entries add, as far as they live.
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


#: With a part: which attempt at it this is.
ATTEMPT_HEADER = "X-ERS-Attempt"


class Part(_Sealed, frozen=True):
    """Rows and pages that are staged before their commit, which makes them visible.

    ``staging`` names what belongs together: the id of a job, or of a merge. A part is known by
    ``sequence``; another one of the same number replaces it. ``groups`` and ``segments`` are
    those that its rows and pages are of, of which other parts may bring more. ``stands`` is 1 where
    the groups stand for others, which their commit ends.
    """

    staging: Uid
    sequence: U32
    definition: Digest
    groups: list[Group]
    segments: list[Segment]
    stands: Literal[0, 1]


@dataclass(frozen=True, slots=True)
class PartUpload:
    """A part with the rows and pages it brings, and what lies beside them."""

    part: Part
    rows: tuple[PackedRowBatch, ...] = ()
    pages: tuple[Page, ...] = ()
    salts: tuple[GroupSalt, ...] = ()
    headers: tuple[SegmentHeader, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitUpload:
    """A commit with the rows and pages it brings, and what lies beside them."""

    commit: Commit
    rows: tuple[RowBatch | PackedRowBatch, ...] = ()
    pages: tuple[Page, ...] = ()
    salts: tuple[GroupSalt, ...] = ()
    headers: tuple[SegmentHeader, ...] = ()


_fields = msgspec.msgpack.Decoder(list[bytes])
#: How MessagePack heads a byte string: a mark, and the width of the length behind it; the least
#: length that has this mark.
_HEADS = ((0xC4, 1, 0), (0xC5, 2, 1 << 8), (0xC6, 4, 1 << 16))
_LONGEST_HEAD = 5
#: Up to so many values MessagePack counts them in the mark of their list.
_SHORT_LIST = 15
_VERSION = bytes((SEAL_VERSION,))
#: Rows of so many lengths are looked at by length.
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
            msgspec.DecodeError: ``packed`` is no list of byte strings.
        """
        return _fields.decode(self.packed)


class PackedRowBatch(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A :class:`RowBatch` on the wire, of packed rows; None is a hole."""

    group: Uid
    first: U32
    rows: list[PackedRow | None]

    @property
    def present(self) -> list[SealedRow]:
        """The rows with their fields apart, without holes."""
        return [row for row in sealed_rows(self) if row is not None]


def sealed_rows(batch: RowBatch | PackedRowBatch) -> list[SealedRow | None]:
    """A batch's rows with their fields apart; None is a hole."""
    return [
        SealedRow(row.record_id, row.version, row.fields) if isinstance(row, PackedRow) else row
        for row in batch.rows
    ]


def pack_bodies(columns: Sequence[Sequence[bytes]]) -> list[bytes]:
    """The ``packed`` of some rows.

    Args:
        columns: one field after the other, each of all rows: ciphertexts without the version that
            begins them.
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
        own = packed if len(sizes) == 1 else [raw for raw in packed if len(raw) == size]
        if not _are_packed(own[:1], classes):
            return False
        heads = _places_of_heads(own[0], len(classes))
        rows = np.frombuffer(b"".join(own), np.uint8).reshape(len(own), size)
        if not np.all(rows[:, heads] == rows[0, heads]) and not _are_packed(own, classes):
            return False
    return True


def _places_of_heads(packed: msgspec.Raw, count: int) -> list[int]:
    """The places of all bytes of a row that is sound, but for the bodies of its ciphertexts."""
    at = len(_list_head(count))
    places = list(range(at))
    for field in _fields.decode(packed):
        body = at + len(_head(len(field))) + 1
        places += range(at, body)
        at = body + len(field) - 1
    return places


def _are_packed(packed: Sequence[msgspec.Raw], classes: Sequence[LeastClass]) -> bool:
    """Whether rows are packed, looked at by column, all rows at once; see
    :func:`are_packed_fields`.
    """
    import numpy as np  # noqa: PLC0415 - as above

    lengths = np.fromiter(map(len, packed), np.int64, len(packed))
    ends = np.cumsum(lengths)
    # Behind the last row there is room for what a row that breaks off would have next.
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
    """Whether each row has this byte there."""
    import numpy as np  # noqa: PLC0415 - as above

    return bool(np.all(at < ends) and np.all(data[at] == byte))


def _sizes(
    data: NDArray[np.uint8], at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The size of the byte string that begins at each place, -1 where none does in the one valid
    way; and where its bytes begin.
    """
    import numpy as np  # noqa: PLC0415 - as above

    marks = data[at]
    sizes = np.full(len(at), -1, np.int64)
    begin = at.copy()
    for mark, width, least in _HEADS:
        own = np.flatnonzero(marks == mark)
        if not len(own):
            continue
        size = np.zeros(len(own), np.int64)
        for place in range(width):
            size = size << 8 | data[at[own] + 1 + place]
        sizes[own] = np.where(size >= least, size, -1)
        begin[own] += 1 + width
        if len(own) == len(at):
            break
    return sizes, begin
