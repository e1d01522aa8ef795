"""HAProxy in front of several APIs; tests are skipped by name where it cannot be had."""

from __future__ import annotations

import fcntl
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".venv" / "haproxy"


def _program() -> str:
    HOME.parent.mkdir(exist_ok=True)
    with (HOME.parent / "haproxy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [ROOT / "scripts" / "install-haproxy", HOME],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        pytest.skip("HAProxy cannot be had here (scripts/install-haproxy)")
    return done.stdout.strip()


@contextmanager
def running_haproxy(folder: Path, ports: Sequence[int]) -> Iterator[int]:
    """The port of one that has found all of these APIs."""
    program, port = _program(), free_port()
    configuration = folder / "haproxy.cfg"
    configuration.write_text(_documented(port, ports))
    with (folder / "haproxy.log").open("ab") as log:
        process = subprocess.Popen([program, "-db", "-f", configuration], stdout=log, stderr=log)
    try:
        eventually(lambda: _answers(port) or process.poll() is not None, "it answers")
        assert process.poll() is None, (folder / "haproxy.log").read_text()
        yield port
    finally:
        process.kill()
        process.wait(60)


def _documented(port: int, ports: Sequence[int]) -> str:
    """What docs/operations.md says, at other addresses."""
    document = (ROOT / "docs" / "operations.md").read_text()
    (said,) = re.findall(r"```haproxy\n(.*?)```", document, re.DOTALL)
    assert "bind 127.0.0.1:8000" in said
    lines = [line for line in said.splitlines() if not line.startswith("    server ")]
    servers = [f"    server api{own} 127.0.0.1:{own}" for own in ports]
    return "\n".join([*lines, *servers, ""]).replace("127.0.0.1:8000", f"127.0.0.1:{port}")


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/api/status/")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
