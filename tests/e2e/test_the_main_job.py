"""The whole way of a record, over real HTTP against a real `ers up`, on both databases."""

from __future__ import annotations

import base64
import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.service import Service, call
from tests.support.store import Store, exact, new_store

pytestmark = pytest.mark.parametrize("service", ["postgresql"], indirect=True)

EXAMPLES = Path(__file__).parents[2] / "examples"
DEFINITION = json.loads((EXAMPLES / "census.schema.json").read_text())


def census(count: int) -> list[dict[str, Any]]:
    numeric = {
        name for name, field in DEFINITION["properties"].items() if field["type"] == "integer"
    }
    with (EXAMPLES / "census.csv").open(newline="") as file:
        rows = [
            {name: int(value) if name in numeric else value for name, value in row.items() if value}
            for row in csv.DictReader(file)
        ]
    return rows[:count]


ROWS = census(300)


@pytest.fixture(scope="module")
def store(service: Service) -> Store:
    store = new_store(service, DEFINITION)
    store.ingest(ROWS)
    return store


def test_records_are_found_by_exact_match_and_come_back_as_they_were(store: Store) -> None:
    found = store.search({"field": "native_country", "op": "eq", "value": "Cuba"}, count=True)

    expected = [row for row in ROWS if row.get("native_country") == "Cuba"]
    assert expected
    assert [record["data"] for record in found["results"]] == expected
    assert found["count"] == len(expected)


def test_records_are_found_by_range(store: Store) -> None:
    found = store.search({"field": "age", "op": "between", "value": [30, 33]}, count=True)

    expected = [row for row in ROWS if 30 <= row["age"] <= 33]
    assert [record["data"] for record in found["results"]] == expected


def test_a_count_needs_no_rows(store: Store) -> None:
    found = store.search({"field": "sex", "op": "eq", "value": "Female"}, count=True, limit=0)

    assert found["results"] == []
    assert found["next_cursor"] is None
    assert found["count"] == sum(row["sex"] == "Female" for row in ROWS)


def test_pages_follow_one_another_without_gap_or_repetition(store: Store) -> None:
    pages, cursor = [], None
    while True:
        page = store.search(limit=70, cursor=cursor)
        pages += page["results"]
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert [record["data"] for record in pages] == ROWS


def test_records_stored_while_paging_do_not_disturb_the_pages(service: Service) -> None:
    store = new_store(service, DEFINITION)
    ids = store.ingest(ROWS[:20])
    first = store.search(limit=15)

    store.ingest(ROWS[20:40])
    second = store.search(limit=15, cursor=first["next_cursor"])

    assert [one["id"] for one in first["results"] + second["results"]] == ids
    assert second["next_cursor"] is None


def test_only_the_fields_asked_for_come_back(store: Store) -> None:
    found = store.search(fields=["income", "age"], limit=1)

    assert found["results"][0]["data"] == {"income": ROWS[0]["income"], "age": ROWS[0]["age"]}


def test_filters_are_equality_on_each_label(store: Store) -> None:
    filters = [{"label": "sex", "value": "Female"}, {"label": "race", "value": "Black"}]

    found = store.search(filters=filters, limit=1000)

    expected = [row for row in ROWS if row["sex"] == "Female" and row["race"] == "Black"]
    assert [record["data"] for record in found["results"]] == expected


def test_the_listing_shows_decrypted_records_page_by_page(store: Store) -> None:
    first = store.proxy("GET", f"/api/records/?schema={store.schema_id}&limit=200").json()
    second = store.proxy("GET", first["next"]).json()

    assert first["count"] == second["count"] == 300
    assert first["previous"] is None
    assert second["next"] is None
    assert [one["data"] for one in first["results"] + second["results"]] == ROWS


def test_one_record_is_read_by_its_id(store: Store) -> None:
    listed = store.search(limit=1)["results"][0]

    assert store.proxy("GET", listed["url"]).json() == listed


def test_the_api_has_the_record_sealed_and_the_proxy_opens_it(store: Store) -> None:
    plain = store.search(limit=1)["results"][0]

    sealed = store.api("GET", plain["url"]).json()
    through_proxy = store.proxy("GET", f"{plain['url']}?sealed=true").json()
    opened = store.proxy("POST", "/api/records/decrypt/", sealed)
    several = store.proxy("POST", "/api/records/decrypt/", [sealed, sealed])

    assert sealed == through_proxy
    assert set(sealed["fields"]) == set(DEFINITION["properties"])
    assert opened.json() == plain
    assert several.json() == [plain, plain]


