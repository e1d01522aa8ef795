"""A keyring is rotated under a schema in use, of an organization without a roster: answers stay
right, and nobody takes it over."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from encrypted_records.index.segments.merge_policy import Tier
from encrypted_records.proxy.settings import Overrides
from tests import oracle
from tests.support.fixtures import at
from tests.support.older import older_store
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Answer, Service
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


def filled(service: Service, proxy: Proxy, count: int) -> Store:
    """A store by way of a proxy, with its first rows."""
    store = older_store(replace(service, proxy_url=proxy.url), DEFINITION)
    store.ingest(rows(0, count))
    return store


def test_answers_are_the_same_before_after_and_across_rotations_and_merges(
    service: Service, tmp_path: Path
) -> None:
    stored = rows(0, 3)
    merging = Overrides(tiers=(Tier(64, 8),))
    with running_proxy(service.base_url, tmp_path, overrides=merging) as proxy:
        store = filled(service, proxy, 3)

        def ingest() -> str:
            added = rows(len(stored), 1)
            stored.extend(added)
            (one,) = store.ingest(added)
            return one

        first = store.found()[0]
        sealed = store.api("GET", f"/api/records/{first}/").json()
        rotate(store)
        check(store, stored)
        for _ in range(8):
            ingest()
        # Rows of both versions; the last ingest may have begun it already.
        merged = store.proxy("POST", f"{store.schema}merge/", {})
        assert merged.status == 200 and merged.json()["segments"] < 8, merged.body
        check(store, stored)
        after = rotate(store)
        last = ingest()
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

    with running_proxy(service.base_url, tmp_path) as proxy:
        check(at(store, proxy), stored)


def test_two_proxies_that_rotate_apart_are_told_so_and_one_can_take_over_the_others_keys(
    service: Service, tmp_path: Path
) -> None:
    """The second proxy is the first one's folder as it was before it rotated."""
    first, second = tmp_path / "first", tmp_path / "second"
    with running_proxy(service.base_url, first) as proxy:
        store = filled(service, proxy, 2)
    shutil.copytree(first, second)
    with running_proxy(service.base_url, first) as proxy:
        store = at(store, proxy)
        rotate(store)
        store.ingest(rows(2, 2))
        phrases = phrases_of(store)

    with running_proxy(service.base_url, second) as proxy:
        store = at(store, proxy)
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
    service: Service, tmp_path: Path
) -> None:
    with running_proxy(service.base_url, tmp_path) as proxy:
        store = filled(service, proxy, 2)
        rotate(store)
        store.ingest(rows(2, 2))
        phrases = phrases_of(store)
        for wrong in (phrases[::-1], phrases[:1], phrases[1:]):
            body = {"phrases": wrong, "replace": True}
            assert store.proxy("POST", "/api/keyring/restore/", body).status == 201
            assert refusal(store.ask()) == (422, "key_missing")
        body = {"phrases": phrases, "replace": True}
        assert store.proxy("POST", "/api/keyring/restore/", body).status == 201
        assert len(store.everything()) == 4
