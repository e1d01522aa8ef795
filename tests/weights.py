"""Which files of tests take long: the workers of a run start with those, so that none of them ends
with a long file while the others have nothing left to do.

``weights.txt`` has a line of each: the file, and its seconds. A run writes it again, of the files
that ran, with ``--weigh=tests/weights.txt``; as :file:`.ci/run` does with ``build/weights.txt``. On
a machine that does much else the seconds are too many.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = Path(__file__).with_name("weights.txt")
#: The order of files that take less is no matter.
LEAST_SECONDS = 5


def read() -> dict[str, int]:
    """Seconds by the path of a file, as node ids have it."""
    pairs = [line.rsplit(" ", 1) for line in TEXT.read_text().splitlines()]
    return {path: int(seconds) for path, seconds in pairs}


class Scales:
    """A plugin that writes how long files took; of those that did not run, what was known."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_configure(self, config: pytest.Config) -> None:
        chosen = config.option.keyword or config.option.markexpr or config.option.deselect
        if chosen or any("::" in name for name in config.args):
            raise pytest.UsageError("--weigh is for files of which all tests run")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        known = {path: seconds for path, seconds in read().items() if (ROOT / path).is_file()}
        found = known | {path: round(seconds) for path, seconds in self._seconds.items()}
        lines = [
            f"{path} {seconds}\n"
            for path, seconds in sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
            if seconds >= LEAST_SECONDS
        ]
        self._target.parent.mkdir(exist_ok=True)
        self._target.write_text("".join(lines))
