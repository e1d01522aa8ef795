"""The settings of a proxy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


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
    (:mod:`encrypted_records.proxy.keyrings.policy`); ``door`` is the file in which ``ers`` looks
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
