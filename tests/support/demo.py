"""What ``ers demo`` says."""

from __future__ import annotations

from tests.support.eventually import eventually
from tests.support.service import Service


def finish(service: Service) -> str:
    """What this run of the demo has said once it is through."""

    def is_through() -> bool:
        assert service.process.poll() is None, service.log
        return "keeps running" in service.log.rpartition("is ready")[2]

    eventually(is_through, "the demo is through")
    return service.log.rpartition("is ready")[2]
