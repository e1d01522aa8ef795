"""The worker processes: started when there is work, with one task at a time each.

Sealing keeps a core busy, and the event loop must keep serving requests. So separate processes
(:mod:`.main`) do the work, over pipes: a task contains the keys that it needs, as bytes, and only
that worker gets them; nothing is pickled. A worker inherits no environment, and so no passphrase.
It ends when its pipe closes, and so whenever this process ends.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from pathlib import Path

from encrypted_records.errors import TooLarge, Unavailable
from encrypted_records.ingest.infer import Wishes
from encrypted_records.model.record_formats import Format
from encrypted_records.proxy.process import WORKERS, Background
from encrypted_records.proxy.workers import messages

log = logging.getLogger(__name__)

#: Maximum seconds for which a worker inspects a sample.
SAMPLE_SECONDS = 30
#: Seconds for a process to end after it has closed its pipe.
_ENDING_SECONDS = 5

#: Bytes of a message that a reader buffers.
PIPE_BYTES = 1 << 20

#: Tasks for which a process may allocate hundreds of MiB, which it does not give back: it ends
#: after such a task if it then holds more bytes than this. A process starts with 57 MiB.
_MOST_HELD = 128 << 20
_LARGE = (
    messages.MergeTask
    | messages.PackTask
    | messages.InferTask
    | messages.DetectTask
    | messages.PreviewTask
)

#: Called with each message that a worker sends during a task; returns the reply, if there is one.
Listener = Callable[[messages.Interim], Awaitable[messages.Reply | None]]


class WorkerPool:
    """A pool of up to ``count`` processes, and additional processes for long tasks. Tasks are
    served in the order of their arrival.
    """

    def __init__(self, background: Background | None = None, count: int | None = None) -> None:
        self._background = background or Background()
        self.count = count or os.cpu_count() or 1
        self._free = asyncio.Semaphore(self.count)
        #: processes that wait for a task
        self.idle: list[asyncio.subprocess.Process] = []
        self._working = 0
        self._starting: set[asyncio.Task[None]] = set()
        self._closed = False

    def prepare(self) -> None:
        """Start processes until ``count`` wait or work: there will be work for all of them.

        A process takes a quarter of a second to start. Nothing waits for it here.
        """
        missing = self.count - self._working - len(self.idle) - len(self._starting)
        for _ in range(missing):
            task = self._background.start(WORKERS, self._add_idle)
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def _add_idle(self) -> None:
        if self._closed:
            return
        # If this fails, a task that needs a process will start it, and report the error.
        with suppress(Unavailable):
            self.idle.append(await self.start())

    async def run(
        self, task: messages.Task, listener: Listener | None = None, *, additional: bool = False
    ) -> messages.Result:
        """A worker's result.

        Args:
            additional: whether to run in an additional process, because the task takes long. The
                caller runs at most one large and one huge merge at a time, and half as many packs
                as workers.

        Raises:
            ErsError: the error of the task, such as DoesNotOpen or BadInput.
            TooLarge: inspecting a sample took too long, or too much memory.
            Unavailable: ``worker_lost``; it ended or did not start, and a second try may succeed.
        """
        async with nullcontext() if additional else self._free:
            process = await self._take()
            self._working += 1
            place = _TaskPlace(task)
            is_sample = isinstance(task, messages.SampleTask)
            limit = asyncio.timeout(SAMPLE_SECONDS if is_sample else None)
            try:
                async with limit:
                    answer = await _run(process, task, place.watch(listener))
            except TimeoutError:
                await _end(process)
                if not limit.expired():  # the listener's TimeoutError
                    raise
                raise _too_much(f"{SAMPLE_SECONDS} seconds") from None
            except (asyncio.IncompleteReadError, ConnectionError):
                # Without memory, a library aborts its process.
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _ENDING_SECONDS)
                await _end(process)
                if process.returncode == -signal.SIGABRT and is_sample:
                    raise _too_much(f"{messages.MOST_BYTES >> 30} GiB of memory") from None
                raise Unavailable(
                    f"a worker process ended before its work was done{place}", code="worker_lost"
                ) from None
            except BaseException:
                _kill(process)  # it is in the middle of a task and cannot take another
                raise
            finally:
                self._working -= 1
            # Of additional workers, no more than ``count`` wait for the next task.
            if isinstance(task, _LARGE) and (
                len(self.idle) + self._working >= self.count or _held(process) > _MOST_HELD
            ):
                await _end(process)
            else:
                self.idle.append(process)
        if isinstance(answer, messages.Failed):
            raise answer.error()
        return answer

    async def works(self) -> bool:
        """Whether a new process starts and does a trivial task."""
        try:
            process = await self.start()
            try:
                await _run(process, messages.InferTask(b"a\n1\n", Format.CSV, Wishes()), None)
            finally:
                await _end(process)
        except (asyncio.IncompleteReadError, ConnectionError, Unavailable):
            return False
        return True

    async def _take(self) -> asyncio.subprocess.Process:
        while self.idle:
            process = self.idle.pop()
            if process.returncode is None:
                return process
        return await self.start()

    async def start(self) -> asyncio.subprocess.Process:
        """A new worker process, with pipes to it.

        Raises:
            Unavailable: ``worker_lost``; no process can be started.
        """
        try:
            return await asyncio.create_subprocess_exec(  # noqa: TID251
                sys.executable,
                "-m",
                "encrypted_records.proxy.workers.main",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={},
                limit=PIPE_BYTES,
            )
        except OSError as error:  # no memory, or no more processes or files allowed
            reason = (error.strerror or "it fails").lower()
            raise Unavailable(
                f"a worker process cannot be started: {reason}", code="worker_lost"
            ) from None

    async def close(self) -> None:
        """End the idle processes; no task may be running."""
        self._closed = True
        await self._background.wait(self._starting)
        for process in self.idle:
            await _end(process)
        self.idle.clear()


def _too_much(what: str) -> TooLarge:
    return TooLarge(
        f"examining the file takes more than {what}", hint="use only the first rows of the file"
    )


class _TaskPlace:
    """The place of a task in an upload, as far as it is known: ``, at rows 1 to 9``, or nothing."""

    def __init__(self, task: messages.Task) -> None:
        self._task = task
        #: rows that a check has counted
        self._counted = 0

    def watch(self, listener: Listener | None) -> Listener | None:
        """A listener that notes progress here and then calls ``listener``."""
        if listener is None:
            return None

        async def listen(message: messages.Interim) -> messages.Reply | None:
            if isinstance(message, messages.RowCount):
                self._counted = message.rows
            return await listener(message)

        return listen

    def __str__(self) -> str:
        match self._task:
            case messages.SealTask(chunk=one) | messages.KeysTask(chunk=one):
                return f", at rows {one.first} to {one.last}"
            case messages.PackTask(chunks=[first, *_] as every):
                return f", at rows {first.first} to {every[-1].last}"
            case messages.CheckTask() if self._counted:
                return f", after row {self._counted}"
        return ""


def _held(process: asyncio.subprocess.Process) -> float:
    """Bytes of memory that a process uses now; infinite if the system does not tell."""
    try:
        _, resident, *_ = Path(f"/proc/{process.pid}/statm").read_text("ascii").split()
    except OSError:
        return math.inf
    return int(resident) * os.sysconf("SC_PAGE_SIZE")


async def _end(process: asyncio.subprocess.Process) -> None:
    _kill(process)
    await process.wait()


def _kill(process: asyncio.subprocess.Process) -> None:
    # If it has ended already, that must not hide the reason for killing it.
    with suppress(ProcessLookupError):
        process.kill()


async def _run(
    process: asyncio.subprocess.Process, task: messages.Task, listener: Listener | None
) -> messages.Result | messages.Failed:
    await _send(process, task)
    while True:
        message: messages.FromWorker = messages.decode_from_worker(await _receive(process))
        if not isinstance(message, messages.Interim):
            return message
        assert listener is not None
        reply = await listener(message)
        if reply is not None:
            await _send(process, reply)


async def _send(process: asyncio.subprocess.Process, message: messages.ToWorker) -> None:
    """
    Raises:
        ConnectionError: the worker has ended.
    """
    assert process.stdin is not None
    data = messages.encode(message)
    try:
        process.stdin.write(len(data).to_bytes(messages.LENGTH_BYTES, "big") + data)
        await process.stdin.drain()
    except RuntimeError:
        # uvloop raises it for a pipe that it has closed, when the worker ended some time ago.
        raise ConnectionResetError from None


async def _receive(process: asyncio.subprocess.Process) -> bytes | bytearray:
    """
    Raises:
        asyncio.IncompleteReadError: the worker has ended.
    """
    assert process.stdout is not None
    head = await process.stdout.readexactly(messages.LENGTH_BYTES)
    size = int.from_bytes(head, "big")
    if size <= PIPE_BYTES:
        return await process.stdout.readexactly(size)
    # The reader would have the whole message in memory twice.
    data = bytearray(size)
    at = 0
    while at < size:
        piece = await process.stdout.read(size - at)
        if not piece:
            raise asyncio.IncompleteReadError(b"", size)
        data[at : at + len(piece)] = piece
        at += len(piece)
    return data
