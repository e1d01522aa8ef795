"""A slug instead of an id, in HTTP: it leads to what was signed under it, or nowhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from encrypted_records.http.openapi import Examples
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from tests.proxy.sharing.shared import DEFINITION, Shared, numbers
from tests.support.front import Asked, Reply
from tests.support.service import Answer, call
from tests.support.store import Store

NOWHERE = "nowhere"
SEARCH = "/api/records/search/"
#: Of an OpenAPI document, the schemas by name.
Parts = Mapping[str, Any]


@dataclass
class World:
    """Ada's organization: *Patients* in *People*, and *News* in *Public*."""

    shared: Shared
    patients: Store
    news: Store
    public: str

    def telling(self, lie: Callable[[Asked, Reply], Reply]) -> Any:
        return self.shared.fronts[self.shared.team.ada.id].telling(lie)

    def new_schema(self, name: str, dataset: str, **members: Any) -> Store:
        body = {"name": name, "dataset": dataset, "schema": DEFINITION, **members}
        made = self.shared.team.ada.call("POST", "/api/schemas/", body)
        assert made.status == 201, made.body
        return replace(self.patients, schema=made.json()["url"])

    def slug_of(self, store: Store) -> str:
        return str(self.patients.proxy("GET", store.schema).json()["slug"])


@pytest.fixture
def world(shared: Shared) -> World:
    ada = shared.proxy(shared.team.ada)
    public = shared.team.ada.new_dataset("Public")["url"]
    made = World(shared, ada, ada, public)
    made.patients = made.new_schema("Patients", shared.team.made["url"])
    made.news = made.new_schema("News", public)
    made.patients.ingest([{"n": 1}])
    made.news.ingest([{"n": 2}])
    return made


def search(store: Store, schema: str) -> list[int]:
    answer = store.proxy("POST", SEARCH, {"schema": schema})
    assert answer.status == 200, answer.body
    return [record["data"]["n"] for record in answer.json()["results"]]


def refusal(answer: Answer) -> tuple[int, str]:
    """The status, and the code of the first flaw, or else of the answer."""
    told = answer.json()
    return answer.status, told.get("errors", [told])[0]["code"]


# --- everywhere that an id is taken -------------------------------------------------------------


def test_paths_bodies_and_parameters_take_a_slug_and_answers_have_the_id(world: World) -> None:
    ada, schema = world.patients, world.patients.schema
    stored = ada.proxy("POST", "/api/records/ingest/", [{"schema": "patients", "data": {"n": 3}}])
    assert (stored.status, stored.json()[0]["schema"]) == (201, schema)
    assert search(ada, "patients") == search(ada, "/api/schemas/patients/") == [1, 3]
    shown = ada.proxy("GET", "/api/schemas/patients/").json()
    assert (shown["url"], shown["signed"]) == (schema, True)
    assert ada.proxy("GET", "/api/datasets/people/").json()["id"] == world.shared.team.made["id"]
    assert ada.proxy("GET", "/api/datasets/people/schema/patients/").json()["url"] == schema
    listed = ada.proxy("GET", "/api/records/?schema=patients&limit=1").json()
    assert listed["results"][0]["schema"] == schema
    assert ada.schema_id in listed["next"]
    sealed = ada.proxy("GET", "/api/records/?schema=patients&sealed=true").json()
    assert sealed["count"] == 2
    assert {one["schema"] for one in sealed["results"]} == {schema}
    in_people = ada.proxy("GET", "/api/schemas/?dataset=people").json()["results"]
    assert schema in {one["url"] for one in in_people}
    body = {"name": "Guests", "dataset": "people", "schema": DEFINITION}
    guests = ada.proxy("POST", "/api/schemas/", body)
    assert guests.json()["dataset"] == world.shared.team.made["url"]


