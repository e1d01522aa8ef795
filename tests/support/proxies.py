"""A proxy of one's own: the real application on a free port, in a thread of the test's process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from encrypted_records.proxy.app import ProxySettings, create_app
from tests.support.service import free_ports

START_SECONDS = 30.0


@contextmanager
def running_proxy(base_url: str, data_dir: Path) -> Iterator[str]:
    """The address of a proxy on ``data_dir`` for the API at ``base_url``."""
    (port,) = free_ports(1)
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    app = create_app(ProxySettings(data_dir, "127.0.0.1", port, base_url))
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
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
