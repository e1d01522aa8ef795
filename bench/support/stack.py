"""What benchmarks over HTTP start, and how they ask: one connection, one question after another."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from bench.jobs import send
from bench.support import people
from tests.support import jobs
from tests.support.service import Account, Service, call, free_ports, state_of
from tests.support.sides import running_side
from tests.support.store import Store, new_store
from tests.support.swift import running_swift

PATIENCE = 4 * 3600.0
#: For which a connection is idle at most: proxy and API close theirs after five seconds.
IDLE_SECONDS = 3.0
NOTHING_MORE: Mapping[str, str] = MappingProxyType({})
BUCKET = "records"


@contextmanager
def kept(folder: Path | None) -> Iterator[Path]:
    """A folder that stays, or a temporary one; open to PostgreSQL's own user."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="ers-bench-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def database(server: str, name: str) -> str:
    """The URL of the database ``name``, made if there is none."""
    with (
        psycopg.connect(f"{server}/postgres", autocommit=True) as connection,
        suppress(psycopg.errors.DuplicateDatabase),
    ):
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return f"{server}/{name}"


@contextmanager
def running_bulk_store(folder: Path, kind: str) -> Iterator[Mapping[str, str]]:
    """The variables by which an API finds a store of objects: ``files`` in its data folder, or
    ``swift``, which keeps in ``folder`` what it has."""
    if kind == "files":
        yield {}
        return
    own = folder / kind
    is_new = not own.exists()
    own.mkdir(exist_ok=True)
    with running_swift(own) as swift:
        if is_new:
            swift.make_bucket(BUCKET)
        url = f"s3://{BUCKET}/bench?endpoint={swift.endpoint}"
        yield {"ERS_BULK_URL": url, **swift.credentials}


@contextmanager
def running_api(
    folder: Path, database_url: str | None, environment: Mapping[str, str] = NOTHING_MORE
) -> Iterator[tuple[str, int]]:
    """Its URL and process id."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    settings = {"ERS_DATA_DIR": str(folder / "api"), "ERS_API_PORT": str(port)}
    settings |= {"ERS_DATABASE_URL": database_url} if database_url else {}
    settings |= environment
    with running_side("api", settings, url, folder / "sides.log") as process:
        yield url, process.pid


@contextmanager
def running_proxy(
    folder: Path,
    base_url: str,
    name: str = "proxy",
    environment: Mapping[str, str] = NOTHING_MORE,
) -> Iterator[Service]:
    """A proxy with a data folder of its own beside the API's."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    settings = {
        "ERS_DATA_DIR": str(folder / name),
        "ERS_PROXY_PORT": str(port),
        "ERS_BASE_URL": base_url,
        "ERS_ACCESS": "api",
        "XDG_STATE_HOME": str(state_of(folder / "api")),
        **environment,
    }
    with running_side("proxy", settings, url, folder / "sides.log") as process:
        yield Service(process, base_url, url, folder / "api", folder / "sides.log")


@contextmanager
def running_plain(database_url: str) -> Iterator[tuple[str, int]]:
    """URL and process id of the view of :mod:`.plain` on a database that it has loaded."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.support.plain", str(port)],
        env=os.environ | {"PLAIN_DATABASE_URL": database_url},
    )
    try:
        while True:
            assert process.poll() is None
            with suppress(OSError):
                if call("GET", f"{url}/api/status/").status == 200:
                    break
            time.sleep(0.05)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()


def stored_people(folder: Path, service: Service, file: Path) -> tuple[Store, str]:
    """The store with the records of ``file``, uploaded now unless ``folder`` has it; and how fast.

    All merging is done when this returns.
    """
    note = folder / "store.json"
    if note.exists():
        told = json.loads(note.read_text())
        return Store(service, Account(**told["account"]), told["schema"]), told["rate"]
    store = new_store(service, people.DEFINITION)
    began = time.monotonic()
    path = send(store, people.as_upload(file, store.schema_id), "text/csv", 1000)
    count = jobs.completed(store, path, within=PATIENCE)["total"]
    completed = time.monotonic() - began
    merge(store)
    merged = time.monotonic() - began - completed
    rate = f"{count / completed:,.0f} records/s, then {merged:.0f} s of merging"
    note.touch(mode=0o600)
    account = asdict(store.account)
    note.write_text(json.dumps({"account": account, "schema": store.schema, "rate": rate}))
    return store, rate


def merge(store: Store) -> None:
    """Until nothing is worth merging."""
    asking = Asking(store.service.proxy_url, {"Authorization": store.account.auth})
    while not asking.post(f"{store.schema}merge/", {})["done"]:
        pass
    asking.close()


class Asking:
    """One connection to one server, made anew where nothing was asked for so long that the server
    may be about to close it."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._headers = {"Content-Type": "application/json", **headers}
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
        self._connect()

    def _connect(self) -> None:
        self._used = time.monotonic()
        self._connection.close()
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, path: str, body: Any, **headers: str) -> Any:
        return self._ask("POST", path, json.dumps(body), headers)

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None)

    def _ask(
        self, method: str, path: str, body: str | None, headers: Mapping[str, str] | None = None
    ) -> Any:
        if time.monotonic() - self._used > IDLE_SECONDS:
            self._connect()
        self._connection.request(method, path, body, {**self._headers, **(headers or {})})
        answer = self._connection.getresponse()
        text = answer.read()
        self._used = time.monotonic()
        assert answer.status in (200, 201), text
        return json.loads(text)

    def close(self) -> None:
        self._connection.close()


def logged_in(store: Store) -> Asking:
    """A connection to the proxy that bears an access token, used once so that all is connected."""
    credentials = {"email": store.account.email, "password": store.account.password}
    answer = store.proxy("POST", "/api/token/", credentials)
    asking = Asking(store.service.proxy_url, {"Authorization": f"Bearer {answer.json()['access']}"})
    asking.get("/api/users/self/")
    return asking


def describe_machine() -> str:
    """What figures were measured on, as far as it matters for reading them."""
    return f"{os.cpu_count()} cores, durable writes"
