"""What a worker takes for one merge of many rows: memory, time of the processor, bytes.

Segments of five fields, as :mod:`bench.support.volume` has them, are built and given to a worker of
the proxy as a merge gives them: over the pipes, pages in pieces of 16 MiB, with files for what
waits. ``--dead`` of all rows are left out. The worker's memory is all that it has at most, the
interpreter and libraries too. Pages come from this process, which keeps those of the inputs in a
file, and go back to it; its own memory does not count.

    .venv/bin/python -m bench.large_merges --rows 4194304
    .venv/bin/python -m bench.large_merges --rows 16777216 --folder /var/tmp

``--folder`` needs room for about three times the index: 2 GB for 2^24 rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

import numpy as np
from pyroaring import BitMap

from bench.support import volume
from bench.support.processes import memory_mib, processor_seconds, written_bytes
from bench.support.table import Row, show
from encrypted_records.crypto.keys import Keyring
from encrypted_records.index.columns import column as columns
from encrypted_records.index.segments.builder import Builder, SealedSegment, Shell
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.digests import page_digest
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import PAGE_BYTES
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.pool import WorkerPool
from encrypted_records.proxy.workers.segments import SpooledContents
from encrypted_records.proxy.write.merge_executor import PAGES_AT_ONCE

DEFINITION = parse_definition(json.dumps(volume.DEFINITION))
KEY = Keyring.generate().schema(new_id(), new_id()).newest
#: Rows of one group, as chunks of jobs have them.
GROUP = 39_321


@dataclass(frozen=True)
class Input:
    """A segment, where its pages begin in the file, and their digests."""

    sealed: SealedSegment
    begin: int
    digests: bytes


def built(first: int, rows: int, folder: Path, pages: IO[bytes]) -> Input:
    groups = [(new_id(), base) for base in range(0, rows, GROUP)]
    every = np.arange(rows, dtype=np.uint32)
    waiting = SpooledContents(folder, keep_free=0)
    builder = Builder(KEY, DEFINITION, Shell(groups, every, origin=new_id()), contents=waiting)
    block = volume.Block(np.arange(first, first + rows, dtype=np.uint64))
    of_field = zip(*block.records(), strict=True)
    for (name, spec), values in zip(DEFINITION.fields.items(), of_field, strict=True):
        builder.add(name, columns.build(spec, KEY.field(spec), values))
    sealed, begin, digests = builder.seal(), pages.tell(), bytearray()
    for page in sealed.pages:
        pages.write(page.data)
        digests += page_digest(page.data)
    pages.flush()
    return Input(sealed, begin, bytes(digests))


def task_of(inputs: Sequence[Input], dead: float, folder: Path) -> messages.MergeTask:
    chance = np.random.default_rng(7)
    segments = [source.sealed.segment for source in inputs]
    gone = [
        chance.choice(segment.count, int(segment.count * dead), replace=False)
        for segment in segments
    ]
    return messages.MergeTask(
        schema=KEY.schema,
        organization=KEY.organization,
        definition=DEFINITION.canonical,
        earlier=[DEFINITION.canonical],
        keys=[(KEY.version, KEY.hand_over())],
        version=KEY.version,
        inputs=segments,
        headers=[source.sealed.header for source in inputs],
        digests=[source.digests for source in inputs],
        groups=[segment.groups for segment in segments],
        dead=[BitMap(rows.astype(np.uint32)).serialize() for rows in gone],
        most=PAGES_AT_ONCE,
        folder=str(folder),
        keep_free=0,
    )


class _Worker:
    """The most memory, processor time and written bytes of a process, until it ends."""

    def __init__(self) -> None:
        self.mib = self.seconds = 0.0
        self.written = 0

    @contextmanager
    def watched(self, pool: WorkerPool) -> Iterator[None]:
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.1):
                for process in pool.idle:
                    self._note(process.pid)

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _note(self, pid: int) -> None:
        with suppress(FileNotFoundError, ProcessLookupError, KeyError):  # it has ended
            self.mib = max(self.mib, memory_mib(pid, "VmHWM"))
            self.seconds = max(self.seconds, processor_seconds(pid))
            self.written = max(self.written, written_bytes(pid))


class _OnePool(WorkerPool):
    """Its process stays known while it works."""

    async def _take(self) -> asyncio.subprocess.Process:
        process = await super()._take()
        self.idle = [process]
        return process


async def merged(task: messages.MergeTask, inputs: Sequence[Input], pages: IO[bytes]) -> list[Row]:
    begins = {source.sealed.segment.uid: source.begin for source in inputs}
    sent = 0

    def read(segment: bytes, number: int) -> bytes:
        pages.seek(begins[segment] + number * PAGE_BYTES)
        return pages.read(PAGE_BYTES)

    async def listen(said: messages.Interim) -> messages.PagesReply | None:
        nonlocal sent
        if isinstance(said, messages.PagesRequest):
            return messages.PagesReply([read(page.segment, page.number) for page in said.pages])
        assert isinstance(said, messages.MergedPages)
        sent += len(said.pages)
        return None

    pool, worker = _OnePool(count=1), _Worker()
    began = time.monotonic()
    with worker.watched(pool):
        made = await pool.run(task, listen)
    took = time.monotonic() - began
    assert isinstance(made, messages.MergedSegment)
    assert made.segment.pages == sent
    rows = made.segment.count
    return [
        Row("rows", f"{rows:,}", f"of {len(inputs)} segments, {made.segment.purged:,} dead"),
        Row("the worker's memory, at most", f"{worker.mib:,.0f} MiB"),
        Row("its time of the processor", f"{worker.seconds:,.0f} s", f"{took:,.0f} s in all"),
        Row("rows a second of it", f"{rows / worker.seconds:,.0f}"),
        Row("pages", f"{sent:,}", f"{sent * PAGE_BYTES / rows:.1f} bytes a row"),
        Row("it had its disk write", f"{worker.written / 1e6:,.0f} MB"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1 << 20)
    parser.add_argument("--inputs", type=int, default=4)
    parser.add_argument("--dead", type=float, default=0.01, help="of all rows, from 0 to 1")
    parser.add_argument("--folder", type=Path, help="for what waits; temporary if none")
    chosen = parser.parse_args()
    step = -(-chosen.rows // chosen.inputs)
    with TemporaryDirectory(dir=chosen.folder) as name, TemporaryFile(dir=name) as pages:
        folder = Path(name)
        inputs = [
            built(first, min(step, chosen.rows - first), folder, pages)
            for first in range(0, chosen.rows, step)
        ]
        task = task_of(inputs, chosen.dead, folder)
        show("one merge in a worker", asyncio.run(merged(task, inputs, pages)))


if __name__ == "__main__":
    main()
