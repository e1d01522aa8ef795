"""A file of tests that leaves a process is told so: `tests/support/children.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

WATCHED = """
from tests.support import children

children.ENDING_SECONDS = {seconds}

def pytest_configure(config):
    config.pluginmanager.register(children.Watch())
"""
#: It ends with the process that has the other end of its pipe.
STAYS = """
import subprocess

LEFT = []

def test_that_leaves():
    LEFT.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE))

def test_behind_it():
    pass
"""
ENDS = """
import subprocess

LEFT = []

def test_that_does_not_wait():
    LEFT.append(subprocess.Popen(["sleep", "0.3"]))
"""


def run(folder: Path, text: str, seconds: float) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -q\n")
    (folder / "conftest.py").write_text(WATCHED.format(seconds=seconds))
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_process_that_stays_is_named_with_its_test(tmp_path: Path) -> None:
    done = run(tmp_path, STAYS, 0.1)
    assert done.returncode == 1, done.stdout
    assert "test_it.py::test_that_leaves left process" in done.stdout
    assert done.stdout.strip().splitlines()[-1].startswith("2 passed, 1 error in ")


def test_a_process_that_is_about_to_end_is_waited_for(tmp_path: Path) -> None:
    done = run(tmp_path, ENDS, 60)
    assert done.returncode == 0, done.stdout
