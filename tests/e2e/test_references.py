"""A reference is a path, an id, or a URL of the proxy or the API: everywhere, at either host."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from encrypted_records.model.ids import new_id, to_text
from tests.proxy.tus.client import FILES, Client, encoded
from tests.support.jobs import completed, flaws, started, upload
from tests.support.jobs import ended as job_ended
from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
FORMS: dict[str, Callable[[Service, str], str]] = {
    "path": lambda _, path: path,
    "id": lambda _, path: path.split("/")[-2],
    "the proxy's URL": lambda service, path: service.proxy_url + path,
    "the proxy's URL by its name": lambda service, path: named(service.proxy_url) + path,
    "the API's URL": lambda service, path: service.base_url + path,
    "the API's URL by its name": lambda service, path: named(service.base_url) + path,
}
each_form = pytest.mark.parametrize("form", FORMS)
#: What no form of ours is.
ELSEWHERE = ("https://elsewhere.example", "http://127.0.0.1:9", "//127.0.0.1", "http:/")


def named(url: str) -> str:
    return url.replace("127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def account(services: Callable[[str], Service]) -> Store:
    return new_store(services("sqlite"), DEFINITION)


@pytest.fixture
def store(account: Store) -> Store:
    return account.another_schema(DEFINITION)


def ask(store: Store, at: str, method: str, path: str, body: Any = None) -> Answer:
    host = {"proxy": store.service.proxy_url, "API": store.service.base_url}[at]
    return call(method, host + path, body, auth=store.account.auth)


@each_form
@pytest.mark.parametrize("at", ["proxy", "API"])
def test_datasets_and_schemas_take_each_form_at_both_hosts(
    store: Store, at: str, form: str
) -> None:
    made = FORMS[form]
    organization = made(store.service, store.account.organization)
    dataset = ask(store, at, "POST", "/api/datasets/", {"name": "d", "organization": organization})
    assert dataset.status == 201, dataset.body
    assert dataset.json()["organization"] == store.account.organization
    body = {"name": "s", "dataset": made(store.service, dataset.json()["url"])}
    schema = ask(store, at, "POST", "/api/schemas/", body | {"schema": DEFINITION})
    assert schema.status == 201, schema.body
    assert schema.json()["dataset"] == dataset.json()["url"]
    changed = ask(store, at, "PATCH", schema.json()["url"], {"dataset": body["dataset"]})
    assert changed.status == 200, changed.body
    for parameter, path in (
        ("organization", store.account.organization),
        ("dataset", dataset.json()["url"]),
    ):
        value = quote(made(store.service, path), safe="")
        listed = ask(store, at, "GET", f"/api/schemas/?{parameter}={value}")
        assert schema.json()["id"] in {result["id"] for result in listed.json()["results"]}


@each_form
def test_records_searches_and_jobs_take_each_form(store: Store, form: str) -> None:
    schema = FORMS[form](store.service, store.schema)
    record = {"schema": schema, "data": {"name": "Ada"}}
    created = store.proxy("POST", "/api/records/ingest/", [record])
    assert created.status == 201, created.body
    completed(store, started(store, json.dumps([record]).encode()))
    query = quote(schema, safe="")
    completed(store, started(store, b"name\nAda\n", "text/csv", query=f"?schema={query}"))
    found = store.proxy("POST", "/api/records/search/", {"schema": schema, "count": True})
    assert found.json()["count"] == 3
    assert store.proxy("GET", f"/api/records/?schema={query}").json()["count"] == 3
    assert store.proxy("GET", f"/api/records/?sealed=true&schema={query}").json()["count"] == 3
    assert store.proxy("GET", f"/api/records/status/?schema={query}").json()["records"] == 3
    one = created.json()[0]["url"]
    assert store.proxy("PUT", one, record).status == 200


@pytest.mark.parametrize("origin", ELSEWHERE)
@pytest.mark.parametrize("at", ["proxy", "API"])
def test_urls_of_other_hosts_are_refused_with_their_place(
    store: Store, at: str, origin: str
) -> None:
    body = {"name": "d", "organization": origin + store.account.organization}
    answer = ask(store, at, "POST", "/api/datasets/", body)
    assert answer.status == 400
    (flaw,) = answer.json()["errors"]
    assert (flaw["code"], flaw["pointer"]) == ("invalid_reference", "/organization")
    if at == "proxy":
        searched = store.proxy("POST", "/api/records/search/", {"schema": origin + store.schema})
        (flaw,) = searched.json()["errors"]
        assert (flaw["code"], flaw["pointer"]) == ("invalid_reference", "/schema")


def test_what_is_handed_on_keeps_its_definition_to_the_letter(store: Store) -> None:
    dataset = store.proxy("GET", store.schema).json()["dataset"]
    definition = (
        '{ "type":"object",\n "properties" : {"\\u00e9": {"type" :"string"}}, "x-n": 1.50 }'
    )
    body = (
        f'{{"name": "s", "schema": {definition}, "dataset": "{store.service.proxy_url}{dataset}"}}'
    )
    answer = call(
        "POST",
        f"{store.service.proxy_url}/api/schemas/",
        b"\xef\xbb\xbf" + body.encode(),
        auth=store.account.auth,
    )
    if answer.status == 400:  # annotations of others may not be taken
        body = body.replace(', "x-n": 1.50', "")
        definition = definition.replace(', "x-n": 1.50', "")
        url = f"{store.service.proxy_url}/api/schemas/"
        answer = call("POST", url, b"\xef\xbb\xbf" + body.encode(), auth=store.account.auth)
    assert answer.status == 201, answer.body
    assert f'"schema":{definition}'.encode() in answer.body


# --- what leads nowhere -------------------------------------------------------------------------


def test_each_record_whose_schema_is_not_reached_is_named_with_row_and_pointer(
    store: Store,
) -> None:
    good = {"schema": store.schema, "data": {"name": "Ada"}}
    unknown = {"schema": f"/api/schemas/{to_text(new_id())}/", "data": {"name": "Ada"}}
    answer = store.proxy("POST", "/api/records/ingest/", [good, unknown, good, unknown])
    assert (answer.status, answer.json()["code"]) == (400, "invalid_records")
    named = [(error["row"], error["pointer"], error["code"]) for error in answer.json()["errors"]]
    assert named == [
        (2, "/1/schema", "unknown_reference"),
        (4, "/3/schema", "unknown_reference"),
    ]
    assert store.everything() == []


def test_a_record_that_names_no_schema_is_told_what_a_name_is(store: Store) -> None:
    for wrong in ("people", "two words", 7, None, "/api/datasets/x/", ""):
        answer = store.proxy("POST", "/api/records/ingest/", [{"schema": wrong, "data": {}}])
        (flaw,) = answer.json()["errors"]
        code = "unknown_reference" if wrong == "people" else "invalid_reference"
        assert (flaw["code"], flaw["pointer"], flaw["row"]) == (code, "/0/schema", 1)


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (f"schema_id:{to_text(new_id())}", "unknown_reference"),
        ("schema_id:people", "invalid_reference"),
    ],
    ids=["of no schema", "not an identifier"],
)
def test_a_csv_header_that_names_no_schema_is_told_so(store: Store, header: str, code: str) -> None:
    answer = upload(store, f"name,{header}\nAda\n".encode(), "text/csv")
    assert (answer.status, answer.json()["code"]) == (400, "csv_header")
    (flaw,) = answer.json()["errors"]
    assert (flaw["code"], flaw["field"]) == (code, "schema_id")


def test_a_csv_header_with_other_separators_is_told_so_before_its_schema_is_missed(
    store: Store,
) -> None:
    answer = upload(store, f"name;age;schema_id:{store.schema_id}\nAda;36\n".encode(), "text/csv")
    assert (answer.status, answer.json()["code"]) == (400, "csv_header")
    assert "it has semicolons instead of commas" in answer.json()["detail"]


def test_a_parameter_that_names_no_schema_is_told_so(store: Store) -> None:
    for wanted, code in (
        (to_text(new_id()), "unknown_reference"),
        ("people", "unknown_reference"),
        ("two.words", "invalid_reference"),
    ):
        answer = upload(store, b"name\nAda\n", "text/csv", query=f"?schema={wanted}")
        assert answer.status == 400
        (flaw,) = answer.json()["errors"]
        assert (flaw["code"], flaw["parameter"]) == (code, "schema")


def test_a_row_of_a_job_may_name_its_schema_by_id(store: Store) -> None:
    rows = [{"schema": store.schema_id, "data": {"name": "Ada"}}, {"schema": "x", "data": {}}]
    path = started(store, json.dumps(rows).encode())
    assert job_ended(store, path)["status"] == "failed"
    assert flaws(store, path) == [(2, "schema", "invalid_reference")]


def test_errors_of_headers_and_parameters_name_them(store: Store) -> None:
    answer = upload(store, b"[]", X_Batch_Size="0")
    assert answer.json()["code"] == "invalid_header"
    assert answer.json()["errors"][0]["header"] == "X-Batch-Size"
    assert "X-Batch-Size" in answer.json()["detail"]
    said = encoded(filename="a.csv", on_invalid="ignore")
    answer = Client(store.service, store.account).send(
        "POST", FILES, {"Upload-Length": "5", "Upload-Metadata": said}
    )
    assert "on_invalid" in answer.json()["detail"]
    assert answer.json()["errors"][0]["header"] == "Upload-Metadata"
    answer = upload(store, b"[]", query="?shema=x")
    assert answer.json()["errors"][0]["parameter"] == "shema"
    assert "schema" in answer.json()["detail"]
    assert "search" not in str(answer.json())
    assert store.proxy("GET", "/api/jobs/?limit=0").json()["errors"][0]["parameter"] == "limit"


# --- paths --------------------------------------------------------------------------------------

NO_IDS = ["0", "x" * 22, "people", "0000000000000000000000"]


@pytest.mark.parametrize("no_id", NO_IDS)
def test_what_is_no_identifier_in_a_path_is_not_found_wherever_it_is(
    store: Store, no_id: str
) -> None:
    tus = Client(store.service, store.account)
    for method, path in itertools.chain(
        itertools.product(("GET", "DELETE"), (f"/api/records/{no_id}/", f"/api/jobs/{no_id}/")),
        itertools.product(("GET", "PATCH", "DELETE"), (f"/api/datasets/{no_id}/",)),
        (
            ("PUT", f"/api/records/{no_id}/"),
            ("PATCH", f"/api/records/{no_id}/"),
            ("POST", f"/api/schemas/{no_id}/merge/"),
            ("GET", f"/api/schemas/{no_id}/log/"),
            ("POST", f"/api/schemas/{no_id}/salvage/"),
            ("GET", f"/api/schemas/{no_id}/"),
            ("GET", f"/api/organizations/{no_id}/members/"),
            ("GET", f"/api/records/{no_id}/?sealed=true"),
        ),
    ):
        body: Any = {"data": {}} if method in ("PUT", "PATCH") else None
        answer = store.proxy(method, path, body)
        assert (answer.status, answer.json()["code"]) == (404, "not_found"), (method, path)
    for path in (f"/api/datasets/{no_id}/", f"/api/schemas/{no_id}/", f"/api/records/{no_id}/"):
        assert store.api("GET", path).json()["code"] == "not_found"
    for method in ("HEAD", "PATCH", "DELETE"):
        headers = {"Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"}
        assert tus.send(method, f"{FILES}{no_id}", headers).status == 404


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/records/ingest", "paths end in a slash"),
        ("/api/jobs/upload", "paths end in a slash"),
        ("/api/datasets", "paths end in a slash"),
        ("/api/jobs/upload/people.csv", "-T -"),
        ("/api/record/ingest/", "did you mean /api/records/ingest/"),
        ("/api/dataset/", "did you mean /api/datasets/"),
    ],
)
def test_a_path_that_is_nearly_right_is_told_what_it_lacks(
    store: Store, path: str, words: str
) -> None:
    answer = store.proxy("POST", path, [{"data": {"name": "Ada"}}])
    assert (answer.status, answer.json()["code"]) == (404, "not_forwarded")
    assert words in answer.json()["hint"]
    assert "people.csv" not in answer.json()["hint"]


def test_slugs_lead_through_the_proxy_to_those_who_reach_them(store: Store) -> None:
    stranger = new_store(store.service, DEFINITION)
    schema = store.proxy("GET", store.schema).json()
    dataset = store.proxy("GET", schema["dataset"]).json()
    organization = store.proxy("GET", store.account.organization).json()
    for by_slug, by_id in (
        (f"/api/organizations/by-slug/{organization['slug']}/", organization),
        (f"{organization['url']}dataset/{dataset['slug']}/", dataset),
        (f"{dataset['url']}schema/{schema['slug']}/", schema),
    ):
        assert store.proxy("GET", by_slug).json() == by_id
        assert stranger.proxy("GET", by_slug).status == 404
