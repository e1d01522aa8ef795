"""A definition that needs all records sealed again: what it takes is told first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.proxy.jobs.tables import Targets
from tests.proxy.test_compaction import run
from tests.support import jobs
from tests.support.front import Asked, Reply, running_front
from tests.support.proxies import running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Answer, Service
from tests.support.store import Store, new_store

BEFORE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "maxLength": 40},
        "day": {"type": "string"},
        "size": {"type": "number", "minimum": 0, "maximum": 100, "precision": 2},
        "gone": {"type": "string"},
        "kept": {"type": "string", "padTo": 60},
    },
}
AFTER: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "properties": {
        "number": {"type": "integer", "minimum": 0, "maximum": 999},
        "day": {"type": "string", "format": "date"},
        "size": {"type": "string"},
        "kept": {"type": "string"},
        "new": {"type": "string"},
    },
}
ASKED: dict[str, Any] = {"renames": {"number": "code"}, "drops": ["gone"]}
ROWS: list[dict[str, Any]] = [
    {"code": str(n), "day": f"2024-02-{n:02}", "size": n / 4, "gone": "x", "kept": f"row {n}"}
    for n in range(1, 9)
]
BECOMES = [
    {"number": n, "day": f"2024-02-{n:02}", "size": f"{n / 4:g}", "kept": f"row {n}"}
    for n in range(1, 9)
]


@pytest.fixture
def store(service: Service) -> Store:
    return new_store(service, BEFORE)


def change(store: Store, definition: Any, **members: Any) -> Answer:
    body = {"schema": definition, **members}
    return store.proxy("POST", f"{store.schema}change/", body)


def plan(store: Store) -> Any:
    answer = change(store, AFTER, **ASKED, dry_run=True)
    assert answer.status == 200, answer.body
    return answer.json()


def data(store: Store) -> list[Any]:
    return [one["data"] for one in store.everything()]


def test_records_are_of_the_new_definition_and_keep_their_ids_and_versions(
    store: Store, tmp_path: Path
) -> None:
    named = store.ingest(ROWS[:5]) + store.ingest(ROWS[5:])
    assert store.proxy("PATCH", f"/api/records/{named[0]}/", {"data": {"gone": "y"}}).status == 200
    etags = [store.proxy("GET", f"/api/records/{one}/").headers["ETag"] for one in named]
    told = plan(store)
    assert (told["takes"], told["possible"], told["applied"]) == ("reseal", True, False)
    assert told["records"] == 8
    assert told["seconds"] > 0
    assert {one["code"] for one in told["changes"] if one["takes"] == "reseal"} == {
        "binding_changed",
        "field_removed",
    }
    assert {one["code"] for one in data(store)} == {row["code"] for row in ROWS}
    answer = change(store, AFTER, **ASKED)
    assert (answer.status, answer.json()["takes"]) == (202, "reseal")
    jobs.completed(store, answer.headers["X-Job-Status-URL"])
    assert sorted(data(store), key=lambda one: one["number"]) == BECOMES
    assert [store.proxy("GET", f"/api/records/{one}/").headers["ETag"] for one in named] == etags
    for where in (
        {"field": "number", "op": "between", "value": [3, 4]},
        {"field": "day", "op": "in", "value": ["2024-02-03", "2024-02-04"]},
        {"field": "size", "op": "in", "value": ["0.75", "1"]},
    ):
        assert store.found(where) == named[2:4], where
    assert store.ask({"field": "gone", "op": "eq", "value": "x"}).status == 400
    store.ingest([{"number": 9, "new": "at once"}])
    # A proxy that has never seen the log before reads it, too.
    with running_proxy(store.service.base_url, with_keyrings(store.service, tmp_path)) as proxy:
        fresh = replace(store, service=replace(store.service, proxy_url=proxy.url))
        assert fresh.everything() == store.everything()
    # Lengths that were padded stay so, though the rule is gone.
    sealed = store.api("GET", f"/api/records/?schema={store.schema_id}").json()["results"]
    assert len({len(one["fields"]["kept"]) for one in sealed[:8]}) == 1
    assert len(sealed[0]["fields"]["kept"]) > len(sealed[-1]["fields"]["kept"])


def test_records_in_the_way_are_counted_and_found_before_anything_is_begun(store: Store) -> None:
    named = store.ingest([*ROWS[:3], {"code": "007"}, {"code": "12a"}, {"day": "someday"}])
    told = plan(store)
    assert not told["possible"]
    in_the_way = {one["field"]: one for one in told["changes"] if "records" in one}
    assert {name: one["records"] for name, one in in_the_way.items()} == {"number": 2, "day": 1}
    assert store.found(in_the_way["number"]["where"]) == named[3:5]
    assert store.found(in_the_way["day"]["where"]) == named[5:]
    refused = change(store, AFTER, **ASKED)
    assert (refused.status, refused.json()["code"]) == (409, "needs_reencryption")
    for one in named[3:]:
        assert store.proxy("DELETE", f"/api/records/{one}/").status == 204
    answer = change(store, AFTER, **ASKED)
    jobs.completed(store, answer.headers["X-Job-Status-URL"])
    assert data(store) == BECOMES[:3]


def test_a_field_is_lost_only_where_its_name_is_given(store: Store) -> None:
    named = store.ingest([*ROWS[:3], {"code": "9"}])
    asked = ASKED | {"drops": []}
    (lost,) = (
        one
        for one in change(store, AFTER, **asked, dry_run=True).json()["changes"]
        if one["code"] == "field_removed"
    )
    assert (lost["field"], lost["records"]) == ("gone", 3)
    assert store.found(lost["where"]) == named[:3]
    refused = change(store, AFTER, **asked)
    assert (refused.status, refused.json()["code"]) == (409, "needs_reencryption")


def test_unique_fields_are_another_step(store: Store) -> None:
    store.ingest(ROWS[:2])
    answer = change(store, AFTER | {"unique": [["number"]]}, **ASKED)
    assert (answer.status, answer.json()["code"]) == (409, "change_in_two_steps")


@pytest.fixture
def beside(store: Store, service: Service, tmp_path: Path) -> Iterator[tuple[Store, Any]]:
    store.ingest(ROWS)
    with (
        running_front(service.base_url) as front,
        running_proxy(front.url, with_keyrings(store.service, tmp_path)) as proxy,
    ):
        yield replace(store, service=replace(store.service, proxy_url=proxy.url)), front


@pytest.mark.parametrize("comes", ["record", "definition"])
def test_what_no_longer_fits_when_it_is_done_ends_it_by_name(
    store: Store, beside: tuple[Store, Any], comes: str
) -> None:
    """A record that cannot be converted comes in, or another definition."""
    other, front = beside
    wider = BEFORE | {"properties": BEFORE["properties"] | {"more": {"type": "string"}}}
    done: list[int] = []

    def invent(asked: Asked) -> Reply | None:
        if asked.path.endswith("/publish/") and not done:
            sent = store.send([{"code": "none"}]) if comes == "record" else change(store, wider)
            done.append(sent.status)
        return None

    front.invent = invent
    answer = change(other, AFTER, **ASKED)
    ended = jobs.ended(other, answer.headers["X-Job-Status-URL"])
    assert done == ([201] if comes == "record" else [200])
    assert ended["status"] == "failed"
    code = {"record": "not_convertible", "definition": "definition_moved"}[comes]
    assert code in ended["error"]
    assert data(store)[:8] == ROWS


def once(end: str, act: Callable[[], object]) -> Callable[[Asked], Reply | None]:
    """Do something before the first request to a path that ends so is passed on."""
    left = [act]

    def invent(asked: Asked) -> Reply | None:
        if left and asked.method == "POST" and asked.path.endswith(end):
            left.pop()()
        return None

    return invent


def test_groups_that_become_one_before_its_commit_are_a_race_that_it_loses_once(
    store: Store, beside: tuple[Store, Any], tmp_path: Path
) -> None:
    """By another proxy, that merges in the background."""
    other, front = beside
    store.ingest([{"code": str(n)} for n in range(20, 29)], at_once=1)
    compacted: list[int] = []
    folder = with_keyrings(store.service, tmp_path / "compacting")
    front.invent = once("/publish/", lambda: compacted.append(run(store, folder)))
    answer = change(other, AFTER, **ASKED)
    jobs.completed(other, answer.headers["X-Job-Status-URL"])
    assert sum(compacted) > 1, "groups ended between its draft and its commit"
    assert [one for one in data(store) if one["number"] < 20] == BECOMES
    assert len(data(store)) == 17
    assert other.everything() == store.everything()


def test_two_proxies_that_add_a_field_at_once_give_each_an_id_of_its_own(
    store: Store, beside: tuple[Store, Any]
) -> None:
    other, front = beside
    more = BEFORE["properties"] | {"more": {"type": "string"}}
    both = BEFORE | {"properties": more | {"extra": {"type": "string"}}}

    def come_first() -> None:
        assert change(store, BEFORE | {"properties": more}).status == 200
        store.ingest([{"code": "new", "more": "of the one"}])

    front.invent = once("/commits/", come_first)
    answer = change(other, both)
    assert (answer.status, answer.json()["takes"]) == (200, "commit"), answer.body
    other.ingest([{"code": "newer", "extra": "of the other"}])
    for one in (store, other):
        assert data(one)[8:] == [
            {"code": "new", "more": "of the one"},
            {"code": "newer", "extra": "of the other"},
        ]


def test_a_definition_that_comes_while_chunks_are_planned_is_not_written_over(
    store: Store, beside: tuple[Store, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    other, _ = beside
    wider = BEFORE | {"properties": BEFORE["properties"] | {"more": {"type": "string"}}}
    note, done = Targets.note_seen, list[int]()

    def after_another(self: Targets, *arguments: Any) -> None:
        if not done:
            done.append(change(store, wider).status)
            assert other.everything() == store.everything()  # the proxy has seen it
        note(self, *arguments)

    monkeypatch.setattr(Targets, "note_seen", after_another)
    answer = change(other, AFTER, **ASKED)
    ended = jobs.ended(other, answer.headers["X-Job-Status-URL"])
    assert done == [200]
    assert (ended["status"], "definition_moved" in ended["error"]) == ("failed", True), ended
    assert data(store) == ROWS
