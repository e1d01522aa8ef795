"""Two at once: one wins, the other is told, and nothing is left half done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

import pytest

from tests.support.service import Account, Answer, Service
from tests.support.store import Store, new_store

pytestmark = pytest.mark.parametrize("service", ["sqlite", "postgresql"], indirect=True)

ROUNDS = 3


def definition(maximum: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": maximum}},
    }


def at_once(calls: Sequence[Callable[[], Answer]]) -> list[Answer]:
    """Send all requests at the same moment, each from a thread of its own."""
    barrier = Barrier(len(calls))

    def run(one: Callable[[], Answer]) -> Answer:
        barrier.wait()
        return one()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


@pytest.fixture(scope="module")
def account(service: Service) -> Account:
    return service.new_account()


@pytest.fixture(scope="module")
def store(service: Service) -> Store:
    return new_store(service, definition(10))


def creation(store: Store, collection: str, **members: Any) -> Callable[[], Answer]:
    """A request that makes a dataset or a schema next to the store's own."""
    schema = store.api("GET", store.schema).json()
    parent = (
        {"organization": schema["organization"]}
        if collection == "datasets"
        else {"dataset": schema["dataset"], "schema": definition(10)}
    )
    body = {"name": "Same name", **parent, **members}
    return lambda: store.api("POST", f"/api/{collection}/", body)


@pytest.mark.parametrize("collection", ["datasets", "schemas"])
def test_of_several_creations_with_one_slug_one_succeeds(store: Store, collection: str) -> None:
    for number in range(ROUNDS):
        create = creation(store, collection, slug=f"taken-{number}")

        answers = at_once([create] * 6)

        assert Counter(answer.status for answer in answers) == {201: 1, 409: 5}
        assert {answer.json()["code"] for answer in answers if answer.status == 409} == {
            "slug_taken"
        }


@pytest.mark.parametrize("collection", ["datasets", "schemas"])
def test_several_creations_without_a_slug_all_succeed(store: Store, collection: str) -> None:
    answers = at_once([creation(store, collection)] * 6)

    assert [answer.status for answer in answers] == [201] * 6
    assert len({answer.json()["slug"] for answer in answers}) == 6


def test_either_the_schema_is_deleted_or_its_first_records_are_stored(store: Store) -> None:
    outcomes = set()
    for _ in range(ROUNDS):
        mine = store.another_schema(definition(10))
        mine.ask()  # so that the proxy knows the schema and the ingest is one request

        deleted, ingested = at_once(
            [partial(mine.api, "DELETE", mine.schema), partial(mine.send, [{"n": 1}] * 50)]
        )

        outcomes.add((deleted.status, ingested.status))
        if deleted.status == 204:
            assert ingested.json()["code"] == "schema_deleted"
            assert mine.send([{"n": 1}]).status == 400
        else:
            assert deleted.json()["code"] == "schema_not_empty"
            assert mine.search(count=True)["count"] == 50
    assert outcomes <= {(204, 404), (409, 201)}


def test_deleting_with_all_records_during_an_ingest_leaves_no_record(store: Store) -> None:
    for _ in range(ROUNDS):
        mine = store.another_schema(definition(10))
        ids = mine.ingest([{"n": 1}] * 10)

        deleted, ingested = at_once(
            [
                partial(mine.api, "DELETE", f"{mine.schema}?cascade=true"),
                partial(mine.send, [{"n": 2}] * 50),
            ]
        )

        assert deleted.status == 204
        assert ingested.status in (201, 404)
        if ingested.status == 201:
            ids += [one["id"] for one in ingested.json()]
        for identifier in (ids[0], ids[-1]):
            assert mine.api("GET", f"/api/records/{identifier}/").status == 404
        assert mine.ask().status == 404


@pytest.mark.parametrize(
    ("host", "refused"), [("api", "through_a_proxy"), ("proxy", "needs_reencryption")]
)
def test_a_change_of_bounds_and_an_ingest_never_mix_two_keys(
    store: Store, host: str, refused: str
) -> None:
    outcomes = set()
    for _ in range(ROUNDS):
        mine = store.another_schema(definition(10))
        mine.ask()

        changed, ingested = at_once(
            [
                partial(getattr(mine, host), "PATCH", mine.schema, {"schema": definition(20)}),
                partial(mine.send, [{"n": 7}] * 50),
            ]
        )

        # The ingest that loses is sealed anew under the changed definition, and wins then.
        assert ingested.status == 201
        outcomes.add(changed.status)
        assert changed.status == 200 or changed.json()["code"] == refused
        highest = mine.api("GET", mine.schema).json()["schema"]["properties"]["n"]["maximum"]
        assert highest == (20 if changed.status == 200 else 10)
        found = mine.search({"field": "n", "op": "eq", "value": 7}, count=True)
        assert found["count"] == len(found["results"]) == 50
    assert outcomes <= {200, 409}


def test_ingests_at_once_into_one_schema_are_all_stored(store: Store) -> None:
    mine = store.another_schema(definition(1000))

    answers = at_once([partial(mine.send, [{"n": number}] * 20) for number in range(8)])

    assert [answer.status for answer in answers] == [201] * 8
    assert Counter(one["data"]["n"] for one in mine.everything()) == dict.fromkeys(range(8), 20)
