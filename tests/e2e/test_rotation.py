"""A keyring is rotated under a schema in use, of an organization without a roster: answers stay
right, and nobody takes it over."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests import oracle
from tests.support.older import older_store
from tests.support.service import Answer, Service, running_service
from tests.support.store import Store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 1000},
    },
}
FIELDS = DEFINITION["properties"]
#: Strings whose index keys are alike but for the tail that K_tail makes.
LONG = ["x" * 60 + end for end in "abc"]


def again(store: Store, service: Service) -> Store:
    return Store(service, store.account, store.schema, store.device)


def refusal(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json()["code"]


def rotate(store: Store) -> dict[str, Any]:
    answer = store.proxy("POST", "/api/keyring/rotate/")
    assert answer.status == 201, answer.body
    found: dict[str, Any] = answer.json()
    return found


def phrases_of(store: Store) -> list[str]:
    answer = store.proxy("POST", "/api/keyring/backup/", {"all": True})
    return [one["phrase"] for one in answer.json()]


def key_state(store: Store) -> dict[str, Any]:
    every = store.proxy("GET", "/api/keyring/schemas/").json()
    (shown,) = (one for one in every if one["url"] == store.schema)
    state: dict[str, Any] = shown
    return state


def rows(start: int, count: int) -> list[dict[str, Any]]:
    return [
        {"name": LONG[n % 3] if n % 2 else f"name {n}", "n": n} for n in range(start, start + count)
    ]


QUESTIONS: list[Any] = [
    {"field": "name", "op": "eq", "value": LONG[0]},
    {"field": "name", "op": "in", "value": [LONG[1], "name 2", "name 70"]},
    {"field": "name", "op": "prefix", "value": "x" * 60},
    {"field": "n", "op": "between", "value": [60, 80]},
    {"not": {"field": "name", "op": "eq", "value": LONG[2]}},
]


def check(store: Store, stored: list[dict[str, Any]]) -> None:
    for where in QUESTIONS:
        found = [one["data"] for one in store.everything(where)]
        assert found == [row for row in stored if oracle.holds(where, row, FIELDS)], where


def test_answers_are_the_same_before_after_and_across_rotations_and_merges(
    database: str | None, tmp_path: Path
) -> None:
    with running_service(tmp_path / "data", database_url=database) as service:
        store = older_store(service, DEFINITION)
        stored: list[dict[str, Any]] = []

        def ingest(count: int) -> list[str]:
            added = rows(len(stored), count)
            stored.extend(added)
            return store.ingest(added)

        (first, *_) = ingest(3)
        sealed = store.api("GET", f"/api/records/{first}/").json()
        rotate(store)
        check(store, stored)
        # Enough segments that the ingest which brings the last of them merges: both versions.
        for _ in range(70):
            ingest(1)
        check(store, stored)
        after = rotate(store)
        (last,) = ingest(1)
        check(store, stored)

        assert [version["version"] for version in after["versions"]] == [1, 2, 3]
        states = [store.api("GET", f"/api/records/{one}/").json() for one in (first, last)]
        # Behind the merge, the small groups may have become one, under the key of then.
        assert states[0]["key_version"] in (1, 2)
        assert states[1]["key_version"] == 3
        assert (states[0]["id"], states[0]["version"]) == (first, sealed["version"])
        opened = store.proxy("POST", "/api/records/decrypt/", states).json()
        assert [one["data"] for one in opened] == [stored[0], stored[-1]]
        shown = key_state(store)
        assert (shown["first_key_version"], shown["key_version"], shown["held"]) == (1, 3, True)
        assert "merged" in service.log

    with running_service(tmp_path / "data", database_url=database) as service:
        check(again(store, service), stored)


def test_two_proxies_that_rotate_apart_are_told_so_and_one_can_take_over_the_others_keys(
    tmp_path: Path,
) -> None:
    """The second proxy is the first one's folder as it was before it rotated."""
    data = tmp_path / "data"
    with running_service(data) as service:
        store = older_store(service, DEFINITION)
        store.ingest(rows(0, 2))
    shutil.copytree(data / "proxy", tmp_path / "second")
    with running_service(data) as service:
        store = again(store, service)
        rotate(store)
        store.ingest(rows(2, 2))
        phrases = phrases_of(store)
    shutil.rmtree(data / "proxy")
    shutil.copytree(tmp_path / "second", data / "proxy")

    with running_service(data) as service:
        store = again(store, service)
        for rotated_apart in (False, True):
            if rotated_apart:
                rotate(store)
            for answer in (store.ask(), store.send(rows(9, 1))):
                assert refusal(answer) == (422, "key_missing")
                assert "version 2" in answer.json()["detail"]
                assert "keyring" in answer.json()["hint"]
        schema = key_state(store)
        assert (schema["key_version"], schema["held"]) == (2, False)

        body = {"phrases": phrases, "replace": True}
        assert store.proxy("POST", "/api/keyring/restore/", body).status == 201
        store.ingest(rows(4, 1))
        assert [one["data"] for one in store.everything()] == rows(0, 5)


def test_phrases_in_another_order_give_a_keyring_that_opens_nothing_and_says_so(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with running_service(data) as service:
        store = older_store(service, DEFINITION)
        store.ingest(rows(0, 2))
        rotate(store)
        store.ingest(rows(2, 2))
        phrases = phrases_of(store)
        body = {"phrases": phrases[::-1], "replace": True}
        assert store.proxy("POST", "/api/keyring/restore/", body).status == 201
        assert refusal(store.ask()) == (422, "key_missing")
        for few in (phrases[:1], phrases[1:]):
            body = {"phrases": few, "replace": True}
            assert store.proxy("POST", "/api/keyring/restore/", body).status == 201
            assert refusal(store.ask()) == (422, "key_missing")
        body = {"phrases": phrases, "replace": True}
        assert store.proxy("POST", "/api/keyring/restore/", body).status == 201
        assert len(store.everything()) == 4
