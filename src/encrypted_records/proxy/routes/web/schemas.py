"""Schemas: browse, create from a sample, edit, delete with care."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from encrypted_records.errors import BadInput, Conflict, ErsError
from encrypted_records.proxy.routes.web.editor import TYPES, Draft, Row, draft_of
from encrypted_records.proxy.routes.web.visit import Visit, page


def _url(visit: Visit) -> str:
    return f"/api/schemas/{visit.id}/"


async def one(visit: Visit) -> Response:
    schema = await visit.ask("GET", _url(visit))
    draft = Draft()
    draft.take(schema["schema"])
    dataset = await visit.ask("GET", schema["dataset"])
    return visit.render("schema.html", schema=schema, dataset=dataset, draft=draft)


async def create(visit: Visit) -> Response:
    """A new schema: from a sample, from the table, or from JSON."""
    dataset = await visit.ask("GET", f"/api/datasets/{visit.id}/")
    shown = {"dataset": dataset, "schema": None}
    if not visit.sends:
        return await _editor(visit, Draft(rows=[Row()]), **shown)
    if visit.text("do") == "infer":
        return await _from_sample(visit, shown)
    return await _edited(visit, shown, {"dataset": dataset["url"]})


async def edit(visit: Visit) -> Response:
    schema = await visit.ask("GET", _url(visit))
    dataset = await visit.ask("GET", schema["dataset"])
    shown = {"dataset": dataset, "schema": schema}
    if visit.sends:
        return await _edited(visit, shown, {})
    draft = Draft(schema["name"], schema["description"])
    draft.take(schema["schema"])
    return await _editor(visit, draft, **shown)


async def _from_sample(visit: Visit, shown: dict[str, Any]) -> Response:
    sample = visit.text("sample")
    begin = sample.lstrip()[:1]
    kinds = {"[": "application/json", "{": "application/x-ndjson"}
    headers = {"content-type": kinds.get(begin, "text/csv")}
    draft = Draft(rows=[Row()])
    try:
        answer = await visit.answer("POST", "/api/schemas/infer/", sample.encode(), headers=headers)
        proposal = answer.json()
    except ErsError as error:
        return await _editor(visit, draft, problem=error, **shown)
    draft.take(proposal["schema"])
    draft.annotate({one["name"]: one["note"] for one in proposal["fields"]})
    return await _editor(visit, draft, sampled=proposal["sampled"], estimated=True, **shown)


async def _edited(visit: Visit, shown: dict[str, Any], more: dict[str, str]) -> Response:
    """The editor's form was sent: store it, or show it again with what its button asks for.

    Args:
        more: what a new schema needs beyond what the form holds.
    """
    do = visit.text("do")
    try:
        draft = draft_of(visit.form)
    except BadInput as error:
        typed = {"json": visit.text("json"), "name": visit.text("name")}
        return await _editor(visit, Draft(name=typed["name"]), problem=error, typed=typed, **shown)
    if do == "add":
        draft.rows.append(Row())
        return await _editor(visit, draft, **shown)
    if do.startswith("remove-") and do[7:].isdecimal() and int(do[7:]) < len(draft.rows):
        del draft.rows[int(do[7:])]
        return await _editor(visit, draft, **shown)
    if do != "save":
        return await _editor(visit, draft, estimated=True, **shown)
    try:
        sent = {"name": draft.name, "description": draft.description}
        definition = draft.definition()
        if shown["schema"] is None:
            stored = await visit.ask(
                "POST", "/api/schemas/", {**sent, **more, "schema": definition}
            )
        else:
            stored = await visit.ask("PATCH", _url(visit), sent | {"schema": definition})
    except (BadInput, Conflict) as error:
        return await _editor(visit, draft, problem=error, **shown)
    return visit.go(f"/schemas/{stored['id']}/")


async def _editor(
    visit: Visit,
    draft: Draft,
    *,
    estimated: bool = False,
    problem: ErsError | None = None,
    **shown: Any,
) -> Response:
    """The editor with a draft in it, and what the draft will cost and reveal where asked for."""
    estimate = None
    if estimated and problem is None and any(row.name for row in draft.rows):
        try:
            body = {"records": draft.records, "schema": draft.definition()}
            estimate = await visit.ask("POST", "/api/schemas/estimate/", body)
        except BadInput as error:
            problem = error
    values: dict[str, Any] = {
        "types": TYPES,
        "draft": draft,
        "estimate": estimate,
        "sampled": 0,
        "typed": None,
    }
    values |= shown
    if problem is not None:
        return visit.problem(problem, "schema_form.html", **values)
    return visit.render("schema_form.html", **values)


async def delete(visit: Visit) -> Response:
    """Asks for the name where there are, or were, records."""
    schema = await visit.ask("GET", _url(visit))
    filled = schema["key_id"] is not None
    shown = {
        "kind": "schema",
        "thing": schema,
        "must_type": filled,
        "goes_with": ["all of its records"] if filled else [],
        "back": f"/schemas/{visit.id}/",
        "wrong": False,
    }
    if not visit.sends:
        return visit.render("delete.html", **shown)
    if filled and visit.text("name") != schema["name"]:
        return visit.render("delete.html", 400, **shown | {"wrong": True})
    await visit.ask("DELETE", _url(visit), params={"cascade": "true"} if filled else {})
    return visit.go(f"/datasets/{schema['dataset'].split('/')[-2]}/")


routes = [
    page("/datasets/{id}/new-schema/", create, methods=("GET", "POST")),
    page("/schemas/{id}/", one),
    page("/schemas/{id}/edit/", edit, methods=("GET", "POST")),
    page("/schemas/{id}/delete/", delete, methods=("GET", "POST")),
]
