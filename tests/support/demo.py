"""What ``ers demo`` says."""

from __future__ import annotations

import time

from tests.support.service import Service


def finish(service: Service) -> str:
    """What this run of the demo has said once it is through."""
    deadline = time.monotonic() + 120
    while "goes on running" not in (said := service.log.rpartition("is ready")[2]):
        assert service.process.poll() is None, service.log
        assert time.monotonic() < deadline, service.log
        time.sleep(0.1)
    return said
