"""Fixtures of the simulation: which seeds are run, and the processes that run them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.simulation.seeds import NONE_FAILED, SOME_FAILED, fixed_seeds

ROOT = Path(__file__).parents[2]

#: Seconds after which a test hangs, on whatever machine. Runs are bound by their steps, and by what
#: they need of a processor (runs.py): none fails because a machine is busy.
HANGS = 7200


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(HANGS))


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The databases that all worlds begin with."""
    folder = tmp_path_factory.mktemp("simulation") / "template"
    made = simulate("--make-template", str(folder))
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


@pytest.fixture(scope="module")
def simulation(template: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the scenarios that it is told on its stdin."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.simulation", "-", "--template", str(template)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"PATH": ""},
        cwd=ROOT,
    ) as process:
        yield process


@pytest.fixture
def holds(
    request: pytest.FixtureRequest, simulation: subprocess.Popen[str]
) -> Callable[[str], None]:
    """Run a scenario with the seeds of ``--seed``, else with its fixed ones; it fails with what one
    of them has found."""

    def run(name: str) -> None:
        seeds = request.config.getoption("--seed") or fixed_seeds(name)
        assert simulation.stdin is not None and simulation.stdout is not None
        simulation.stdin.write(f"{name} {seeds}\n")
        simulation.stdin.flush()
        said: list[str] = []
        while not said or said[-1] not in (NONE_FAILED, SOME_FAILED, ""):
            said.append(simulation.stdout.readline())
        assert said[-1] == NONE_FAILED, "".join(said)

    return run


def simulate(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python -m tests.simulation`` in a fresh process."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": "", **environment},
        cwd=ROOT,
    )
