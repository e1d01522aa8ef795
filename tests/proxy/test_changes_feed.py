"""The change feed: what it says of each commit, from where on, and what the API sees of it."""

from __future__ import annotations

import base64
import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from encrypted_records.index.log import ledger
from encrypted_records.model import wire
from encrypted_records.model.records import ManifestDelta, StoredRow
from tests.support import jobs
from tests.support.erasures import seen_through
from tests.support.fixtures import at
from tests.support.front import Asked, Front, Reply
from tests.support.proxies import running_proxy
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 999},
    },
}


@dataclass
class Copy:
    """What a consumer holds, and where it goes on."""

    store: Store
    cursor: str | None = None
    records: dict[str, Any] = field(default_factory=dict)

    def page(self, **asked: Any) -> dict[str, Any]:
        answer = changes(self.store, cursor=self.cursor, **asked)
        assert answer.status == 200, answer.body
        page: dict[str, Any] = answer.json()
        for change in page["results"]:
            if change["op"] == "delete":
                self.records.pop(change["id"], None)
            else:
                self.records[change["id"]] = change["data"]
        self.cursor = page["cursor"]
        return page

    def follow(self, **asked: Any) -> list[tuple[str, str]]:
        """All changes up to the present: what was done, and to which record."""
        told: list[tuple[str, str]] = []
        while True:
            page = self.page(**asked)
            told += [(one["op"], one["id"]) for one in page["results"]]
            if page["current"]:
                return told


def changes(store: Store, **asked: Any) -> Any:
    query = "".join(f"&{name}={value}" for name, value in asked.items() if value is not None)
    return store.proxy("GET", f"/api/records/changes/?schema={store.schema_id}{query}")


def held(store: Store) -> dict[str, Any]:
    """What a search finds."""
    return {one["id"]: one["data"] for one in store.everything()}


def test_all_records_come_first_and_then_each_change_in_order(store: Store) -> None:
    one, two = store.ingest([{"name": "Ada"}, {"name": "Alan"}])
    copy = Copy(store)
    assert copy.follow() == [("upsert", one), ("upsert", two)]
    (three,) = store.ingest([{"name": "Grace"}])
    assert store.proxy("PATCH", f"/api/records/{one}/", {"data": {"n": 36}}).status == 200
    assert store.proxy("DELETE", f"/api/records/{two}/").status == 204
    page = copy.page()
    assert [(c["op"], c["id"], c["etag"]) for c in page["results"]] == [
        ("upsert", three, '"1"'),
        ("upsert", one, '"2"'),
        ("delete", two, '"1"'),
    ]
    assert [c["version"] for c in page["results"]] == [2, 3, 4]
    assert page["results"][1]["data"] == {"name": "Ada", "n": 36}
    assert "data" not in page["results"][2]
    assert page["current"]
    assert page["version"] == 4
    assert copy.records == held(store)
    assert copy.follow() == []


def test_whatever_the_limit_pages_lead_to_what_a_search_finds(store: Store) -> None:
    ids = store.ingest([{"n": n} for n in range(7)])
    copies = [Copy(store) for _ in range(4)]
    for copy in copies[2:]:
        copy.page(limit=3)
    store.proxy("DELETE", "/api/records/?" + "&".join(f"id={one}" for one in ids[1:4]))
    for one in ids[4:]:
        store.proxy("PATCH", f"/api/records/{one}/", {"data": {"name": "x"}})
    store.proxy("DELETE", f"/api/records/{ids[5]}/")
    for copy, limit in zip(copies, (1, 1000, 1, 2), strict=True):
        copy.follow(limit=limit)
        assert copy.records == held(store)


def test_a_value_that_was_replaced_before_it_was_read_is_not_handed_out(store: Store) -> None:
    copy = Copy(store)
    copy.follow()
    (one, two) = store.ingest([{"n": 1}, {"n": 2}])
    store.proxy("PATCH", f"/api/records/{one}/", {"data": {"n": 3}})
    store.proxy("DELETE", f"/api/records/{two}/")
    page = copy.page()
    assert [(c["op"], c["id"], c.get("data")) for c in page["results"]] == [
        ("upsert", one, {"n": 3}),
        ("delete", two, None),
    ]


