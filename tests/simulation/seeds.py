"""The seeds that every run of the tests takes: so that none of them fails by chance."""

from __future__ import annotations

from pathlib import Path

#: The lines behind the runs of a scenario, where it was told on stdin.
NONE_FAILED, SOME_FAILED = "none failed\n", "some failed\n"
_FILE = Path(__file__).with_name("seeds.txt")
#: Where the file says nothing of a scenario.
USUAL = "0-3"


def fixed_seeds(name: str) -> str:
    """Those of a scenario, such as ``0-3,1234``: the usual ones, and others that once found
    something."""
    lines = [line.partition("#")[0].split() for line in _FILE.read_text().splitlines()]
    more = [line[1] for line in lines if line and line[0] == name]
    return ",".join([USUAL, *more])


def read_seeds(text: str) -> list[int]:
    """The numbers of such a text."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
