"""Fixtures of the simulation: which seeds are run, and the process that runs them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.seeds import fixed_seeds

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


@pytest.fixture
def holds(request: pytest.FixtureRequest, template: Path) -> Callable[[str], None]:
    """Run a scenario with the seeds of ``--seed``, else with its fixed ones; it fails with what one
    of them has found."""

    def run(name: str) -> None:
        seeds = request.config.getoption("--seed") or fixed_seeds(name)
        said = simulate(name, "--seeds", seeds, "--template", str(template))
        assert said.returncode == 0, said.stdout + said.stderr

    return run


def simulate(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python -m tests.simulation`` in a fresh process."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": "", **environment},
        cwd=Path(__file__).parents[2],
    )
