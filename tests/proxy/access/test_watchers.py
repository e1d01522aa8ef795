"""Who watches a job: what each of them takes of the proxy, and when it is over."""

from __future__ import annotations

import asyncio
import gc
import json
from base64 import b64encode
from contextlib import ExitStack
from pathlib import Path

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from encrypted_records.model import credentials
from tests.proxy.access.people import Person
from tests.support.eventually import eventually
from tests.support.front import Front
from tests.support.proxies import Proxy, running_proxy


def begun(person: Person, proxy: Proxy) -> str:
    """The path of the job of an upload of which nothing has come."""
    kind = b64encode(b"text/csv").decode()
    schema = b64encode(person.schema.encode()).decode()
    headers = {
        "Tus-Resumable": "1.0.0",
        "Upload-Length": "1000",
        "Upload-Metadata": f"schema {schema},filetype {kind}",
    }
    made = person.ask(proxy, "POST", "/api/files/", headers=headers)
    assert made.status == 201, made.body
    return "/api/ws/" + made.headers["X-Job-Websocket-Url"].partition("/api/ws/")[2]


def watching(person: Person, proxy: Proxy, path: str) -> ClientConnection:
    url = proxy.url.replace("http://", "ws://") + path
    sent = person.headers({"Authorization": person.account.auth})
    return connect(url, additional_headers=sent, proxy=None, close_timeout=5)


def heard(connection: ClientConnection) -> list[str]:
    """What it says until it closes, whatever the code."""
    said = []
    try:
        while True:
            said.append(str(connection.recv()))
    except ConnectionClosed:
        return said


def tasks() -> int:
    """How many tasks there are, of all event loops."""
    gc.collect()
    # By their types, since objects that stand for others answer for these when they are asked.
    found = (one for one in gc.get_objects() if issubclass(type(one), asyncio.Task))
    return sum(not one.done() for one in found)


def test_a_watcher_takes_two_tasks_and_gives_them_back(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, _ = people
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        ada.ingest(proxy)
        path = begun(ada, proxy)
        with watching(ada, proxy, path) as first:
            assert json.loads(first.recv())["status"]
            with ExitStack() as stack:
                before = tasks()
                more = [stack.enter_context(watching(ada, proxy, path)) for _ in range(20)]
                for one in more:
                    one.recv()
                taken = tasks() - before
            assert 2 * 20 <= taken < 3 * 20  # and what the proxy itself does meanwhile
            eventually(lambda: tasks() <= before + 2)


def test_who_watches_from_a_device_that_is_revoked_hears_no_more(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, _ = people
    assert ada.device is not None
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        ada.ingest(proxy)
        path = begun(ada, proxy)
        proof = {"proof": {"password": ada.account.password}}
        made = ada.ask(
            proxy, "POST", "/api/devices/", {"create": True, "name": "nightly", **proof}
        ).json()
        second = ada.at(credentials.parse_device_secret(made["device"]))
        with watching(ada, proxy, path) as one, watching(second, proxy, path) as other:
            one.recv()
            other.recv()
            gone = second.ask(proxy, "DELETE", f"/api/devices/{ada.device.id}/", proof)
            assert gone.status == 204, gone.body
            assert heard(one) == []
            assert (one.close_code, one.close_reason) == (1008, "device_unknown")
            assert other.ping().wait(60)
            assert other.close_code is None
