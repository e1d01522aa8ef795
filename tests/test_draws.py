"""Draws of a test are the same in each of its runs, and count as what they stand for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from encrypted_records import runtime
from encrypted_records.model import ids
from tests.support.draws import Seeded

SHOWN = """
from encrypted_records import runtime
from encrypted_records.model import ids


def test_it() -> None:
    chance = runtime.chance
    numbers = chance.random(), chance.getrandbits(70), chance.sample(range(1000), 5)
    print("drawn", runtime.random_hex(16), ids.new_id()[6:].hex(), numbers, chance.randbytes(9))
"""


def drawn(folder: Path, seed: str = "") -> str:
    """What a test draws in a process of its own."""
    file = folder / "test_drawing.py"
    file.write_text(SHOWN)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "tests.conftest", str(file)]
    command += ["-p", "no:cacheprovider", "--rootdir", str(folder), "-c", "/dev/null"]
    without = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = {"TEST_SEED": seed, "PATH": "/usr/bin:/bin", **without}
    root = Path(__file__).parents[1]
    said = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    (line,) = (splitline for splitline in said.stdout.splitlines() if "drawn" in splitline)
    return line


def test_two_runs_of_a_test_draw_the_same_and_another_seed_others(tmp_path: Path) -> None:
    assert drawn(tmp_path) == drawn(tmp_path)
    assert drawn(tmp_path) != drawn(tmp_path, seed="1")


def test_identifiers_are_of_version_7_sort_as_drawn_and_differ() -> None:
    machine = Seeded("any")
    made = [machine.uuid7(None) for _ in range(10_000)]
    assert made == sorted(set(made))
    assert {(one.version, one.variant) for one in made} == {(7, "specified in RFC 4122")}
    (then,) = {machine.uuid7(1_700_000_000_123_456_789).int >> 80}
    assert then == 1_700_000_000_123
    assert isinstance(runtime.machine, Seeded)
    assert len({ids.new_id() for _ in range(1000)}) == 1000