def test_a_sealed_record_that_was_altered_does_not_open(store: Store) -> None:
    url = store.search(limit=1)["results"][0]["url"]
    sealed = store.api("GET", url).json()

    swapped = sealed | {"fields": dict(sealed["fields"])}
    swapped["fields"]["age"], swapped["fields"]["fnlwgt"] = (
        sealed["fields"]["fnlwgt"],
        sealed["fields"]["age"],
    )
    flipped = sealed | {"fields": dict(sealed["fields"])}
    bits = bytearray(base64.b64decode(flipped["fields"]["age"]))
    bits[-1] ^= 1
    flipped["fields"]["age"] = base64.b64encode(bits).decode()

    lacking = sealed | {"fields": {k: v for k, v in sealed["fields"].items() if k != "age"}}
    moved = (sealed | {"version": 2}, sealed | {"ordinal": 1}, sealed | {"group": "00" * 16})

    for altered in (swapped, flipped, lacking, *moved):
        answer = store.proxy("POST", "/api/records/decrypt/", altered)
        assert (answer.status, answer.json()["code"]) == (422, "does_not_open")


def test_one_bad_record_stores_none_and_says_where_and_why(store: Store) -> None:
    before = store.search(count=True, limit=0)["count"]
    bad = [ROWS[0], ROWS[1] | {"age": 121}, {"age": "40"} | {"hat": "blue"}]

    answer = store.send(bad)

    assert answer.status == 400
    flaws = {(flaw["row"], flaw["field"], flaw["code"]) for flaw in answer.json()["errors"]}
    assert {(2, "age", "maximum"), (3, "age", "type"), (3, "hat", "unknown_field")} <= flaws
    assert (3, "income", "required") in flaws
    # As a number of its own: ids may have these digits.
    assert not re.search(r"\b121\b", answer.body.decode())
    assert store.search(count=True, limit=0)["count"] == before


def test_more_than_a_hundred_records_are_refused(store: Store) -> None:
    answer = store.send([ROWS[0]] * 101)

    assert (answer.status, answer.json()["code"]) == (413, "too_many_records")


def test_one_request_may_hold_records_of_several_schemas(store: Store) -> None:
    other = store.another_schema(
        {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}
    )
    mixed = [
        {"schema": store.schema, "data": ROWS[0]},
        {"schema": other.schema, "data": {"note": "hello"}},
        {"schema": store.service.proxy_url + other.schema, "data": {"note": "again"}},
    ]

    created = store.proxy("POST", "/api/records/ingest/", mixed)
    refused = store.proxy(
        "POST", "/api/records/ingest/", [*mixed, {"schema": other.schema, "data": {}}]
    )

    assert [one["schema"] for one in created.json()] == [store.schema, other.schema, other.schema]
    assert refused.status == 400
    notes = [record["data"]["note"] for record in other.search()["results"]]
    assert notes == ["hello", "again"]


def test_numbers_keep_their_decimals_and_are_rounded_half_to_even(service: Service) -> None:
    bounds = {"minimum": -1000, "maximum": 10**15, "precision": 2}
    store = new_store(
        service, {"type": "object", "properties": {"x": {"type": "number", **bounds}}}
    )
    sent = b"[0.125, 0.135, 12.5, -0.0, 1e3, 123456789012345.67, 999999999999999.994]"
    body = b",".join(
        b'{"schema":"%s","data":{"x":%s}}' % (store.schema.encode(), number.strip())
        for number in sent.strip(b"[]").split(b",")
    )

    answer = call(
        "POST",
        f"{service.proxy_url}/api/records/ingest/",
        b"[" + body + b"]",
        auth=store.account.auth,
    )
    found = store.proxy("POST", "/api/records/search/", {"schema": store.schema})

    assert answer.status == 201, answer.body
    values = [str(record["data"]["x"]) for record in exact(found)["results"]]
    assert values == [
        "0.12",
        "0.14",
        "12.50",
        "0.00",
        "1000.00",
        "123456789012345.67",
        "999999999999999.99",
    ]