def test_a_reseal_changes_no_record_and_a_cursor_goes_on_behind_it(store: Store) -> None:
    one, two = store.ingest([{"n": 1}, {"n": 2}])
    copy = Copy(store)
    copy.follow()
    store.proxy("DELETE", f"/api/records/{one}/")
    jobs.completed(store, store.proxy("POST", f"{store.schema}reseal/").headers["X-Job-Status-URL"])
    (three,) = store.ingest([{"n": 3}])
    assert copy.follow() == [("delete", one), ("upsert", three)]
    assert copy.follow() == []
    assert set(copy.records) == {two, three}


def test_a_consumer_that_begins_now_is_told_only_what_comes(store: Store) -> None:
    store.ingest([{"n": 1}])
    copy = Copy(store, cursor="now")
    assert copy.follow() == []
    (two,) = store.ingest([{"n": 2}])
    assert copy.follow() == [("upsert", two)]


def test_records_that_were_erased_before_they_were_read_have_the_consumer_start_again(
    store: Store,
) -> None:
    one, two = store.ingest([{"n": 1}, {"n": 2}])
    copy = Copy(store)
    copy.follow()
    seen_through(store, store.proxy("DELETE", f"/api/records/{one}/?erase=true"))
    answer = changes(store, cursor=copy.cursor)
    assert (answer.status, answer.json()["code"]) == (410, "start_again")
    assert "erased" in answer.json()["detail"]
    again = Copy(store)
    assert again.follow() == [("upsert", two)]


def test_a_new_name_of_a_field_has_the_consumer_start_again_and_a_new_field_does_not(
    store: Store,
) -> None:
    store.ingest([{"n": 1}])
    copy = Copy(store)
    copy.follow()
    more = {**DEFINITION["properties"], "more": {"type": "string"}}  # type: ignore[dict-item]
    assert store.proxy("PATCH", store.schema, {"schema": {**DEFINITION, "properties": more}})
    (two,) = store.ingest([{"n": 2, "more": "x"}])
    assert copy.follow() == [("upsert", two)]
    named = {"title": more["name"], "n": more["n"], "more": more["more"]}
    body = {"schema": {**DEFINITION, "properties": named}, "renames": {"title": "name"}}
    said = store.proxy("POST", f"{store.schema}change/", body)
    assert said.json()["applied"], said.body
    answer = changes(store, cursor=copy.cursor)
    assert (answer.status, answer.json()["code"]) == (410, "start_again")
    assert "definition" in answer.json()["detail"]


def cursor_of(*parts: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(parts)).rstrip(b"=").decode()


def test_a_cursor_of_another_log_has_the_consumer_start_again(store: Store) -> None:
    store.ingest([{"n": 1}])
    for cursor in (cursor_of(1, 0, bytes(16)), cursor_of(9, 0, bytes(16))):
        answer = changes(store, cursor=cursor)
        assert (answer.status, answer.json()["code"]) == (410, "start_again")


@pytest.mark.parametrize("cursor", ["x", "AAAA", cursor_of(1, 0), cursor_of(-1, 0, bytes(16))])
def test_what_is_no_cursor_is_refused_by_the_name_of_the_parameter(
    store: Store, cursor: str
) -> None:
    answer = changes(store, cursor=cursor)
    assert answer.status == 400
    assert answer.json()["errors"][0]["parameter"] == "cursor"


# --- waiting -------------------------------------------------------------------------------------


def test_a_request_that_waits_is_answered_by_the_next_change(store: Store) -> None:
    copy = Copy(store)
    copy.follow()
    told: list[Any] = []
    waiting = threading.Thread(target=lambda: told.append(copy.page(wait=60)))
    waiting.start()
    (one,) = store.ingest([{"n": 1}])
    waiting.join()
    assert [(c["op"], c["id"]) for c in told[0]["results"]] == [("upsert", one)]


class Stream:
    """Server-sent events, as they come."""

    def __init__(self, store: Store, query: str = "", **headers: str) -> None:
        address = urlsplit(store.service.proxy_url)
        self._connection = http.client.HTTPConnection(address.netloc, timeout=60)
        headers |= {"Authorization": store.account.auth, "Accept": "text/event-stream"}
        path = f"/api/records/changes/?schema={store.schema_id}{query}"
        self._connection.request("GET", path, headers=headers)
        self.answer = self._connection.getresponse()

    def next(self) -> dict[str, str]:
        """The next event: its members."""
        event: dict[str, str] = {}
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            if not line and event:
                return event
            name, colon, value = line.partition(": ")
            if name and colon:
                event[name] = value
            assert line or self.answer.isclosed() is False

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def stream(store: Store) -> Iterator[Stream]:
    store.ingest([{"name": "Ada"}])
    opened = Stream(store)
    yield opened
    opened.close()


