"""Run the API: in this process, or in several workers that share a port and a data folder.

With workers, this process prepares folder and database, listens, and starts the workers, which all
accept connections from its socket. It serves only metrics itself. Rules:

- settings reach workers through the environment, as they reach the sides of ``ers up``;
- a worker that ends unexpectedly is restarted, at most once a second, and the others continue;
- if workers repeatedly end right after their start, the API ends with an error;
- workers end with this process, however it ends (:mod:`.startup`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import shutil
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from encrypted_records.cli.settings import Settings, variable
from encrypted_records.cli.supervise import startup
from encrypted_records.cli.supervise.supervisor import alone, command_line, environment, on_signal
from encrypted_records.errors import Startup

if TYPE_CHECKING:
    from encrypted_records.server.serve import ApiSettings

#: Variables for a worker: the descriptors of the sockets, and whether it is the first worker.
_SOCKETS, _FIRST = "ERS_WORKER_SOCKETS", "ERS_WORKER_FIRST"
#: The folder of prometheus_client's counts for several processes, which it reads when imported.
_COUNTS = "PROMETHEUS_MULTIPROC_DIR"
#: Seconds between two starts of a worker.
_AGAIN_SECONDS = 1.0
#: A worker that ends earlier has failed to start; after this many in a row, the API gives up.
_SOON_SECONDS, _MOST_SOON = 5.0, 5
#: Seconds for an orderly end; the sides of ``ers up`` have more.
_STOP_SECONDS = 6.0
#: Settings that Django's settings module reads only from the environment.
_DJANGOS = "allowed_hosts admin replica_url bulk_url bulk_before keep_replaced erase_within".split()

_log = logging.getLogger(__name__)


def run_api(settings: Settings) -> None:
    """Run the API in this process, or in its workers, until it is told to stop.

    Raises:
        Startup: it cannot start here, or its workers cannot.
    """
    startup.check_installed("api")
    descriptors, first = os.environ.pop(_SOCKETS, None), os.environ.pop(_FIRST, None)
    if descriptors is not None:
        numbers = [int(number) for number in descriptors.split(",")]
        _work(settings, numbers, first=first is not None)
        return
    with alone(settings, "api"):
        startup.check_port(settings.api_host, settings.api_port, "api")
        startup.check_metrics_port(settings.api_metrics_port, "api_metrics")
        from encrypted_records.server import serve  # noqa: PLC0415 - only this needs Django

        given = _given(settings)
        if settings.workers == 1:
            serve.run(given)
            return
        with serve.prepared(given) as sockets, _counts(settings) as folder:
            if settings.api_metrics_port is not None and folder is not None:
                serve.tell_metrics(settings.api_metrics_port, folder)
            asyncio.run(_Workers(settings, sockets, folder).keep())


def _work(settings: Settings, descriptors: list[int], *, first: bool) -> None:
    """Serve as one of several workers, with the resources that the parent has prepared."""
    os.umask(0o077)
    startup.end_with_parent()
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    from encrypted_records.server import serve  # noqa: PLC0415 - as above

    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(fileno=number)) for number in descriptors]
        serve.work(_given(settings), sockets, first=first)


def _given(settings: Settings) -> ApiSettings:
    from encrypted_records.server.serve import ApiSettings  # noqa: PLC0415 - as above

    for name in _DJANGOS:
        os.environ[variable(name)] = str(getattr(settings, name) or "")
    return ApiSettings(
        data_dir=settings.data_dir,
        host=settings.api_host,
        port=settings.api_port,
        database_url=settings.database_url,
        email_url=settings.email_url,
        public_url=settings.public_url or settings.api_url,
        log_format=settings.log_format,
        metrics_port=settings.api_metrics_port,
        processes=settings.workers,
    )


@contextmanager
def _counts(settings: Settings) -> Iterator[Path | None]:
    """The folder in which all workers count metrics; None if metrics are disabled."""
    if settings.api_metrics_port is None:
        yield None
        return
    folder = settings.data_dir.absolute() / "api" / "counts"
    shutil.rmtree(folder, ignore_errors=True)  # remains of a killed process
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Workers:
    """The worker processes of an API.

    Args:
        settings: ``workers`` is their number.
        sockets: the sockets from which all of them accept connections.
        counts: the folder of their metrics.
    """

    def __init__(
        self, settings: Settings, sockets: list[socket.socket], counts: Path | None
    ) -> None:
        self._count = settings.workers
        self._sockets = [listening.fileno() for listening in sockets]
        self._counts = counts
        self._environment = _environment(settings, counts)
        self._running: set[Process] = set()

    async def keep(self) -> None:
        """Keep them running until this process is told to stop.

        Raises:
            Startup: they end right after their start.
        """
        stop = on_signal()
        reading, writing = os.pipe()
        keepers = [
            asyncio.create_task(self._keep_one(at, stop, reading)) for at in range(self._count)
        ]
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([stopped, *keepers], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.set()
            for process in self._running:
                _tell(process, signal.SIGTERM)
            await asyncio.wait(keepers, timeout=_STOP_SECONDS)
            for process in self._running:
                _tell(process, signal.SIGKILL)
            ends = await asyncio.gather(*keepers, return_exceptions=True)
            os.close(reading)
            os.close(writing)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    async def _keep_one(self, at: int, stop: asyncio.Event, lifeline: int) -> None:
        loop, soon = asyncio.get_running_loop(), 0
        while not stop.is_set():
            began = loop.time()
            process = await self._start(at, lifeline)
            self._running.add(process)
            if stop.is_set():
                _tell(process, signal.SIGTERM)
            code = await process.wait()
            self._running.discard(process)
            if self._counts is not None:
                from encrypted_records.server import serve  # noqa: PLC0415 - as above

                serve.forget_counts(self._counts, process.pid)
            if stop.is_set():
                return
            lived = loop.time() - began
            soon = soon + 1 if lived < _SOON_SECONDS else 0
            how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
            if soon >= _MOST_SOON:
                raise Startup(
                    f"a process of the API ended ({how}) {soon} times right after it was started",
                    hint="its own messages are above; --workers 1 runs the API in one process",
                )
            _log.warning("process %d of the API ended (%s) and is restarted", process.pid, how)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), max(0.0, _AGAIN_SECONDS - lived))

    async def _start(self, at: int, lifeline: int) -> Process:
        given = {_SOCKETS: ",".join(map(str, self._sockets)), startup.PARENT_PIPE: str(lifeline)}
        if at == 0:
            given[_FIRST] = "yes"
        return await asyncio.create_subprocess_exec(
            *command_line("api"),
            env={**self._environment, **given},
            pass_fds=(*self._sockets, lifeline),
            stdin=asyncio.subprocess.DEVNULL,
        )


def _environment(settings: Settings, counts: Path | None) -> Mapping[str, str]:
    api_settings = dataclasses.replace(
        settings, public_url=settings.public_url or settings.api_url, api_metrics_port=None
    )
    counting = {} if counts is None else {_COUNTS: str(counts)}
    return {**environment(api_settings, "api"), **counting}


def _tell(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(number)