def test_strangers_and_nobody_reach_nothing(store: Store) -> None:
    stranger = Store(store.service, store.service.new_account(), store.schema)
    url = store.search(limit=1)["results"][0]["url"]

    assert stranger.ask().status == 404
    sent = stranger.send(ROWS[:1])
    assert (sent.status, sent.json()["errors"][0]["code"]) == (400, "unknown_reference")
    assert stranger.proxy("GET", url).status == 404
    assert stranger.proxy("GET", f"/api/records/?schema={store.schema_id}").status == 404
    for path in (url, "/api/records/?schema=x", "/api/datasets/"):
        nobody = call("GET", store.service.proxy_url + path)
        assert nobody.status == 401
        assert "WWW-Authenticate" in nobody.headers
        assert nobody.headers["Content-Type"] == "application/problem+json"


def test_other_paths_are_the_apis(store: Store) -> None:
    status = call("GET", f"{store.service.proxy_url}/api/status/").json()

    assert status["status"] == "ok"
    assert status["behind_proxy"] is True
    assert call("GET", f"{store.service.base_url}/api/status/").json()["behind_proxy"] is False
    for path in ("/api/organizations/", "/api/users/self/"):
        assert store.proxy("GET", path).json() == store.api("GET", path).json()
    # Of what has a name, the proxy says as well whether it was signed.
    datasets = store.proxy("GET", "/api/datasets/").json()
    for result in (*datasets["results"], schema := store.proxy("GET", store.schema).json()):
        assert type(result.pop("signed", False)) is bool
    assert datasets == store.api("GET", "/api/datasets/").json()
    assert schema == store.api("GET", store.schema).json()
    assert store.proxy("GET", "/api/nowhere/").status == 404


def test_plaintext_sent_to_an_endpoint_the_proxy_lacks_is_not_forwarded(store: Store) -> None:
    url = store.search(limit=1)["results"][0]["url"]

    for method, path in (
        ("POST", url),
        ("PATCH", "/api/records/"),
        ("POST", "/api/records/"),
        ("PUT", "/api/jobs/upload/"),
        ("POST", store.schema),
    ):
        answer = store.proxy(method, path, {"age": 50})
        assert (answer.status, answer.json()["code"]) == (405, "method_not_allowed"), path
        assert method not in answer.headers["Allow"]
    for path in ("/api/records/ingest", "/api//records/ingest/", "/api/v1/records/ingest/"):
        answer = store.proxy("POST", path, {"age": 50})
        assert (answer.status, answer.json()["code"]) == (404, "not_forwarded"), path


def test_many_small_ingests_are_merged_and_nothing_is_lost(service: Service) -> None:
    store = new_store(service, DEFINITION)

    ids = [store.ingest([ROWS[number % len(ROWS)]])[0] for number in range(150)]

    assert store.found() == ids
    where = {"field": "age", "op": "ge", "value": 40}
    expected = [one for number, one in enumerate(ids) if ROWS[number]["age"] >= 40]
    assert store.found(where) == expected
    # More than 64 are too many; others come while they are merged.
    assert max(map(int, re.findall(r"merged (\d+) segments", service.log))) > 64
    store.ingest(ROWS[:1])
    assert store.search(count=True, limit=0)["count"] == 151


def test_a_field_added_later_is_absent_in_older_records_and_searchable_at_once(
    service: Service,
) -> None:
    text = {"type": "string"}
    store = new_store(service, {"type": "object", "properties": {"name": text}})
    (old,) = store.ingest([{"name": "old"}])

    wider = {"type": "object", "properties": {"name": text, "city": text}}
    changed = store.proxy("PATCH", store.schema, {"schema": wider})
    (new,) = store.ingest([{"name": "new", "city": "Oslo"}])

    assert changed.status == 200, changed.body
    assert store.found({"field": "city", "op": "is_null"}) == [old]
    assert store.found({"field": "city", "op": "eq", "value": "Oslo"}) == [new]
    assert store.found({"field": "city", "op": "ne", "value": "Oslo"}) == [old]
    assert store.found() == [old, new]


def test_a_change_that_needs_other_keys_is_refused_while_there_are_records(
    service: Service,
) -> None:
    def with_maximum(maximum: int) -> dict[str, Any]:
        field = {"type": "integer", "minimum": 0, "maximum": maximum}
        return {"type": "object", "properties": {"age": field}}

    store = new_store(service, with_maximum(120))
    assert store.proxy("PATCH", store.schema, {"schema": with_maximum(130)}).status == 200
    (one,) = store.ingest([{"age": 130}])

    refused = store.proxy("PATCH", store.schema, {"schema": with_maximum(100)})

    assert (refused.status, refused.json()["code"]) == (409, "needs_reencryption")
    assert store.found({"field": "age", "op": "gt", "value": 120}) == [one]
