"""A schema's fields, and another definition of them: first what that takes, then taking it.

A form carries what each of its rows was named before, so that a field that has another name keeps
its values, and the definition that it was made of, so that it replaces no other one. The change
is applied as it was shown: where the plan would be another by now, it is shown again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from starlette.responses import Response

from encrypted_records.client.sdk.condition_language import write
from encrypted_records.errors import BadInput, Conflict, ErsError, PreconditionFailed
from encrypted_records.model import strict_json
from encrypted_records.proxy.pages.page import Visit, moved, page
from encrypted_records.proxy.pages.schema_form import (
    TYPES,
    SchemaDraft,
    draft_of,
    first_invalid,
    place_errors,
)

_TEMPLATE = "fields.html"
#: Names of a form's fields begin so; a number follows. Its value is a field whose values are lost.
_DROP = "drop-"
_Words = dict[str, tuple[str | None, str | None]]


def _url(visit: Visit) -> str:
    return f"/api/schemas/{visit.id}/"


async def show(visit: Visit) -> Response:
    """The fields as they are; or, of a form, the plan, or the change."""
    if not visit.sends:
        await show_words(visit)
    schema = await visit.ask("GET", _url(visit))
    if not visit.sends:
        draft = SchemaDraft(schema["name"], schema["description"])
        draft.take(schema["schema"])
        _note_names(schema, draft)
        return await _page(visit, schema, draft)
    try:
        draft = draft_of(visit.form)
    except BadInput as error:
        return await _page(visit, schema, SchemaDraft(), problem=error, typed=visit.text("json"))
    _note_names(schema, draft)
    do = visit.text("do")
    draft.follow(do)
    if not draft.follow_rows(do) and do in ("plan", "apply"):
        return await _plan(visit, schema, draft, apply=do == "apply")
    try:
        estimate = await _estimate(visit, draft) if do == "check" else None
    except BadInput as error:
        return await _page(visit, schema, draft, problem=error)
    return await _page(visit, schema, draft, estimate=estimate)


async def _estimate(visit: Visit, draft: SchemaDraft) -> Any:
    """The cost of the definition and its leaks, for as many records as the editor supposes."""
    body = {"records": draft.records, "schema": draft.definition()}
    return await visit.ask("POST", "/api/schemas/estimate/", body)


def _note_names(schema: Mapping[str, Any], draft: SchemaDraft) -> None:
    """Match rows to existing fields: a row with the name of a field is that field, unless another
    row claims it.
    """
    said = {row.was for row in draft.rows}
    for row in draft.rows:
        if not row.was and row.name in schema["schema"]["properties"] and row.name not in said:
            row.was = row.name


async def _plan(
    visit: Visit, schema: dict[str, Any], draft: SchemaDraft, *, apply: bool
) -> Response:
    plan: dict[str, Any] | None = None
    try:
        body = {"schema": draft.definition(), "renames": _renames(draft), "drops": _drops(visit)}
        body |= {"replaces": _replaced(visit, schema)}
        plan = await visit.ask("POST", f"{_url(visit)}change/", {**body, "dry_run": True})
        if apply and plan["possible"] and visit.text("planned") == _mark(body, plan):
            return await _take(visit, body, _words(schema["schema"]))
    except (BadInput, Conflict) as error:
        return await _page(visit, schema, draft, plan=plan, problem=error)
    except PreconditionFailed:
        changed = Conflict(
            "somebody has changed the fields since you opened this page, so nothing was changed",
            hint="load the page again, and repeat your change if you still want it",
        )
        return await _page(visit, schema, draft, problem=changed)
    return await _page(visit, schema, draft, plan=plan, planned=_mark(body, plan))


async def _take(visit: Visit, body: dict[str, Any], words: _Words) -> Response:
    taken = await visit.ask("POST", f"{_url(visit)}change/", body)
    if "job_id" not in taken:
        return visit.go(f"/schemas/{visit.id}/fields/")
    # Titles and descriptions are no part of what is sealed for; this page has them shown later.
    visit.desk.put(("definition", visit.id), (body["schema"], words))
    return visit.go(f"/jobs/{taken['job_id']}/")


async def show_words(visit: Visit) -> None:
    """After all records were re-encrypted for a definition that was typed here, show its titles and
    descriptions, too, unless they were changed since. If that fails, only these are missing.
    """
    kept = visit.desk.get(("definition", visit.id))
    if kept is None:
        return
    typed, words = kept
    body = {"schema": typed}
    with suppress(ErsError):
        now = _words((await visit.ask("GET", _url(visit)))["schema"])
        if now and now != words:
            visit.desk.take(("definition", visit.id), tuple)
            return
        plan = await visit.ask("POST", f"{_url(visit)}change/", {**body, "dry_run": True})
        if plan["takes"] == "nothing":
            await visit.ask("POST", f"{_url(visit)}change/", body)
            visit.desk.take(("definition", visit.id), tuple)


def _words(definition: Mapping[str, Any]) -> _Words:
    """By field what describes it and is no rule: its title and its description."""
    every = {
        name: (rules.get("title"), rules.get("description"))
        for name, rules in definition["properties"].items()
    }
    return {name: words for name, words in every.items() if any(words)}


def _replaced(visit: Visit, schema: Mapping[str, Any]) -> Any:
    """The definition that the page has shown; without one, the present."""
    try:
        return strict_json.loads(visit.text("replaces").encode())
    except BadInput:
        return schema["schema"]


def _renames(draft: SchemaDraft) -> dict[str, str]:
    return {row.name: row.was for row in draft.rows if row.was and row.name and row.name != row.was}


def _drops(visit: Visit) -> list[str]:
    return sorted({value for name, value in visit.form.items() if name.startswith(_DROP)})


def _mark(body: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """Differs where what is asked for, or what it takes, does."""
    changes = [
        (change["code"], change["pointer"], change.get("records")) for change in plan["changes"]
    ]
    said = (changes, plan["takes"], plan.get("old_enough", 0))
    return f"{zlib.crc32(strict_json.encode(body) + msgspec.json.encode(said)):08x}"


def _lost(schema: Mapping[str, Any], draft: SchemaDraft) -> list[str]:
    """The present fields that the draft has no more, under any name."""
    kept = {row.was for row in draft.rows} | {row.name for row in draft.rows}
    return [name for name in schema["schema"]["properties"] if name not in kept]


def _obstacles(plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The changes that stored records prevent, each with a search that finds these records."""
    for change in plan["changes"]:
        if change.get("records"):
            where = change["where"]
            yield {**change, "finds": [("part-0", write(where))] if where else []}


