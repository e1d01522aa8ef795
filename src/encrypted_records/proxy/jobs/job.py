"""A batch job, its states, and its sealed data.

::

    uploading ──▶ processing ──▶ completed
        └─────────────┴────────▶ failed

``processing`` has three phases that only the proxy knows: the input is checked as a whole, sealed
and staged chunk by chunk, and published. Before the publication none of it is visible, after it all
of it.

The token of a job, its list of errors, some bad rows, the note of its file, and how the file is
read are sealed under keys of the user's keyring (docs/SPEC.md, section 12). So a job waits while
the keyring is locked, and a copy of the folder is of no use to continue the job or to read the
errors.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from encrypted_records import runtime
from encrypted_records.client.proxy.jobs import JobProgress, JobState, OnConflict, Work
from encrypted_records.crypto.format import NONCE_BYTES
from encrypted_records.errors import DoesNotOpen, ErsError, Flaw, UploadedBefore, time_of
from encrypted_records.model.record_formats import Charset, Format
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings

Phase = Literal["check", "seal", "publish"]

NEXT: dict[JobState, frozenset[JobState]] = {
    "uploading": frozenset({"processing", "failed"}),
    "processing": frozenset({"completed", "failed"}),
    "completed": frozenset(),
    "failed": frozenset(),
}
ENDED: frozenset[JobState] = frozenset({"completed", "failed"})

DEFAULT_BATCH = 10
MAX_BATCH = 1000


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of the request that begins a job.

    ``named``: the schema of records that name none. ``skip``: store the good rows if some are bad.
    ``resumable``: whether the upload may continue after an interruption. ``charset``: of CSV; None
    is UTF-8. ``reading``: how the file is read, as the JSON of a recipe; it is stored sealed, apart
    from the job. ``once``: refuse a file that was stored before; not stored. ``on_conflict``: what
    happens to rows with values of unique fields that other records have; None treats them like rows
    that do not fit. ``by``: the fields by which a row finds the record that it replaces; if empty,
    the fields of the only set. ``work``: a job that reseals has ``named`` and no upload.
    """

    kind: Format
    named: bytes | None = None
    batch_size: int = DEFAULT_BATCH
    skip: bool = False
    resumable: bool = False
    charset: Charset | None = None
    reading: bytes | None = field(default=None, compare=False, repr=False)
    once: bool = field(default=False, compare=False)
    on_conflict: OnConflict | None = None
    by: tuple[str, ...] = ()
    work: Work = "store"

    @property
    def skips_conflicts(self) -> bool:
        """Whether colliding rows that replace no record are left out."""
        return self.skip if self.on_conflict in (None, "replace") else self.on_conflict == "skip"


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as stored. Times are in seconds since 1970.

    ``id`` is a UUID's 16 bytes and names the upload in the spool as well. ``size`` is the size of
    the upload in bytes, once it is complete. ``bad_rows`` counts rows that do not fit, or that
    collide and are left out, ``replaced`` those that replace a record. ``received`` is the time at
    which all bytes had arrived, ``checked`` the end of the check, ``undone`` the time at which its
    owner deleted the stored records. ``began`` is the digest of the API token that began it, if an
    API token did. ``packs`` counts the packs of a large job, ``packed`` those that are built.
    ``rounded`` counts, by field, the values of good rows that are stored with fewer decimals than
    they were sent with.
    """

    id: bytes
    user: bytes
    options: JobOptions
    state: JobState
    phase: Phase
    size: int
    processed: int
    total: int
    bad_rows: int
    error: str | None
    created: float
    finished: float | None
    received: float | None = None
    checked: float | None = None
    undone: float | None = None
    began: bytes | None = None
    replaced: int = 0
    packs: int = 0
    packed: int = 0
    rounded: Mapping[str, int] = field(default_factory=dict)
    #: the reading, sealed
    sealed_reading: bytes | None = field(default=None, repr=False)

    @property
    def batches(self) -> int:
        return -(-self.total // self.options.batch_size)

    @property
    def batch(self) -> int:
        """The current batch, from 1 on; 0 before the first batch, the last batch at the end."""
        if not self.total or self.state == "uploading" or self.phase == "check":
            return 0
        return min(self.processed // self.options.batch_size + 1, self.batches)

    @property
    def rounded_now(self) -> dict[str, int]:
        """``rounded`` of what is stored: a failed job has stored nothing."""
        return {} if self.state == "failed" else dict(self.rounded)

    def progress(self) -> JobProgress:
        """The progress payload: exactly the fields of the interface."""
        return JobProgress(
            self.state, self.processed, self.total, self.batch, self.batches, self.error
        )


def in_words(error: ErsError) -> str:
    """An error as the text of a job's ``error``: what happened, the hint, and the code."""
    hint = f"; {error.hint}" if error.hint else ""
    return f"{error.message}{hint} ({error.reason})"


def uploaded_before(job: StoredJob) -> UploadedBefore:
    """The refusal of a file that ``job`` has stored, or is storing."""
    count = job.total - job.bad_rows
    records = f"{count:,} record{'' if count == 1 else 's'}"
    when = time_of(job.received or job.created)
    name = str(uuid.UUID(bytes=job.id))
    if job.state == "completed":
        return UploadedBefore.by(name, f"job {name} stored this file at {when}: {records}")
    return UploadedBefore.by(
        name, f"job {name} is already storing this file, which was sent at {when}"
    )


#: Number of errors that are sealed together.
_AT_ONCE = 500
_VERSION = struct.Struct(">I")
#: Bad rows: the number of each, and its cells as text.
Examples = list[tuple[int, dict[str, str]]]
_examples = msgspec.msgpack.Decoder(Examples)
_errors = msgspec.msgpack.Decoder(list[Flaw])


