"""`.ci/run` repeats a failed test alone, and says so: `tests/alone.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import alone

ROOT = Path(__file__).parents[1]

STEADY = "def test_steady():\n    pass\n"
BROKEN = "def test_broken():\n    assert 'always' == 'broken'\n"
#: Fails beside others, where it is run by a worker of pytest-xdist, and passes alone.
CROWDED = """
import os

def test_{name}():
    assert "PYTEST_XDIST_WORKER" not in os.environ
"""
TEARDOWN = """
import os, pytest

@pytest.fixture
def thing():
    yield
    assert "PYTEST_XDIST_WORKER" not in os.environ

def test_teardown(thing):
    pass
"""
SKIPPED = """
import os, pytest

def test_skipped():
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("alone")
    assert False
"""


def run(folder: Path, **files: str) -> subprocess.CompletedProcess[str]:
    """Run pytest over these files as `.ci/run` does, in a project of their own, without the other
    plugins that are installed: to import them takes most of the time of a start."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -q\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    plugins = ["-p", "xdist", "-p", "tests.alone"]
    command = [sys.executable, "-m", "pytest", *plugins, "--numprocesses", "1"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.strip().splitlines()[-1]


def test_tests_and_teardowns_that_pass_alone_are_named_and_counted_and_the_run_passes(
    tmp_path: Path,
) -> None:
    crowded = CROWDED.format(name="crowded")
    done = run(tmp_path, steady=STEADY, crowded=crowded, teardown=TEARDOWN)
    assert done.returncode == 0, done.stdout
    assert "passed only alone: test_crowded.py::test_crowded" in done.stdout
    assert 'assert "PYTEST_XDIST_WORKER" not in os.environ' in done.stdout
    assert last_line(done).startswith("1 passed, 2 passed only alone in ")
    assert "the 10 slowest files" in done.stdout
    assert " s  test_steady.py" in done.stdout


def test_a_test_of_this_project_can_be_repeated_alone() -> None:
    """Its own conftest.py is read without pytest-xdist then."""
    assert alone.passes("tests/test_house.py::test_only_one_module_normalizes_unicode", ROOT)


def test_a_test_that_fails_or_is_skipped_alone_fails_the_run(tmp_path: Path) -> None:
    crowded = CROWDED.format(name="crowded")
    done = run(tmp_path, broken=BROKEN, skipped=SKIPPED, crowded=crowded)
    assert done.returncode == 1
    assert "FAILED test_broken.py::test_broken" in done.stdout
    assert "FAILED test_skipped.py::test_skipped" in done.stdout
    assert last_line(done).startswith("2 failed, 1 passed only alone in ")


def test_more_than_two_names_fail_the_run(tmp_path: Path) -> None:
    files = {f"crowded{number}": CROWDED.format(name=number) for number in range(3)}
    done = run(tmp_path, **files)
    assert done.returncode == 1, done.stdout
    assert last_line(done).startswith("3 passed only alone in ")


def test_many_failures_are_not_repeated(tmp_path: Path) -> None:
    files = {f"crowded{number}": CROWDED.format(name=number) for number in range(11)}
    done = run(tmp_path, **files)
    assert done.returncode == 1
    assert "11 tests failed: none is repeated alone" in done.stdout
    assert last_line(done).startswith("11 failed in ")


def test_a_file_that_cannot_be_imported_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, steady=STEADY, unimportable="import nothing_of_this_name\n")
    assert done.returncode != 0
    assert "passed only alone" not in done.stdout
