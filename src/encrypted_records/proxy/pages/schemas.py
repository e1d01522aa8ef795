"""Schemas: browse, create from a sample, edit, delete with care."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from encrypted_records.errors import BadInput, Conflict, ErsError, PreconditionFailed
from encrypted_records.model.field_types import BY_NAME
from encrypted_records.model.media_types import Format
from encrypted_records.proxy.pages.editor_errors import first_invalid, lock, place_errors
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.saved import forget_questions
from encrypted_records.proxy.pages.schema_change import show_words
from encrypted_records.proxy.pages.schema_form import TYPES, Draft, Row, draft_of
from encrypted_records.proxy.pages.search_form import types_of

#: The buttons that save although a retention lets records go at once; ``:`` and how many follow.
_SAVE_AND_LET_GO = "save-and-let-go"
_KEEP_AND_LET_GO = "keep-and-let-go"


def _url(visit: Visit) -> str:
    return f"/api/schemas/{visit.id}/"


async def show(visit: Visit) -> Response:
    await show_words(visit)
    answer = await visit.answer("GET", _url(visit))
    schema = answer.json()
    draft = Draft()
    draft.take(schema["schema"])
    dataset = await visit.ask("GET", schema["dataset"])
    deletable = answer.allows("DELETE")
    return visit.render(
        "schema.html", schema=schema, dataset=dataset, draft=draft, deletable=deletable
    )


async def create(visit: Visit) -> Response:
    """A new schema: from a sample, from the table, or from JSON."""
    dataset = await visit.ask("GET", f"/api/datasets/{visit.id}/")
    shown = {"dataset": dataset, "schema": None}
    if not visit.sends:
        return await _editor(visit, Draft(rows=[Row()]), **shown)
    if visit.text("do") == "infer":
        return await _from_sample(visit, shown)
    return await _edit(visit, shown, {"dataset": dataset["url"]})


async def edit(visit: Visit) -> Response:
    schema = await visit.ask("GET", _url(visit))
    dataset = await visit.ask("GET", schema["dataset"])
    shown = {"dataset": dataset, "schema": schema}
    if visit.sends:
        return await _edit(visit, shown, {})
    draft = Draft(schema["name"], schema["description"])
    draft.take(schema["schema"])
    return await _editor(visit, draft, **shown)


async def _from_sample(visit: Visit, shown: dict[str, Any]) -> Response:
    sample = visit.text("sample")
    kind = Format.of_content(sample.lstrip()[:1].encode()).media_type
    headers = {"content-type": kind}
    params = {"enum": "true" if visit.text("list") else "false"}
    draft = Draft(rows=[Row()])
    try:
        answer = await visit.answer(
            "POST", "/api/schemas/infer/", sample.encode(), params=params, headers=headers
        )
        proposal = answer.json()
    except ErsError as error:
        return await _editor(visit, draft, problem=error, **shown)
    draft.take(proposal["schema"])
    draft.annotate(proposal["fields"])
    shown |= {"sampled": proposal["sampled"]}
    rows = {"type": kind, "text": sample}
    return await _editor(visit, draft, estimated=True, sample=rows, **shown)


async def _edit(visit: Visit, shown: dict[str, Any], more: dict[str, str]) -> Response:
    """The editor's form was sent: store it, or show it again with what its button asks for.

    Args:
        more: what a new schema needs beyond what the form holds.
    """
    do, _, agreed = visit.text("do").partition(":")
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
    draft.follow(do)
    if do not in ("save", _SAVE_AND_LET_GO):
        return await _editor(visit, draft, estimated=True, **shown)
    try:
        sent = {"name": draft.name, "description": draft.description}
        definition = draft.definition()
        if shown["schema"] is not None and "retention" in definition:
            going = await _count_going(visit, definition)
            if going > _number(agreed):
                return await _editor(visit, draft, going=going, **shown)
        if shown["schema"] is None:
            stored = await visit.ask(
                "POST", "/api/schemas/", {**sent, **more, "schema": definition}
            )
        else:
            stored = await visit.ask("PATCH", _url(visit), sent | {"schema": definition})
    except (BadInput, Conflict) as error:
        return await _editor(visit, draft, problem=error, **shown)
    return visit.go(f"/schemas/{stored['id']}/")


async def _count_going(visit: Visit, definition: dict[str, Any], **body: Any) -> int:
    """How many records a definition's retention would let go at once, where it is another one than
    the present."""
    asked = {"schema": definition, "dry_run": True, **body}
    plan = await visit.ask("POST", f"{_url(visit)}change/", asked)
    return int(plan.get("old_enough", 0))


def _number(text: str) -> int:
    """How many records somebody has agreed to let go."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


async def _editor(
    visit: Visit,
    draft: Draft,
    *,
    estimated: bool = False,
    problem: ErsError | None = None,
    sample: dict[str, str] | None = None,
    **shown: Any,
) -> Response:
    """The editor with a draft in it, and what the draft will cost and reveal where asked for.

    Args:
        sample: rows to estimate by, as the endpoint takes them.
    """
    estimate = None
    if estimated and problem is None and any(row.name for row in draft.rows):
        try:
            body = {"records": draft.records, "schema": draft.definition()}
            body |= {"sample": sample} if sample else {}
            estimate = await visit.ask("POST", "/api/schemas/estimate/", body)
        except BadInput as error:
            if sample:
                # Of rows that do not fit there is nothing to say; of the definition there is.
                return await _editor(visit, draft, estimated=True, **shown)
            problem = error
    values: dict[str, Any] = {
        "types": TYPES,
        "draft": draft,
        "estimate": estimate,
        "sampled": 0,
        "typed": None,
        "going": 0,
    }
    values |= shown
    values |= mark(draft, shown["schema"], problem)
    if problem is not None:
        return visit.problem(problem, "schema_form.html", **values)
    return visit.render("schema_form.html", **values)


