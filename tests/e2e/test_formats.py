"""Dates, times, durations, uuids and booleans, through every door of a running service."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.jobs import ended, flaws, started
from tests.support.service import Service, call
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "properties": {
        "born": {"type": "string", "format": "date"},
        "opens": {"type": "string", "format": "time"},
        "seen": {"type": "string", "format": "date-time"},
        "device": {"type": "string", "format": "uuid"},
        "alive": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
        "took": {"type": "string", "format": "duration"},
        "noted": {"type": "string", "format": "local-date-time"},
    },
    "required": ["born"],
}
ADA = {
    "born": "1815-12-10",
    "opens": "08:30:00.50",
    "seen": "2026-01-31t23:30:00-01:00",
    "device": "6BA7B810-9DAD-11D1-80B4-00C04FD430C8",
    "alive": False,
    "took": "PT90M",
    "noted": "2026-01-31T08:30:00.250",
}
#: As it comes back: in the one spelling.
KEPT_ADA = ADA | {
    "opens": "08:30:00.5",
    "seen": "2026-01-31T23:30:00-01:00",
    "device": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "took": "PT1H30M",
    "noted": "2026-01-31T08:30:00.25",
}
LEAP = {
    "born": "2024-02-29",
    "seen": "2026-02-01T00:15:00Z",
    "alive": True,
    "took": "-P1DT2H",
    "noted": "2026-02-01T00:00:00",
}
BARE = {"born": "2024-03-01"}


@pytest.fixture(scope="module")
def store(service: Service) -> Store:
    made = new_store(service, DEFINITION)
    made.ingest([ADA])
    body = (
        f"born,opens,seen,device,alive,took,noted,schema_id:{made.schema_id}\n"
        "2024-02-29,,2026-02-01T00:15:00Z,,true,-PT26H,2026-02-01T00:00:00,\n2024-03-01,,,,,,,\n"
    )
    assert ended(made, started(made, body.encode(), "text/csv"))["status"] == "completed"
    return made


def found(store: Store, where: Any, **more: Any) -> list[dict[str, Any]]:
    return [result["data"] for result in store.search(where, **more)["results"]]


def where(field: str, op: str, value: Any) -> dict[str, Any]:
    return {"field": field, "op": op, "value": value}


def test_what_was_stored_comes_back_in_one_spelling(store: Store) -> None:
    assert found(store, None) == [KEPT_ADA, LEAP, BARE]


def test_a_year_a_month_and_one_value_in_any_spelling_find_records(store: Store) -> None:
    assert found(store, where("born", "in", ["2024-02", "1815"])) == [KEPT_ADA, LEAP]
    assert found(store, where("took", "eq", "PT5400S"), order_by=["-seen"]) == [KEPT_ADA]


def test_dates_are_measured_and_grouped_by_month(store: Store) -> None:
    body: dict[str, Any] = {
        "schema": store.schema,
        "measures": [
            {"op": "count"},
            {"op": "max", "field": "seen"},
            {"op": "min", "field": "device"},
            {"op": "min", "field": "took"},
            {"op": "max", "field": "noted"},
        ],
        "group_by": [{"field": "seen", "by": "month"}],
    }
    answer = store.proxy("POST", "/api/records/aggregate/", body)
    assert answer.status == 200, answer.body
    assert [
        (group["group"]["seen"], [result["value"] for result in group["measures"]])
        for group in answer.json()["groups"]
    ] == [
        (None, [1, None, None, None, None]),
        ("2026-02", [2, "2026-02-01T00:30:00Z", KEPT_ADA["device"], "-P1DT2H", LEAP["noted"]]),
    ]


def test_an_export_can_be_imported_again(store: Store) -> None:
    body = {"schema": store.schema, "format": "csv", "with_schema_id": True}
    text = store.proxy("POST", "/api/records/export/", body).body.decode()
    assert f"{KEPT_ADA['seen']},{KEPT_ADA['device']},false" in text
    again = store.another_schema(DEFINITION)
    text = text.replace(store.schema_id, again.schema_id)
    assert ended(again, started(again, text.encode(), "text/csv"))["status"] == "completed"
    assert found(again, None) == [KEPT_ADA, LEAP, BARE]


def test_impossible_values_are_named_and_nothing_is_stored(store: Store) -> None:
    bad: list[dict[str, Any]] = [
        {"born": "2023-02-29"},
        BARE | {"seen": "2026-01-01T23:59:60Z"},
        BARE | {"alive": 1},
        BARE | {"device": "6ba7b810"},
        BARE | {"took": "P1M"},
        BARE | {"noted": "2026-01-31T08:30:00Z"},
        BARE,
    ]
    answer = store.send(bad)
    assert answer.status == 400
    assert [(error["row"], error["field"], error["code"]) for error in answer.json()["errors"]] == [
        (1, "born", "format"),
        (2, "seen", "format"),
        (3, "alive", "type"),
        (4, "device", "format"),
        (5, "took", "format"),
        (6, "noted", "format"),
    ]
    assert "months have no exact length" in answer.json()["errors"][4]["detail"]
    assert "no such day" in answer.json()["errors"][0]["detail"]
    text = f"born,alive,schema_id:{store.schema_id}\n2024-01-01,true,\n1900-02-29,1,\n"
    path = started(store, text.encode(), "text/csv")
    assert ended(store, path)["status"] == "failed"
    assert flaws(store, path) == [(2, "born", "format"), (2, "alive", "type")]
    assert found(store, None) == [KEPT_ADA, LEAP, BARE]


def test_an_operator_that_does_not_fit_is_named(store: Store) -> None:
    answer = store.ask(where("born", "prefix", "2024"))
    assert answer.status == 400
    (flaw,) = answer.json()["errors"]
    assert (flaw["code"], flaw["field"]) == ("op", "born")
    assert "this one is a date" in flaw["detail"]


def test_a_format_enforced_later_is_a_change_of_type(store: Store) -> None:
    loose = {name: one for name, one in DEFINITION.items() if name != "formats"}
    answer = store.proxy("PATCH", store.schema, {"schema": loose})
    assert answer.status == 409
    assert answer.json()["code"] == "needs_reencryption"
    assert {error["code"] for error in answer.json()["errors"]} == {"binding_changed"}


def test_a_definition_that_enforces_formats_is_inferred(store: Store) -> None:
    sample = (
        b"born,seen,alive,took,noted,name\n"
        b"2024-02-29,2026-01-01T00:00:00Z,true,PT1H,2026-01-01T00:00:00,x\n"
        b"1999-01-01,,false,,,y\n"
    )
    url = f"{store.service.proxy_url}/api/schemas/infer/"
    answer = call(
        "POST", url, sample, auth=store.account.auth, headers={"Content-Type": "text/csv"}
    )
    proposed = answer.json()["schema"]
    assert proposed["formats"] == "enforced"
    kinds = {name: (one["type"], one.get("format")) for name, one in proposed["properties"].items()}
    assert kinds == {
        "born": ("string", "date"),
        "seen": ("string", "date-time"),
        "alive": ("integer", "boolean"),
        "took": ("string", "duration"),
        "noted": ("string", "local-date-time"),
        "name": ("string", None),
    }
    taken = store.another_schema(proposed)
    text = sample.decode().replace(",name\n", f",name,schema_id:{taken.schema_id}\n")
    job = ended(taken, started(taken, text.encode(), "text/csv"))
    assert (job["status"], json.dumps(job.get("error"))) == ("completed", "null")
