"""Datasets: browse, create, edit, delete with care."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from encrypted_records.client.sdk.condition_language import parse
from encrypted_records.errors import ErsError, InvalidQuery, NotAuthenticated, PreconditionFailed
from encrypted_records.proxy.pages import frame
from encrypted_records.proxy.pages.finding import find_matching, list_targets
from encrypted_records.proxy.pages.home import MOST_SCHEMAS, SchemaActivity, states_of
from encrypted_records.proxy.pages.organizations import own_organizations
from encrypted_records.proxy.pages.page import Visit, moved, page
from encrypted_records.proxy.pages.saved import forget_questions
from encrypted_records.proxy.pages.settings_texts import changed_since, save_texts

#: Records of each schema that a search of the dataset shows.
_FIRST = 5
_MOST_FOUND = 12


def _url(visit: Visit) -> str:
    return f"/api/datasets/{visit.id}/"


async def list_all(visit: Visit) -> Response:
    """All of them; of a form, what has the letters in its name that were typed."""
    wanted = visit.text("wanted").strip()[:200]
    targets = list_targets(await frame.keep_fresh(visit, visit.desk)) if wanted else []
    found = find_matching(targets, wanted)
    if wanted:
        shown: dict[str, Any] = {"targets": found[:_MOST_FOUND], "more": len(found) - _MOST_FOUND}
        return visit.render("datasets.html", wanted=wanted, **shown)
    schemas = await visit.every("/api/schemas/")
    return visit.render(
        "datasets.html",
        wanted="",
        datasets=await visit.every("/api/datasets/"),
        schemas=schemas,
        states=await _states(visit, schemas),
    )


async def show(visit: Visit) -> Response:
    dataset = await visit.ask("GET", _url(visit))
    schemas = await visit.every("/api/schemas/", dataset=dataset["id"])
    return visit.render(
        "dataset.html", dataset=dataset, schemas=schemas, states=await _states(visit, schemas)
    )


async def _states(visit: Visit, schemas: list[dict[str, Any]]) -> dict[str, SchemaActivity]:
    """The states of the newest schemas that have records, by identifier, as far as they are known
    in time."""
    filled = [schema for schema in schemas if schema["key_id"] is not None]
    newest = sorted(filled, key=lambda schema: str(schema["id"]), reverse=True)[:MOST_SCHEMAS]
    try:
        return await states_of(visit, newest)
    except NotAuthenticated as error:
        if error.reason not in ("device_needed", "device_unknown"):
            raise
        return {}  # a browser that is not let in sees what there is, without numbers


async def search(visit: Visit) -> Response:
    """Search all schemas of the dataset with one condition, typed as on the command line."""
    dataset = await visit.ask("GET", _url(visit))
    typed = visit.text("condition")
    shown: dict[str, Any] = {"dataset": dataset, "condition": typed, "found": None, "more": False}
    if not typed.strip():
        return visit.render("dataset_search.html", **shown)
    try:
        body = {"where": parse(typed), "limit": _FIRST}
        answer = await visit.ask("POST", f"{_url(visit)}search/", body)
    except InvalidQuery as error:
        return visit.problem(error, "dataset_search.html", **shown)
    shown |= {"found": answer["results"], "more": answer["next_cursor"] is not None}
    return visit.render("dataset_search.html", **shown)


async def create(visit: Visit) -> Response:
    organizations = await own_organizations(visit)
    shown: dict[str, Any] = {"organizations": organizations, "stored": None, "etag": ""}
    sent = {name: visit.text(name) for name in ("name", "description", "organization")}
    if not visit.sends:
        return visit.render("dataset_form.html", typed=sent, **shown)
    try:
        stored = await visit.ask("POST", "/api/datasets/", sent)
    except ErsError as error:
        return visit.problem(error, "dataset_form.html", typed=sent, **shown)
    return visit.go(f"/datasets/{stored['id']}/")


async def settings(visit: Visit) -> Response:
    """Changes the version that the page has shown; where that was changed since, the form comes
    back with what was typed, beside what is stored."""
    answer = await visit.answer("GET", _url(visit))
    dataset = answer.json()
    schemas = await visit.every("/api/schemas/", dataset=visit.id)
    shown: dict[str, Any] = {
        "dataset": dataset,
        "organizations": [],
        "deletable": answer.allows("DELETE"),
        "filled": any(schema["key_id"] is not None for schema in schemas),
        "stored": None,
        "etag": answer.header("etag"),
    }
    if not visit.sends:
        return visit.render("dataset_form.html", typed=dataset, **shown)
    typed = {name: visit.text(name) for name in ("name", "description")}
    try:
        await save_texts(visit, _url(visit))
    except PreconditionFailed:
        answer = await visit.answer("GET", _url(visit))
        shown |= {"dataset": answer.json(), "etag": answer.header("etag")}
        shown["stored"] = shown["dataset"]
        return visit.problem(changed_since(), "dataset_form.html", typed=typed, **shown)
    except ErsError as error:
        shown["etag"] = visit.text("etag")
        return visit.problem(error, "dataset_form.html", typed=typed, **shown)
    return visit.go(f"/datasets/{visit.id}/")


async def delete(visit: Visit) -> Response:
    """Asks for the name where there is something in it: a click is too easily made."""
    dataset = await visit.ask("GET", _url(visit))
    schemas = await visit.every("/api/schemas/", dataset=dataset["id"])
    shown = {
        "kind": "dataset",
        "thing": dataset,
        "must_type": bool(schemas),
        "goes_with": [schema["name"] for schema in schemas],
        "back": f"/datasets/{visit.id}/",
        "wrong": False,
    }
    if not visit.sends:
        return visit.render("delete.html", **shown)
    if schemas and visit.text("name") != dataset["name"]:
        return visit.render("delete.html", 400, **shown | {"wrong": True})
    params = {"cascade": "true"} if schemas else {}
    await visit.ask("DELETE", _url(visit), params=params)
    await forget_questions(visit, [schema["id"] for schema in schemas])
    return visit.go("/datasets/")


routes = [
    page("/datasets/", list_all, methods=("GET", "POST"), changes=False),
    moved("/find/", "/datasets/"),
    page("/datasets/new/", create, methods=("GET", "POST")),
    page("/datasets/{id}/", show),
    page("/datasets/{id}/search/", search, methods=("GET", "POST"), changes=False),
    page("/datasets/{id}/settings/", settings, methods=("GET", "POST")),
    moved("/datasets/{id}/edit/", "/datasets/{id}/settings/"),
    page("/datasets/{id}/delete/", delete, methods=("GET", "POST")),
]
