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
from encrypted_records.index.query.long_strings import MAX_OPENED
from encrypted_records.index.segments.merge_policy import (
    MOST_DEAD,
    STANDARD_CROWDS,
    TIERS,
    CrowdSizes,
    Tier,
)
from encrypted_records.proxy.http.load_limit import FEW, MOST_SECONDS
from encrypted_records.proxy.jobs.packing import PACKING, PackingPolicy
from encrypted_records.proxy.jobs.service import SWEEP_SECONDS
from encrypted_records.proxy.process.background import Background
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
    """A mirror that is read instead of an API, at ``base_url`` of the settings.

    ``name`` is the URL or folder that the operator gave. With ``accept_stale`` a copy is read that
    is older than what the proxy has seen.
    """

    name: str
    secret: str = field(default="", repr=False)
    accept_stale: bool = False


@dataclass(frozen=True)
class ProxySettings:
    """``base_url`` is the API's. ``allowed_hosts`` are further names of this proxy.

    ``page_cache`` is the budget of sealed pages and rows on disk, ``memory_cache`` that of all
    caches in memory together, both in MiB. Without ``metrics_port`` there are no metrics.
    ``lock_after`` is in minutes without use, after which a keyring that was unlocked locks by
    itself. ``access`` and ``own_api`` decide the level
    (:mod:`encrypted_records.proxy.keyrings.holder`); ``door`` is the file in which ``ers`` looks
    for the door. ``webhooks`` go to ``public`` addresses by TLS, or to ``any``. With
    ``inline_secret`` only requests that carry it are answered.
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

    #: which segments are worth merging, and with how many dead rows
    tiers: tuple[Tier, ...] = TIERS
    most_dead: float = MOST_DEAD
    #: merges of how many rows wait for each other, and how many pages they read and send at once
    lanes: Callable[[], Lanes] = Lanes
    pages_at_once: int = PAGES_AT_ONCE
    #: which groups are small, and how many of them become one
    crowds: CrowdSizes = STANDARD_CROWDS
    #: and how many bytes of its rows come with the commit, and are not staged before
    most_with_commit: int = MOST_WITH_COMMIT
    #: for how long a writer waits until merges have made room
    room_seconds: float = ROOM_SECONDS
    #: how many pages of the index a question may need
    question_pages: int = MOST_PAGES
    #: how many records a question may open to decide texts
    question_texts: int = MAX_OPENED
    #: from which sizes on a question is answered segment by segment
    question_sizes: Sizes = SIZES
    #: how many bytes questions may hold together beside the caches
    question_memory: int = QUESTION_BYTES
    keeping: KeepingPolicy = STANDARD
    checkpointing: CheckpointPolicy = CHECKPOINTS
    #: which jobs are packed, and how many of their rows together
    packing: PackingPolicy = PACKING
    sweep_seconds: float = SWEEP_SECONDS
    #: for how long a request waits until what was deleted is gone
    erasing_seconds: float = WAIT_SECONDS
    #: by which records are old enough to be deleted: seconds since 1970
    clock: Callable[[], float] = runtime.wall
    #: by which jumps of that clock are found: seconds that only go on
    real_time: Callable[[], float] = runtime.elapsed
    #: and a name for the time since this machine was started, in which those go on
    boot: Callable[[], str] = name_boot
    salvaged_bytes: int = ANSWER_BYTES
    salvage_pages: int = MOST_TEMPORARY_PAGES
    #: how many requests are never too many, and after how many seconds an answer is too late
    few_requests: int = FEW
    answer_seconds: float = MOST_SECONDS
    #: which starts the work beside requests
    background: Callable[[], Background] = Background
    #: how often at most an owner's requests make the proxy look for what is due
    attend_seconds: float = EVERY_SECONDS

    #: what sends requests to the API at a base URL
    transport: Callable[[str], Transport] = Transport
    #: what sends webhooks, to ``public`` addresses or to ``any``
    webhook_sender: Callable[[str], WebhookSender] = WebhookSender
    #: what does work in processes of its own
    workers: Callable[[Background], WorkerPool] = WorkerPool

    @property
    def of_questions(self) -> tuple[int, int, Sizes]:
        """Sizes of one question."""
        return self.question_pages, self.question_texts, self.question_sizes
