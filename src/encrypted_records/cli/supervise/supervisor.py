"""Start the proxy, or both sides, and end them together.

It imports the proxy, and :mod:`.api` the API, only to start them. ``ers up`` runs each as a
separate child process, so that a crash of one cannot corrupt the other and the API's process never
holds a key. Rules:

- detectable problems are refused before anything starts: a missing extra, the folder, the ports;
- settings reach the children through the environment, because arguments show in ``ps``;
- the service is ready when the proxy's status answers 200, not before;
- if one side ends, the other is ended too; on SIGTERM, SIGINT or SIGHUP both are ended, the proxy
  first, and a side that does not end is killed;
- if this process is killed outright, the children end by themselves (:mod:`.startup`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from encrypted_records.cli import data_folder
from encrypted_records.cli.settings import LOCAL, Settings, variable
from encrypted_records.cli.state_file import door_path
from encrypted_records.cli.supervise import startup
from encrypted_records.cli.supervise.operating import mirror_to_read
from encrypted_records.errors import ErsError, ProxyUnreachable, Startup
from encrypted_records.model.credentials import INLINE_HEADER

if TYPE_CHECKING:
    from encrypted_records.client.proxy.client import ProxyClient

#: Seconds for an orderly end of both sides; the documentation promises ten.
STOP_SECONDS = 8.5
#: Seconds for the proxy to finish accepted work before the API is told to end.
HEAD_START_SECONDS = 2.5
#: Seconds until the service must be ready; migrations of a large database take long.
READY_SECONDS = 120.0
_POLL_SECONDS = 0.1
#: Prefixes of variables that unlock keys: the API must not get them, not even unread.
_OF_THE_PROXY_ALONE = (
    *("ERS_KEYRING_", "ERS_VAULT_", "ERS_AWS_KMS_", "ERS_GOOGLE_KMS_", "ERS_AZURE_", "ERS_PKCS11_"),
)
#: Variables of clients, which a side does not use.
_OF_CLIENTS = ("ERS_DEVICE", "ERS_EMAIL", "ERS_PASSWORD", "ERS_SERVICE", "ERS_TOKEN")
#: Variables for a child proxy: that the API next to it belongs to the same user, and the secret of
#: the only command that it serves.
_OWN_API, _INLINE_SECRET = "ERS_BESIDE_OWN_API", "ERS_INLINE_SECRET"


def run_proxy(settings: Settings, *, accept_stale: bool = False) -> None:
    """Run the proxy in this process until it is told to stop.

    Args:
        accept_stale: read a mirror that is older than the proxy's observations.
    """
    own_api = os.environ.pop(_OWN_API, None) is not None
    inline_secret = os.environ.pop(_INLINE_SECRET, None)
    startup.check_installed("proxy")
    # A command with an inline proxy reports at once that another proxy is running.
    with alone(settings, "proxy", wait=inline_secret is None), ExitStack() as stack:
        startup.check_port(settings.proxy_host, settings.proxy_port, "proxy")
        startup.check_metrics_port(settings.proxy_metrics_port, "proxy_metrics")
        # Only this needs the proxy.
        from encrypted_records.proxy import app  # noqa: PLC0415
        from encrypted_records.proxy.settings import MirrorPlace, ProxySettings  # noqa: PLC0415

        mirror: MirrorPlace | None = None
        if settings.mirror is not None:
            url, secret = stack.enter_context(mirror_to_read(settings.mirror))
            mirror = MirrorPlace(settings.mirror, secret, accept_stale)
            settings = dataclasses.replace(settings, base_url=url)
        app.run(
            ProxySettings(
                data_dir=settings.data_dir,
                host=settings.proxy_host,
                port=settings.proxy_port,
                base_url=settings.base_url,
                log_format=settings.log_format,
                page_cache=settings.page_cache,
                memory_cache=settings.memory_cache,
                lock_after=settings.lock_after,
                webhooks=settings.webhooks,
                access=settings.access,
                own_api=own_api,
                door=door_path(settings.proxy_port),
                inline_secret=inline_secret,
                mirror=mirror,
                metrics_port=settings.proxy_metrics_port,
                allowed_hosts=tuple(
                    name.strip()
                    for name in (settings.allowed_hosts or "").split(",")
                    if name.strip()
                ),
            )
        )


@contextmanager
def alone(settings: Settings, role: str, *, wait: bool = True) -> Iterator[None]:
    """Prepare the data folder and lock it exclusively; new files in it are readable only by their
    owner.

    Args:
        wait: for another process to end, see :func:`data_folder.hold`.
    """
    os.umask(0o077)
    startup.end_with_parent()
    data_folder.prepare(settings.data_dir, [role])
    with data_folder.hold(settings.data_dir, role, wait=wait):
        yield


def command_line(side: str) -> list[str]:
    """The command line that starts a side. It contains no settings, because arguments are visible
    in ``ps``.
    """
    return [sys.executable, "-m", "encrypted_records.cli.main", side]


async def serve_both(
    settings: Settings,
    when_ready: Callable[[], Awaitable[None]],
    *,
    log_file: Path | None = None,
    ready_seconds: float = READY_SECONDS,
    starter: Callable[[str], list[str]] = command_line,
) -> int:
    """Run both sides until this process is told to stop.

    Returns:
        The exit code: 0, or the code of a side that could not start and has reported it on stderr.

    Args:
        log_file: the sides' log, instead of stderr.
        when_ready: awaited when both sides answer; the service continues when it returns, and ends
            when it raises.
        ready_seconds: time limit for both sides to answer.
        starter: the command line of a side.

    Raises:
        Startup: the service cannot start, or one side ended unexpectedly.
        ErsError: an error from ``when_ready``.
    """
    startup.check_installed("api", "proxy")
    data_folder.prepare(settings.data_dir)
    with data_folder.hold(settings.data_dir, "up"):
        for role in ("api", "proxy"):
            # The sides of a killed `ers up` may still be ending.
            with data_folder.hold(settings.data_dir, role):
                pass
        startup.check_ports(settings)
        stop = on_signal()
        async with _children(settings, log_file, starter) as sides:
            work = asyncio.create_task(_when_ready(settings, when_ready, ready_seconds))
            stopped = asyncio.create_task(stop.wait())
            ends = [side.end for side in sides]
            try:
                await asyncio.wait([work, stopped, *ends], return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    work.result()
                    await asyncio.wait([stopped, *ends], return_when=asyncio.FIRST_COMPLETED)
            finally:
                work.cancel()
                stopped.cancel()
            if stop.is_set():
                return 0
            ready = work.done() and not work.cancelled()
            return _blame(sides, log_file, spoken=not ready and log_file is None)


def on_signal() -> asyncio.Event:
    """An event that is set when this process receives a signal to end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # nohup makes the process ignore SIGHUP; keep that.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop.set)
    return stop