async def _page(
    visit: Visit,
    schema: dict[str, Any],
    draft: SchemaDraft,
    *,
    plan: dict[str, Any] | None = None,
    planned: str = "",
    estimate: Any = None,
    problem: ErsError | None = None,
    typed: str | None = None,
) -> Response:
    misplaced = [] if problem is None else place_errors(draft, problem.flaws)
    values: dict[str, Any] = {
        "schema": schema,
        "types": TYPES,
        "draft": draft,
        "typed": typed,
        "replaces": visit.text("replaces") or strict_json.encode(schema["schema"]).decode(),
        "estimate": estimate,
        "plan": plan,
        "planned": planned,
        "obstacles": [] if plan is None else list(_obstacles(plan)),
        "lost": _lost(schema, draft) if draft.rows else [],
        "dropped": _drops(visit) if visit.sends else [],
        "first_invalid": first_invalid(draft),
        "misplaced": misplaced,
    }
    if problem is not None:
        return visit.problem(problem, _TEMPLATE, **values)
    return visit.render(_TEMPLATE, **values)


routes = [
    page("/schemas/{id}/fields/", show, methods=("GET", "POST")),
    moved("/schemas/{id}/edit/", "/schemas/{id}/fields/"),
    moved("/schemas/{id}/change/", "/schemas/{id}/fields/"),
]
