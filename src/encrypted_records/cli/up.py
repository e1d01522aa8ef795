"""Start the API, the proxy, or both, and end them together.

The only module of the command line that knows the two sides, and only to start them. ``ers up``
runs each as a child process of its own, so that a crash of one cannot corrupt the other and the
API's process never holds a key. Rules upheld here:

- what can be refused is refused before anything starts: the folder, the ports;
- settings reach the children through the environment, since arguments show in ``ps``;
- the service is ready when the proxy's status answers 200, not before;
- if one side ends, the other is ended too; on SIGTERM, SIGINT or SIGHUP both are ended, the
  proxy first, and whatever is left in the end is killed;
- if this process is killed outright, the children end by themselves (:mod:`.parent`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from encrypted_records.cli import data_folder, parent
from encrypted_records.cli.settings import LOCAL, Settings, flag, variable
from encrypted_records.errors import ErsError, ProxyUnreachable, Startup

if TYPE_CHECKING:
    from encrypted_records.client.proxy import ProxyClient

#: Seconds both sides may take for an orderly end; ten are promised.
STOP_SECONDS = 8.5
#: Seconds the proxy has for handing over what it has accepted before the API is told to end.
HEAD_START_SECONDS = 2.5
#: Seconds until the service must be ready; migrations of a large database may take their time.
READY_SECONDS = 120.0
_POLL_SECONDS = 0.1
#: Variables of these beginnings unlock keys: the API must not have them, not even unread.
_OF_THE_PROXY_ALONE = ("ERS_KEYRING_", "ERS_VAULT_")


def run_api(settings: Settings) -> None:
    """Run the API in this process until it is told to stop."""
    with _alone(settings, "api"):
        check_port(settings.api_host, settings.api_port, "api")
        _check_metrics_port(settings.api_metrics_port, "api_metrics")
        # Django's settings read these from the environment alone.
        os.environ[variable("allowed_hosts")] = settings.allowed_hosts or ""
        os.environ[variable("admin")] = settings.admin or ""
        from encrypted_records.server import serve  # noqa: PLC0415 - only this needs Django

        serve.run(
            serve.ApiSettings(
                data_dir=settings.data_dir,
                host=settings.api_host,
                port=settings.api_port,
                database_url=settings.database_url,
                email_url=settings.email_url,
                public_url=settings.public_url or settings.api_url,
                log_format=settings.log_format,
                metrics_port=settings.api_metrics_port,
            )
        )


def run_proxy(settings: Settings) -> None:
    """Run the proxy in this process until it is told to stop."""
    with _alone(settings, "proxy"):
        check_port(settings.proxy_host, settings.proxy_port, "proxy")
        _check_metrics_port(settings.proxy_metrics_port, "proxy_metrics")
        from encrypted_records.proxy import app  # noqa: PLC0415 - only this needs the proxy

        app.run(
            app.ProxySettings(
                data_dir=settings.data_dir,
                host=settings.proxy_host,
                port=settings.proxy_port,
                base_url=settings.base_url,
                log_format=settings.log_format,
                page_cache=settings.page_cache,
                metrics_port=settings.proxy_metrics_port,
                allowed_hosts=tuple(
                    name.strip()
                    for name in (settings.allowed_hosts or "").split(",")
                    if name.strip()
                ),
            )
        )


@contextmanager
def _alone(settings: Settings, role: str) -> Iterator[None]:
    """Have the data folder ready and to ourselves; what is made in it is for its owner alone."""
    os.umask(0o077)
    parent.end_with_parent()
    data_folder.prepare(settings.data_dir)
    with data_folder.held(settings.data_dir, role):
        yield


def check_port(host: str, port: int, side: str) -> None:
    """Make sure that a listener can be opened.

    Raises:
        Startup: it cannot; the hint names the flag that changes it.
    """
    hint = f"choose another with {flag(f'{side}_port')} or {variable(f'{side}_port')}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} of {host} is in use"
        elif error.errno == errno.EACCES:
            message = f"port {port} is not open to this user"
        else:
            message = f"cannot listen on {host} port {port}: {(error.strerror or '').lower()}"
            hint = f"choose an address of this machine with {flag(f'{side}_host')}"
        raise Startup(message, hint=hint) from None


async def serve_both(
    settings: Settings, when_ready: Callable[[], Awaitable[None]], *, log_file: Path | None = None
) -> int:
    """Run both sides until this process is told to stop.

    Returns:
        The exit code: 0, or that of a side which could not start and has said why on stderr.

    Args:
        log_file: where the sides log to instead of stderr.
        when_ready: awaited once both answer; the service stays up when it returns, and is ended
            when it raises.

    Raises:
        Startup: something is in the way, or one side ended by itself.
        ErsError: what ``when_ready`` raised.
    """
    data_folder.prepare(settings.data_dir)
    with data_folder.held(settings.data_dir, "up"):
        _check_ports(settings)
        stop = _on_signal()
        async with _children(settings, log_file) as sides:
            work = asyncio.create_task(_when_ready(settings, when_ready))
            told = asyncio.create_task(stop.wait())
            ends = [side.end for side in sides]
            try:
                await asyncio.wait([work, told, *ends], return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    work.result()
                    await asyncio.wait([told, *ends], return_when=asyncio.FIRST_COMPLETED)
            finally:
                work.cancel()
                told.cancel()
            if stop.is_set():
                return 0
            ready = work.done() and not work.cancelled()
            return _blame(sides, log_file, spoken=not ready and log_file is None)


def _check_ports(settings: Settings) -> None:
    if settings.api_port == settings.proxy_port and settings.api_host == settings.proxy_host:
        raise Startup(
            f"API and proxy cannot both listen on port {settings.api_port}",
            hint="choose another with --proxy-port",
        )
    check_port(settings.api_host, settings.api_port, "api")
    check_port(settings.proxy_host, settings.proxy_port, "proxy")
    _check_metrics_port(settings.api_metrics_port, "api_metrics")
    _check_metrics_port(settings.proxy_metrics_port, "proxy_metrics")


def _check_metrics_port(port: int | None, name: str) -> None:
    if port is not None:
        check_port(LOCAL, port, name)


def _on_signal() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # Under nohup the closing of the terminal is to be ignored, and stays so.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop.set)
    return stop


async def _when_ready(settings: Settings, then: Callable[[], Awaitable[None]]) -> None:
    from encrypted_records.client.proxy import ProxyClient  # noqa: PLC0415 - slow to import

    try:
        async with asyncio.timeout(READY_SECONDS):
            # The API first, or the proxy would log every question that it could not pass on.
            for url in (settings.api_url, settings.proxy_url):
                async with ProxyClient(url) as client:
                    while not await _answers(client):  # noqa: ASYNC110 - it happens elsewhere
                        await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise Startup(
            f"the service was not ready within {READY_SECONDS:.0f} seconds",
            hint="the log says what it was waiting for",
        ) from None
    await then()


async def _answers(client: ProxyClient) -> bool:
    with suppress(ErsError):
        await client.status()
        return True
    return False


@asynccontextmanager
async def proxy_beside(settings: Settings) -> AsyncIterator[str]:
    """A proxy as a child of this process, on a free port of this machine; yields its URL.

    What it logs is dropped, unless it cannot start.

    Raises:
        Startup: it cannot, for instance because another proxy uses the data folder.
    """
    settings = dataclasses.replace(settings, proxy_host=LOCAL, proxy_port=_free_port())
    with tempfile.TemporaryFile() as log:
        reading, writing = os.pipe()
        side = await _start("proxy", settings, reading, log.fileno(), base_url=settings.base_url)
        try:
            await _until_it_answers(side, settings.proxy_url, log)
            yield settings.proxy_url
        finally:
            await _end([side])
            os.close(reading)
            os.close(writing)


def _free_port() -> int:
    with socket.create_server((LOCAL, 0)) as probe:
        return int(probe.getsockname()[1])


async def _until_it_answers(side: _Side, url: str, log: IO[bytes]) -> None:
    from encrypted_records.client.proxy import ProxyClient  # noqa: PLC0415 - slow to import

    async with ProxyClient(url) as client:
        while not side.end.done():
            try:
                await client.status()
            except ProxyUnreachable:
                await asyncio.sleep(_POLL_SECONDS)
            except ErsError:
                return  # it answers, if only that the API does not: let the command hear that
            else:
                return
    log.seek(0)
    said = log.read().decode(errors="replace").splitlines()
    reasons = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
    hints = [line.removeprefix("hint: ") for line in said if line.startswith("hint: ")]
    raise Startup(
        f"no inline proxy: {reasons[-1] if reasons else 'it ended at once'}",
        hint=hints[-1] if hints else "start one to see why: ers proxy",
    )


@dataclass(frozen=True)
class _Side:
    name: str
    process: asyncio.subprocess.Process
    end: asyncio.Task[int]


@asynccontextmanager
async def _children(settings: Settings, log_file: Path | None) -> AsyncIterator[list[_Side]]:
    """Both sides as child processes; none of them is left when the block is."""
    reading, writing = os.pipe()
    # stdout is for what we say ourselves: the sides' lines all go to stderr, or to the file.
    log = 2 if log_file is None else _open_log(log_file)
    sides: list[_Side] = []
    try:
        for command in ("api", "proxy"):
            sides.append(await _start(command, settings, reading, log))
        yield sides
    finally:
        await _end(sides)
        for descriptor in {reading, writing, log} - {2}:
            os.close(descriptor)


def _open_log(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


async def _start(
    command: str, settings: Settings, lifeline: int, log: int, *, base_url: str | None = None
) -> _Side:
    """Start a side; ``base_url`` is the API of a proxy that runs without ours."""
    process = await asyncio.create_subprocess_exec(
        *_command_line(command),
        env=_environment(settings, command, base_url) | {parent.VARIABLE: str(lifeline)},
        pass_fds=(lifeline,),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        # A session of its own: Ctrl-C reaches only us, and the children end in our order.
        start_new_session=True,
    )
    name = "API" if command == "api" else command
    return _Side(name, process, asyncio.create_task(process.wait()))


def _command_line(command: str) -> list[str]:
    """No setting is in it: arguments show in ``ps``."""
    return [sys.executable, "-m", "encrypted_records.cli.main", command]


def _environment(settings: Settings, command: str, base_url: str | None) -> dict[str, str]:
    """A child's environment: ours as far as it concerns the child, with every setting decided."""
    decided = dataclasses.replace(
        settings,
        data_dir=settings.data_dir.absolute(),
        base_url=base_url or settings.api_url,
        public_url=settings.public_url or settings.proxy_url,
    )
    chosen = {
        variable(name): "" if value is None else str(value)
        for name, value in dataclasses.asdict(decided).items()
    }
    ours = dict(os.environ)
    if command == "api":
        ours = {n: v for n, v in ours.items() if not n.startswith(_OF_THE_PROXY_ALONE)}
    return {**ours, **chosen, "ERS_CONFIG": os.devnull}


async def _end(sides: list[_Side]) -> None:
    """End the sides, the last started first; kill what does not."""
    start = asyncio.get_running_loop().time()
    for side in reversed(sides):
        with suppress(ProcessLookupError):
            side.process.terminate()
        await asyncio.wait([side.end], timeout=HEAD_START_SECONDS)
    for side in sides:
        left = start + STOP_SECONDS - asyncio.get_running_loop().time()
        await asyncio.wait([side.end], timeout=max(left, 0))
        # The child leads its own group: this also takes workers that outlived it.
        with suppress(
            ProcessLookupError, PermissionError
        ):  # macOS says the latter of an empty group
            os.killpg(side.process.pid, signal.SIGKILL)
        await side.end


def _blame(sides: list[_Side], log_file: Path | None, *, spoken: bool) -> int:
    """Say which side ended, unless it has ``spoken``: then its exit code is all there is to add."""
    ended = next(side for side in sides if side.end.done())
    code = ended.end.result()
    if spoken and code > 0:
        return code
    how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
    raise Startup(
        f"the {ended.name} ended ({how}), so both are stopped",
        hint=f"its own message is {'above' if log_file is None else f'in {log_file}'}",
    )
