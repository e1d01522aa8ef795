"""The messages between the proxy and its workers, and a worker's end of the pipes between them.

A message is its length as four big-endian bytes, followed by one of the structs below as
MessagePack. Some messages contain keys, as bytes: only the two ends of a pipe can read it. Some
messages are about stored rows, which a worker opens.

A worker's pipes are its stdin and stdout. It limits its resources while it reads a file that may
unfold.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec

from encrypted_records.errors import BY_CODE, ErsError, Flaw
from encrypted_records.ingest.infer import Wishes
from encrypted_records.model.record_formats import Charset, Format
from encrypted_records.model.records import Group, Page, PageRef, Segment, SegmentHeader

LENGTH_BYTES = 4


# --- tasks: from the proxy --------------------------------------------------------------------


#: In place of the id of a field that is dropped.
LOST = 0


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A message between the proxy and its workers."""


class SourceRows(Message, frozen=True):
    """Rows of a group from ordinal ``first`` to below ``end``; ``dead`` are the dead rows among
    them, as a roaring bitmap."""

    group: Group
    first: int
    end: int
    dead: bytes


class ResealTask(Message, frozen=True):
    """Open rows and seal them again in separate groups, as parts of the staging ``staging``.

    ``definition``: the definition to seal for, as canonical text; ``earlier``: all definitions of
    the log, in its order. ``keys``: the schema's keys by version: those of the sources, of
    ``version``, which seals, and of ``tails``. ``rows`` and ``digests`` are answers of the API: the
    live rows of the sources in their order, and their proofs. ``number`` names the part.
    ``indexed``: whether to make a segment of them, too.
    """

    schema: bytes
    organization: bytes
    definition: bytes
    earlier: list[bytes]
    keys: list[tuple[int, bytes]]
    version: int
    sources: list[SourceRows]
    rows: list[bytes]
    digests: list[bytes]
    #: for a new definition, the id of each field that is also in the current definition, with its
    #: id there; for fields whose values may be lost, :data:`LOST` with that id
    origins: list[tuple[int, int]]
    staging: bytes
    number: int
    indexed: bool = True


class RebuildTask(Message, frozen=True):
    """Rebuild the segment ``lost`` from the rows of its groups.

    ``definition`` to ``version``, ``most`` to ``keep_free``: as in :class:`MergeTask`; ``keys`` has
    those of the groups and of ``tails``, too. ``groups`` are the segment's current groups.
    """

    schema: bytes
    organization: bytes
    definition: bytes
    earlier: list[bytes]
    keys: list[tuple[int, bytes]]
    version: int
    tails: int
    lost: bytes
    groups: list[Group]
    most: int
    folder: str
    keep_free: int


class RowsRequest(Message, frozen=True):
    """The worker needs rows of group number ``group`` of a :class:`RebuildTask`, from ordinal
    ``first`` on."""

    group: int
    first: int


class RowsReply(Message, frozen=True):
    """Rows of the group up to below ordinal ``end``; the rest is as in :class:`ResealTask`."""

    end: int
    sources: list[SourceRows]
    rows: list[bytes]
    digests: list[bytes]


class UploadSource(Message, frozen=True):
    """An upload in the spool, and the properties that its request states.

    ``keys``: for each file that has a part of it, (upload, keyring version, key). ``named``: the
    schema of records that name no schema. ``charset``: of CSV; None is UTF-8. ``reading``: how the
    file is read, as the JSON of a recipe.
    """

    folder: str
    upload: bytes
    size: int
    keys: list[tuple[bytes, int, bytes]]
    kind: Format
    named: bytes | None
    own_hosts: tuple[str, ...]
    charset: Charset | None = None
    reading: bytes | None = None


class CheckTask(Message, frozen=True):
    """Check a whole upload."""

    source: UploadSource


class SchemaKeyBytes(Message, frozen=True):
    """A schema's definition as canonical text, and the keys that seal and index its records."""

    schema: bytes
    organization: bytes
    definition: bytes
    key: bytes
    key_version: int
    tails: bytes
    tails_version: int


class ChunkAt(Message, frozen=True):
    """A run of rows; see :class:`encrypted_records.ingest.check.Chunk`."""

    number: int
    offset: int
    row: int
    first: int
    last: int


class KeysTask(Message, frozen=True):
    """Compute the index keys of a chunk's good rows: for each schema, the fields with these ids."""

    source: UploadSource
    chunk: ChunkAt
    schemas: list[SchemaKeyBytes]
    fields: list[list[int]]


class Fate(Message, frozen=True):
    """The outcomes of some of a chunk's good rows in one schema: rows with these numbers are left
    out, and others are the next versions of records, as (row, record id, version). ``before`` is a
    group with the lowest length classes that these records had.
    """

    schema: bytes
    left_out: list[int]
    replaced: list[tuple[int, bytes, int]]
    before: Group | None


class SealTask(Message, frozen=True):
    """Seal the good rows of one chunk, as parts of the staging ``staging``. ``indexed``: whether to
    make a segment of them, too; ``sorted``: whether to return their sorted runs instead."""

    source: UploadSource
    chunk: ChunkAt
    schemas: list[SchemaKeyBytes]
    staging: bytes
    fates: list[Fate] = []
    indexed: bool = True
    sorted: bool = False


