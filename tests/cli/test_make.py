"""``make run`` and ``make demo`` start what README says they start."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

from tests.support.eventually import eventually
from tests.support.service import call, clean_environment, free_ports

ROOT = Path(__file__).parents[2]


def test_make_run_starts_the_service_in_the_folder_and_on_the_ports_asked_for(
    tmp_path: Path,
) -> None:
    api_port, proxy_port = free_ports(2)
    places = [f"DATA_DIR={tmp_path}/data", f"API_PORT={api_port}", f"PROXY_PORT={proxy_port}"]
    process = subprocess.Popen(
        ["make", "run", *places], cwd=ROOT, env=clean_environment(), stdin=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{proxy_port}/api/status/"
        eventually(lambda: _answers(url) or process.poll() is not None, "it answers")
        assert process.poll() is None
        assert (tmp_path / "data" / "format").exists()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _answers(url: str) -> bool:
    try:
        return call("GET", url).status == 200
    except OSError:
        return False


def test_an_old_python_is_refused_with_a_way_out(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "uv.lock").touch()
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    for python, message in ((str(old), "is older than 3.11"), ("no-python", "there is no")):
        done = subprocess.run(
            ["make", "run", f"PYTHON={python}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert message in done.stderr
        assert "PYTHON=" in done.stderr
