"""What travels between the rooms: plain records on one side, sealed rows and commits on the other.

The structs below are what :mod:`encrypted_records.model.wire` puts on the wire, field by field
and in this order (docs/SPEC.md, section 7). All byte strings are raw, all integers unsigned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from encrypted_records.model.definition import Value

MAX_GROUP_RECORDS = 1 << 20
#: Up to this many records a segment is a mini: one page, with all of its columns.
MAX_MINI_RECORDS = 4096
PAGE_BYTES = 16 * 1024

Uid = Annotated[bytes, Meta(min_length=16, max_length=16)]
KeyId = Annotated[bytes, Meta(min_length=8, max_length=8)]
Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]
U32 = Annotated[int, Meta(ge=0, lt=2**32)]
U63 = Annotated[int, Meta(ge=0, le=2**63 - 1)]
#: A keyring version.
KeyVersion = Annotated[int, Meta(ge=1, lt=2**32)]


@dataclass(frozen=True, slots=True)
class PlainRecord:
    """A record as its owner sees it. ``data`` holds accepted values; absent fields are left out."""

    record_id: bytes
    version: int
    data: Mapping[str, Value]


class _Sealed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


class RowRef(_Sealed, frozen=True):
    """Where a row lies: its group's uid and its ordinal there."""

    group: Uid
    ordinal: U32


class SealedRow(_Sealed, frozen=True):
    """One record, sealed field by field, in the order of its group's ``fields``."""

    record_id: Uid
    version: U32
    fields: list[bytes]


class RowBatch(_Sealed, frozen=True):
    """Consecutive rows of one group, from ordinal ``first`` on."""

    group: Uid
    first: U32
    rows: list[SealedRow]


class StoredRow(_Sealed, frozen=True):
    """A row as the API hands it out."""

    group: Uid
    ordinal: U32
    row: SealedRow


class Group(_Sealed, frozen=True):
    """An immutable batch of rows sealed under one key version.

    ``fields`` names what each row's ciphertexts are, in their order.
    """

    uid: Uid
    key_version: U32
    count: Annotated[int, Meta(ge=1, le=MAX_GROUP_RECORDS)]
    fields: Annotated[list[str], Meta(min_length=1, max_length=512)]


class Segment(_Sealed, frozen=True):
    """An immutable index over one or more groups.

    ``groups`` are (uid, base): a row's local ordinal is base + its ordinal in the group.
    ``count`` rows are indexed; ``purged`` rows of the groups were dead when a merge left them
    out, so that count + purged is the sum of the groups' counts. ``header`` is sealed; ``pages``
    counts what the API stores under (uid, number).
    """

    uid: Uid
    form: Literal["mini", "paged"]
    key_version: U32
    count: U32
    purged: U32
    groups: Annotated[list[tuple[Uid, U32]], Meta(min_length=1)]
    pages: Annotated[int, Meta(ge=1, lt=2**32)]
    header: Annotated[bytes, Meta(min_length=1, max_length=1 << 20)]


class Page(_Sealed, frozen=True):
    segment: Uid
    number: U32
    data: bytes


class PageRef(_Sealed, frozen=True):
    segment: Uid
    number: U32


class CommitBody(_Sealed, frozen=True):
    """One change to a schema's data, as its writer states and authenticates it.

    ``key_id`` and ``key_version`` name the key that authenticates the commit and seals all that it
    adds; ``counter`` and ``previous`` chain one writer's commits; ``seen`` and ``seen_digest`` name
    the newest log version the writer had verified; ``content`` is SHA-256 over the digests of the
    commit's parts, which hold its rows and pages: one part that travels with the commit, or all
    that were staged for it (:func:`encrypted_records.model.wire.content_digest`).
    """

    format: Literal[1]
    id: Uid
    schema: Uid
    key_id: KeyId
    key_version: KeyVersion
    definition: Digest
    writer: Uid
    counter: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    previous: Digest
    seen: U63
    seen_digest: Digest
    groups: list[Group]
    segments: list[Segment]
    killed: list[RowRef]
    replaced: list[Uid]
    content: Digest

    @property
    def of_one_key(self) -> bool:
        """Whether all that the commit adds is of the key version that it names."""
        versions = {one.key_version for one in self.groups}
        versions |= {one.key_version for one in self.segments}
        return versions <= {self.key_version}


class Commit(_Sealed, frozen=True):
    """The encoded :class:`CommitBody` and its HMAC. Bytes, so that nothing is encoded twice."""

    body: bytes
    mac: Digest


class LogEntry(_Sealed, frozen=True):
    """The commit that took the schema to ``version``."""

    version: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    commit: Commit


class ManifestDelta(_Sealed, frozen=True):
    """The log after the version the caller named, up to ``version``.

    ``key_id`` is that of the newest commit, and None before the first.
    """

    schema: Uid
    version: U63
    key_id: KeyId | None
    definition: Digest
    entries: list[LogEntry]


class Receipt(_Sealed, frozen=True):
    """What the API says of a commit it holds: ``id`` took ``schema`` to ``version``."""

    id: Uid
    schema: Uid
    version: Annotated[int, Meta(ge=1, le=2**63 - 1)]


class Part(_Sealed, frozen=True):
    """Rows and pages that are stored ahead of their commit, which makes them visible.

    ``staging`` names what belongs together: the id of a job, or of a merge. A part is known by
    ``sequence``; another one of the same number takes its place. ``groups`` and ``segments`` are
    those that its rows and pages are of, of which other parts may bring more.
    """

    staging: Uid
    sequence: U32
    definition: Digest
    groups: list[Group]
    segments: list[Segment]


@dataclass(frozen=True, slots=True)
class PartUpload:
    """A part with the rows and pages it brings."""

    part: Part
    rows: tuple[RowBatch, ...] = ()
    pages: tuple[Page, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitUpload:
    """A commit with the rows and pages it brings."""

    commit: Commit
    rows: tuple[RowBatch, ...] = ()
    pages: tuple[Page, ...] = ()
