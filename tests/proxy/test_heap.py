"""What a question held goes back to the system, however large the arrays were."""

from __future__ import annotations

import subprocess
import sys

import pytest

from encrypted_records.proxy.process.heap import LARGE

#: Large arrays that are freed raise the limit from which on glibc gives freed ones back; what is
#: kept after that lies in front of the one that is freed last.
_PROGRAM = """
import sys
import numpy as np
from encrypted_records.proxy.process.heap import give_back_large
if sys.argv[1] == "set":
    give_back_large()
size = int(sys.argv[2])

def resident():
    lines = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
    return int(lines["VmRSS"].split()[0]) << 10

for _ in range(2):
    np.ones(2 * size, np.uint8)
kept = []
before = resident()
large = []
for _ in range(8):
    large.append(np.ones(size, np.uint8))
    kept.append(np.ones(1 << 16, np.uint8))
large.clear()
print(resident() - before)
"""


def left(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, how, str(LARGE + (1 << 20))],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's own limits")
def test_large_arrays_go_back_to_the_system_once_they_are_freed() -> None:
    assert left("set") < LARGE
    assert left("unset") > 4 * LARGE