def mark(
    draft: Draft, schema: Mapping[str, Any] | None, problem: ErsError | None
) -> dict[str, Any]:
    """Mark the draft's locked rows, and its rows with errors; what the form says of the others.

    Args:
        schema: the stored one that is edited.
    """
    if schema is not None and schema["key_id"] is not None:
        lock(draft, schema["schema"])
    if problem is None:
        return {"first_invalid": "", "misplaced": []}
    misplaced = place_errors(draft, problem.flaws)
    return {"first_invalid": first_invalid(draft), "misplaced": misplaced}


async def reseal(visit: Visit) -> Response:
    """Says what sealing all records again is for, and begins it."""
    if visit.sends:
        job = await visit.ask("POST", f"{_url(visit)}reseal/")
        return visit.go(f"/jobs/{job['job_id']}/")
    schema = await visit.ask("GET", _url(visit))
    dataset = await visit.ask("GET", schema["dataset"])
    return visit.render("reseal.html", schema=schema, dataset=dataset)


async def retention(visit: Visit) -> Response:
    """Says for how long records stay and how many are old enough to go, lets these go, and takes
    another rule."""
    if visit.text("do").partition(":")[0] in ("keep", _KEEP_AND_LET_GO):
        return await _keep(visit)
    if visit.sends:
        right = {"clock_is_right": "true"} if visit.form.get("clock") == "right" else None
        await visit.ask("POST", f"{_url(visit)}retention/", params=right)
        return visit.go(f"/schemas/{visit.id}/retention/")
    return await _show_retention(visit)


async def _keep(visit: Visit) -> Response:
    """Take the rule that the form has, for the one that the page has shown; one that lets records
    go at once, if that is confirmed."""
    schema = await visit.ask("GET", _url(visit))
    before = {"replaces": schema["schema"]}
    if visit.text("shown", _rule_of(schema)) != _rule_of(schema):
        return await _show_retention(visit, problem=_changed())
    definition = {name: one for name, one in schema["schema"].items() if name != "retention"}
    days, field = visit.text("days").strip(), visit.text("field")
    if visit.text("stay") != "always":
        rule: dict[str, Any] = {"field": field} if field else {}
        # Another text than a number of days is refused with the rule.
        rule["days"] = int(days) if days.isascii() and days.isdecimal() and len(days) < 9 else days
        definition["retention"] = rule
    try:
        going = await _count_going(visit, definition, **before)
        if going > _number(visit.text("do").partition(":")[2]):
            return await _show_retention(visit, going=going)
        await visit.ask("POST", f"{_url(visit)}change/", {"schema": definition, **before})
    except (BadInput, Conflict) as error:
        return await _show_retention(visit, problem=error)
    except PreconditionFailed:
        return await _show_retention(visit, problem=_changed())
    return visit.go(f"/schemas/{visit.id}/retention/")


def _rule_of(schema: Mapping[str, Any]) -> str:
    rule = schema["schema"].get("retention")
    return msgspec.json.encode(rule, order="sorted").decode() if rule else ""


def _changed() -> Conflict:
    return Conflict(
        "somebody has changed the rule since this page was shown, so nothing was saved",
        hint="the present rule is above; save yours if it is still wanted",
    )


async def _show_retention(
    visit: Visit, *, going: int = 0, problem: ErsError | None = None
) -> Response:
    schema = await visit.ask("GET", _url(visit))
    due = await visit.ask("GET", f"{_url(visit)}retention/")
    rule = schema["schema"].get("retention") or {}
    shown: dict[str, Any] = {
        "schema": schema,
        "dataset": await visit.ask("GET", schema["dataset"]),
        "due": due,
        "shown": _rule_of(schema),
        "going": going,
        "dated": [
            name for name, kind in types_of(schema["schema"]).items() if BY_NAME[kind].is_moment
        ],
        "days": visit.text("days") if visit.text("do") else str(rule.get("days", "")),
        "field": visit.text("field") if visit.text("do") else rule.get("field", ""),
        "stays": visit.text("stay") == "always" if visit.text("do") else not rule,
    }
    if problem is not None:
        return visit.problem(problem, "retention.html", **shown)
    return visit.render("retention.html", **shown)


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
    await forget_questions(visit, [visit.id])
    return visit.go(f"/datasets/{schema['dataset'].split('/')[-2]}/")


routes = [
    page("/datasets/{id}/new-schema/", create, methods=("GET", "POST")),
    page("/schemas/{id}/", show),
    page("/schemas/{id}/edit/", edit, methods=("GET", "POST")),
    page("/schemas/{id}/reseal/", reseal, methods=("GET", "POST")),
    page("/schemas/{id}/retention/", retention, methods=("GET", "POST")),
    page("/schemas/{id}/delete/", delete, methods=("GET", "POST")),
]
