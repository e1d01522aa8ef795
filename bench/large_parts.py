"""What memory the API takes while jobs store large parts, several at once.

Each part has the rows of one chunk of a job and is an object of the bulk store, in files. All are
made beforehand; so many clients then send them, one after the other each. The rows have no meaning,
which the API cannot see. Beside the most memory of its process: the processor time of a row, and
how long a short request takes meanwhile.

    .venv/bin/python -m bench.large_parts --at-once 6
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.support.processes import memory_mib, processor_seconds
from bench.support.table import Row, show
from encrypted_records.model import ids, wire
from encrypted_records.model.records import SealedRow
from tests.server.api import Account, running_api
from tests.server.staged import Job
from tests.server.writer import FRAMES, Writer, sealed_number, sealed_string

#: As wide as the ten fields of other benchmarks are together.
PADDED = 320


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", type=int, default=18)
    parser.add_argument("--rows", type=int, default=39_321, help="of each part")
    parser.add_argument("--at-once", type=int, default=6, help="parts that are sent at once")
    parser.add_argument("--users", type=int, default=1, help="who send them")
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="ers-bench-") as folder,
        running_api(Path(folder)) as api,
    ):
        senders = [_Sender(api.new_account()) for _ in range(chosen.users)]
        bodies = [
            (senders[at % len(senders)], senders[at % len(senders)].part(at, chosen.rows))
            for at in range(chosen.parts)
        ]
        before, used = (
            memory_mib(api.process.pid, "VmRSS"),
            processor_seconds(api.process.pid),
        )
        with asking(api.new_account()) as waits, ThreadPoolExecutor(chosen.at_once) as pool:
            began = time.perf_counter()
            list(pool.map(lambda one: one[0].send(one[1]), bodies))
            seconds = time.perf_counter() - began
        used = processor_seconds(api.process.pid) - used
        rows = chosen.parts * chosen.rows
        size = sum(len(body) for _, body in bodies) / chosen.parts / (1 << 20)
        show(
            f"{chosen.parts} parts of {size:.0f} MiB, {chosen.at_once} at once",
            [
                Row("memory of the API before", f"{before:.0f} MiB"),
                Row("most memory", f"{memory_mib(api.process.pid, 'VmHWM'):.0f} MiB"),
                Row("memory after that", f"{memory_mib(api.process.pid, 'VmRSS'):.0f} MiB"),
                Row("processor of the API", f"{1e6 * used / rows:.2f} us/row"),
                Row("rate", f"{rows / seconds:,.0f} rows/s"),
                Row(
                    "a short request meanwhile",
                    f"{statistics.median(waits):.1f} ms p50",
                    f"{max(waits):.1f} ms at most",
                ),
            ],
        )


class _Sender:
    """An account with a job of its own."""

    def __init__(self, account: Account) -> None:
        self._writer = Writer(account, account.new_schema())
        self._job = Job(self._writer)

    def part(self, sequence: int, count: int) -> bytes:
        rows = [
            SealedRow(ids.new_id(), 1, [sealed_string(PADDED), sealed_number()])
            for _ in range(count)
        ]
        return b"".join(wire.encode_part(self._job.adding(sequence, rows)))

    def send(self, body: bytes) -> None:
        path = f"{self._writer.schema['url']}staging/"
        answer = self._writer.account.call("POST", path, body, **FRAMES)
        assert answer.status == 201, answer.body


@contextmanager
def asking(account: Account) -> Iterator[Sequence[float]]:
    """Milliseconds of short requests, put one after the other meanwhile."""
    waits: list[float] = []
    over = threading.Event()

    def ask() -> None:
        while not over.wait(0.05):
            began = time.perf_counter()
            assert account.call("GET", "/api/users/self/").status == 200
            waits.append(1000 * (time.perf_counter() - began))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield waits
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    main()