class JobSecrets:
    def __init__(self, keyrings: Keyrings) -> None:
        self._keyrings = keyrings

    def seal_token(self, holder: Holder, job: bytes, token: str) -> bytes:
        return self._seal(holder, job, "token", token.encode())

    def open_token(self, job: StoredJob, sealed: bytes) -> str:
        """
        Raises:
            DoesNotOpen: altered, or of another job or user.
            Closed: the keyring is locked or damaged.
            KeyMissing: the keyring lacks the version that sealed it.
        """
        return self._open(Holder.of_accepted_work(job.user), job.id, "token", sealed).decode()

    def seal_note(self, holder: Holder, job: bytes, note: FileNote) -> bytes:
        return self._seal(holder, job, "file", encode(note))

    def open_note(self, holder: Holder, job: bytes, sealed: bytes) -> FileNote:
        """Undo :meth:`seal_note`, for the owner of the job; raises as :meth:`open_token`."""
        return decode(self._open(holder, job, "file", sealed))

    def seal_reading(self, holder: Holder, job: bytes, reading: bytes) -> bytes:
        return self._seal(holder, job, "reading", reading)

    def open_reading(self, job: StoredJob) -> bytes | None:
        """The recipe of the job's file; None if there is none. Raises as :meth:`open_token`."""
        if job.sealed_reading is None:
            return None
        holder = Holder.of_accepted_work(job.user)
        return self._open(holder, job.id, "reading", job.sealed_reading)

    def seal_report(self, job: StoredJob, report: bytes | None) -> bytes | None:
        """Seal the report of a file with a recipe; None if there is no recipe."""
        if report is None:
            return None
        return self._seal(Holder.of_accepted_work(job.user), job.id, "report", report)

    def open_report(self, holder: Holder, job: StoredJob, sealed: bytes) -> bytes:
        """Undo :meth:`seal_report`, for the owner of the job; raises as :meth:`open_token`."""
        return self._open(holder, job.id, "report", sealed)

    def seal_errors(
        self, job: StoredJob, errors: Sequence[Flaw], kind: str = "flaws"
    ) -> list[bytes]:
        """The list in pieces of 500; ``kind`` names the list."""
        pieces = [errors[start : start + _AT_ONCE] for start in range(0, len(errors), _AT_ONCE)]
        holder = Holder.of_accepted_work(job.user)
        return [
            self._seal(holder, job.id, f"{kind}/{number}", msgspec.msgpack.encode(piece))
            for number, piece in enumerate(pieces)
        ]

    def open_errors(
        self, holder: Holder, job: StoredJob, sealed: Iterable[bytes], kind: str = "flaws"
    ) -> list[Flaw]:
        """Undo :meth:`seal_errors`, for the owner of the job; raises as :meth:`open_token`."""
        return [
            error
            for number, piece in enumerate(sealed)
            for error in _errors.decode(self._open(holder, job.id, f"{kind}/{number}", piece))
        ]

    def seal_examples(self, job: StoredJob, rows: Examples) -> bytes | None:
        """The cells of bad rows; None if there are none."""
        if not rows:
            return None
        return self._seal(
            Holder.of_accepted_work(job.user), job.id, "rows", msgspec.msgpack.encode(rows)
        )

    def open_examples(self, holder: Holder, job: StoredJob, sealed: bytes) -> Examples:
        """Undo :meth:`seal_examples`, for the owner of the job; raises as :meth:`open_token`."""
        return _examples.decode(self._open(holder, job.id, "rows", sealed))

    def _seal(self, holder: Holder, job: bytes, label: str, plain: bytes) -> bytes:
        keyring = self._keyrings.of(holder)
        version, nonce = keyring.newest, runtime.random_bytes(NONCE_BYTES)
        key = keyring.root(version).job(job, version)
        return _VERSION.pack(version) + nonce + key.encrypt(nonce, plain, job + label.encode())

    def _open(self, holder: Holder, job: bytes, label: str, sealed: bytes) -> bytes:
        begin = _VERSION.size + NONCE_BYTES
        if len(sealed) < begin:
            raise DoesNotOpen("the stored data of a job is truncated")
        (version,) = _VERSION.unpack_from(sealed)
        key = self._keyrings.of(holder).root(version).job(job, version)
        nonce = sealed[_VERSION.size : begin]
        return key.decrypt(nonce, sealed[begin:], job + label.encode())


_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOMENT = re.compile(r"[0-9]{1,16}")
MAX_NAME = 400
#: Bytes at either end of a file that are digested.
END_BYTES = 64 << 10


class FileNote(msgspec.Struct, frozen=True, array_like=True):
    """``changed`` is in milliseconds since 1970. ``ends`` is SHA-256, in hexadecimal, of the first
    and the last 64 KiB of the file, one after the other."""

    name: str = ""
    changed: int | None = None
    ends: str | None = None

    def __repr__(self) -> str:
        return "<FileNote>"

    @classmethod
    def of_texts(cls, name: str | None, changed: str | None, ends: str | None) -> FileNote:
        """Parse a note from the texts of a request; a malformed text counts as absent."""
        return cls(
            (name or "")[:MAX_NAME],
            int(changed) if changed and _MOMENT.fullmatch(changed) else None,
            ends if ends and _DIGEST.fullmatch(ends) else None,
        )

    def is_same(self, other: FileNote) -> bool:
        """Whether this note seems to be of the same file as ``other``, which has the same size."""
        if self.ends and other.ends:
            return self.ends == other.ends
        if None not in (self.changed, other.changed) and self.changed != other.changed:
            return False
        return bool(self.name) and self.name == other.name


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(FileNote).decode
