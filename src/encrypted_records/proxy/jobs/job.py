"""A batch job, its states, and the changes between them. Pure.

::

    uploading ──▶ processing ──▶ completed
        └─────────────┴────────▶ failed

``processing`` has three phases that only the proxy knows: the input is checked as a whole, sealed
and staged chunk by chunk, and published. Before that nothing of it is visible, after it everything.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from encrypted_records.errors import ErsError, UploadedBefore, time_of
from encrypted_records.model.record_formats import Charset, Format

JobState = Literal["uploading", "processing", "completed", "failed"]
Phase = Literal["check", "seal", "publish"]
OnConflict = Literal["fail", "skip", "replace"]
#: What a job does: store the records of an upload, or seal again what is stored.
Work = Literal["store", "reseal"]

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

    ``named``: the schema of records that name none. ``skip``: store the good rows
    if some are bad. ``resumable``: whether the upload may continue after an interruption.
    ``charset``: of CSV; None is UTF-8. ``reading``: how the file is read, as the JSON of a recipe;
    it is kept sealed, beside the job. ``once``: refuse a file that was stored before; it is not
    kept. ``on_conflict``: what becomes of rows with values of unique fields that others have; None
    is as of rows that do not fit. ``by``: the fields by which a row finds the record that it
    replaces; empty are those of the only set. ``work``: a job that seals again has ``named`` and no
    upload.
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
        """Whether rows are left out that collide with others, and replace none."""
        return self.skip if self.on_conflict in (None, "replace") else self.on_conflict == "skip"


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as stored. Times are in seconds since 1970.

    ``id`` is a UUID's 16 bytes and names the upload in the spool as well. ``size`` is the size of
    the upload in bytes, once it is complete. ``bad_rows`` counts rows that do not fit, or that
    collide and are left out, ``replaced`` those that replace a record. ``received`` is the time at
    which all bytes had arrived, ``checked`` the end of the check, ``undone`` the time at which its
    owner deleted the stored records. ``began`` is the digest of the API token that began it, if one
    did. ``packs`` counts the packs of a large job, ``packed`` those of them that are built.
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
        """The batch being processed, from 1 on; 0 before there is one, the last one at the end."""
        if not self.total or self.state == "uploading" or self.phase == "check":
            return 0
        return min(self.processed // self.options.batch_size + 1, self.batches)

    def payload(self) -> dict[str, Any]:
        """The progress payload: exactly the fields of the interface."""
        payload: dict[str, Any] = {
            "status": self.state,
            "processed": self.processed,
            "total": self.total,
            "current_batch": self.batch,
            "total_batches": self.batches,
        }
        return payload | ({} if self.error is None else {"error": self.error})


def in_words(error: ErsError) -> str:
    """An error as the text of a job's ``error``: what happened, the hint, and the code."""
    hint = f"; {error.hint}" if error.hint else ""
    return f"{error.message}{hint} ({error.reason})"


def uploaded_before(job: StoredJob) -> UploadedBefore:
    """The refusal of a file that ``job`` has stored, or is storing."""
    records = f"{job.total:,} record{'' if job.total == 1 else 's'}"
    when = time_of(job.received or job.created)
    name = str(uuid.UUID(bytes=job.id))
    if job.state == "completed":
        return UploadedBefore.by(name, f"job {name} stored this file at {when}: {records}")
    return UploadedBefore.by(
        name, f"job {name} is already storing this file, which was sent at {when}"
    )
