"""Two APIs behind HAProxy, on a PostgreSQL with a standby: one is killed, and so is the primary."""

from __future__ import annotations

import itertools
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psycopg
import pytest
import uuid_utils
from psycopg import sql

from encrypted_records.model.credentials import DEVICE_HEADER
from encrypted_records.model.ids import from_text
from tests.proxy.tus.client import RESUMABLE, Client, encoded
from tests.server.api import PASSWORD, Api, basic, free_port, start, wait_until_up
from tests.support import jobs
from tests.support.eventually import eventually
from tests.support.haproxy import running_haproxy
from tests.support.postgres import Pair, running_pair
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Account as ServiceAccount
from tests.support.service import Service, call
from tests.support.store import Store, new_schema

DEFINITION = {
    "type": "object",
    "properties": {"number": {"type": "integer", "minimum": 0, "maximum": 10**6}},
    "required": ["number"],
}
WRITERS = 3
#: Enough for several chunks.
MANY = 20_000
FEW = 100


@dataclass
class Apis:
    """Two APIs on one database, what is in front of them, and a proxy that knows only that."""

    folder: Path
    pair: Pair
    database_url: str
    both: Api
    apis: list[Api]
    proxy: Proxy

    def launch(self, at: int) -> None:
        """Start one, which its port was kept for."""
        own = self.apis[at]
        process = launched(self.folder, at, own.port, self.database_url)
        wait_until_up(own.port, process)
        self.apis[at] = replace(own, process=process)

    def kill(self, at: int) -> None:
        self.apis[at].process.kill()
        self.apis[at].process.wait(60)

    def lock_for_an_hour(self) -> None:
        """What is locked by now, stays so, however slow this machine is."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            connection.execute(
                "UPDATE accounts_tally SET until = now() + interval '1 hour' WHERE count >= 10"
            )

    def store(self) -> Store:
        """The schema of a new account, used through the proxy."""
        account = self.apis[0].new_account()
        own = ServiceAccount(account.email, account.password, account.organization)
        process = self.apis[0].process
        service = Service(
            process, f"http://127.0.0.1:{self.both.port}", self.proxy.url, self.folder, self.folder
        )
        return Store(service, own, new_schema(service, own, DEFINITION))


def launched(folder: Path, at: int, port: int, url: str) -> subprocess.Popen[bytes]:
    return start(
        folder / f"api{at}",
        port=port,
        database_url=url,
        environment={
            "ERS_SECRET_KEY_FILE": str(folder / "secret.key"),
            "ERS_BULK_URL": f"file://{folder}/objects?least=0",
            "ERS_TRUSTED_PROXIES": "127.0.0.1",
            "ERS_RATE_LIMITS": "passwords=100000/hour,register=1000/hour",
        },
    )


@pytest.fixture(scope="module")
def apis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apis]:
    folder = tmp_path_factory.mktemp("several")
    ports = [free_port(), free_port()]
    with ExitStack() as stack:
        pair = stack.enter_context(running_pair())
        with psycopg.connect(f"{pair.urls[0]}/postgres", autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE records"))
        url = f"{pair.url}/records?target_session_attrs=read-write"
        own: list[Api] = []
        for at, port in enumerate(ports):
            (folder / f"api{at}").mkdir()
            process = launched(folder, at, port, url)
            own.append(
                Api(process, port, folder / f"api{at}" / "data", folder / f"api{at}" / "log")
            )
        for one in own:
            wait_until_up(one.port, one.process)
        port = stack.enter_context(running_haproxy(folder, ports))
        both = replace(own[0], port=port)
        proxy = stack.enter_context(running_proxy(f"http://127.0.0.1:{port}", folder / "proxy"))
        made = Apis(folder, pair, url, both, own, proxy)
        try:
            yield made
        finally:
            for one in made.apis:
                one.process.kill()
                one.process.wait(60)


def patiently(api: Api, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """An answer that is none of a server that is away, as everybody asks again after those."""

    def answered() -> Any:
        try:
            answer = api.call(method, path, body, headers=headers)
        except (OSError, HTTPException):
            return None
        return None if answer.status in (502, 503, 504) else answer

    return eventually(answered, "a server answers")


class Upload:
    """A resumable upload, whose client asks where it is after each answer or lack of one."""

    def __init__(self, store: Store, data: bytes) -> None:
        headers = RESUMABLE | {DEVICE_HEADER: store.device.text}
        self._client = Client(store.service, store.account, headers)
        self._data = data
        said = encoded(filename="rows.json", filetype="application/json")
        self._path = self._client.create(len(data), Upload_Metadata=said)

    def go_on(self, end: int) -> None:
        """Send up to here."""

        def is_there() -> bool:
            head = self._client.head(self._path)
            at = int(head.headers["Upload-Offset"]) if head.status == 200 else 0
            if head.status == 200 and at < end:
                self._client.patch(self._path, at, self._data[at:end])
            return at >= end

        eventually(is_there, f"the upload is at {end}", pause=0)

    @property
    def job(self) -> str:
        """The path of its job."""
        return f"/api/jobs/{uuid.UUID(bytes=from_text(self._path.strip('/').rpartition('/')[2]))}/"


def test_sign_ins_lockouts_tokens_jobs_and_uploads_go_on_when_an_api_is_killed(apis: Apis) -> None:
    first, second = apis.apis
    account, locked = first.new_account(), first.new_account()
    # A token of one is one of the other, and ends at both.
    pair = second.token_pair(account.email, PASSWORD).json()
    bearer = {"Authorization": f"Bearer {pair['access']}"}
    assert first.call("GET", "/api/users/self/", headers=bearer).status == 200
    spare = first.token_pair(account.email, PASSWORD).json()
    # Wrong passwords count together, wherever they come.
    for _ in range(10):
        apis.both.call("GET", "/api/users/self/", headers=basic(locked.email, "wrong password"))
    apis.lock_for_an_hour()
    for one in (first, second, apis.both):
        refused = one.call("GET", "/api/users/self/", headers=basic(locked.email, PASSWORD))
        assert (refused.status, refused.code) == (429, "too_many_failures")

    store = apis.store()
    rows = [{"number": number} for number in range(MANY)]
    # Half of an upload is here, and a job is at its work.
    late = jobs.as_json(store, [{"number": MANY + number} for number in range(FEW)])
    upload = Upload(store, late)
    upload.go_on(len(late) // 2)
    path = jobs.started(store, jobs.as_json(store, rows))
    _wait_for_objects(apis.folder / "objects")
    apis.kill(0)
    try:
        upload.go_on(len(late))
        assert patiently(apis.both, "GET", "/api/users/self/", **bearer).status == 200
        renewed = patiently(apis.both, "POST", "/api/token/refresh/", {"refresh": spare["refresh"]})
        assert renewed.status == 200
        wrong = basic(locked.email, PASSWORD)
        refused = patiently(apis.both, "GET", "/api/users/self/", **wrong)
        assert (refused.status, refused.code) == (429, "too_many_failures")
        signed_in = {"email": account.email, "password": PASSWORD}
        assert patiently(apis.both, "POST", "/api/accounts/login/", signed_in).status == 200
        jobs.completed(store, path)
        jobs.completed(store, upload.job)
        stored = sorted(one["data"]["number"] for one in store.everything())
        assert stored == list(range(MANY + FEW))
    finally:
        apis.launch(0)
    # What the one that was killed has given out still holds there.
    assert apis.apis[0].call("GET", "/api/users/self/", headers=bearer).status == 200


def _wait_for_objects(folder: Path) -> None:
    eventually(lambda: any(path.is_file() for path in folder.rglob("*")), "an object", pause=0.005)


@dataclass
class Writer:
    """Stores numbers one by one, each again under its key until it is acknowledged."""

    store: Store
    numbers: Iterator[int]
    stop: threading.Event
    acknowledged: list[int] = field(default_factory=list)

    def run(self) -> None:
        for number in self.numbers:
            if self.stop.is_set():
                return
            headers = {"Idempotency-Key": str(uuid_utils.uuid7())}
            body = [{"schema": self.store.schema, "data": {"number": number}}]
            url = f"{self.store.service.proxy_url}/api/records/ingest/"
            stored = partial(self._is_stored, url, body, headers)
            eventually(stored, "an ingest is acknowledged")
            self.acknowledged.append(number)

    def _is_stored(self, url: str, body: Any, headers: dict[str, str]) -> bool:
        try:
            answer = call("POST", url, body, auth=self.store.account.auth, headers=headers)
        except (OSError, HTTPException):
            return False
        # Or the same request is still under way somewhere.
        assert answer.status in (200, 201, 409) or answer.status >= 500, answer.body
        return answer.status in (200, 201)


def test_nothing_is_lost_or_doubled_when_the_primary_is_killed_under_writers(apis: Apis) -> None:
    store, stop = apis.store(), threading.Event()
    assert store.send([{"number": 10**6}]).status == 201
    writers = [Writer(store, itertools.count(at * 100_000), stop) for at in range(WRITERS)]
    threads = [threading.Thread(target=writer.run, daemon=True) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        _wait_for_more(writers, 3)
        apis.pair.fail_over()
        _wait_for_more(writers, 3)
    finally:
        stop.set()
        for thread in threads:
            thread.join(150)
    assert not any(thread.is_alive() for thread in threads)
    stored = sorted(one["data"]["number"] for one in store.everything())
    acknowledged = sorted(number for writer in writers for number in writer.acknowledged)
    assert stored == [*acknowledged, 10**6]


def _wait_for_more(writers: list[Writer], count: int) -> None:
    """Each of them has stored so many more."""
    wanted = [len(writer.acknowledged) + count for writer in writers]

    def have() -> bool:
        return all(len(one.acknowledged) >= want for one, want in zip(writers, wanted, strict=True))

    eventually(have, f"{wanted} are acknowledged")
