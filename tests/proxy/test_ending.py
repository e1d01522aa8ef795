"""A proxy that is told to end does so soon, whoever is connected, and says that all was well."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.senders import slow_senders
from tests.support.service import STOP_SECONDS, free_ports
from tests.support.sides import running_side


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_zero_where_it_was_told_to(tmp_path: Path, number: signal.Signals) -> None:
    api_port, port = free_ports(2)
    url = f"http://127.0.0.1:{port}"
    settings = {
        "ERS_DATA_DIR": str(tmp_path / "data"),
        "ERS_PROXY_PORT": str(port),
        "ERS_BASE_URL": f"http://127.0.0.1:{api_port}",
    }
    with (
        running_side("proxy", settings, url, tmp_path / "log", ready=502) as process,
        slow_senders(url, 8),
    ):
        process.send_signal(number)
        assert process.wait(STOP_SECONDS) == 0
