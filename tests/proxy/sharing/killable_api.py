"""An API that dies at the end of a transaction: ``python -m tests.proxy.sharing.killable_api``.

It begins as ``ers api`` does, and serves from a process that it forks; where that one is killed, it
forks the next. So a death costs a fork, and not the start of an interpreter. Whoever connects
meanwhile waits for the next one. It says "serving" each time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from encrypted_records.listening.serving import listening
from encrypted_records.server import serve
from encrypted_records.server.db.served import Served
from tests.support.service import Service, clean_environment, free_ports
from tests.support.tables import give_tables

#: With all that the request changes, before the database has it; and once the database has it,
#: before anybody is told.
BEFORE_COMMIT, AFTER_COMMIT = "before", "after"


@dataclass
class KillableApi:
    service: Service
    #: says how the process dies at the end of the next transaction of a request
    _order: Path

    def die(self, how: str) -> None:
        self._order.write_text(how)

    def wait(self) -> None:
        """Until the next process serves; fails where nothing was killed."""
        assert not self._order.exists(), "the request ended no transaction"
        self._read()

    def _read(self) -> None:
        assert self.service.process.stdout is not None
        assert self.service.process.stdout.readline() == b"serving\n", self.service.log


@contextmanager
def running_killable_api(folder: Path) -> Iterator[KillableApi]:
    (port,) = free_ports(1)
    data, order, log = folder / "data", folder / "order", folder / "log"
    give_tables(data)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(data), str(port), str(order)],
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            cwd=Path(__file__).parents[3],
        )
    url = f"http://127.0.0.1:{port}"
    try:
        api = KillableApi(Service(process, url, "", data, log), order)
        api._read()
        yield api
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        process.stdout.close()
        process.wait(30)


def main() -> None:
    data, port, order = sys.argv[1:]
    settings = serve.ApiSettings(Path(data), "127.0.0.1", int(port), None, None, "http://127.0.0.1")
    os.umask(0o077)
    serve._prepare_folders(settings.data_dir)
    serve._set_environment(settings)
    serve._prepare_database(Served(settings.data_dir / "api"))
    _load()
    with listening(settings.host, settings.port, "--api-port") as sockets:
        while True:
            child = os.fork()
            if child == 0:
                os.close(sys.stdout.fileno())
                _die_when_told(Path(order))
                serve._serve(settings, sockets, first=True)
                os._exit(0)
            print("serving", flush=True)  # noqa: T201 - whoever has started it waits for this
            _stop_with(child)
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
                return


def _load() -> None:
    """All that the first request would load."""
    from django.urls import get_resolver

    from encrypted_records.server.wsgi import application

    assert application
    assert get_resolver().url_patterns


def _stop_with(child: int) -> None:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)


def _die_when_told(order: Path) -> None:
    """Have this process die where a transaction of a request ends, once there is an order."""
    from django.core.signals import request_finished, request_started
    from django.db.backends.base.base import BaseDatabaseWrapper

    # Other threads sweep and send mail.
    asked = threading.local()
    request_started.connect(lambda **_: setattr(asked, "now", True), weak=False)
    request_finished.connect(lambda **_: setattr(asked, "now", False), weak=False)
    wrapper: Any = BaseDatabaseWrapper
    commit = wrapper._commit

    def commit_or_die(self: BaseDatabaseWrapper) -> None:
        how = ""
        if getattr(asked, "now", False):
            with suppress(FileNotFoundError):
                how = order.read_text()
                order.unlink()
        if how == BEFORE_COMMIT:
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self)
        if how == AFTER_COMMIT:
            os.kill(os.getpid(), signal.SIGKILL)

    wrapper._commit = commit_or_die


if __name__ == "__main__":
    main()