async def _when_ready(
    settings: Settings, then: Callable[[], Awaitable[None]], seconds: float
) -> None:
    from encrypted_records.client.proxy.client import ProxyClient  # noqa: PLC0415 - slow to import

    try:
        async with asyncio.timeout(seconds):
            # The API first; otherwise the proxy would log every request that it could not forward.
            for url in (settings.api_url, settings.proxy_url):
                async with ProxyClient(url) as client:
                    while not await _answers(client):  # noqa: ASYNC110 - it happens elsewhere
                        await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise Startup(
            f"the service was not ready within {seconds:.0f} seconds",
            hint="the log says what it was waiting for",
        ) from None
    await then()


async def _answers(client: ProxyClient) -> bool:
    with suppress(ErsError):
        await client.status()
        return True
    return False


@asynccontextmanager
async def inline_proxy(settings: Settings) -> AsyncIterator[tuple[str, str]]:
    """Run a proxy as a child of this process, on a free port of this machine; yields its URL, and
    the secret that it requires.

    Its log is discarded unless it fails to start.

    Raises:
        Startup: the proxy cannot start, for instance because another proxy uses the data folder.
    """
    startup.check_installed("proxy")
    settings = dataclasses.replace(settings, proxy_host=LOCAL, proxy_port=startup.free_port())
    with tempfile.TemporaryFile() as log:
        reading, writing = os.pipe()
        secret = secrets.token_urlsafe(32)
        given = {_INLINE_SECRET: secret}
        side = await _start(
            command_line("proxy"),
            "proxy",
            settings,
            reading,
            log.fileno(),
            base_url=settings.base_url,
            given=given,
        )
        try:
            await _until_it_answers(side, settings.proxy_url, secret, log)
            yield settings.proxy_url, secret
        finally:
            await _end([side])
            os.close(reading)
            os.close(writing)


