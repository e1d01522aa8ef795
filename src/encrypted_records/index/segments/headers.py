"""The sealed headers of segments (docs/SPEC.md, section 6)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from encrypted_records import runtime
from encrypted_records.crypto import sealing
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.errors import DoesNotOpen, Unsupported
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.model.definition import FieldSpec, SchemaDefinition, words_spec
from encrypted_records.model.digests import DIGEST
from encrypted_records.model.records import Segment, SegmentHeader

_NUMBER = np.dtype(">u4")
#: The kinds of columns: one entry per row, and words. Numbers are never reused.
PLAIN, WORDS = 1, 2
#: The kind of a column: a number from above; for words with the number of entries it has room for.
ColumnKind = int | tuple[int, int]


class MiniHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The header of a mini segment; it must match the visible Segment.

    ``fields`` are the ids of the indexed fields. ``rows`` are the local ordinals that are indexed,
    as (first, count) runs. ``inputs`` are the segments that a merge replaced by this segment.
    ``kinds`` gives the kind of each field's column.
    """

    format: int
    form: str
    groups: list[tuple[bytes, int]]
    fields: list[int]
    rows: list[tuple[int, int]]
    inputs: list[bytes]
    kinds: list[ColumnKind]


class PagedHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The header of a paged segment; its length depends on sizes alone.

    ``groups`` and ``rows`` are digests (:func:`groups_digest`, :func:`rows_digest`), because a
    large segment has many of both. ``directories`` contains the page numbers of each field's
    directory, ``kinds`` the kind of its column, ``zones`` its least and greatest key
    (:mod:`.cuts`).
    """

    format: int
    form: str
    groups: bytes
    fields: list[int]
    rows: bytes
    packed: Literal[0, 1]
    directories: list[bytes]
    inputs: list[bytes]
    kinds: list[ColumnKind]
    zones: list[bytes]


H = TypeVar("H", MiniHeader, PagedHeader)


def seal_header(key: SchemaKey, uid: bytes, plain: bytes) -> SegmentHeader:
    """A new segment's header, and a salt for its digest."""
    where = sealing.context_of(key)
    data = sealing.seal_header(key.meta(uid), plain, schema_context=where, segment=uid)
    return SegmentHeader(uid, runtime.random_bytes(DIGEST), data)


def open_header(key: SchemaKey, segment: Segment, header: SegmentHeader, kind: type[H]) -> H:
    """The header of a segment. Only its format, its form and the kinds of its columns are checked.

    Raises:
        DoesNotOpen: the header was altered, or is of another segment, schema, key or form.
        Unsupported: a column is of a kind that this version does not know.
    """
    plain = sealing.open_header(
        key.meta(segment.uid),
        header.data,
        schema_context=sealing.context_of(key),
        segment=segment.uid,
    )
    try:
        opened = msgspec.msgpack.decode(plain, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise DoesNotOpen("a segment's header is of an unknown format") from None
    if opened.format != 1 or opened.form != segment.form:
        raise DoesNotOpen("a segment's header states another format than its commit")
    if len(opened.kinds) != len(opened.fields):
        raise DoesNotOpen("a segment's header does not have one kind of column per field")
    if any(kind != PLAIN and room_in(kind) is None for kind in opened.kinds):
        raise Unsupported(
            "a segment has a column of a kind that this version does not know",
            hint="use the newest version of the proxy",
        )
    return opened


def room_in(kind: ColumnKind) -> int | None:
    """The number of entries for which a word column has room; None for another column."""
    return kind[1] if isinstance(kind, tuple) and kind[0] == WORDS else None


def named_column(
    definition: SchemaDefinition, made: SchemaDefinition, number: int, kind: ColumnKind
) -> tuple[FieldSpec, int | None]:
    """A column that a header names, and its room (:func:`room_in`).

    Args:
        definition: gives the names.
        made: the definition under which the segment was made.

    Raises:
        DoesNotOpen: a definition lacks the field, or the field has no word index.
    """
    spec, stored_spec, room = definition.by_id.get(number), made.by_id.get(number), room_in(kind)
    if spec is None or stored_spec is None or (room is not None and not stored_spec.words):
        raise DoesNotOpen("a segment indexes a field that the definition lacks")
    return (spec, None) if room is None else (words_spec(spec), room)


def groups_digest(groups: Iterable[tuple[bytes, int]]) -> bytes:
    """SHA-256 over uid and base of each group."""
    state = hashlib.sha256()
    for uid, base in groups:
        state.update(uid + base.to_bytes(4, "big"))
    return state.digest()


def rows_digest(rows: Ordinals, covered: int) -> bytes:
    """SHA-256 over one bit per local ordinal below ``covered``, set for those in ``rows``."""
    mask = np.zeros(covered, np.bool_)
    mask[rows] = True
    return mask_digest(mask)


def mask_digest(mask: NDArray[np.bool_]) -> bytes:
    """The digest like :func:`rows_digest`, from a boolean mask of all local ordinals."""
    return hashlib.sha256(np.packbits(mask).tobytes()).digest()


def encode_numbers(numbers: Ordinals) -> bytes:
    """Page numbers as they are in :attr:`PagedHeader.directories`."""
    return numbers.astype(_NUMBER).tobytes()


def decode_numbers(encoded: bytes) -> Ordinals:
    """Undo :func:`encode_numbers`.

    Raises:
        DoesNotOpen: there are no numbers, or the last is truncated.
    """
    if not encoded or len(encoded) % _NUMBER.itemsize:
        raise DoesNotOpen("a segment's header has page numbers cut short")
    return np.frombuffer(encoded, _NUMBER).astype(np.uint32)
