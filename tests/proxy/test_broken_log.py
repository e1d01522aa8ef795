"""Where a schema's log is broken, nothing is acknowledged: every change ends by name.

The log is broken by a member without any key. The API cannot tell an authentic commit from another
and takes both; proxies can, and follow the log no further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec
import pytest
import uuid_utils

from encrypted_records.model import wire
from encrypted_records.model.records import ManifestDelta, Receipt
from tests.proxy.lies import each, on
from tests.support import jobs
from tests.support.front import Asked, Front, Reply, running_front
from tests.support.older import make_older
from tests.support.outsider import outsider
from tests.support.proxies import running_proxy
from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_schema

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
    },
}


@dataclass
class Place:
    """A schema of its own with three records, behind a front and a proxy that knows them."""

    store: Store
    front: Front
    ids: list[str]

    def sent(self, path: str = "/api/commits/") -> int:
        """How often the proxy sent something there since the last question of this kind."""
        count = sum(asked.path == path for asked in self.front.asked)
        self.front.forget()
        return count


@pytest.fixture(scope="module")
def sides(
    services: Callable[[str], Service], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Service, Front]]:
    """A front before the API, and a proxy that knows no other API."""
    service = services("sqlite")
    folder = tmp_path_factory.mktemp("broken")
    with running_front(service.base_url) as front, running_proxy(front.url, folder) as proxy:
        yield replace(service, proxy_url=proxy.url), front


@pytest.fixture
def place(sides: tuple[Service, Front]) -> Place:
    service, front = sides
    account = service.new_account()
    # Outsiders break logs that nobody signed.
    make_older(service, account)
    store = Store(service, account, new_schema(service, account, DEFINITION))
    made = Place(store, front, store.ingest([{"name": f"name {n}", "n": n} for n in range(3)]))
    front.forget()
    return made


def job(place: Place) -> str:
    """How a batch job of one record ends; its upload is taken, since it only brings bytes."""
    rows = [{"name": "by job", "n": 9}]
    found = jobs.ended(place.store, jobs.started(place.store, jobs.as_json(place.store, rows)))
    assert found["status"] == "failed"
    return str(found["error"])


CHANGES: dict[str, Callable[[Place], Answer]] = {
    "ingest": lambda place: place.store.send([{"name": "new"}]),
    "change": lambda place: place.store.proxy(
        "PATCH", f"/api/records/{place.ids[0]}/", {"data": {"n": 7}}
    ),
    "replace": lambda place: place.store.proxy(
        "PUT", f"/api/records/{place.ids[0]}/", {"data": {"n": 7}}
    ),
    "delete": lambda place: place.store.proxy("DELETE", f"/api/records/{place.ids[0]}/"),
    "delete several": lambda place: place.store.proxy(
        "DELETE", f"/api/records/?id={place.ids[0]}&id={place.ids[1]}"
    ),
    "delete matching": lambda place: place.store.proxy(
        "POST",
        "/api/records/delete/?confirm=1",
        {"schema": place.store.schema, "where": {"field": "n", "op": "eq", "value": 1}},
    ),
    "merge": lambda place: place.store.proxy("POST", f"{place.store.schema}merge/"),
}


def broken(answer: Answer) -> bool:
    return (answer.status, answer.json().get("code")) == (422, "log_broken")


@pytest.mark.parametrize("name", CHANGES)
def test_no_change_to_a_schema_whose_log_a_member_without_key_broke_is_acknowledged(
    place: Place, name: str
) -> None:
    outsider(place.store).break_log(place.store)
    for attempt in ("first", "second"):
        answer = CHANGES[name](place)
        assert broken(answer), (attempt, answer.status, answer.body)
        assert "ers salvage" in answer.json()["hint"]
        # What is cached may be behind: an ingest finds out by its receipt, the others ask first.
        assert place.sent() == (1 if name == "ingest" and attempt == "first" else 0)


def test_a_job_into_a_schema_whose_log_is_broken_fails_by_name(place: Place) -> None:
    outsider(place.store).break_log(place.store)
    assert "(log_broken)" in job(place)
    assert not any(asked.path.endswith("/publish/") for asked in place.front.asked)


def test_a_log_that_breaks_while_a_job_is_published_fails_the_job_by_name(place: Place) -> None:
    """The commit before the job's comes between its last look at the log and its own."""
    stranger = outsider(place.store)
    done: list[str] = []

    def break_it(asked: Asked) -> Reply | None:
        if asked.path.endswith("/publish/") and not done:
            done.append(asked.path)
            stranger.break_log(place.store)
        return None

    place.front.invent = break_it
    try:
        error = job(place)
    finally:
        place.front.invent = lambda _: None
    assert done
    assert "(log_broken)" in error
    assert "nothing proves" in error


