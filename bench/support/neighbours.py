"""What somebody's request costs others: a cheap search of another user's, put again and again
beside it, and how long each of these waited."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.support.service import Service, call
from tests.support.store import Store, new_store

#: Seconds between two questions of the neighbour's.
PAUSE = 0.005
PATIENCE = 120.0
DEFINITION = {
    "type": "object",
    "properties": {"number": {"type": "integer", "minimum": 0, "maximum": 1000}},
}


@dataclass(frozen=True)
class Asked:
    """One request's answer, of which only a beginning is kept, and the seconds that it took."""

    status: int
    seconds: float
    begin: bytes
    size: int


class Caller:
    """An account with an access token, so that no request costs a password's hash."""

    def __init__(self, store: Store) -> None:
        self.store = store
        credentials = {"email": store.account.email, "password": store.account.password}
        answer = call("POST", f"{store.service.base_url}/api/token/", credentials)
        assert answer.status == 200, answer
        self.auth = {"Authorization": f"Bearer {answer.json()['access']}"}
        self.netloc = urlsplit(store.service.proxy_url).netloc

    def connection(self) -> http.client.HTTPConnection:
        made = http.client.HTTPConnection(self.netloc, timeout=PATIENCE)
        made.connect()
        made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        connection: http.client.HTTPConnection | None = None,
    ) -> Asked:
        """``body`` is JSON unless ``headers`` say otherwise."""
        own = connection or self.connection()
        sent = {"Content-Type": "application/json"} | dict(headers or {})
        sent |= {} if "Cookie" in sent else self.auth
        started = time.perf_counter()
        own.request(method, path, body, sent)
        answer = own.getresponse()
        begin = answer.read(1000)
        size = len(begin)
        while piece := answer.read(1 << 20):
            size += len(piece)
        seconds = time.perf_counter() - started
        if connection is None:
            own.close()
        return Asked(answer.status, seconds, begin, size)


class Neighbour(Caller):
    """Somebody with some records in a schema of their own. ``service.process`` is the proxy's."""

    def __init__(self, service: Service) -> None:
        store = new_store(service, DEFINITION)
        store.ingest([{"number": at} for at in range(50)])
        super().__init__(store)
        where = {"field": "number", "op": "eq", "value": 7}
        self._question = json.dumps({"schema": store.schema, "where": where}).encode()
        # Linux's clock of another process's processor time: clock_getcpuclockid(3).
        self._clock = (~service.process.pid << 3) | 2

    def search(self, connection: http.client.HTTPConnection) -> Wait:
        path = "/api/records/search/"
        before = time.clock_gettime(self._clock)
        found = self.ask("POST", path, self._question, connection=connection)
        assert found.status == 200, found
        return Wait(found.seconds, time.clock_gettime(self._clock) - before)

    @contextmanager
    def asking(self) -> Iterator[Waits]:
        """Searches go on while the block runs, and for the one that is under way at its end."""
        waits, stop = Waits(), threading.Event()
        connection = self.connection()
        self.search(connection)

        def work() -> None:
            try:
                while not stop.wait(PAUSE):
                    waits.every.append(self.search(connection))
            except Exception as error:  # told in the thread that waits for this one
                waits.broken = error
            connection.close()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield waits
        finally:
            stop.set()
            thread.join()
        assert waits.broken is None, waits.broken


@dataclass(frozen=True)
class Wait:
    """``seconds`` as the neighbour saw them, and ``busy`` those of a processor that the proxy used
    meanwhile, for whomever."""

    seconds: float
    busy: float

    @property
    def held(self) -> float:
        """For how long the proxy kept the neighbour waiting, at most: other programs on this
        machine may have made the wait longer, and no work of the proxy's."""
        return min(self.seconds, self.busy)


@dataclass
class Waits:
    every: list[Wait] = field(default_factory=list)
    broken: Exception | None = None

    @property
    def held(self) -> float:
        return max((wait.held for wait in self.every), default=0.0)

    @property
    def longest(self) -> float:
        return max((wait.seconds for wait in self.every), default=0.0)


def records(schema: str, rows: Any) -> bytes:
    """The body of a direct ingest, letters as they are."""
    data = [{"schema": schema, "data": row} for row in rows]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