class SealedRows(Message, frozen=True):
    """The group of a chunk's good rows in one schema; ``chunk`` is its number. ``runs``: as in
    :class:`SealedPart`, if they are still in memory."""

    schema: bytes
    chunk: int
    group: Group
    runs: list[tuple[int, list[bytes]]] = []


class PackTask(Message, frozen=True):
    """Make one segment per schema of chunks whose rows are sealed, as parts of ``staging``.

    ``chunks`` are consecutive, and ``fates`` are those of each chunk. The worker requests their
    groups, one chunk after another. The parts are numbered from ``sequence`` on, in each schema,
    and the first of these numbers names the segment. ``most``, ``folder`` and ``keep_free``: as in
    :class:`MergeTask`.
    """

    source: UploadSource
    chunks: list[ChunkAt]
    fates: list[list[Fate]]
    schemas: list[SchemaKeyBytes]
    staging: bytes
    sequence: int
    most: int
    folder: str
    keep_free: int


class MergeTask(Message, frozen=True):
    """Make one segment of the live rows of ``inputs``.

    ``definition``: the current definition, as canonical text; ``earlier``: all definitions of the
    log, in its order. ``keys``: the schema's keys by keyring version: those of the inputs and that
    of ``version``, which seals. ``headers``: the header of each input; ``digests``: the digests of
    its pages, which the caller has compared with its commit. ``groups``: the current groups of each
    input. ``dead``: for each input, the local ordinals to leave out, as a roaring bitmap. ``most``:
    the largest number of pages in one message. ``folder``: where the worker may have anonymous
    files, while ``keep_free`` bytes of the disk stay free.
    """

    schema: bytes
    organization: bytes
    definition: bytes
    earlier: list[bytes]
    keys: list[tuple[int, bytes]]
    version: int
    inputs: list[Segment]
    headers: list[SegmentHeader]
    digests: list[bytes]
    groups: list[list[tuple[bytes, int]]]
    dead: list[bytes]
    most: int
    folder: str
    keep_free: int


class InferTask(Message, frozen=True):
    """Propose a definition for a sample."""

    sample: bytes
    kind: Format
    wishes: Wishes


class DetectTask(Message, frozen=True):
    """Find out how a file is read, from its first bytes and the options ``said``, as JSON."""

    sample: bytes
    whole: bool
    said: bytes
    tight: bool
    #: of the schema that the file is for, as canonical text, and the recipe stored for that schema
    definition: bytes | None = None
    kept: bytes | None = None


class PreviewTask(Message, frozen=True):
    """Show the first rows of a sample, and check them against a definition. ``reading``: the recipe
    by which it is read, if there is one; ``whole``: whether the sample is the whole file."""

    definition: bytes
    sample: bytes
    kind: Format
    shown: int
    reading: bytes | None
    whole: bool


class EstimateTask(Message, frozen=True):
    """Compute the cost of a number of records of a definition. ``string_bytes``: typical lengths of
    strings, by field; ``sample``: sample rows, if there are any."""

    definition: bytes
    records: int
    string_bytes: dict[str, int]
    sample: bytes | None
    kind: Format


# --- during a task: requests and progress from the worker, replies from the proxy ---------------


class DefinitionRequest(Message, frozen=True):
    """The worker needs this schema's definition."""

    schema: bytes


class DefinitionReply(Message, frozen=True):
    """The definition's canonical text; None if the user cannot read such a schema."""

    text: bytes | None


class RowCount(Message, frozen=True):
    """The number of rows that the worker has checked so far."""

    rows: int


class PagesRequest(Message, frozen=True):
    """The worker needs these sealed pages."""

    pages: list[PageRef]


class PagesReply(Message, frozen=True):
    """The sealed pages of a :class:`PagesRequest`, in its order."""

    data: list[bytes]


class MergedPages(Message, frozen=True):
    """The next pages of the merged segment."""

    segment: Segment
    header: SegmentHeader
    pages: list[Page]


class GroupsRequest(Message, frozen=True):
    """The worker needs the groups of this chunk, once it is sealed."""

    chunk: int


class GroupsReply(Message, frozen=True):
    """The groups of a chunk that the segments are to cover."""

    groups: list[SealedRows]


class PackedPages(Message, frozen=True):
    """The next pages of the packed segment of a schema, as the body of their request."""

    schema: bytes
    body: bytes


# --- results: from the worker -------------------------------------------------------------------


class CheckReport(Message, frozen=True):
    """The worker has checked the whole upload. ``bad_rows`` is a number; ``errors`` are the first
    errors, ``examples`` the cells of the first bad rows, and ``rounded`` counts, by field, the
    values of good rows that are stored with fewer decimals than they were sent with."""

    rows: int
    bad_rows: int
    errors: list[Flaw]
    examples: list[tuple[int, dict[str, str]]]
    chunks: list[ChunkAt]
    rounded: dict[str, int] = {}
    #: the outcome for the cells of an upload with a recipe, as JSON
    reading: bytes | None = None


