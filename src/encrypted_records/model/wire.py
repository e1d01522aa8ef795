"""Sealed types <-> bytes on the wire: the definition that both sides share (docs/SPEC.md, 7).

A body is the four bytes ``ERS1`` and then frames. A frame is one kind byte, the payload's length as
four big-endian bytes, and the payload: MessagePack of the struct that the kind names. Bodies are
refused as a whole if a frame is truncated, has an unknown kind, or contains anything but exactly
its struct.

A checkpoint is the state of a log at one version, by a member who has verified the log
(docs/SPEC.md, section 7.9). The API reads its body but not the state in it; only proxies know what
the state means.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from encrypted_records.errors import BadInput, Malformed, TooLarge, Unsupported
from encrypted_records.model import records
from encrypted_records.model.roster import AccessRequest, Answer, Grant, RosterEntry
from encrypted_records.model.signatures import message

#: Maximum bytes of a checkpoint's body, which a reader must be ready to fetch and unpack.
MAX_CHECKPOINT_BYTES = 1 << 25


class Checkpoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The encoded :class:`CheckpointBody`, its HMAC, and the member's signature over both."""

    body: Annotated[bytes, Meta(max_length=MAX_CHECKPOINT_BYTES)]
    mac: records.Digest
    signature: records.CommitSignature


