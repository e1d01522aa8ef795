"""API and proxy as two services of their own, so that something can stand between them."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from tests.support.eventually import comes_about
from tests.support.forked import Forked
from tests.support.relay import Relay, relaying
from tests.support.service import (
    ERS,
    READY_SECONDS,
    STOP_SECONDS,
    Service,
    call,
    clean_environment,
    free_ports,
    state_of,
)


@contextmanager
def running_sides(folder: Path) -> Iterator[tuple[Service, Fog]]:
    """Both sides, with a :class:`Fog` between them that is clear at first."""
    api_port, proxy_port = free_ports(2)
    api_url, proxy_url = (f"http://127.0.0.1:{port}" for port in (api_port, proxy_port))

    log = folder / "sides.log"
    with ExitStack() as stack:
        fog = stack.enter_context(running_fog(api_port))
        api = {"ERS_DATA_DIR": str(folder / "api"), "ERS_API_PORT": str(api_port)}
        fog.api = stack.enter_context(running_side("api", api, api_url, log)).pid
        proxy = {
            "ERS_DATA_DIR": str(folder / "proxy"),
            "ERS_PROXY_PORT": str(proxy_port),
            "ERS_BASE_URL": f"http://127.0.0.1:{fog.port}",
            "ERS_ACCESS": "api",
            "XDG_STATE_HOME": str(state_of(folder / "api")),
        }
        process = stack.enter_context(running_side("proxy", proxy, proxy_url, log))
        yield Service(process, api_url, proxy_url, folder / "api", log), fog


@contextmanager
def full_disk(proxy: Service, largest: int) -> Iterator[None]:
    """No file of the proxy grows beyond so many bytes: the next one is refused as by a full disk.

    Of workers, those that it starts meanwhile are meant as well.
    """
    limit = resource.RLIMIT_FSIZE
    _, most = resource.prlimit(proxy.process.pid, limit)
    resource.prlimit(proxy.process.pid, limit, (largest, most))
    try:
        yield
    finally:
        resource.prlimit(proxy.process.pid, limit, (most, most))


@contextmanager
def running_side(
    command: str,
    settings: Mapping[str, str],
    url: str,
    log: Path,
    *,
    ready: int = 200,
    program: Sequence[str | Path] = ERS,
) -> Iterator[subprocess.Popen[bytes]]:
    """``ers api`` or ``ers proxy``, once the status at ``url`` is answered with ``ready``."""
    with log.open("ab") as output:
        process = Forked(
            [*program, command],
            env=clean_environment(**settings),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                return call("GET", f"{url}/api/status/").status == ready
            except OSError:
                return False

        assert comes_about(is_ready, READY_SECONDS), log.read_text()
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


class Fog(Relay):
    """Forwards connections to a port, or none."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self._fallen = False
        #: process id of the API behind it
        self.api = 0
        self._open: set[socket.socket] = set()

    def fall(self) -> None:
        """Break all connections from now on, and those that there are."""
        self._fallen = True
        for one in list(self._open):
            _end(one)

    def lift(self) -> None:
        self._fallen = False

    def _take(self, client: socket.socket) -> None:
        if self._fallen:
            client.close()
            return
        server = socket.create_connection(self._target)
        self._open.add(client)
        for one, other in ((client, server), (server, client)):
            threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        self._open -= {source, sink}
        _end(source)
        _end(sink)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def running_fog(target: int) -> AbstractContextManager[Fog]:
    return relaying(Fog(target))