class SealedPart(Message, frozen=True):
    """The part of a chunk for one schema: the body of its request, and its entry in the commit.

    ``body`` is a view of the whole message at the proxy, which forwards it without copying.
    """

    schema: bytes
    body: memoryview
    groups: list[Group]
    segments: list[Segment]
    #: ordinals without a row in its only group, if that group replaces others
    holes: list[tuple[int, int]] = []
    #: the sorted columns of its only group, as ``index.segments.sorted_runs`` has them
    runs: list[tuple[int, list[bytes]]] = []


class SealedChunk(Message, frozen=True):
    """A sealed chunk, as one part per schema."""

    parts: list[SealedPart]


class PackedChunks(Message, frozen=True):
    """The worker has sent all pages of the packed segments; the segment of each schema."""

    segments: list[tuple[bytes, Segment]]


class FieldKeys(Message, frozen=True):
    """The index keys of one field of a chunk: ``present`` has a byte for each row, 0 if it lacks
    the field, and ``keys`` the keys of the other rows as a numpy array of type ``dtype``."""

    field: int
    present: bytes
    dtype: str
    keys: bytes


class SchemaRows(Message, frozen=True):
    """Numbers of a chunk's good rows in one schema, as ``u32`` of this machine, and their keys."""

    schema: bytes
    rows: bytes
    fields: list[FieldKeys]


class ChunkKeys(Message, frozen=True):
    """The result of a :class:`KeysTask`, for the schemas of the chunk's rows."""

    schemas: list[SchemaRows]


class MergedSegment(Message, frozen=True):
    """The worker has sent all pages of the merged segment."""

    segment: Segment
    header: SegmentHeader


class JsonResult(Message, frozen=True):
    """A result as JSON, ready for the response."""

    json: bytes


class Failed(Message, frozen=True):
    """An error of this package. ``kind`` is the code of its class, ``code`` that of the error."""

    kind: str
    code: str
    message: str
    hint: str
    errors: tuple[Flaw, ...] = ()

    @classmethod
    def of(cls, error: ErsError) -> Failed:
        return cls(type(error).code, error.reason, error.message, error.hint, error.flaws)

    def error(self) -> ErsError:
        """The same error again; an unknown ``kind`` becomes a plain ErsError."""
        kind = BY_CODE.get(self.kind, ErsError)
        return kind(self.message, code=self.code, hint=self.hint, flaws=self.errors)


# --- encoding -------------------------------------------------------------------------------------

SampleTask = InferTask | DetectTask | PreviewTask | EstimateTask
Task = (
    CheckTask | KeysTask | SealTask | PackTask | ResealTask | MergeTask | RebuildTask | SampleTask
)
Reply = DefinitionReply | PagesReply | RowsReply | GroupsReply
ToWorker = Task | Reply
#: Messages that a worker sends during a task.
Interim = (
    DefinitionRequest
    | RowCount
    | PagesRequest
    | RowsRequest
    | MergedPages
    | GroupsRequest
    | PackedPages
)
Result = CheckReport | ChunkKeys | SealedChunk | PackedChunks | MergedSegment | JsonResult
FromWorker = Interim | Result | Failed

encode = msgspec.msgpack.Encoder().encode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode


# --- a worker's end of the pipes ------------------------------------------------------------------

_results: IO[bytes] = sys.stdout.buffer


def separate_output() -> IO[str]:
    """A file for the log: the stderr that the process was started with. Any other output from now
    on is discarded, because a library may quote a record as it fails."""
    global _results  # noqa: PLW0603 - there is one such pipe in a process
    _results = os.fdopen(os.dup(1), "wb")
    for_log = os.fdopen(os.dup(2), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    return for_log


def read_message() -> ToWorker | None:
    """The proxy's next message; None when the proxy has ended, or has closed the pipe."""
    head = sys.stdin.buffer.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    body = sys.stdin.buffer.read(int.from_bytes(head, "big"))
    message: ToWorker = decode_to_worker(body)
    return message


def write_message(message: FromWorker) -> None:
    """
    Raises:
        BrokenPipeError: the proxy has ended.
    """
    data = encode(message)
    _results.write(len(data).to_bytes(LENGTH_BYTES, "big"))
    _results.write(data)
    _results.flush()


def ask_proxy(
    request: DefinitionRequest | PagesRequest | RowsRequest | GroupsRequest,
) -> ToWorker:
    """The proxy's reply.

    Raises:
        BrokenPipeError: as :func:`write_message`.
    """
    write_message(request)
    reply = read_message()
    if reply is None:
        raise BrokenPipeError
    return reply


#: Bytes that reading a file may take, in addition to the process's current memory.
MOST_BYTES = 2 << 30
#: Seconds of computing after which the process ends.
MOST_SECONDS = 600


@contextmanager
def limited() -> Iterator[None]:
    """Limit the block: more memory than :data:`MOST_BYTES` is a MemoryError, or ends the process,
    and so does a library that never returns. Systems without memory limits, as macOS, have none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _present() + MOST_BYTES
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _present() -> int:
    """The size of this process's address space in bytes."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    return MOST_BYTES