class CheckpointBody(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``version`` and ``digest`` are the log's, ``state`` is its state at that version; the others
    are as in a commit: the key that authenticates it, and the roster entry that ``member`` had
    read.
    """

    format: Literal[1]
    schema: records.Uid
    key_id: records.KeyId
    key_version: records.KeyVersion
    roster: records.U63
    roster_digest: records.Digest
    member: records.Uid
    version: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    digest: records.Digest
    state: bytes


_encoder = msgspec.msgpack.Encoder()
_checkpoint_decoder = msgspec.msgpack.Decoder(CheckpointBody)


def encode_checkpoint_body(body: CheckpointBody) -> bytes:
    return _encoder.encode(body)


def decode_checkpoint_body(checkpoint: Checkpoint) -> CheckpointBody:
    """The content of a checkpoint. The caller checks HMAC and signature.

    Raises:
        Malformed: not a checkpoint of this version.
    """
    try:
        return _checkpoint_decoder.decode(checkpoint.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise Malformed("a checkpoint is not of this format", code="malformed_frame") from None


def checkpoint_digest(checkpoint: Checkpoint) -> bytes:
    """32 bytes that name a checkpoint: SHA-256 over body and HMAC."""
    return hashlib.sha256(checkpoint.body + checkpoint.mac).digest()


def checkpoint_message(checkpoint: Checkpoint) -> bytes:
    """The message that the signature is over."""
    return message("checkpoint", checkpoint_digest(checkpoint))


MEDIA_TYPE = "application/vnd.encrypted-records.frames"
MAGIC = b"ERS1"
MAX_FRAME_BYTES = 64 << 20

#: Every kind byte. Numbers are never reused; 10 to 12 are reserved for the roster of an
#: organization.
KINDS: dict[int, type[msgspec.Struct]] = {
    1: records.Commit,
    2: records.RowBatch,
    3: records.Page,
    4: records.ManifestDelta,
    5: records.RowRef,
    6: records.PageRef,
    7: records.StoredRow,
    8: records.Receipt,
    9: records.Part,
    10: RosterEntry,
    11: Grant,
    12: Answer,
    13: records.SegmentHeader,
    14: records.GroupSalt,
    15: records.RowDigests,
    16: records.PageDigests,
    17: records.BlockRef,
    18: records.BlockNames,
    19: Checkpoint,
    20: AccessRequest,
}
_KIND_OF = {kind: number for number, kind in KINDS.items()} | {records.PackedRowBatch: 2}
_HEAD = struct.Struct(">BI")
_decoders = {number: msgspec.msgpack.Decoder(kind) for number, kind in KINDS.items()}
#: For parts, which have many rows.
_part_decoders = _decoders | {2: msgspec.msgpack.Decoder(records.PackedRowBatch)}
_body_decoder = msgspec.msgpack.Decoder(records.CommitBody)

T = TypeVar("T", bound=msgspec.Struct)
B = TypeVar("B", records.RowBatch, records.PackedRowBatch)


def encode(items: Iterable[msgspec.Struct]) -> bytes:
    """A body with ``items`` in order."""
    return b"".join(encode_parts(items))


def encode_parts(items: Iterable[msgspec.Struct]) -> Iterator[bytes]:
    """The same, piece by piece, for streaming."""
    yield MAGIC
    for item in items:
        payload = _encoder.encode(item)
        yield _HEAD.pack(_KIND_OF[type(item)], len(payload))
        yield payload


def decode(
    body: bytes, decoders: Mapping[int, msgspec.msgpack.Decoder[Any]] = _decoders
) -> Iterator[msgspec.Struct]:
    """The frames of a body, in order.

    Args:
        decoders: of payloads, by kind.

    Raises:
        Unsupported: not a body of this format.
        Malformed: a frame is truncated, too long, of an unknown kind, or not its struct.
    """
    if body[: len(MAGIC)] != MAGIC:
        raise Unsupported(
            "the body does not begin with ERS1", hint="use a client of this API's version"
        )
    view = memoryview(body)
    at = len(MAGIC)
    while at < len(view):
        if at + _HEAD.size > len(view):
            raise Malformed("a frame's head is cut short", code="malformed_frame")
        number, length = _HEAD.unpack_from(view, at)
        at += _HEAD.size
        decoder = decoders.get(number)
        if decoder is None:
            raise Malformed(f"there is no frame of kind {number}", code="malformed_frame")
        if length > MAX_FRAME_BYTES or at + length > len(view):
            raise Malformed("a frame's payload is cut short or too long", code="malformed_frame")
        try:
            yield decoder.decode(view[at : at + length])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            # The library's message may quote the input, which can be anything.
            name = KINDS[number].__name__
            raise Malformed(f"a frame is not a {name}", code="malformed_frame") from None
        at += length


def decode_all(body: bytes, kind: type[T]) -> list[T]:
    """The frames of a body, which must all be of the same kind.

    Raises:
        Malformed, Unsupported: as :func:`decode`; also for a frame of another kind.
    """
    items: list[T] = []
    for item in decode(body):
        if not isinstance(item, kind):
            raise Malformed(f"expected only {kind.__name__} frames", code="malformed_frame")
        items.append(item)
    return items


def require_few(wanted: Sequence[msgspec.Struct], most: int) -> None:
    """
    Raises:
        BadInput: ``malformed_frame``; a body asks for nothing.
        TooLarge: it asks for more than ``most`` items.
    """
    if not wanted:
        raise BadInput("the body asks for nothing", code="malformed_frame")
    if len(wanted) > most:
        raise TooLarge(f"more than {most} in one request", hint="ask in several requests")


def decode_single(body: bytes, kind: type[T]) -> T:
    """The only frame of a body.

    Raises:
        Malformed, Unsupported: as :func:`decode_all`; also for no frame, or several.
    """
    items = decode_all(body, kind)
    if len(items) != 1:
        raise Malformed(f"expected one {kind.__name__} frame", code="malformed_frame")
    return items[0]


def encode_uploads(uploads: Iterable[records.CommitUpload]) -> Iterator[bytes]:
    """Several commits in one body: each :class:`Commit` frame, then its rows and pages."""

    def items() -> Iterator[msgspec.Struct]:
        for upload in uploads:
            yield upload.commit
            yield from _brought(upload)

    return encode_parts(items())


def decode_uploads(body: bytes) -> list[records.CommitUpload]:
    """Undo :func:`encode_uploads`.

    Raises:
        Malformed, Unsupported: as :func:`decode`; also for frames of another kind or order.
    """
    uploads: list[records.CommitUpload] = []
    commit: records.Commit | None = None
    brought = _Brought(records.RowBatch)
    for item in decode(body):
        if isinstance(item, records.Commit):
            if commit is not None:
                uploads.append(records.CommitUpload(commit, *brought.all()))
            commit, brought = item, _Brought(records.RowBatch)
        elif commit is None:
            raise Malformed("the body does not begin with a commit", code="malformed_frame")
        else:
            brought.add(item)
    if commit is None:
        raise Malformed("the body contains no commit", code="malformed_frame")
    uploads.append(records.CommitUpload(commit, *brought.all()))
    return uploads


def encode_part(upload: records.PartUpload) -> Iterator[bytes]:
    """A part in a separate body: its :class:`Part` frame, then its rows and pages."""
    return encode_parts([upload.part, *_brought(upload)])


def decode_part(body: bytes) -> records.PartUpload:
    """Undo :func:`encode_part`; its rows stay packed.

    Raises:
        Malformed, Unsupported: as :func:`decode`; also for frames of another kind or order.
    """
    items = decode(body, _part_decoders)
    part = next(items, None)
    brought = _Brought(records.PackedRowBatch)
    for item in items:
        brought.add(item)
    if not isinstance(part, records.Part):
        raise Malformed("the body does not begin with a part", code="malformed_frame")
    return records.PartUpload(part, *brought.all())


def _brought(upload: records.CommitUpload | records.PartUpload) -> Iterator[msgspec.Struct]:
    """Salts, rows, headers, pages, in this order."""
    yield from upload.salts
    yield from upload.rows
    yield from upload.headers
    yield from upload.pages


class _Brought(Generic[B]):
    """The content after a commit or part frame, with batches of this type."""

    def __init__(self, batches: type[B]) -> None:
        self._batches: type[B] = batches
        self._salts: list[records.GroupSalt] = []
        self._rows: list[B] = []
        self._headers: list[records.SegmentHeader] = []
        self._pages: list[records.Page] = []

    def add(self, item: msgspec.Struct) -> None:
        """
        Raises:
            Malformed: no frame of this kind may follow, or not in this order.
        """
        if isinstance(item, records.Page):
            self._pages.append(item)
        elif isinstance(item, records.SegmentHeader) and not self._pages:
            self._headers.append(item)
        elif isinstance(item, self._batches) and not (self._pages or self._headers):
            self._rows.append(item)
        elif isinstance(item, records.GroupSalt) and not (
            self._pages or self._headers or self._rows
        ):
            self._salts.append(item)
        else:
            raise Malformed("a frame of this kind is not allowed here", code="malformed_frame")

    def all(
        self,
    ) -> tuple[
        tuple[B, ...],
        tuple[records.Page, ...],
        tuple[records.GroupSalt, ...],
        tuple[records.SegmentHeader, ...],
    ]:
        """The content, in the order of the members of uploads."""
        return tuple(self._rows), tuple(self._pages), tuple(self._salts), tuple(self._headers)


def encode_commit_body(body: records.CommitBody) -> bytes:
    return _encoder.encode(body)


def decode_commit_body(commit: records.Commit) -> records.CommitBody:
    """The content of a commit. The holder of the key checks its HMAC.

    Raises:
        Malformed: not a commit of this version.
    """
    try:
        return _body_decoder.decode(commit.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise Malformed("a commit's body is not of this format", code="malformed_frame") from None


def commit_digest(commit: records.Commit) -> bytes:
    """32 bytes that identify a commit in the log: SHA-256 over body and HMAC."""
    return hashlib.sha256(commit.body + commit.mac).digest()


def commit_message(commit: records.Commit) -> bytes:
    """The message that a commit's signature is over."""
    return message("commit", commit_digest(commit))


def next_log_digest(before: bytes, commit: records.Commit) -> bytes:
    """The log's running digest after ``commit``; the empty log's is 32 zero bytes."""
    return hashlib.sha256(before + commit_digest(commit)).digest()
