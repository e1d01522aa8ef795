"""What the proxy and its workers say to each other, over the pipes between them.

A message is its length as four big-endian bytes and then MessagePack of one of the structs below.
Keys are among them, as bytes: a pipe is seen by its two ends alone.
"""

from __future__ import annotations

import msgspec

from encrypted_records import errors
from encrypted_records.errors import ErsError, Flaw
from encrypted_records.model.records import Group, Page, PageRef, Segment

LENGTH_BYTES = 4


class _Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    pass


class Source(_Message, frozen=True):
    """An upload in the spool, and what its request said of it.

    ``keys``: of each file that it is in, as (upload, keyring version, key). ``csv``: or JSON, in
    one of its layouts. ``named``: the schema of records that name none.
    """

    folder: str
    upload: bytes
    size: int
    keys: list[tuple[bytes, int, bytes]]
    csv: bool
    named: bytes | None
    own_hosts: tuple[str, ...]


class Check(_Message, frozen=True):
    """To a worker: check all of an upload."""

    source: Source


class SchemaKeyBytes(_Message, frozen=True):
    """A schema's definition, and the keys with which its records are sealed and indexed."""

    schema: bytes
    organization: bytes
    definition: bytes
    key: bytes
    key_version: int
    tails: bytes
    tails_version: int


class ChunkAt(_Message, frozen=True):
    """A run of rows; see :class:`encrypted_records.ingest.check.Chunk`."""

    number: int
    offset: int
    row: int
    first: int
    last: int


class Seal(_Message, frozen=True):
    """To a worker: seal the good rows of one chunk, as parts of the staging ``staging``."""

    source: Source
    chunk: ChunkAt
    schemas: list[SchemaKeyBytes]
    staging: bytes


class Merge(_Message, frozen=True):
    """To a worker: make one segment of the live rows of ``inputs``.

    ``keys``: the schema's, by keyring version: those of the inputs and that of ``version``, which
    seals. ``dead``: of each input, the local ordinals that are left out, as a roaring bitmap.
    ``most``: how many pages may be asked for or handed over at once.
    """

    schema: bytes
    organization: bytes
    definition: bytes
    keys: list[tuple[int, bytes]]
    version: int
    inputs: list[Segment]
    dead: list[bytes]
    most: int


class Wanted(_Message, frozen=True):
    """From a worker: it needs this schema's definition."""

    schema: bytes


class Definition(_Message, frozen=True):
    """To a worker: the definition as JSON; None where the user reaches no such schema."""

    text: bytes | None


class Counted(_Message, frozen=True):
    """From a worker: so many rows were checked."""

    rows: int


class Fetch(_Message, frozen=True):
    """From a worker: it needs these sealed pages."""

    pages: list[PageRef]


class Fetched(_Message, frozen=True):
    """To a worker: the pages that it asked for, in that order."""

    data: list[bytes]


class Piece(_Message, frozen=True):
    """From a worker: the next pages of the merged segment."""

    segment: Segment
    pages: list[Page]


class Merged(_Message, frozen=True):
    """From a worker: it has handed over all pages of the merged segment."""

    segment: Segment


class Found(_Message, frozen=True):
    """From a worker: all of the upload was checked. ``flaws`` are the first ones."""

    rows: int
    flawed: int
    flaws_total: int
    flaws: list[Flaw]
    chunks: list[ChunkAt]
    schemas: list[bytes]


class SealedPart(_Message, frozen=True):
    """One schema's part of a chunk: the request's body, and what the commit will say of it."""

    schema: bytes
    body: bytes
    digest: bytes
    groups: list[Group]
    segments: list[Segment]


class Sealed(_Message, frozen=True):
    """From a worker: a chunk is sealed, as a part per schema."""

    parts: list[SealedPart]


class Failed(_Message, frozen=True):
    """From a worker: an error of ours, by the name of its class."""

    kind: str
    code: str
    message: str
    hint: str

    @classmethod
    def of(cls, error: ErsError) -> Failed:
        return cls(type(error).__name__, error.reason, error.message, error.hint)

    def error(self) -> ErsError:
        kind = getattr(errors, self.kind)
        found: ErsError = kind(self.message, code=self.code, hint=self.hint)
        return found


Request = Check | Seal | Merge
Reply = Definition | Fetched
ToWorker = Request | Reply
#: What a worker says on the way, and its last word.
Said = Wanted | Counted | Fetch | Piece
Done = Found | Sealed | Merged
Answer = Said | Done | Failed

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(ToWorker).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
