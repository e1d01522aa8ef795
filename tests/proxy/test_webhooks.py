"""Webhooks: each change arrives signed, at least once, whatever the receiver and the proxy do."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from encrypted_records import errors
from encrypted_records.client import webhook_sender
from encrypted_records.proxy import webhooks
from encrypted_records.proxy.process import Background
from tests.support.eventually import eventually
from tests.support.fixtures import at
from tests.support.front import Front
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
    },
}


@dataclass
class Delivery:
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """A server that takes deliveries, or answers what a test says."""

    url: str = ""
    answers: list[int] = field(default_factory=list)
    got: list[Delivery] = field(default_factory=list)
    taken: list[Delivery] = field(default_factory=list)

    def changes(self) -> list[tuple[str, str]]:
        """Of what was taken."""
        return [(c["op"], c["id"]) for one in self.taken for c in one.told["results"]]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            delivery = Delivery({k.lower(): v for k, v in self.headers.items()}, body)
            receiver.got.append(delivery)
            status = receiver.answers.pop(0) if receiver.answers else 204
            if 200 <= status < 300:
                receiver.taken.append(delivery)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", receiver.url + "elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook?key=confidential"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield receiver
    server.shutdown()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(webhooks, "LOCKED_SECONDS", 0.01)


@pytest.fixture
def proxy(front: Front, tmp_path: Path) -> Iterator[Proxy]:
    with started(front, tmp_path) as proxy:
        yield proxy


@contextmanager
def started(front: Front, folder: Path, **more: Any) -> Iterator[Proxy]:
    own = {"background": Background, "webhooks": "any", **more}
    with running_proxy(front.url, folder / "own", **own) as proxy:
        yield proxy


@pytest.fixture
def store(service: Service, proxy: Proxy) -> Store:
    store = at(new_store(service, DEFINITION), proxy)
    store.ingest([{"name": "Ada"}])
    return store


def token(store: Store, scope: str = "read") -> dict[str, Any]:
    answer = store.api("POST", "/api/tokens/", {"name": "hook", "scope": scope})
    assert answer.status == 201, answer.body
    made: dict[str, Any] = answer.json()
    return made


def create(store: Store, url: str, **members: Any) -> Any:
    body = {"schema": store.schema, "url": url, "cursor": "now", **members}
    if "token" not in body:
        body["token"] = token(store)["token"]
    return store.proxy("POST", "/api/webhooks/", body)


def made(store: Store, receiver: Receiver, **members: Any) -> dict[str, Any]:
    answer = create(store, receiver.url, **members)
    assert answer.status == 201, answer.body
    created: dict[str, Any] = answer.json()
    return created


def until_taken(receiver: Receiver, *changes: tuple[str, str]) -> None:
    eventually(lambda: receiver.changes() == list(changes), "the changes arrive", pause=0.005)


def status(store: Store, created: dict[str, Any]) -> dict[str, Any]:
    answer = store.proxy("GET", created["url"])
    assert answer.status == 200, answer.body
    shown: dict[str, Any] = answer.json()
    return shown


def until_status(store: Store, created: dict[str, Any], wanted: str) -> dict[str, Any]:
    eventually(lambda: status(store, created)["status"] == wanted, f"it is {wanted}", pause=0.01)
    return status(store, created)


def test_each_change_arrives_signed_with_what_it_says(store: Store, receiver: Receiver) -> None:
    created = made(store, receiver)
    (one,) = store.ingest([{"name": "Alan"}])
    store.proxy("DELETE", f"/api/records/{one}/")
    until_taken(receiver, ("upsert", one), ("delete", one))
    first = receiver.taken[0]
    assert first.told["results"][0]["data"] == {"name": "Alan"}
    assert first.told["webhook"] == created["url"]
    assert not first.told["restart"]
    key = base64.b64decode(created["secret"].removeprefix("whsec_"))
    name, moment = first.headers["webhook-id"], first.headers["webhook-timestamp"]
    signed = f"{name}.{moment}.".encode() + first.body
    digest = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert first.headers["webhook-signature"] == f"v1,{digest}"
    assert len({one.headers["webhook-id"] for one in receiver.taken}) == len(receiver.taken)


def test_all_records_come_first_where_no_cursor_is_named(store: Store, receiver: Receiver) -> None:
    made(store, receiver, cursor=None)
    eventually(lambda: bool(receiver.taken), "the records arrive", pause=0.005)
    assert receiver.taken[0].told["current"]
    assert [c["data"] for c in receiver.taken[0].told["results"]] == [{"name": "Ada"}]


def test_a_delivery_is_repeated_under_its_id_until_it_is_taken(
    store: Store, receiver: Receiver
) -> None:
    receiver.answers = [500, 404, 302]
    created = made(store, receiver)
    (one,) = store.ingest([{"n": 1}])
    until_taken(receiver, ("upsert", one))
    assert len(receiver.got) == 4
    assert {delivery.headers["webhook-id"] for delivery in receiver.got} == {
        receiver.taken[0].headers["webhook-id"]
    }
    shown = status(store, created)
    assert (shown["tries"], shown["failing_since"], shown["reason"]) == (0, None, "")
    assert shown["delivered"]


def test_a_webhook_that_fails_for_a_day_stops_and_loses_nothing(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MOST_FAILING", 0.0)
    monkeypatch.setattr(webhooks, "FEWEST_TRIES", 1)
    receiver.answers = [503]
    created = made(store, receiver)
    (one,) = store.ingest([{"n": 1}])
    assert until_status(store, created, "stopped")["reason"] == "webhook_failed"
    (two,) = store.ingest([{"n": 2}])
    monkeypatch.undo()
    assert store.proxy("POST", f"{created['url']}resume/", {}).status == 200
    until_taken(receiver, ("upsert", one), ("upsert", two))


def test_a_clock_that_jumps_by_days_between_two_tries_stops_no_webhook(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MOST_FAILING", 0.0)  # as if a day had passed at each try
    receiver.answers = [503, 503, 503]
    created = made(store, receiver)
    (one,) = store.ingest([{"n": 1}])
    until_taken(receiver, ("upsert", one))
    assert status(store, created)["status"] == "active"


def test_a_webhook_continues_once_the_disk_has_room_again(
    store: Store, proxy: Proxy, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = proxy.services.stores.webhooks
    update, full = kept.update, [errors.OutOfSpace("the disk is full")] * 2

    def update_if_room(webhook: webhooks.StoredWebhook) -> bool:
        if full:
            raise full.pop()
        return update(webhook)

    monkeypatch.setattr(kept, "update", update_if_room)
    receiver.answers = [503]
    made(store, receiver)
    (one,) = store.ingest([{"n": 1}])
    eventually(lambda: ("upsert", one) in receiver.changes(), "it is delivered", pause=0.005)


def test_receivers_that_do_not_answer_hold_up_their_own_user_alone(
    service: Service,
    proxy: Proxy,
    store: Store,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_sender, "SECONDS", 600.0)
    other = at(new_store(service, DEFINITION), proxy)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        key = token(store)["token"]
        waiting = [create(store, url, token=key, cursor=None) for _ in range(17)]
        assert [one.status for one in waiting] == [201] * 17
        [record] = other.ingest([{"name": "Bo"}])
        made(other, receiver, cursor=None)
        eventually(receiver.changes, "the other user's webhook is sent", within=30.0)
        assert {identifier for _, identifier in receiver.changes()} == {record}
        for one in waiting:
            assert store.proxy("DELETE", one.json()["url"]).status == 204


def test_a_receiver_that_wants_no_more_is_sent_no_more(store: Store, receiver: Receiver) -> None:
    receiver.answers = [410]
    created = made(store, receiver)
    store.ingest([{"n": 1}])
    assert until_status(store, created, "stopped")["reason"] == "webhook_gone"
    assert len(receiver.got) == 1


def test_a_webhook_continues_where_it_was_when_its_proxy_starts_again(
    service: Service, front: Front, receiver: Receiver, tmp_path: Path
) -> None:
    store = new_store(service, DEFINITION)
    with started(front, tmp_path) as proxy:
        store = at(store, proxy)
        store.ingest([{"n": 1}])
        created = made(store, receiver)
        (one,) = store.ingest([{"n": 2}])
        until_taken(receiver, ("upsert", one))
        store.proxy("PUT", f"/api/records/{one}/", {"data": {"n": 3}})
    with started(front, tmp_path) as proxy:
        store = at(store, proxy)
        store.proxy("DELETE", f"/api/records/{one}/")
        eventually(lambda: receiver.changes()[-1:] == [("delete", one)], "it goes on", pause=0.005)
        assert status(store, created)["status"] == "active"


def test_a_webhook_ends_by_name_with_its_token_and_continues_with_another(
    store: Store, receiver: Receiver
) -> None:
    own = token(store)
    created = made(store, receiver, token=own["token"])
    assert store.api("DELETE", own["url"]).status == 204
    (one,) = store.ingest([{"n": 1}])
    assert until_status(store, created, "stopped")["reason"] == "bad_token"
    assert receiver.got == []
    resumed = store.proxy("POST", f"{created['url']}resume/", {"token": token(store)["token"]})
    assert resumed.json()["status"] == "active"
    until_taken(receiver, ("upsert", one))


def test_a_deleted_webhook_is_sent_nothing(store: Store, receiver: Receiver) -> None:
    created = made(store, receiver)
    other = made(store, receiver)
    assert store.proxy("DELETE", created["url"]).status == 204
    (one,) = store.ingest([{"n": 1}])
    until_taken(receiver, ("upsert", one))
    assert receiver.taken[0].told["webhook"] == other["url"]
    assert [one["id"] for one in store.proxy("GET", "/api/webhooks/").json()["results"]] == [
        other["id"]
    ]


def test_the_secret_is_shown_once_and_nothing_of_it_is_on_disk_in_the_clear(
    store: Store, receiver: Receiver, tmp_path: Path
) -> None:
    own = token(store)["token"]
    created = made(store, receiver, token=own)
    assert "secret" not in status(store, created)
    with sqlite3.connect(tmp_path / "own/proxy/webhooks.sqlite3") as database:
        assert database.execute("SELECT count(*) FROM webhook").fetchone() == (1,)
    key = base64.b64decode(created["secret"].removeprefix("whsec_"))
    for path in (tmp_path / "own").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for secret in (own.encode(), key, b"confidential"):
            assert secret not in content, path


@pytest.mark.parametrize("scope", ["write", "foreign", "none"])
def test_only_a_token_of_ones_own_that_only_reads_will_do(
    service: Service, store: Store, receiver: Receiver, scope: str
) -> None:
    if scope == "foreign":
        text = token(at(new_store(service, DEFINITION), _proxy_of(store)))["token"]
    else:
        text = token(store, "write")["token"] if scope == "write" else "ersr1_no"
    answer = create(store, receiver.url, token=text)
    assert answer.status in (400, 401)
    assert store.proxy("GET", "/api/webhooks/").json() == {"results": []}


def _proxy_of(store: Store) -> Any:
    class At:
        url = store.service.proxy_url

    return At


def test_nobody_sees_or_changes_the_webhooks_of_another(
    service: Service, store: Store, receiver: Receiver
) -> None:
    created = made(store, receiver)
    other = at(new_store(service, DEFINITION), _proxy_of(store))
    other.ingest([{"n": 1}])
    assert other.proxy("GET", "/api/webhooks/").json() == {"results": []}
    assert other.proxy("GET", created["url"]).status == 404
    assert other.proxy("POST", f"{created['url']}resume/", {}).status == 404
    assert other.proxy("DELETE", created["url"]).status == 404
    assert status(store, created)["status"] == "active"


def test_a_revoked_device_ends_the_webhooks_that_it_made(
    service: Service,
    front: Front,
    receiver: Receiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhooks, "WAIT_SECONDS", 0.01)
    store = new_store(service, DEFINITION)
    with started(front, tmp_path, access="device") as proxy:
        store = at(store, proxy)
        store.ingest([{"n": 1}])
        made(store, receiver)
        assert store.proxy("DELETE", f"/api/devices/{store.device.id}/").status == 204

        def reason() -> str:
            (kept,) = proxy.services.stores.webhooks.list()
            return kept.reason

        eventually(lambda: reason() == "device_unknown", "it is stopped", pause=0.01)
        assert receiver.got == []


def test_a_locked_keyring_has_webhooks_wait_and_not_end(
    store: Store, proxy: Proxy, receiver: Receiver
) -> None:
    proof = {"proof": {"password": store.account.password}}
    own = {"new": "open sesame", **proof}
    made(store, receiver)
    answer = store.proxy("POST", "/api/keyring/passphrase/", own)
    assert answer.status == 200, answer.body
    assert store.proxy("POST", "/api/keyring/lock/").status in (200, 204)
    assert store.send([{"n": 1}]).json()["code"] == "keyring_locked"

    def kept() -> tuple[str, str]:
        (webhook,) = proxy.services.stores.webhooks.list()
        return webhook.status, webhook.reason

    eventually(lambda: kept() == ("active", "keyring_locked"), "it says why it waits", pause=0.01)
    unlock = {"passphrase": "open sesame"}
    assert store.proxy("POST", "/api/keyring/unlock/", unlock).status == 200
    (one,) = store.ingest([{"n": 1}])
    until_taken(receiver, ("upsert", one))
    eventually(lambda: kept() == ("active", ""), "it waits no more", pause=0.01)