async def _until_it_answers(side: _Side, url: str, secret: str, log: IO[bytes]) -> None:
    from encrypted_records.client.proxy.client import ProxyClient  # noqa: PLC0415 - slow to import

    async with ProxyClient(url, headers={INLINE_HEADER: secret}) as client:
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
    lines = log.read().decode(errors="replace").splitlines()
    reasons = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    hints = [line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")]
    raise Startup(
        f"the inline proxy did not start: {reasons[-1] if reasons else 'it ended at once'}",
        hint=hints[-1] if hints else "run ers proxy to see why",
    )


@dataclass(frozen=True)
class _Side:
    name: str
    process: asyncio.subprocess.Process
    end: asyncio.Task[int]


@asynccontextmanager
async def _children(
    settings: Settings, log_file: Path | None, starter: Callable[[str], list[str]]
) -> AsyncIterator[list[_Side]]:
    """Run both sides as child processes; all of them have ended when the block ends."""
    reading, writing = os.pipe()
    # stdout is only for our messages: the sides' lines all go to stderr, or to the file.
    log = 2 if log_file is None else _open_log(log_file)
    sides: list[_Side] = []
    try:
        for command in ("api", "proxy"):
            # Keys and database in the same folder belong to the same user of this machine.
            given = {_OWN_API: "yes"} if settings.database_url is None else {}
            sides.append(
                await _start(starter(command), command, settings, reading, log, given=given)
            )
        yield sides
    finally:
        await _end(sides)
        for descriptor in {reading, writing, log} - {2}:
            os.close(descriptor)


def _open_log(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


async def _start(
    line: Sequence[str],
    command: str,
    settings: Settings,
    lifeline: int,
    log: int,
    *,
    base_url: str | None = None,
    given: Mapping[str, str] | None = None,
) -> _Side:
    """Start a side.

    Args:
        line: the command line.
        base_url: the API's URL for a proxy without a local API.
        given: variables for this child only.
    """
    process = await asyncio.create_subprocess_exec(
        *line,
        env={
            **environment(settings, command, base_url),
            **(given or {}),
            startup.PARENT_PIPE: str(lifeline),
        },
        pass_fds=(lifeline,),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        # A new session: Ctrl-C reaches only us, and we end the children in order.
        start_new_session=True,
    )
    name = "API" if command == "api" else command
    return _Side(name, process, asyncio.create_task(process.wait()))


def environment(settings: Settings, command: str, base_url: str | None = None) -> dict[str, str]:
    """A child's environment: the relevant part of ours, with a value for every setting."""
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
    ours = {
        name: value
        for name, value in os.environ.items()
        if name not in (_OWN_API, _INLINE_SECRET, *_OF_CLIENTS)
    }
    if command == "api":
        ours = {n: v for n, v in ours.items() if not n.startswith(_OF_THE_PROXY_ALONE)}
    return {**ours, **chosen, "ERS_CONFIG": os.devnull}


async def _end(sides: list[_Side]) -> None:
    """End the sides in reverse order of their start; kill those that do not end."""
    start = asyncio.get_running_loop().time()
    for side in reversed(sides):
        with suppress(ProcessLookupError):
            side.process.terminate()
        await asyncio.wait([side.end], timeout=HEAD_START_SECONDS)
    for side in sides:
        left = start + STOP_SECONDS - asyncio.get_running_loop().time()
        await asyncio.wait([side.end], timeout=max(left, 0))
        # The child leads a process group: this also kills workers that outlived it.
        with suppress(
            ProcessLookupError, PermissionError
        ):  # macOS says the latter of an empty group
            os.killpg(side.process.pid, signal.SIGKILL)
        await side.end


def _blame(sides: list[_Side], log_file: Path | None, *, spoken: bool) -> int:
    """Report the side that ended, unless it has ``spoken``; returns its exit code."""
    ended = next(side for side in sides if side.end.done())
    code = ended.end.result()
    if spoken and code > 0:
        return code
    how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
    raise Startup(
        f"the {ended.name} ended ({how}), so both are stopped",
        hint=f"its message is {'above' if log_file is None else f'in {log_file}'}",
    )