def test_a_stream_has_each_change_with_a_cursor_and_says_when_it_is_current(
    store: Store, stream: Stream
) -> None:
    assert stream.answer.getheader("Content-Type", "").startswith("text/event-stream")
    first, current = stream.next(), stream.next()
    assert first["event"] == "upsert"
    assert msgspec.json.decode(first["data"])["data"] == {"name": "Ada"}
    assert (current["event"], msgspec.json.decode(current["data"])) == ("current", {"version": 1})
    (two,) = store.ingest([{"name": "Alan"}])
    second = stream.next()
    assert msgspec.json.decode(second["data"])["id"] == two
    again = Stream(store, **{"Last-Event-ID": first["id"]})
    assert msgspec.json.decode(again.next()["data"])["id"] == two
    again.close()


def test_a_stream_that_begins_with_an_old_cursor_is_refused_by_its_status(store: Store) -> None:
    store.ingest([{"n": 1}])
    stream = Stream(store, f"&cursor={cursor_of(1, 0, bytes(16))}")
    assert stream.answer.status == 410
    stream.close()


def test_a_stream_ends_by_name_when_its_reader_may_read_no_more(
    store: Store, front: Front, stream: Stream
) -> None:
    stream.next(), stream.next()
    gone = Reply(
        404,
        {"Content-Type": "application/problem+json"},
        msgspec.json.encode(
            {
                "type": "/help/errors/not_found/",
                "title": "",
                "status": 404,
                "detail": "gone",
                "code": "not_found",
            }
        ),
    )

    def refuse(asked: Asked, reply: Reply) -> Reply:
        return gone if "/manifest/" in asked.path else reply

    with front.telling(refuse):
        event = stream.next()
    assert event["event"] == "error"
    assert msgspec.json.decode(event["data"])["code"] == "not_found"
    assert stream.answer.read() == b""


# --- what was verified ---------------------------------------------------------------------------


def test_a_proxy_that_was_restarted_reads_the_commits_in_between_again(
    service: Service, front: Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "RECENT", 1)
    store = new_store(service, DEFINITION)
    with running_proxy(front.url, tmp_path / "own") as proxy:
        store = at(store, proxy)
        one, two, three = store.ingest([{"n": 1}, {"n": 2}, {"n": 3}])
        copy = Copy(store)
        copy.follow()
        store.proxy("PATCH", f"/api/records/{one}/", {"data": {"n": 4}})
        store.proxy("DELETE", f"/api/records/{two}/")
        store.ingest([{"n": 5}])
    with running_proxy(front.url, tmp_path / "own") as proxy:
        copy.store = store = at(store, proxy)

        def drop_the_last_commit(asked: Asked, reply: Reply) -> Reply:
            if "since=1" not in asked.path:
                return reply
            deltas = wire.decode_all(reply.body, ManifestDelta)
            short = [
                msgspec.structs.replace(one, entries=one.entries[:-1], version=one.version - 1)
                for one in deltas
            ]
            return reply.with_body(wire.encode(short))

        held(store)
        with front.telling(drop_the_last_commit):
            assert changes(store, cursor=copy.cursor).json()["code"] == "log_broken"
        assert ("delete", two) in copy.follow()
        assert copy.records == held(store)
        assert set(copy.records) > {one, three}


def test_a_row_that_is_none_of_those_that_ended_is_not_named(store: Store, front: Front) -> None:
    one, _ = store.ingest([{"n": 1}, {"n": 2}])
    copy = Copy(store)
    copy.follow()
    store.proxy("DELETE", f"/api/records/{one}/")

    def swap(asked: Asked, reply: Reply) -> Reply:
        if "/rows/" not in asked.path:
            return reply
        frames = wire.decode_all(reply.body, StoredRow)
        row = frames[-1]
        other = msgspec.structs.replace(row.row, record_id=bytes(16))
        frames[-1] = msgspec.structs.replace(row, row=other)
        return reply.with_body(wire.encode(frames))

    with front.telling(swap):
        answer = changes(store, cursor=copy.cursor)
    assert answer.json()["code"] == "does_not_open"
    assert copy.follow() == [("delete", one)]
