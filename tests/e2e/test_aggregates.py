"""Aggregates and plans over HTTP: exact numbers, and the costs as they were."""

from __future__ import annotations

import time
from base64 import b64decode
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from tests.support.service import Service
from tests.support.store import Store, exact, new_store


def aggregate(store: Store, **body: Any) -> Any:
    answer = store.proxy("POST", "/api/records/aggregate/", {"schema": store.schema, **body})
    assert answer.status == 200, answer.body
    return exact(answer)


DEFINITION = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1},
        "x": {"type": "number", "minimum": 0, "maximum": 10, "precision": 2},
    },
}


@pytest.fixture(scope="module")
def store(service: Service) -> Store:
    made = new_store(service, DEFINITION)
    made.ingest([{"city": ["Rome", "Oslo"][n % 2], "n": 2**64 - 1 - n} for n in range(10)])
    made.ingest([{"city": "Oslo", "x": 1.25}, {"x": 0.1}])
    return made


def test_numbers_leave_exactly_as_they_are(store: Store) -> None:
    asked = [{"op": "sum", "field": "n"}, {"op": "sum", "field": "x"}, {"op": "avg", "field": "x"}]
    answer = store.proxy(
        "POST", "/api/records/aggregate/", {"schema": store.schema, "measures": asked}
    )
    assert f'"value":{10 * (2**64 - 1) - 45}' in answer.body.decode()
    assert '"value":1.35}' in answer.body.decode()
    assert '"value":0.67500000}' in answer.body.decode()
    spread = [{"op": op, "field": "x"} for op in ("variance", "stddev")]
    answers = aggregate(store, measures=spread)["measures"]
    # Of 1.25 and 0.1: half of the square of 1.15, and its root.
    assert list(map(str, (answer["value"] for answer in answers))) == ["0.6612500000", "0.81317280"]
    (one, *_) = aggregate(store, measures=spread, where={"field": "x", "op": "gt", "value": 1})[
        "measures"
    ]
    assert one["value"] is None
    assert Fraction(exact(answer)["measures"][1]["value"]) == Fraction(135, 100)
    assert isinstance(exact(answer)["measures"][1]["value"], Decimal)


def test_deleted_and_changed_records_count_as_they_are(store: Store) -> None:
    mine = store.another_schema(DEFINITION)
    ids = mine.ingest([{"n": n} for n in range(5)])
    mine.proxy("DELETE", f"/api/records/{ids[0]}/")
    mine.proxy("PATCH", f"/api/records/{ids[1]}/", {"data": {"n": 100}})
    asked = [{"op": "count"}, {"op": "sum", "field": "n"}, {"op": "min", "field": "n"}]
    assert [measure["value"] for measure in aggregate(mine, measures=asked)["measures"]] == [
        4,
        109,
        2,
    ]


def explain(store: Store, **body: Any) -> Any:
    answer = store.proxy("POST", "/api/records/explain/", {"schema": store.schema, **body})
    assert answer.status == 200, answer.body
    return answer.json()


def test_a_plan_counts_what_happened_and_shows_no_value(store: Store) -> None:
    mine = store.another_schema(DEFINITION)
    for city in ("Rome", "Oslo"):
        mine.ingest([{"city": city, "n": n} for n in range(3)])
    where = {"field": "city", "op": "eq", "value": "Rome"}

    cold = explain(mine, where=where, order_by=["n"], limit=2)
    warm = explain(mine, where=where, order_by=["n"], limit=2)
    measured = explain(mine, where=where, measures=[{"op": "max", "field": "n"}])

    # Whether others have had these pages before does not show.
    assert (cold["pages"], cold["requests"]) == (warm["pages"], warm["requests"]) == (2, 2)
    for plan in (cold, warm):
        assert (plan["kind"], plan["columns"]) == ("search", ["city", "n"])
        assert (plan["records"], plan["segments"]["live"]) == (6, 2)
        assert plan["rows"] == {"certain": 3, "unsure": 0, "opened": 3}
        assert {stage["stage"] for stage in plan["stages"]} == {
            "plan",
            "fetch_pages",
            "resolve",
            "order",
            "fetch_rows",
        }
    assert (measured["kind"], measured["rows"]["opened"]) == ("aggregate", 0)
    assert "Rome" not in str([cold, warm, measured])


def test_a_plan_counts_what_a_proxy_without_anything_would_ask(store: Store) -> None:
    mine = store.another_schema(DEFINITION)
    mine.ingest([{"n": 1}])
    where = {"field": "n", "op": "eq", "value": 1}
    assert [explain(mine, where=where)["requests"] for _ in range(2)] == [2, 2]
    assert explain(mine, measures=[{"op": "count"}])["requests"] == 1
    assert explain(mine, where={"not": where})["requests"] == 1


def test_the_state_of_the_index_is_told_to_those_who_reach_the_schema(store: Store) -> None:
    mine = store.another_schema(DEFINITION)
    mine.ingest([{"n": 1}, {"n": 2}])
    mine.search()
    path = f"/api/records/status/?schema={mine.schema_id}"

    found = mine.proxy("GET", path).json()

    assert (found["version"], found["records"], found["dead"]) == (1, 2, 0)
    assert found["segments"] == {"live": 1, "mini": 1, "paged": 0}
    assert found["merge_pending"] is False
    assert found["memory"]["segments"]["count"] >= 1
    assert found["memory"]["segments"]["bytes"] > 0
    past = found["activity"]
    assert (len(past["days"]), sum(past["days"]), past["days"][-1] in (0, 2)) == (30, 2, True)
    assert abs(time.time() - past["last"]) < 600
    sealed = mine.proxy("GET", f"/api/records/?schema={mine.schema_id}&sealed=true").json()
    values = [value for result in sealed["results"] for value in result["fields"].values()]
    # With an id of 16 bytes for each record. A number has one length, so the bound is exact.
    assert past["bytes"] == sum(len(b64decode(value)) for value in values) + 2 * 16
    stranger = Store(store.service, store.service.new_account(), mine.schema)
    assert stranger.proxy("GET", path).status == 404


def test_a_question_that_cannot_be_asked_has_no_plan(store: Store) -> None:
    for body in ({"order_by": ["gone"]}, {"measures": [{"op": "sum", "field": "city"}]}):
        answer = store.proxy("POST", "/api/records/explain/", {"schema": store.schema, **body})
        assert (answer.status, answer.json()["code"]) == (400, "invalid_query")
