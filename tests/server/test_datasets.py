"""Organizations, datasets and schemas: their life, and what definitions go through."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.api import PERSON, Account, Answer, Api, id_bytes
from tests.server.overtaking import overtaken

ODD_DEFINITION = (
    b'{ "required":[ "price" ],\n "title" : "caf\\u00e9 \xe2\x82\xac",'
    b' "properties": {"price":{"precision":2,"type":"number","maximum":1.50e3,'
    b'"minimum":-0.10, "x-free": null, "description":"\\/","faker":"pyfloat",'
    b' "faker_args": {"min":1.50E0} ,"unit":"\xe2\x82\xac"}}, "type":"object" }'
)


def post_raw_schema(account: Account, dataset: str, definition: bytes) -> Answer:
    body = b'{"name": "raw", "dataset": "%s", "schema":%s }' % (dataset.encode(), definition)
    return account.call("POST", "/api/schemas/", body)


def test_an_organization_is_renamed_by_its_owner_and_keeps_its_slug(ada: Account) -> None:
    before = ada.call("GET", ada.organization).json()
    assert set(before) == {"id", "url", "name", "slug", "created", "modified"}
    renamed = ada.call("PATCH", ada.organization, {"name": "Acme Ltd"})
    assert renamed.status == 200
    after = renamed.json()
    assert after["name"] == "Acme Ltd"
    assert after["slug"] == before["slug"]
    assert after["modified"] > before["modified"]
    ada.call("PATCH", ada.organization, {"name": before["name"]})


def test_nobody_deletes_an_organization_or_makes_one_beside_theirs(ada: Account) -> None:
    refused = ada.call("DELETE", ada.organization, {"name": "x"})
    assert (refused.status, refused.code) == (405, "method_not_allowed")
    assert "GET" in refused.headers["Allow"]
    refused = ada.call("POST", "/api/organizations/", {"name": "x"})
    assert (refused.status, refused.code) == (409, "already_member")


def test_a_dataset_has_all_its_fields_from_the_start(ada: Account) -> None:
    dataset = ada.new_dataset(name="Patients of 2026!")
    assert dataset["url"] == f"/api/datasets/{dataset['id']}/"
    assert len(dataset["id"]) == 22
    assert dataset["organization"] == ada.organization
    assert dataset["description"] == ""
    assert dataset["slug"] == "patients-of-2026"
    assert {"created", "modified"} < set(dataset)
    assert ada.call("GET", dataset["url"]).json() == dataset


@pytest.mark.both_databases
def test_slugs_are_unique_in_their_parent_and_made_from_the_name(ada: Account) -> None:
    first = ada.new_dataset(name="Twins")
    second = ada.new_dataset(name="Twins")
    assert (first["slug"], second["slug"]) == ("twins", "twins-2")
    body = {"name": "x", "slug": "twins", "organization": ada.organization}
    refused = ada.call("POST", "/api/datasets/", body)
    assert (refused.status, refused.code) == (409, "slug_taken")
    assert ada.call("PATCH", second["url"], {"slug": "twins"}).code == "slug_taken"
    assert ada.call("PATCH", second["url"], {"slug": "no spaces"}).flaws() == {"/slug": "invalid"}
    assert ada.new_dataset(name="Люди")["slug"] == "dataset"


def test_references_may_be_absolute_urls_of_this_host(ada: Account) -> None:
    own = f"http://127.0.0.1:{ada.api.port}{ada.organization}"
    assert ada.new_dataset(organization=own)["organization"] == ada.organization
    public = f"http://proxy.example:8080{ada.organization}"
    assert ada.new_dataset(organization=public)["organization"] == ada.organization
    elsewhere = {"name": "x", "organization": f"http://evil.example{ada.organization}"}
    refused = ada.call("POST", "/api/datasets/", elsewhere)
    assert refused.flaws() == {"/organization": "invalid_reference"}


@pytest.mark.parametrize("value", [None, 7, "", "x", "/api/datasets/22222222222222222222/", {}])
def test_a_reference_that_leads_elsewhere_is_refused_with_its_pointer(
    ada: Account, value: object
) -> None:
    refused = ada.call("POST", "/api/datasets/", {"name": "x", "organization": value})
    assert refused.status == 400
    assert list(refused.flaws()) == ["/organization"]


def test_a_dataset_is_replaced_patched_and_deleted(ada: Account) -> None:
    dataset = ada.new_dataset(description="old")
    patched = ada.call("PATCH", dataset["url"], {"name": "New"}).json()
    assert (patched["name"], patched["description"]) == ("New", "old")
    body = {"name": "Newer", "organization": ada.organization}
    replaced = ada.call("PUT", dataset["url"], body).json()
    assert (replaced["name"], replaced["description"]) == ("Newer", "")
    assert ada.call("PUT", dataset["url"], {"name": "x"}).flaws() == {"/organization": "required"}
    assert ada.call("DELETE", dataset["url"]).status == 204
    assert ada.call("GET", dataset["url"]).status == 404


def test_a_schema_has_all_its_fields_from_the_start(ada: Account) -> None:
    dataset = ada.new_dataset()
    schema = ada.new_schema(dataset=dataset["url"], name="Person")
    assert schema["url"] == f"/api/schemas/{schema['id']}/"
    assert schema["dataset"] == dataset["url"]
    assert schema["organization"] == ada.organization
    assert schema["schema"] == PERSON
    assert (schema["slug"], schema["description"], schema["key_id"]) == ("person", "", None)
    assert {"created", "modified"} < set(schema)


def test_a_definition_comes_back_to_the_letter(ada: Account) -> None:
    made = post_raw_schema(ada, ada.new_dataset()["url"], ODD_DEFINITION)
    assert made.status == 201, made.body
    url = made.json()["url"]
    assert b'"schema":' + ODD_DEFINITION in made.body
    assert b'"schema":' + ODD_DEFINITION in ada.call("GET", url).body
    patched = ada.call("PATCH", url, {"name": "renamed"})
    assert b'"schema":' + ODD_DEFINITION in patched.body
    listed = ada.call("GET", f"/api/schemas/?dataset={made.json()['dataset']}")
    assert b'"schema":' + ODD_DEFINITION in listed.body


@pytest.mark.parametrize(
    ("definition", "pointer", "code"),
    [
        ({"type": "array"}, "/schema/type", "root_type"),
        ({"type": "object", "properties": {"a": {"type": "boolean"}}},
         "/schema/properties/a/type", "field_type"),
        ({"type": "object", "properties": {"a/b": {"type": "integer", "maximum": 1}}},
         "/schema/properties/a~1b/minimum", "missing_keyword"),
        ({"type": "object", "properties": {"a": {"type": "string", "not": {"const": "b"}}}},
         "/schema/properties/a/not", "unsupported_keyword"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
         "/schema/required/0", "required"),
        ("text", "/schema", "type"),
    ],
)  # fmt: skip
def test_a_flawed_definition_is_refused_with_pointers(
    ada: Account, definition: Any, pointer: str, code: str
) -> None:
    body = {"name": "x", "dataset": ada.new_dataset()["url"], "schema": definition}
    refused = ada.call("POST", "/api/schemas/", body)
    assert (refused.status, refused.code) == (400, "invalid_definition")
    assert refused.flaws()[pointer] == code


def test_duplicate_keys_and_nan_are_refused(ada: Account) -> None:
    dataset = ada.new_dataset()["url"]
    twice = b'{"type":"object","properties":{"a":{"type":"string"},"a":{"type":"string"}}}'
    assert post_raw_schema(ada, dataset, twice).code == "malformed"
    assert post_raw_schema(ada, dataset, b"NaN").code == "malformed"
    body = b'{"name": "x", "name": "y", "organization": "z"}'
    assert ada.call("POST", "/api/datasets/", body).code == "malformed"


def test_without_records_any_sound_definition_may_follow(ada: Account) -> None:
    schema = ada.new_schema()
    other = {"type": "object", "properties": {"x": {"type": "string"}}}
    changed = ada.call("PATCH", schema["url"], {"schema": other})
    assert changed.status == 200
    assert changed.json()["schema"] == other


@pytest.mark.both_databases
def test_a_dataset_with_schemas_goes_only_with_cascade(ada: Account) -> None:
    dataset = ada.new_dataset()
    schema = ada.new_schema(dataset=dataset["url"])
    refused = ada.call("DELETE", dataset["url"])
    assert (refused.status, refused.code) == (409, "dataset_not_empty")
    assert ada.call("DELETE", dataset["url"] + "?cascade=true").status == 204
    assert ada.call("GET", schema["url"]).status == 404


@pytest.mark.both_databases
def test_lists_are_filtered_and_paged_with_paths(ada: Account) -> None:
    dataset = ada.new_dataset(name="Paged")
    names = [ada.new_schema(dataset=dataset["url"], name=f"s{n}")["name"] for n in range(5)]
    path = f"/api/schemas/?dataset={dataset['id']}&limit=2"
    seen = []
    following: str | None = path
    while following:
        page = ada.call("GET", following).json()
        assert page["count"] == 5
        assert set(page) == {"count", "next", "previous", "results"}
        seen += [schema["name"] for schema in page["results"]]
        following = page["next"]
        assert following is None or following.startswith("/api/schemas/?")
    assert seen == names
    by_slug = ada.call("GET", f"/api/schemas/?dataset={dataset['url']}&slug=s3").json()
    assert [schema["name"] for schema in by_slug["results"]] == ["s3"]
    by_name = ada.call("GET", "/api/datasets/?name=Paged").json()
    assert [found["id"] for found in by_name["results"]] == [dataset["id"]]
    in_organization = ada.call("GET", f"/api/datasets/?organization={ada.organization}&limit=1")
    assert in_organization.json()["count"] > 1
    assert ada.call("GET", "/api/schemas/?dataset=x").status == 400
    assert ada.call("GET", "/api/datasets/?name=%00").status == 400


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=-1", "offset=-1", "offset=1e3",
                                   "offset=99999999999999999999"])  # fmt: skip
def test_a_page_that_makes_no_sense_is_refused(ada: Account, query: str) -> None:
    refused = ada.call("GET", f"/api/datasets/?{query}")
    assert (refused.status, refused.code) == (400, "invalid")


def test_more_than_a_thousand_are_never_returned_at_once(ada: Account) -> None:
    page = ada.call("GET", "/api/datasets/?limit=5000")
    assert page.status == 200
    assert "limit=1000" in (page.json()["next"] or "limit=1000")


def test_nothing_of_another_organization_exists(ada: Account, bob: Account) -> None:
    dataset = ada.new_dataset()
    schema = ada.new_schema(dataset=dataset["url"])
    for url in (ada.organization, dataset["url"], schema["url"]):
        for method, body in (
            ("GET", None),
            ("PATCH", {"name": "mine"}),
            ("PUT", {"name": "mine"}),
            ("DELETE", None),
        ):
            refused = bob.call(method, url, body)
            if (method, url) == ("DELETE", ada.organization):
                assert refused.status == 405
            else:
                assert (refused.status, refused.code) == (404, "not_found"), (method, url)
    for path, query in (("datasets", "organization"), ("schemas", "dataset")):
        reference = {"organization": ada.organization, "dataset": dataset["url"]}[query]
        assert bob.call("GET", f"/api/{path}/?{query}={reference}").json()["count"] == 0
    assert ada.organization not in bob.call("GET", "/api/organizations/").body.decode()
    dataset_body = {"name": "x", "organization": ada.organization}
    refused = bob.call("POST", "/api/datasets/", dataset_body)
    assert refused.flaws() == {"/organization": "unknown_reference"}
    schema_body = {"name": "x", "dataset": dataset["url"], "schema": PERSON}
    refused = bob.call("POST", "/api/schemas/", schema_body)
    assert refused.flaws() == {"/dataset": "unknown_reference"}
    mine = bob.new_schema()
    moved = bob.call("PATCH", mine["url"], {"dataset": dataset["url"]})
    assert moved.flaws() == {"/dataset": "unknown_reference"}


def test_a_definition_that_is_large_but_allowed_fits(ada: Account) -> None:
    fields = {f"field {n}": {"type": "string", "title": "t" * 500} for n in range(512)}
    definition = {"type": "object", "properties": fields}
    assert len(json.dumps(definition)) > 250_000
    assert ada.new_schema(definition)["schema"] == definition


@pytest.mark.parametrize("kind", ["dataset", "schema"])
def test_if_match_names_the_versions_that_may_be_changed(ada: Account, kind: str) -> None:
    made = ada.new_dataset(name="Visits")
    if kind == "schema":
        body = {"name": "rows", "dataset": made["url"], "schema": {"type": "object"}}
        body["schema"] |= {"properties": {"name": {"type": "string"}}}
        made = ada.call("POST", "/api/schemas/", body).json()
    first = ada.call("GET", made["url"]).headers["ETag"]
    matching = {"If-Match": f'"another", {first}'}
    changed = ada.call("PATCH", made["url"], {"description": "of 2026"}, **matching)
    assert changed.status == 200
    second = changed.headers["ETag"]
    assert second == ada.call("GET", made["url"]).headers["ETag"] != first

    refused = ada.call("PATCH", made["url"], {"description": "late"}, **matching)
    assert (refused.status, refused.code) == (412, "precondition_failed")
    assert ada.call("GET", made["url"]).json()["description"] == "of 2026"
    for any_version in ({"If-Match": "*"}, {"If-Match": second}):
        body = {"description": "of 2026"}
        assert ada.call("PATCH", made["url"], body, **any_version).status == 200


@pytest.mark.parametrize("kind", ["dataset", "schema"])
def test_a_change_keeps_the_name_that_came_meanwhile(api: Api, ada: Account, kind: str) -> None:
    made = ada.new_dataset() if kind == "dataset" else ada.new_schema()
    named = f"UPDATE datasets_{kind} SET name = 'Visits' WHERE id = %s"
    described = overtaken(
        api, named, id_bytes(made), lambda: ada.call("PATCH", made["url"], {"description": "new"})
    )
    assert described.status == 200
    shown = ada.call("GET", made["url"]).json()
    assert (shown["name"], shown["description"]) == ("Visits", "new")


@pytest.mark.parametrize(
    "path",
    ["/api/datasets/", "/api/schemas/", "/api/organizations/", "/api/records/", "audit-log/"],
)
def test_a_filter_that_a_list_has_not_is_refused_by_name(ada: Account, path: str) -> None:
    full = path if path.startswith("/") else f"{ada.organization}{path}"
    refused = ada.call("GET", f"{full}?naem=x&limit=1")
    assert (refused.status, refused.code) == (400, "invalid")
    (flaw,) = refused.json()["errors"]
    assert (flaw["code"], flaw["parameter"]) == ("unknown_parameter", "naem")
