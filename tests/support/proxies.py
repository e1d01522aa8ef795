"""A proxy of one's own: the real application on a free port, in a thread of the test's process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from encrypted_records.index.merge import TIERS, Tier
from encrypted_records.proxy.app import ProxySettings, create_app
from encrypted_records.proxy.parts import Parts
from tests.support.service import free_ports

START_SECONDS = 30.0


@dataclass(frozen=True)
class Proxy:
    url: str
    parts: Parts


@contextmanager
def running_proxy(
    base_url: str,
    data_dir: Path,
    *,
    tiers: tuple[Tier, ...] = TIERS,
    metrics_port: int | None = None,
) -> Iterator[Proxy]:
    """A proxy on ``data_dir`` for the API at ``base_url``, which merges as ``tiers`` say."""
    (port,) = free_ports(1)
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    app = create_app(
        ProxySettings(data_dir, "127.0.0.1", port, base_url, metrics_port=metrics_port)
    )
    parts: Parts = app.state.parts
    parts.merger._tiers = tiers
    config = uvicorn.Config(app, "127.0.0.1", port, log_config=None, timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + START_SECONDS
    while not server.started:
        assert thread.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    try:
        yield Proxy(f"http://127.0.0.1:{port}", parts)
    finally:
        server.should_exit = True
        thread.join()