def named_places(parts: Parts, schema: Any, at: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Where a body may name a dataset or schema: the ways there, each with the description."""
    schema = resolved(parts, schema)
    if str(schema.get("description", "")).startswith("Id, slug"):
        yield at, schema["description"]
    for name, member in schema.get("properties", {}).items():
        yield from named_places(parts, member, (*at, name))
    if "items" in schema:
        yield from named_places(parts, schema["items"], (*at, 0))


def with_value(parts: Parts, schema: Any, at: tuple[Any, ...], value: str) -> Any:
    """An example of a schema with this value at a place."""
    if not at:
        return value
    schema, (first, *rest) = resolved(parts, schema), at
    if first == 0:
        return [with_value(parts, schema["items"], tuple(rest), value)]
    example = Examples(parts, is_sent=True).of(schema)
    member = with_value(parts, schema["properties"][first], tuple(rest), value)
    return {**example, first: member}


def resolved(parts: Parts, schema: Any) -> Any:
    return parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


@pytest.fixture
def document(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.patients.proxy("GET", "/api/openapi.json").json()
    return found


def outcome(store: Store, method: str, path: str) -> tuple[int, Any, Any]:
    """Asked with a body and a parameter that most refuse before they change anything."""
    body = None if method in ("get", "delete") else {"no_such_member": 1}
    answer = store.proxy(method.upper(), f"{path}?no_such_parameter=1", body)
    told = answer.json() if answer.body else {}
    return answer.status, told.get("detail"), told.get("errors")


def test_every_path_with_an_id_of_a_dataset_or_schema_takes_its_slug(
    world: World, document: dict[str, Any]
) -> None:
    ada, member = world.patients, ids.to_text(ids.new_id())
    named = {
        "datasets": ("people", world.shared.team.made["id"]),
        "schemas": ("patients", ada.schema_id),
    }
    operations = [
        (method, path)
        for path, methods in document["paths"].items()
        for method in methods
        if re.match(r"/api/(datasets|schemas)/\{", path)
    ]
    assert len(operations) > 30
    for method, path in operations:
        collection = path.split("/")[2]
        slug, one = named[collection]
        target = re.sub(r"\{\w+\}", member, re.sub(r"\{\w+\}", "{}", path, count=1))
        by_slug = outcome(ada, method, target.format(slug))
        assert by_slug[0] < 400 or by_slug == outcome(ada, method, target.format(one)), path
        status, detail, _ = outcome(ada, method, target.format(NOWHERE))
        kind = collection.removesuffix("s")
        assert (status, detail) == (404, f"no {kind} has this slug"), path


def places(document: dict[str, Any], operation: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Where an operation takes the name of a dataset or schema: a parameter's name, or the way to a
    member of its body; and of which."""
    for one in operation.get("parameters", ()):
        described = one["schema"].get("description", "")
        if one["in"] == "query" and "slug" in described:
            yield one["name"], None, described.rpartition(" ")[2]
    for at, described in named_places(
        document["components"]["schemas"], sent(operation).get("schema", {})
    ):
        yield "", at, described.rpartition(" ")[2]


def sent(operation: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
    found: dict[str, Any] = body.get("application/json", {})
    return found


def test_every_body_and_parameter_that_names_a_dataset_or_schema_takes_its_slug(
    world: World, document: dict[str, Any]
) -> None:
    ada, tried = world.patients, 0
    record = ada.search()["results"][0]["id"]
    for path, methods in document["paths"].items():
        in_path = {
            "datasets": "people",
            "organizations": ada.account.organization.split("/")[-2],
            "records": record,
            "schemas": "patients",
        }
        target = path.replace("{id}", in_path.get(path.split("/")[2], ""))
        target = target.replace("{member}", ids.to_text(ids.new_id()))
        for method, operation in methods.items():
            for parameter, at, kind in places(document, operation):
                codes: list[set[str]] = []
                for slug in (NOWHERE, "people" if kind == "dataset" else "patients"):
                    query = f"?{parameter}={slug}" if parameter else ""
                    body = sent(operation).get("example")
                    if at is not None:
                        parts, schema = document["components"]["schemas"], sent(operation)["schema"]
                        body = with_value(parts, schema, at, slug)
                    url = f"{ada.service.proxy_url}{target}{query}"
                    account, door = ada.account, ada.service.door
                    answer = call(method.upper(), url, body, auth=account.auth, headers=door)
                    told = answer.json() if answer.status >= 400 else {}
                    codes.append({flaw["code"] for flaw in told.get("errors", ())})
                assert codes[0] == {"unknown_reference"}, (method, path, at, answer.body)
                assert not codes[1] & {"unknown_reference", "invalid_reference"}, (
                    body,
                    answer.body,
                )
                tried += 1
    assert tried > 20


# --- what an API may say ------------------------------------------------------------------------


def renaming(world: World) -> Callable[[Asked, Reply], Reply]:
    """All that the API shows, with the two schemas under each other's names."""

    def rename(asked: Asked, reply: Reply) -> Reply:
        if not asked.path.startswith(("/api/schemas/", "/api/datasets/")):
            return reply
        body = reply.body
        for one, other in ((b'"patients"', b'"news"'), (b'"Patients"', b'"News"')):
            body = body.replace(one, b"@@").replace(other, one).replace(b"@@", other)
        return reply.with_body(body)

    return rename


def test_an_api_that_renames_schemas_leads_no_slug_elsewhere(world: World) -> None:
    ada = world.patients
    with world.telling(renaming(world)):
        assert (search(ada, "patients"), search(ada, "news")) == ([1], [2])
        assert ada.proxy("GET", "/api/schemas/patients/").json()["id"] == ada.schema_id
        body = [{"schema": "patients", "data": {"n": 3}}]
        ada.proxy("POST", "/api/records/ingest/", body)
    assert (numbers(world.patients), numbers(world.news)) == ([1, 3], [2])


def test_a_schema_that_an_api_adds_under_a_signed_slug_is_not_meant(world: World) -> None:
    added = world.new_schema("Patients", world.public)
    assert world.shared.team.ada.call("GET", added.schema).json()["slug"] == "patients"

    def hide(asked: Asked, reply: Reply) -> Reply:
        """The signed one is in no list."""
        if asked.path.partition("?")[0] != "/api/schemas/":
            return reply
        told = json.loads(reply.body)
        left = [one for one in told["results"] if one["id"] != world.patients.schema_id]
        return reply.with_body(json.dumps({**told, "results": left}).encode())

    with world.telling(hide):
        assert search(world.patients, "patients") == [1]


def test_a_schema_that_nobody_signed_has_no_slug_yet(world: World) -> None:
    """Else the API could make one under any name that was not used so far."""
    made = world.new_schema("Fresh", world.public)
    answer = world.patients.proxy("GET", "/api/schemas/fresh/")
    assert answer.status == 404
    assert "counts from its first records on: until then, use the id" in answer.json()["hint"]
    made.ingest([{"n": 4}])
    assert search(world.patients, "fresh") == [4]


def test_where_the_roster_is_not_shown_no_slug_leads_anywhere(world: World) -> None:
    def older(asked: Asked, reply: Reply) -> Reply:
        return Reply(404, reply.headers, reply.body) if "/roster/" in asked.path else reply

    fresh = replace(world, patients=world.shared.proxy(world.shared.team.ada))
    assert search(fresh.patients, "patients") == [1]
    fresh = replace(world, patients=world.shared.proxy(world.shared.team.ada))
    with fresh.telling(older):
        answer = fresh.patients.proxy("GET", "/api/schemas/patients/")
    assert (answer.status, answer.json()["code"]) == (422, "roster_older")


def test_an_api_token_that_is_not_shown_all_names_uses_ids(world: World) -> None:
    """The API says which names it hides: of two schemas of one slug it could show the other."""
    password = world.patients.account.password
    body = {"name": "reads", "scope": "read", "password": password, "datasets": ["people"]}
    made = world.patients.proxy("POST", "/api/tokens/", body)
    assert made.status == 201, made.body
    token = f"Bearer {made.json()['token']}"
    # It has not read the roster for its user, who is shown all names.
    url = world.shared.proxy(world.shared.team.ada).service.proxy_url

    def ask(schema: str) -> Answer:
        return call("GET", f"{url}/api/schemas/{schema}/log/", auth=token)

    assert refusal(ask("patients")) == (422, "roster_withheld")
    assert ask(world.patients.schema_id).status == 200


# --- names ---------------------------------------------------------------------------------------


def test_a_slug_that_two_schemas_have_is_refused_with_their_ids(world: World) -> None:
    other = world.new_schema("Patients", world.public)
    other.ingest([{"n": 5}])
    both = sorted([world.patients.schema_id, other.schema_id])
    in_path = world.patients.proxy("GET", "/api/schemas/patients/")
    assert (in_path.status, in_path.json()["code"]) == (409, "ambiguous_slug")
    assert in_path.json()["hint"] == f"name one of them by its id: {', '.join(both)}"
    in_body = world.patients.proxy("POST", SEARCH, {"schema": "patients"})
    assert refusal(in_body) == (400, "ambiguous_reference")
    assert in_body.json()["hint"] == in_path.json()["hint"]
    assert search(world.patients, other.schema_id) == [5]


def test_a_second_schema_of_a_name_in_a_dataset_has_a_numbered_slug(world: World) -> None:
    again = world.new_schema("Patients", world.shared.team.made["url"])
    again.ingest([{"n": 6}])
    assert world.slug_of(again) == "patients-2"
    assert (search(again, "patients-2"), search(again, "patients")) == ([6], [1])


def test_a_name_in_any_letters_has_a_slug_that_leads_to_it(world: World) -> None:
    for name in ("Ümläut Straße", "王小明", "Łukasz / 2026", "🦀"):
        made = world.new_schema(name, world.public)
        made.ingest([{"n": 7}])
        slug = world.slug_of(made)
        assert slug.isascii()
        assert search(made, slug) == [7]
        assert world.patients.proxy("GET", f"/api/schemas/{slug}/").json()["name"] == name


def test_a_slug_that_looks_like_an_id_is_not_found(world: World) -> None:
    like = "w" * ids.ID_LENGTH
    made = world.new_schema("Like", world.public, slug=like)
    made.ingest([{"n": 8}])
    assert world.slug_of(made) == like
    assert world.patients.proxy("GET", f"/api/schemas/{like}/").status == 404
    other = world.new_schema("Other", world.public, slug=world.patients.schema_id)
    other.ingest([{"n": 9}])
    assert search(world.patients, world.patients.schema_id) == [1]


def test_a_renamed_schema_is_found_by_its_new_slug_alone(world: World) -> None:
    reader = world.shared.proxy(world.shared.person(form.READER))
    assert search(reader, "patients") == [1]
    renamed = world.patients.proxy("PATCH", "/api/schemas/patients/", {"slug": "patient-files"})
    assert renamed.status == 200, renamed.body
    assert search(world.patients, "patient-files") == search(reader, "patient-files") == [1]
    for proxy in (world.patients, reader):
        gone = proxy.proxy("GET", "/api/schemas/patients/")
        assert (gone.status, gone.json()["detail"]) == (404, "no schema has this slug")
        assert gone.json()["hint"].startswith("did you mean patient-files?")
    far = world.patients.proxy("GET", "/api/schemas/zzz/")
    assert far.json()["hint"].startswith("there are: news, patient-files;")


def test_nobody_finds_by_a_slug_what_was_not_shared_with_them(world: World) -> None:
    reader = world.shared.proxy(world.shared.person(form.READER))
    answer = reader.proxy("POST", SEARCH, {"schema": "news"})
    assert refusal(answer) == (400, "unknown_reference")
    assert "news" not in answer.json()["hint"]
    # So theirs is the only one of the slug, wherever others have another of it.
    world.new_schema("Patients", world.public).ingest([{"n": 5}])
    assert search(reader, "patients") == [1]


def test_who_has_not_logged_in_learns_of_no_slug(world: World) -> None:
    url = world.patients.service.proxy_url
    for slug in ("patients", NOWHERE):
        assert call("GET", f"{url}/api/schemas/{slug}/log/").status == 401
        assert call("GET", f"{url}/api/schemas/{slug}/").status == 401
