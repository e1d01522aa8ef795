"""Direct ingests that wait for each other share a commit, and nothing else."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import pytest
import uuid_utils

from tests.support.front import Asked, Front, Reply, running_front
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 10_000}},
}
#: For which the first commit is kept back, so that all the others wait for it.
HELD_SECONDS = 0.8
OTHERS = 20


@dataclass
class HeldBack:
    """Keeps the answer of the first commit back, and notes with which credentials commits come."""

    came: Event = field(default_factory=Event)
    auth: list[str] = field(default_factory=list)
    #: whether every later answer is lost, after the API has stored the commit
    loses: bool = False

    def __call__(self, asked: Asked, reply: Reply) -> Reply | None:
        if asked.path != "/api/commits/" or reply.status >= 300:
            return reply
        self.auth.append(asked.headers["Authorization"])
        if len(self.auth) == 1:
            self.came.set()
            time.sleep(HELD_SECONDS)
        return None if self.loses and len(self.auth) > 1 else reply


@pytest.fixture(scope="module")
def front(service: Service) -> Iterator[Front]:
    with running_front(service.base_url) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(front: Front, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with running_proxy(front.url, tmp_path_factory.mktemp("own")) as running:
        yield running


@pytest.fixture
def store(service: Service, proxy: Proxy) -> Store:
    made = new_store(service, DEFINITION)
    mine = replace(made, service=replace(service, proxy_url=proxy.url))
    mine.ingest([{"n": 0}])  # the keyring is made, and the log begun
    return mine


Ask = tuple[list[Any], dict[str, str]]


def ask(*numbers: object, key: str | None = None) -> Ask:
    """Records of these numbers, and the headers that they are sent with."""
    return [{"n": number} for number in numbers], {"Idempotency-Key": key} if key else {}


def send(store: Store, asked: Ask, auth: str | None = None) -> Answer:
    rows, headers = asked
    records = [{"schema": store.schema, "data": row} for row in rows]
    return call(
        "POST",
        f"{store.service.proxy_url}/api/records/ingest/",
        json.dumps(records).encode(),
        auth=auth or store.account.auth,
        headers={"Content-Type": "application/json", **headers},
    )


def send_while_held(
    store: Store, front: Front, several: Sequence[Ask], *, held: HeldBack, auth: Sequence[str] = ()
) -> list[Answer]:
    """Answers of ingests that all come while the commit of an earlier one is under way."""
    with front.telling(held), ThreadPoolExecutor(len(several) + 1) as pool:
        first = pool.submit(send, store, ask(9_999))
        assert held.came.wait(60)
        by = list(auth) or [store.account.auth] * len(several)
        answers = list(pool.map(partial(send, store), several, by))
        assert first.result().status == 201
        return answers


def numbers(store: Store) -> list[int]:
    return sorted(int(one["data"]["n"]) for one in store.everything())


def test_ingests_that_wait_for_a_commit_share_the_next_one(store: Store, front: Front) -> None:
    held = HeldBack()

    answers = send_while_held(store, front, [ask(n, n) for n in range(1, OTHERS)], held=held)

    assert {answer.status for answer in answers} == {201}
    # One for all; a machine under load may have let some come too late for it.
    assert len(held.auth) < OTHERS / 2
    assert numbers(store) == sorted([0, 9_999, *range(1, OTHERS), *range(1, OTHERS)])
    for n, answer in enumerate(answers, 1):
        # Each is told of its own records.
        for made in answer.json():
            read = store.proxy("GET", made["url"]).json()
            assert (read["id"], read["data"]) == (made["id"], {"n": n})


def test_a_record_that_does_not_fit_refuses_its_sender_alone(store: Store, front: Front) -> None:
    several = [ask(1), ask(2, "two", 20_000), ask(3)]

    one, unfit, other = send_while_held(store, front, several, held=HeldBack())

    assert (one.status, unfit.status, other.status) == (201, 400, 201)
    pointers = [flaw["pointer"] for flaw in unfit.json()["errors"]]
    assert pointers == ["/1/data/n", "/2/data/n"]
    assert numbers(store) == [0, 1, 3, 9_999]


def test_repetitions_that_wait_together_are_stored_once(store: Store, front: Front) -> None:
    key, other = str(uuid_utils.uuid7()), str(uuid_utils.uuid7())
    several = [ask(1, key=key), ask(1, key=key), ask(2, key=other), ask(1, key=key)]

    answers = send_while_held(store, front, several, held=HeldBack())

    assert {answer.status for answer in answers} == {201}
    assert answers[0].body == answers[1].body == answers[3].body != answers[2].body
    assert numbers(store) == [0, 1, 2, 9_999]
    # Later repetitions are known as well: each request is in the log on its own.
    assert send(store, several[0]).body == answers[0].body
    assert send(store, several[2]).body == answers[2].body
    assert numbers(store) == [0, 1, 2, 9_999]


def test_a_shared_commit_whose_answer_is_lost_is_repeated_by_each(
    store: Store, front: Front
) -> None:
    several = [ask(n, key=str(uuid_utils.uuid7())) for n in range(1, OTHERS)]

    answers = send_while_held(store, front, several, held=HeldBack(loses=True))

    # Those whose commit it was cannot know whether they were stored.
    assert {answer.status for answer in answers} == {502}
    repeated = [send(store, one) for one in several]
    assert {answer.status for answer in repeated} == {201}
    assert numbers(store) == [0, *range(1, OTHERS), 9_999]


def test_who_is_refused_after_a_lost_answer_is_not_told_that_nothing_was_stored(
    store: Store, front: Front
) -> None:
    """The first try is stored and its answer lost; who asks loses the right to the schema before
    the proxy asks again."""
    key, tries = str(uuid_utils.uuid7()), []

    def lose(asked: Asked, reply: Reply) -> Reply | None:
        if asked.path != "/api/commits/":
            return reply
        tries.append(reply.status)
        told = {"type": "about:blank", "status": 404, "code": "not_found", "detail": "x"}
        kind = {"Content-Type": "application/problem+json"}
        return None if len(tries) == 1 else Reply(404, kind, json.dumps(told).encode())

    with front.telling(lose):
        answer = send(store, ask(1, key=key))

    assert tries == [201, 200]
    assert answer.status == 502
    assert "it is not known whether the change was stored" in answer.json()["detail"]
    # It was, and a repetition of the request finds it.
    assert send(store, ask(1, key=key)).status == 201
    assert numbers(store) == [0, 1]


def test_callers_of_other_credentials_share_no_commit(store: Store, front: Front) -> None:
    token = store.proxy(
        "POST",
        "/api/token/",
        {"email": store.account.email, "password": store.account.password},
    )
    assert token.status == 200, token.body
    bearer = f"Bearer {token.json()['access']}"
    held = HeldBack()

    answers = send_while_held(
        store, front, [ask(1), ask(2)], held=held, auth=[store.account.auth, bearer]
    )

    assert {answer.status for answer in answers} == {201}
    # The proxy takes a token of its own for a password, so no commit came with the password.
    assert len(held.auth) == 3
    assert held.auth.count(bearer) == 1


def test_a_sender_who_goes_away_keeps_nobody_from_being_stored(store: Store, front: Front) -> None:
    held = HeldBack()
    address = urlsplit(store.service.proxy_url)
    body = json.dumps([{"schema": store.schema, "data": {"n": 5}}]).encode()
    head = (
        f"POST /api/records/ingest/ HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Authorization: {store.account.auth}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with front.telling(held):
        leaving = socket.create_connection((address.hostname or "", address.port or 80))
        leaving.sendall(head.encode() + body)
        assert held.came.wait(60)
        leaving.close()  # the one whose commit the others wait for

        assert send(store, ask(6)).status == 201

    assert numbers(store) == [0, 5, 6]
