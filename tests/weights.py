"""Which files of tests take long: the workers of a run start with those, so that none of them ends
with a long file while the others have nothing left to do.

``weights.txt`` has a line of each: the file, and its seconds. It is made of a report of a whole
run:

    .venv/bin/python -m pytest --numprocesses auto --dist loadfile --junitxml report.xml
    .venv/bin/python -m tests.weights report.xml

Of several reports, the longest time of a file counts.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree as Xml

ROOT = Path(__file__).parents[1]
TEXT = Path(__file__).with_name("weights.txt")
#: The order of files that take less is no matter.
LEAST_SECONDS = 5


def read() -> dict[str, int]:
    """Seconds by the path of a file, as node ids have it."""
    pairs = [line.rsplit(" ", 1) for line in TEXT.read_text().splitlines()]
    return {path: int(seconds) for path, seconds in pairs}


def measure(report: Path) -> dict[str, int]:
    """The same from a report of pytest's."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for case in Xml.parse(report).getroot().iter("testcase"):
        path = case.get("classname", "").replace(".", "/") + ".py"
        if (ROOT / path).is_file():
            seconds[path] += float(case.get("time", "0"))
    return {path: round(one) for path, one in seconds.items() if one >= LEAST_SECONDS}


if __name__ == "__main__":
    found: Counter[str] = Counter()
    for report in sys.argv[1:]:
        found |= Counter(measure(Path(report)))
    lines = [f"{path} {seconds}\n" for path, seconds in found.most_common()]
    TEXT.write_text("".join(lines))
