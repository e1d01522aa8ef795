"""Batch jobs over the real thing: what goes in comes out, exactly, or nothing does."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tests.support.jobs import (
    as_csv,
    as_json,
    completed,
    ended,
    flaws,
    messages,
    socket,
    started,
    upload,
)
from tests.support.jobs import status as status_of
from tests.support.packed import CSV
from tests.support.service import Service, call
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "height": {"type": "number", "minimum": 0, "maximum": 3, "precision": 2},
    },
    "required": ["name"],
}
FIELDS = ("status", "processed", "total", "current_batch", "total_batches")


@pytest.fixture(scope="module")
def account(service: Service) -> Store:
    return new_store(service, DEFINITION)


@pytest.fixture
def store(account: Store) -> Store:
    return account.another_schema(DEFINITION)


def people(count: int) -> list[dict[str, Any]]:
    return [{"name": f"person {number}", "age": number % 150} for number in range(count)]


def stored(store: Store) -> list[dict[str, Any]]:
    return sorted((one["data"] for one in store.everything()), key=lambda one: one["name"])


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda one: one["name"])


@pytest.mark.parametrize("form", ["json", "csv", "ndjson"])
def test_a_job_stores_every_record_and_counts_them(store: Store, form: str) -> None:
    rows = people(2000)
    kind = {"json": "application/json", "csv": "text/csv", "ndjson": "application/x-ndjson"}[form]
    body = as_csv(store, rows, ["age", "name"]) if form == "csv" else as_json(store, rows)
    if form == "ndjson":
        body = body[1:-1].replace(b"},{", b"}\n{")

    final = completed(store, started(store, body, kind))

    assert final == dict(zip(FIELDS, ("completed", 2000, 2000, 200, 200), strict=True))
    assert stored(store) == ordered(rows)
    assert store.search({"field": "age", "op": "eq", "value": 7}, count=True)["count"] == 14


def test_the_batch_size_is_the_unit_of_progress(store: Store) -> None:
    path = started(store, as_json(store, people(25)), X_Batch_Size="4")
    assert completed(store, path)["total_batches"] == 7


def test_one_upload_may_hold_records_of_several_schemas(store: Store) -> None:
    other = store.another_schema(DEFINITION)
    mine, theirs = as_json(store, people(30)), as_json(other, people(20))
    completed(store, started(store, mine[:-1] + b"," + theirs[1:]))
    assert (len(stored(store)), len(stored(other))) == (30, 20)


def test_the_request_may_name_the_schema_for_records_that_do_not(store: Store) -> None:
    query = f"?schema={store.schema_id}"
    completed(store, started(store, b'[{"data": {"name": "Ada"}}]', query=query))
    completed(store, started(store, b"name\nGrace\n", "text/csv", query=query))
    assert [one["name"] for one in stored(store)] == ["Ada", "Grace"]


def test_a_csv_file_is_read_to_the_letter(store: Store) -> None:
    body = (
        f'\ufeffheight,name,age,schema_id:{store.schema_id}\r\n1.655,"Lovelace, ""Ada""\r\n",36\r\n'
        ',"",\r\n'
    ).encode()
    completed(store, started(store, body, "text/csv"))
    assert stored(store) == [
        {"name": ""},
        {"name": 'Lovelace, "Ada"\r\n', "age": 36, "height": Decimal("1.66")},
    ]


def test_nothing_to_store_is_a_job_too(store: Store) -> None:
    final = completed(store, started(store, b"[]"))
    assert final == dict(zip(FIELDS, ("completed", 0, 0, 0, 0), strict=True))


BAD: list[dict[str, object]] = [
    {"name": "good"},
    {"name": "too old", "age": 151},
    {"age": 3},
    {"name": "b", "age": True, "height": "tall"},
    {"name": "c", "secret diagnosis": 1},
    {"name": "also good"},
]
FLAWS = [
    (2, "age", "maximum"),
    (3, "name", "required"),
    (4, "age", "type"),
    (4, "height", "type"),
    (5, "secret diagnosis", "unknown_field"),
]


def test_a_bad_row_fails_the_whole_job_and_is_listed(store: Store) -> None:
    path = started(store, as_json(store, BAD))
    final = ended(store, path)
    assert final["status"] == "failed"
    assert final["error"].startswith("4 of 6 records do not match the schema")
    assert flaws(store, path) == FLAWS
    assert stored(store) == []
    listed = store.proxy("GET", f"{path}errors/?limit=2&offset=1").json()
    assert (listed["rows"], listed["count"], len(listed["results"])) == (4, 5, 2)
    as_text = store.proxy("GET", f"{path}errors/?format=csv")
    assert as_text.headers["Content-Type"].startswith("text/csv")
    assert as_text.body.decode().splitlines()[0] == "row,field,code,detail"
    assert len(as_text.body.decode().splitlines()) == 1 + len(FLAWS)


def test_bad_rows_can_be_passed_by(store: Store) -> None:
    path = started(store, as_json(store, BAD), X_On_Invalid="skip")
    final = completed(store, path)
    assert (final["processed"], final["total"]) == (6, 6)
    assert flaws(store, path) == FLAWS
    assert [one["name"] for one in stored(store)] == ["also good", "good"]


def test_what_is_sealed_together_is_bounded_and_what_is_skipped_leaves_no_gap(store: Store) -> None:
    rows = [{"name": f"{number:05}{'x' * 4_200}", "age": -1 if 600 <= number < 1600 else 1}
            for number in range(2000)]  # fmt: skip
    completed(store, started(store, as_csv(store, rows, ("name", "age")), CSV, X_On_Invalid="skip"))
    assert stored(store) == [row for row in rows if row["age"] == 1]


def test_a_text_that_is_no_json_fails_the_job(store: Store) -> None:
    path = started(store, as_json(store, people(3))[:-1] + b",{]")
    final = ended(store, path)
    assert final["status"] == "failed"
    assert "malformed" in final["error"]
    assert "record 4" in final["error"]
    assert stored(store) == []


def test_a_record_of_a_schema_that_is_not_reached_is_a_bad_row(store: Store) -> None:
    stranger = new_store(store.service, DEFINITION)
    path = started(store, as_json(stranger, people(1)))
    assert ended(store, path)["status"] == "failed"
    assert flaws(store, path) == [(1, "schema", "unknown_reference")]


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("", "csv_header"),
        ("name,age", "csv_header"),
        ("name,age,schema_id:", "csv_header"),
        ("name,name,schema_id:{id}", "csv_header"),
        ("name,Ada Lovelace,schema_id:{id}", "csv_header"),
        ("age,schema_id:{id}", "csv_header"),
        ("name,schema_id:2JZrK9LZcQyCsYHgvEuy9G", "csv_header"),
    ],
)
def test_a_wrong_header_is_refused_at_once(store: Store, header: str, code: str) -> None:
    body = (header.replace("{id}", store.schema_id) + "\nx,1\n").encode()
    answer = upload(store, body, "text/csv")
    assert answer.json()["code"] == code, answer.body
    assert b"Lovelace" not in answer.body


@pytest.mark.parametrize(
    ("options", "status", "code"),
    [
        ({"kind": "text/plain"}, 415, "unsupported_media_type"),
        ({"X_Batch_Size": "0"}, 400, "invalid_header"),
        ({"X_Batch_Size": "1001"}, 400, "invalid_header"),
        ({"X_On_Invalid": "ignore"}, 400, "invalid_header"),
        ({"query": "?schema=x"}, 400, "invalid"),
        ({"query": "?schem=x"}, 400, "invalid_query"),
    ],
)
def test_an_order_that_is_not_valid_is_refused(
    store: Store, options: dict[str, Any], status: int, code: str
) -> None:
    answer = upload(store, b"[]", **options)
    assert (answer.status, answer.json()["code"]) == (status, code)


def test_a_form_with_a_file_is_told_to_send_the_file_itself(store: Store) -> None:
    answer = upload(store, b"--x--", "multipart/form-data; boundary=x")
    assert answer.status == 415
    assert answer.json()["hint"].startswith("send the file itself, not a form")


def test_a_text_that_is_neither_array_nor_object_is_refused_at_once(store: Store) -> None:
    for body in (b"", b"  ", b"name,age\n", b"7"):
        answer = upload(store, body)
        assert (answer.status, answer.json()["code"]) == (400, "malformed"), body


def test_jobs_are_listed_newest_first_and_to_their_owner_alone(store: Store) -> None:
    alone = new_store(store.service, DEFINITION)
    paths = [started(alone, as_json(alone, people(1))) for _ in range(3)]
    for path in paths:
        completed(alone, path)
    listed = alone.proxy("GET", "/api/jobs/").json()
    names = [path.split("/")[-2] for path in paths]
    assert [result["job_id"] for result in listed["results"]] == names[::-1]
    about = alone.proxy("GET", f"{paths[-1]}about/").json()
    assert {"job_id", *FIELDS} < set(about)
    assert listed["results"][0] == about
    page = alone.proxy("GET", "/api/jobs/?limit=2").json()
    assert (page["count"], page["next"], len(page["results"])) == (
        3,
        "/api/jobs/?limit=2&offset=2",
        2,
    )
    for method, path in (("GET", paths[0]), ("DELETE", paths[0]), ("GET", f"{paths[0]}errors/")):
        assert store.proxy(method, path).status == 404


def test_an_ended_job_can_be_forgotten(store: Store) -> None:
    path = started(store, as_json(store, people(1)))
    completed(store, path)
    assert store.proxy("DELETE", path).status == 204
    assert store.proxy("GET", path).status == 404
    assert len(stored(store)) == 1


def test_a_cancelled_job_leaves_nothing_visible(store: Store) -> None:
    path = started(store, as_json(store, people(20_000)))
    assert store.proxy("DELETE", path).status == 204
    final = ended(store, path)
    assert final["status"] == "failed"
    assert "cancelled" in final["error"]
    assert stored(store) == []


def test_progress_is_pushed_in_order_until_the_end(store: Store) -> None:
    path = started(store, as_json(store, people(20_000)))
    with socket(store, path) as connection, socket(store, path) as another:
        seen = list(messages(connection))
        assert connection.close_code == 1000
        assert list(messages(another))[-1] == seen[-1]
    assert seen[-1] == status_of(store, path)
    assert seen[-1]["status"] == "completed"
    assert len(seen) > 1
    for before, after in itertools.pairwise(seen):
        assert set(after) == set(FIELDS)
        assert all(before[name] <= after[name] for name in FIELDS[1:])
    with socket(store, path) as late:
        assert list(messages(late)) == [seen[-1]]


def test_a_session_watches_its_job(store: Store) -> None:
    session = store.service.session_of(store.account)
    url = f"{store.service.proxy_url}/api/jobs/upload/"
    sent = {**session, "Content-Type": "application/json"}
    taken = call("POST", url, as_json(store, people(100)), headers=sent)
    assert taken.status == 201, taken.body
    # A browser sends the cookie and its origin, and cannot add the CSRF token to an upgrade.
    path = taken.headers["X-Job-Status-URL"]
    browser = {name: session[name] for name in ("Cookie", "Origin")}
    with socket(store, path, **browser) as connection:
        *_, last = messages(connection)
    assert (last["status"], last["processed"]) == ("completed", 100)


def test_a_socket_is_refused_before_the_upgrade(store: Store) -> None:
    path = started(store, as_json(store, people(1)))
    stranger = new_store(store.service, DEFINITION)
    unknown = "/api/jobs/00000000-0000-4000-8000-000000000000/"
    for who, where, headers, code in (
        (stranger, path, {}, 404),
        (store, unknown, {}, 404),
        (store, "/api/jobs/x/", {}, 404),
        (store, path, {"Authorization": "Bearer x"}, 401),
        (store, path, {"Authorization": store.account.auth, "Origin": "http://evil.example"}, 403),
    ):
        with pytest.raises(InvalidStatus) as refused:
            socket(who, where, **headers)
        assert refused.value.response.status_code == code
        assert refused.value.response.headers["Content-Type"] == "application/problem+json"


def test_a_socket_to_a_path_that_is_not_there_is_refused_with_a_hint(store: Store) -> None:
    path = started(store, as_json(store, people(1)))
    for where, hint in ((path.rstrip("/"), "paths end in a slash"), ("/api/nothing/", "/api/ws/")):
        with pytest.raises(InvalidStatus) as refused:
            socket(store, where)
        response = refused.value.response
        assert response.status_code == 404
        problem = json.loads(response.body)
        assert problem["code"] == "not_found"
        assert hint in problem["hint"]


def test_several_jobs_run_side_by_side(store: Store) -> None:
    stores = [store.another_schema(DEFINITION) for _ in range(3)]
    bodies = [as_json(one, people(1500)) for one in stores]
    paths = [started(store, body) for body in [*bodies, bodies[0]]]
    for path in paths:
        assert completed(store, path)["processed"] == 1500
    assert [len(stored(one)) for one in stores] == [3000, 1500, 1500]


def test_a_change_of_the_definition_under_way_is_followed(store: Store) -> None:
    # Few rows to read back, and yet of several chunks, as this charset has smaller ones.
    rows = [{"name": f"{number}{'x' * 2000}"} for number in range(3000)]
    path = started(store, as_csv(store, rows, ("name",)), CSV)
    more = {**DEFINITION, "properties": {**DEFINITION["properties"], "city": {"type": "string"}}}
    changed = store.proxy("PATCH", store.schema, {"schema": more})
    assert changed.status == 200, changed.body
    completed(store, path)
    assert len(stored(store)) == 3000
    assert store.search({"field": "city", "op": "is_null"}, count=True)["count"] == 3000
