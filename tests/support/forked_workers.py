"""Workers of proxies in the test's process, which begin as copies of one that has imported all that
a worker needs: a start took 0.3 s of processor time, and a test with a proxy of its own starts two
for its first job."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from encrypted_records.proxy.workers.pool import PIPE_BYTES, WorkerPool
from tests.support import forked


class ForkedWorkers(WorkerPool):
    """A pool as every other, but for how its processes start."""

    async def start(self) -> asyncio.subprocess.Process:
        template = forked.template_of_this_process(forked.WORKER)
        if template is None:
            return await super().start()
        ours, its = socket.socketpair()
        line = [sys.executable, "-m", forked.WORKER]
        request = {"line": line, "environment": {}, "folder": str(Path.cwd()), "session": False}
        with its:
            descriptors = {0: its.fileno(), 1: its.fileno(), 2: 2}
            pid = await asyncio.to_thread(template.start, request, descriptors)
        reader, writer = await asyncio.open_connection(sock=ours, limit=PIPE_BYTES)
        return cast("asyncio.subprocess.Process", Worker(pid, writer, reader))


@dataclass
class Worker:
    """What a pool uses of a process."""

    pid: int
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader

    def __post_init__(self) -> None:
        self._process = _Known(self.pid)

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        code = await asyncio.to_thread(self._process.wait)
        self.stdin.close()
        return code


class _Known(subprocess.Popen[Any]):
    """A child of this process that was started otherwise."""

    def __init__(self, pid: int) -> None:
        self._known = pid
        super().__init__([forked.WORKER])

    def _execute_child(self, *_given: Any) -> None:
        self.pid = self._known
        self._child_created = True