def test_an_ingest_that_the_api_took_behind_a_broken_log_says_so_and_a_repetition_sends_nothing(
    place: Place,
) -> None:
    outsider(place.store).break_log(place.store)
    body = [{"schema": place.store.schema, "data": {"name": "new"}}]
    key = {"Idempotency-Key": str(uuid_utils.uuid7())}

    def send() -> Answer:
        url = f"{place.store.service.proxy_url}/api/records/ingest/"
        return call("POST", url, body, auth=place.store.account.auth, headers=key)

    first, second = send(), send()
    assert broken(first)
    assert broken(second)
    assert (
        "the API accepted the change, but nothing proves that it is stored"
        in first.json()["detail"]
    )
    assert "accepted the change" not in second.json()["detail"]
    assert place.sent() == 1


def test_a_search_that_meets_a_broken_log_keeps_the_next_ingest_from_being_sent(
    place: Place,
) -> None:
    outsider(place.store).break_log(place.store)
    assert broken(place.store.ask(count=True))
    assert broken(place.store.send([{"name": "new"}]))
    assert place.sent() == 0


def test_what_goes_into_a_sound_schema_beside_a_broken_one_is_known_to_the_proxy(
    place: Place,
) -> None:
    """One request, two schemas, one transaction: neither is acknowledged, and the other goes on."""
    other = place.store.another_schema(DEFINITION)
    other.ingest([{"name": "first"}])
    outsider(place.store).break_log(place.store)
    schemas = (place.store.schema, other.schema)
    both = [{"schema": schema, "data": {"name": "both"}} for schema in schemas]
    assert broken(place.store.proxy("POST", "/api/records/ingest/", both))
    assert len(other.everything()) == 2
    assert other.send([{"name": "third"}]).status == 201
    assert broken(place.store.proxy("POST", "/api/records/ingest/", both))
    assert len(other.everything()) == 3


def test_a_receipt_for_what_the_log_does_not_hold_is_no_acknowledgement(place: Place) -> None:
    """The API says that it stored the commit as the version after next, and stores nothing."""

    def claim(asked: Asked) -> Reply | None:
        if asked.path != "/api/commits/":
            return None
        found = [
            wire.decode_commit_body(upload.commit) for upload in wire.decode_uploads(asked.body)
        ]
        receipts = [Receipt(body.id, body.schema, body.seen + 2) for body in found]
        return Reply(201, {"Content-Type": wire.MEDIA_TYPE}, wire.encode(receipts))

    place.front.invent = claim
    try:
        assert broken(place.store.send([{"name": "new"}]))
    finally:
        place.front.invent = lambda _: None
    assert place.store.send([{"name": "new"}]).status == 201
    assert len(place.store.everything()) == 4


def test_a_commit_whose_log_cannot_be_looked_at_is_not_acknowledged_and_found_by_a_repetition(
    place: Place,
) -> None:
    """Somebody else was faster, and the API goes away before the log can be followed."""
    body = [{"schema": place.store.schema, "data": {"name": "new"}}]
    key = {"Idempotency-Key": str(uuid_utils.uuid7())}
    url = f"{place.store.service.proxy_url}/api/records/ingest/"
    later = on(("commits",), each(Receipt, lambda one: msgspec.structs.replace(one, version=99)))

    def lie(asked: Asked, reply: Reply) -> Reply | None:
        if "/manifest/" in asked.path:
            return Reply(500, {}, b"")
        return later(asked, reply)

    with place.front.telling(lie):
        lost = call("POST", url, body, auth=place.store.account.auth, headers=key)
    assert (lost.status, lost.json()["code"]) == (502, "api_failed"), lost.body
    assert "the API accepted the change" in lost.json()["detail"]
    again = call("POST", url, body, auth=place.store.account.auth, headers=key)
    assert again.status == 201
    assert place.sent() == 1
    assert len(place.store.everything()) == 4


def test_a_log_that_was_only_hidden_for_a_while_takes_changes_again(place: Place) -> None:
    def cut(asked: Asked, reply: Reply) -> Reply:
        return reply.with_body(b"ERS1") if "/manifest/" in asked.path else reply

    spoilt = each(
        ManifestDelta,
        lambda delta: msgspec.structs.replace(delta, version=delta.version + 1),
    )
    with place.front.telling(on(("manifest",), spoilt)):
        assert broken(place.store.proxy("POST", f"{place.store.schema}merge/"))
    assert place.store.send([{"name": "new"}]).status == 201
    with place.front.telling(cut):
        assert place.store.proxy("POST", f"{place.store.schema}merge/").status == 502
    assert place.store.send([{"name": "new"}]).status == 201
