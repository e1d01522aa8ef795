"""The settings of a proxy, and the limits and times that tests replace.

No setting of a started proxy changes what :class:`Overrides` has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from encrypted_records import runtime
from encrypted_records.client.transport import Transport
from encrypted_records.client.webhook_sender import WebhookSender
from encrypted_records.index.query.asking import Sizes
from encrypted_records.index.query.key_sets import MAX_OPENED
from encrypted_records.index.segments.merge_policy import (
    MOST_DEAD,
    STANDARD_CROWDS,
    TIERS,
    CrowdSizes,
    Tier,
)
from encrypted_records.proxy.http.guard import FEW, MOST_SECONDS
from encrypted_records.proxy.jobs.packing import PACKING, PackingPolicy
from encrypted_records.proxy.jobs.service import SWEEP_SECONDS
from encrypted_records.proxy.process import Background
from encrypted_records.proxy.retention import name_boot
from encrypted_records.proxy.schemas.logs import CHECKPOINTS, CheckpointPolicy
from encrypted_records.proxy.schemas.store import STANDARD, KeepingPolicy
from encrypted_records.proxy.search.context import MOST_PAGES, QUESTION_BYTES, SIZES
from encrypted_records.proxy.search.salvage import ANSWER_BYTES, MOST_TEMPORARY_PAGES
from encrypted_records.proxy.sharing.settling import EVERY_SECONDS
from encrypted_records.proxy.workers.pool import WorkerPool
from encrypted_records.proxy.write.compactor import MOST_WITH_COMMIT
from encrypted_records.proxy.write.erasure import WAIT_SECONDS
from encrypted_records.proxy.write.merge_executor import PAGES_AT_ONCE
from encrypted_records.proxy.write.merge_scheduler import ROOM_SECONDS, Lanes


@dataclass(frozen=True)
class MirrorPlace:
    """A mirror that replaces the API, at ``base_url`` of the settings.

    ``name`` is the URL or folder that the operator gave. With ``accept_stale`` the copy may be
    older than the proxy's remembered state.
    """

    name: str
    secret: str = field(default="", repr=False)
    accept_stale: bool = False


@dataclass(frozen=True)
class ProxySettings:
    """``base_url`` is the API's. ``allowed_hosts`` are additional names of this proxy.

    ``page_cache`` is the budget of encrypted pages and rows on disk, ``memory_cache`` the budget of
    all caches in memory together, both in MiB. Without ``metrics_port`` there are no metrics.
    ``lock_after`` is in minutes without use, after which an unlocked keyring locks automatically.
    ``access`` and ``own_api`` decide the level (:mod:`encrypted_records.proxy.keyrings.holder`);
    ``door`` is the file in which ``ers`` looks for the door. ``webhooks`` go to ``public``
    addresses by TLS, or to ``any``. With ``inline_secret`` only requests that carry it are
    answered.
    """

    data_dir: Path
    host: str
    port: int
    base_url: str
    log_format: str = "text"
    allowed_hosts: tuple[str, ...] = ()
    page_cache: int = 2048
    memory_cache: int = 192
    lock_after: int = 720
    metrics_port: int | None = None
    access: str = "auto"
    own_api: bool = False
    door: Path | None = None
    webhooks: str = "public"
    inline_secret: str | None = field(default=None, repr=False)
    mirror: MirrorPlace | None = None


@dataclass(frozen=True, slots=True)
class Overrides:
    """Parts that tests replace; the defaults are those of every proxy."""

    #: segments that are worth merging, and their dead rows
    tiers: tuple[Tier, ...] = TIERS
    most_dead: float = MOST_DEAD
    #: sizes in rows of merges that wait for each other, and pages that they read and send at once
    lanes: Callable[[], Lanes] = Lanes
    pages_at_once: int = PAGES_AT_ONCE
    #: sizes of small groups, and how many of them are merged into one
    crowds: CrowdSizes = STANDARD_CROWDS
    #: maximum bytes of rows that are sent with the commit instead of being staged before
    most_with_commit: int = MOST_WITH_COMMIT
    #: seconds that a writer waits until merges have made room
    room_seconds: float = ROOM_SECONDS
    #: maximum pages of the index per query
    question_pages: int = MOST_PAGES
    #: maximum records that a query may decrypt to compare texts
    question_texts: int = MAX_OPENED
    #: sizes from which a query is answered segment by segment
    question_sizes: Sizes = SIZES
    #: bytes of memory for all queries together, in addition to the caches
    question_memory: int = QUESTION_BYTES
    keeping: KeepingPolicy = STANDARD
    checkpointing: CheckpointPolicy = CHECKPOINTS
    #: jobs that are packed, and how many of their rows together
    packing: PackingPolicy = PACKING
    sweep_seconds: float = SWEEP_SECONDS
    #: seconds that a request waits until deleted data is erased
    erasing_seconds: float = WAIT_SECONDS
    #: clock that decides which records are old enough to be deleted: seconds since 1970
    clock: Callable[[], float] = runtime.wall
    #: monotonic clock that detects jumps of ``clock``, in seconds
    real_time: Callable[[], float] = runtime.elapsed
    #: name of the current boot, within which ``real_time`` is one clock
    boot: Callable[[], str] = name_boot
    salvaged_bytes: int = ANSWER_BYTES
    salvage_pages: int = MOST_TEMPORARY_PAGES
    #: number of requests that is never overload, and seconds after which an answer is too late
    few_requests: int = FEW
    answer_seconds: float = MOST_SECONDS
    #: starts background work
    background: Callable[[], Background] = Background
    #: minimum seconds between two checks for pending changes on an owner's requests
    attend_seconds: float = EVERY_SECONDS

    #: sends requests to the API at a base URL
    transport: Callable[[str], Transport] = Transport
    #: sends webhooks, to ``public`` addresses or to ``any``
    webhook_sender: Callable[[str], WebhookSender] = WebhookSender
    #: runs work in separate processes
    workers: Callable[[Background], WorkerPool] = WorkerPool

    @property
    def of_questions(self) -> tuple[int, int, Sizes]:
        """Sizes of one question."""
        return self.question_pages, self.question_texts, self.question_sizes
