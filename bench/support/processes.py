"""What processes have used, from Linux's process table (proc(5))."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.service import Service, descendants

_TICK = os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int | str, what: str) -> float:
    """MiB that a process has (``VmRSS``) or had at most (``VmHWM``).

    Raises:
        FileNotFoundError, ProcessLookupError, KeyError: it has ended.
    """
    text = Path(f"/proc/{pid}/status").read_text()
    lines = dict(line.split(":", 1) for line in text.splitlines())
    return int(lines[what].split()[0]) / 1024


def processor_seconds(pid: int, *, ended: bool = False) -> float:
    """Seconds of processor time that a process used; with that of children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if ended else 13])) / _TICK


def written_bytes(root: int) -> int:
    """Bytes that a process and all it started had the disk write, those that ended too."""
    total = 0
    for pid in [root, *descendants(root)]:
        try:
            text = Path(f"/proc/{pid}/io").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        lines = dict(line.split(": ") for line in text.splitlines())
        total += int(lines["write_bytes"]) - int(lines["cancelled_write_bytes"])
    return total


class Meter:
    """Processor seconds and peak memory of processes, from Linux's process table."""

    def __init__(self, service: Service, api: int) -> None:
        self.proxy = service.process.pid
        self.api = api

    def seconds(self, root: int) -> float:
        total = 0.0
        for pid in [root, *descendants(root)]:
            try:
                # With the time of children that ended; of those that run, their own entry tells.
                total += processor_seconds(pid, ended=True)
            except FileNotFoundError:
                continue
        return total

    @property
    def both(self) -> float:
        return self.seconds(self.proxy) + self.seconds(self.api)

    def rest(self) -> float:
        """Wait until neither side works any more; the most memory that a worker had meanwhile."""
        before, now = 0.0, self.both
        most = 0.0
        while now - before > 0.05:
            for _ in range(10):
                time.sleep(0.1)
                most = max([most, *self.workers_mib()])
            before, now = now, self.both
        return most

    def peak_mib(self) -> float:
        """The most memory that the proxy has had since :meth:`forget_peak`."""
        return memory_mib(self.proxy, "VmHWM")

    def forget_peak(self) -> None:
        """Let the next peak count from here (Linux's proc(5), clear_refs)."""
        Path(f"/proc/{self.proxy}/clear_refs").write_text("5")

    def workers_mib(self) -> list[float]:
        """The most memory that each of the proxy's workers has had."""
        found = []
        for pid in descendants(self.proxy):
            with suppress(FileNotFoundError, ProcessLookupError, KeyError):  # it has ended
                found.append(memory_mib(pid, "VmHWM"))
        return sorted(found)


@contextmanager
def watched_workers(meter: Meter) -> Iterator[list[float]]:
    """The most memory, in MiB, that a worker has had meanwhile, in a list of one.

    Workers end with their work, so somebody has to look all the time.
    """
    most, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            most[0] = max([most[0], *meter.workers_mib()])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()
