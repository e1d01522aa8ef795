"""What a batch job is, and which way it may go. Pure.

::

    uploading ──▶ processing ──▶ completed
        └─────────────┴────────▶ failed

``processing`` has three phases that only the proxy knows: the input is checked as a whole, sealed
and stored ahead chunk by chunk, and published. Nothing of it is visible before, everything after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from encrypted_records.errors import ErsError

State = Literal["uploading", "processing", "completed", "failed"]
Phase = Literal["check", "seal", "publish"]

NEXT: dict[State, frozenset[State]] = {
    "uploading": frozenset({"processing", "failed"}),
    "processing": frozenset({"completed", "failed"}),
    "completed": frozenset(),
    "failed": frozenset(),
}
ENDED: frozenset[State] = frozenset({"completed", "failed"})

DEFAULT_BATCH = 10
MAX_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Order:
    """What the request that begins a job asks for.

    ``csv``: or JSON. ``named``: the schema of records that name none. ``skip``: store the good rows
    where some are bad. ``resumable``: whether the upload may go on after it was interrupted.
    """

    csv: bool
    named: bytes | None = None
    batch_size: int = DEFAULT_BATCH
    skip: bool = False
    resumable: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One job as the store has it. Times are seconds since 1970.

    ``id`` is a UUID's 16 bytes and names the upload in the spool as well. ``size`` is the upload's,
    once it is all there. ``flawed`` counts rows that do not fit, ``listed`` the flaws kept of them.
    """

    id: bytes
    user: bytes
    order: Order
    state: State
    phase: Phase
    size: int
    processed: int
    total: int
    flawed: int
    listed: int
    error: str | None
    created: float
    finished: float | None

    @property
    def batches(self) -> int:
        return -(-self.total // self.order.batch_size)

    @property
    def batch(self) -> int:
        """The batch being processed, from 1 on; 0 before there is one, the last one at the end."""
        if not self.total or self.state == "uploading" or self.phase == "check":
            return 0
        return min(self.processed // self.order.batch_size + 1, self.batches)

    def payload(self) -> dict[str, Any]:
        """The progress payload: exactly the fields of the interface."""
        found: dict[str, Any] = {
            "status": self.state,
            "processed": self.processed,
            "total": self.total,
            "current_batch": self.batch,
            "total_batches": self.batches,
        }
        return found | ({} if self.error is None else {"error": self.error})


def in_words(error: ErsError) -> str:
    """An error as a job's ``error`` says it: what happened, the way out, and the code."""
    hint = f"; {error.hint}" if error.hint else ""
    return f"{error.message}{hint} ({error.reason})"
