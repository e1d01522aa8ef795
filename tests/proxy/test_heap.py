"""What a question held goes back to the system or to other threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from encrypted_records.heap import ARENAS, LARGE

#: Large arrays that are freed raise the limit from which on glibc gives freed ones back; what is
#: kept after that lies in front of the one that is freed last.
_PROGRAM = """
import sys
import numpy as np
from encrypted_records.heap import bound_heap
if sys.argv[1] == "set":
    bound_heap()
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


#: Threads that have memory at once; glibc writes what its arenas have into a file.
_THREADS = """
import ctypes, sys, threading
from encrypted_records.heap import bound_heap
if sys.argv[1] != "unset":
    bound_heap(int(sys.argv[1]))
held = threading.Barrier(9)
def hold():
    some = [bytearray(5000) for _ in range(100)]
    held.wait()
    held.wait()
threads = [threading.Thread(target=hold) for _ in range(8)]
for thread in threads:
    thread.start()
held.wait()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = libc.fopen(sys.argv[2].encode(), b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
held.wait()
"""


def arenas(how: str, told: Path) -> int:
    subprocess.run([sys.executable, "-c", _THREADS, how, str(told)], check=True)
    return told.read_text().count("<heap nr=")


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's own limits")
def test_threads_use_what_others_freed(tmp_path: Path) -> None:
    assert arenas("1", tmp_path / "one") == 1
    assert arenas(str(ARENAS), tmp_path / "set") <= ARENAS
    assert arenas("unset", tmp_path / "unset") > ARENAS


#: Whether numpy's arrays may get huge pages; printed by a child, too, as workers are.
_HUGE = """
import subprocess, sys
from encrypted_records.heap import bound_heap
if sys.argv[1] == "set":
    bound_heap()
told = "print(open('/proc/self/status').read().partition('THP_enabled:')[2].split()[0])"
exec(told)
sys.stdout.flush()
subprocess.run([sys.executable, "-c", told], check=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of Linux")
@pytest.mark.parametrize(("how", "allowed"), [("set", "0"), ("unset", "1")])
def test_a_proxy_and_its_workers_use_no_huge_pages(how: str, allowed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HUGE, how], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [allowed, allowed]
