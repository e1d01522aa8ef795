"""Schemas: create from a sample, settings, retention, change the fields, delete with care.

A new definition of the fields is first planned, then applied. A form carries the previous name of
each row, so that a renamed field keeps its values, and the definition that it was made from, so
that it replaces no other definition. The change is applied as it was shown: if the plan would
differ now, it is shown again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from starlette.responses import Response

from encrypted_records import errors
from encrypted_records.client.proxy.connection import ShownDataset, ShownSchema
from encrypted_records.client.sdk.condition_language import write
from encrypted_records.model import strict_json
from encrypted_records.model.field_types import BY_NAME
from encrypted_records.model.record_formats import Format
from encrypted_records.proxy.pages.datasets import delete_named, save_texts, stored_since
from encrypted_records.proxy.pages.formatting import whole
from encrypted_records.proxy.pages.page import Visit, moved, page
from encrypted_records.proxy.pages.schema_form import (
    TYPES,
    FieldRow,
    SchemaDraft,
    draft_of,
    place_errors,
)
from encrypted_records.proxy.pages.search_form import types_of


def _url(visit: Visit) -> str:
    return f"/api/schemas/{visit.id}/"


async def create(visit: Visit) -> Response:
    """A new schema: from a sample, from the table, or from JSON."""
    dataset = await visit.read(ShownDataset)
    if not visit.sends:
        return await _editor(visit, dataset, SchemaDraft(rows=[FieldRow()]))
    if visit.text("do") == "infer":
        return await _from_sample(visit, dataset)
    return await _take(visit, dataset)


async def _from_sample(visit: Visit, dataset: ShownDataset) -> Response:
    sample = visit.text("sample")
    kind = Format.of_content(sample.lstrip()[:1].encode()).media_type
    headers = {"content-type": kind}
    params = {"enum": "true" if visit.text("list") else "false"}
    answer = await visit.answer(
        "POST", "/api/schemas/infer/", sample.encode(), params=params, headers=headers
    )
    proposal, draft = answer.json(), SchemaDraft()
    draft.take(proposal["schema"])
    draft.annotate(proposal["fields"])
    rows = {"type": kind, "text": sample}
    shown = {"estimated": True, "sampled": proposal["sampled"]}
    return await _editor(visit, dataset, draft, sample=rows, **shown)


async def _take(visit: Visit, dataset: ShownDataset) -> Response:
    """Process the editor's form: store it, or show it again with the result of its button."""
    do = visit.text("do")
    try:
        draft = draft_of(visit.form)
    except errors.BadInput as error:
        visit.refusal = error
        draft = SchemaDraft(name=visit.text("name"))
        return await _editor(visit, dataset, draft, typed=visit.text("json"))
    if draft.follow_rows(do):
        return await _editor(visit, dataset, draft)
    draft.follow(do)
    if do != "save":
        return await _editor(visit, dataset, draft, estimated=True)
    try:
        sent: dict[str, Any] = {"name": draft.name, "description": draft.description}
        sent |= {"dataset": dataset.url, "schema": draft.definition()}
        stored = await visit.ask("POST", "/api/schemas/", sent)
    except errors.ErsError as error:
        visit.refusal = error
        return await _editor(visit, dataset, draft)
    return visit.go(f"/schemas/{stored['id']}/upload/")


async def _count_going(visit: Visit, definition: dict[str, Any], **body: Any) -> int:
    """How many records a definition's retention would delete at once, if it differs from the
    current rule.
    """
    change = {"schema": definition, "dry_run": True, **body}
    plan = await visit.ask("POST", f"{_url(visit)}change/", change)
    return int(plan.get("old_enough", 0))


async def _editor(
    visit: Visit,
    dataset: ShownDataset,
    draft: SchemaDraft,
    *,
    estimated: bool = False,
    sample: dict[str, str] | None = None,
    sampled: int = 0,
    typed: str | None = None,
) -> Response:
    """The editor with a draft, and with the draft's cost and leaks if requested.

    Args:
        sample: rows for the estimate, in the endpoint's format.
        typed: JSON that cannot be read.
    """
    estimate = None
    if estimated and any(row.name for row in draft.rows):
        try:
            estimate = await _estimate(visit, draft, sample)
        except errors.BadInput as error:
            if sample:
                # The sample rows do not fit, but the definition alone can still be estimated.
                return await _editor(visit, dataset, draft, estimated=True, sampled=sampled)
            visit.refusal = error
    shown = {"dataset": dataset, "estimate": estimate, "sampled": sampled, "typed": typed}
    return _show_draft(visit, "schema_form.html", draft, **shown)


def _show_draft(visit: Visit, template: str, draft: SchemaDraft, **values: Any) -> Response:
    """A page with a table of fields, whose errors are shown next to their rows."""
    if visit.refusal is not None:
        place_errors(draft, visit.refusal.flaws)
    return visit.render(template, types=TYPES, draft=draft, **values)


async def reseal(visit: Visit) -> Response:
    """Explain re-encryption of all records, and begin it."""
    if visit.sends:
        job = await visit.ask("POST", f"{_url(visit)}reseal/")
        return visit.go(f"/jobs/{job['job_id']}/")
    schema = await visit.read(ShownSchema)
    dataset = await visit.read(ShownDataset, schema.dataset)
    return visit.render("reseal.html", schema=schema, dataset=dataset)


async def settings(visit: Visit) -> Response:
    """The schema's settings: its name and its retention, with the number of records that are
    due.
    """
    if not visit.sends:
        return await _show_settings(visit)
    match visit.text("do").partition(":")[0]:
        # The latter although the rule deletes records at once; their number follows.
        case "keep" | "keep-and-let-go":
            return await _keep(visit)
        case "save":
            await save_texts(visit, _url(visit))
        case "expire":
            right = {"clock_is_right": "true"} if visit.form.get("clock") == "right" else None
            await visit.ask("POST", f"{_url(visit)}retention/", params=right)
    return visit.go(f"/schemas/{visit.id}/settings/")


async def _keep(visit: Visit) -> Response:
    """Replace the shown retention rule by the rule in the form; a rule that deletes records at once
    needs confirmation.
    """
    schema = await visit.read(ShownSchema)
    before = {"replaces": schema.definition}
    if visit.text("shown", _rule_of(schema)) != _rule_of(schema):
        raise _changed()
    definition = {name: value for name, value in schema.definition.items() if name != "retention"}
    typed, field = visit.text("days").strip(), visit.text("field")
    if visit.text("stay") != "always":
        rule: dict[str, Any] = {"field": field} if field else {}
        # A text that is not a number of days is refused with the rule.
        days = whole(typed, 8)
        rule["days"] = typed if days is None else days
        definition["retention"] = rule
    try:
        going = await _count_going(visit, definition, **before)
        if going > (whole(visit.text("do").partition(":")[2], 15) or 0):
            return await _show_settings(visit, going=going)
        await visit.ask("POST", f"{_url(visit)}change/", {"schema": definition, **before})
    except errors.PreconditionFailed:
        raise _changed() from None
    return visit.go(f"/schemas/{visit.id}/settings/")


def _rule_of(schema: ShownSchema) -> str:
    rule = schema.definition.get("retention")
    return msgspec.json.encode(rule, order="sorted").decode() if rule else ""


def _changed() -> errors.Conflict:
    return errors.Conflict(
        "somebody has changed the rule since you opened this page, so nothing was saved",
        hint="the current rule is above; save yours if you still want it",
    )


async def _show_settings(visit: Visit, going: int = 0) -> Response:
    """
    Args:
        going: number of records that the form's rule would delete.
    """
    answer = await visit.answer("GET", _url(visit))
    schema = answer.read(ShownSchema)
    due, closed = None, None
    try:
        due = await visit.ask("GET", f"{_url(visit)}retention/")
    except errors.NotAuthenticated:
        raise
    except errors.ErsError as error:  # the rest of the page needs no keys
        closed = error
    rule = schema.definition.get("retention") or {}
    typed = visit.text("do").startswith("keep")
    return visit.render(
        "schema_settings.html",
        schema=schema,
        typed=visit.form if visit.text("do") == "save" else {},
        deletable=answer.allows("DELETE"),
        due=due,
        closed=closed,
        shown=_rule_of(schema),
        going=going,
        dated=[
            name for name, kind in types_of(schema.definition).items() if BY_NAME[kind].is_moment
        ],
        days=visit.text("days") if typed else str(rule.get("days", "")),
        field=visit.text("field") if typed else rule.get("field", ""),
        stays=visit.text("stay") == "always" if typed else not rule,
        **stored_since(visit, schema, answer.header("etag")),
    )


async def delete(visit: Visit) -> Response:
    """Ask for the name if there are, or were, records."""
    schema = await visit.read(ShownSchema)
    goes_with = [] if schema.key_id is None else ["all of its records"]
    back, then = f"/schemas/{visit.id}/settings/", f"/datasets/{schema.dataset.split('/')[-2]}/"
    return await delete_named(visit, schema, goes_with, [visit.id], back=back, then=then)


# --- fields ---------------------------------------------------------------------------------------

#: Prefix of form field names; a number follows. The value is a field whose values are lost.
_DROP = "drop-"
_Words = dict[str, tuple[str | None, str | None]]


async def show_fields(visit: Visit) -> Response:
    """The current fields; for a sent form, the plan, or the change."""
    if not visit.sends:
        await show_words(visit)
    schema = await visit.read(ShownSchema)
    if not visit.sends:
        draft = SchemaDraft(schema.name, schema.description)
        draft.take(schema.definition)
        _note_names(schema, draft)
        return await _fields_page(visit, schema, draft)
    try:
        draft = draft_of(visit.form)
    except errors.BadInput as error:
        visit.refusal = error
        return await _fields_page(visit, schema, SchemaDraft(), typed=visit.text("json"))
    _note_names(schema, draft)
    do = visit.text("do")
    draft.follow(do)
    if not draft.follow_rows(do) and do in ("plan", "apply"):
        return await _plan_change(visit, schema, draft, apply=do == "apply")
    estimate = None
    try:
        estimate = await _estimate(visit, draft) if do == "check" else None
    except errors.BadInput as error:
        visit.refusal = error
    return await _fields_page(visit, schema, draft, estimate=estimate)


async def _estimate(visit: Visit, draft: SchemaDraft, sample: dict[str, str] | None = None) -> Any:
    """The cost of the definition and its leaks, for the number of records in the editor."""
    body = {"records": draft.records, "schema": draft.definition()}
    body |= {"sample": sample} if sample else {}
    return await visit.ask("POST", "/api/schemas/estimate/", body)


def _note_names(schema: ShownSchema, draft: SchemaDraft) -> None:
    """Match rows to existing fields: a row with the name of a field is that field, unless another
    row claims it.
    """
    earlier_names = {row.was for row in draft.rows}
    for row in draft.rows:
        if (
            not row.was
            and row.name in schema.definition["properties"]
            and row.name not in earlier_names
        ):
            row.was = row.name


async def _plan_change(
    visit: Visit, schema: ShownSchema, draft: SchemaDraft, *, apply: bool
) -> Response:
    plan: dict[str, Any] | None = None
    planned = ""
    try:
        body = {"schema": draft.definition(), "renames": _renames(draft), "drops": _drops(visit)}
        body |= {"replaces": _replaced(visit, schema)}
        plan = await visit.ask("POST", f"{_url(visit)}change/", {**body, "dry_run": True})
        planned = _mark(body, plan)
        if apply and plan["possible"] and visit.text("planned") == planned:
            return await _take_change(visit, body, _words(schema.definition))
    except errors.PreconditionFailed:
        visit.refusal = errors.Conflict(
            "somebody has changed the fields since you opened this page, so nothing was changed",
            hint="load the page again, and repeat your change if you still want it",
        )
        plan = None
    except errors.ErsError as error:
        visit.refusal = error
    return await _fields_page(visit, schema, draft, plan=plan, planned=planned)


async def _take_change(visit: Visit, body: dict[str, Any], words: _Words) -> Response:
    taken = await visit.ask("POST", f"{_url(visit)}change/", body)
    if "job_id" not in taken:
        return visit.go(f"/schemas/{visit.id}/fields/")
    # Titles and descriptions are not part of the encrypted definition; this page shows them later.
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
    with suppress(errors.ErsError):
        now = _words((await visit.read(ShownSchema)).definition)
        if now and now != words:
            visit.desk.take(("definition", visit.id), tuple)
            return
        plan = await visit.ask("POST", f"{_url(visit)}change/", {**body, "dry_run": True})
        if plan["takes"] == "nothing":
            await visit.ask("POST", f"{_url(visit)}change/", body)
            visit.desk.take(("definition", visit.id), tuple)


def _words(definition: Mapping[str, Any]) -> _Words:
    """By field, its descriptive keywords: its title and its description."""
    words_by_field = {
        name: (rules.get("title"), rules.get("description"))
        for name, rules in definition["properties"].items()
    }
    return {name: words for name, words in words_by_field.items() if any(words)}


def _replaced(visit: Visit, schema: ShownSchema) -> Any:
    """The definition that the page has shown; if there is none, the current definition."""
    try:
        return strict_json.loads(visit.text("replaces").encode())
    except errors.BadInput:
        return schema.definition


def _renames(draft: SchemaDraft) -> dict[str, str]:
    return {row.name: row.was for row in draft.rows if row.was and row.name and row.name != row.was}


def _drops(visit: Visit) -> list[str]:
    return sorted({value for name, value in visit.form.items() if name.startswith(_DROP)})


def _mark(body: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """A key that changes with the requested change or its plan."""
    changes = [
        (change["code"], change["pointer"], change.get("records")) for change in plan["changes"]
    ]
    shown = (changes, plan["takes"], plan.get("old_enough", 0))
    return f"{zlib.crc32(strict_json.encode(body) + msgspec.json.encode(shown)):08x}"


def _lost(schema: ShownSchema, draft: SchemaDraft) -> list[str]:
    """The current fields that the draft no longer has, under any name."""
    kept = {row.was for row in draft.rows} | {row.name for row in draft.rows}
    return [name for name in schema.definition["properties"] if name not in kept]


def _obstacles(plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The changes that stored records prevent, each with a search that finds these records."""
    for change in plan["changes"]:
        if change.get("records"):
            where = change["where"]
            yield {**change, "finds": [("part-0", write(where))] if where else []}


async def _fields_page(
    visit: Visit,
    schema: ShownSchema,
    draft: SchemaDraft,
    *,
    plan: dict[str, Any] | None = None,
    planned: str = "",
    estimate: Any = None,
    typed: str | None = None,
) -> Response:
    return _show_draft(
        visit,
        "fields.html",
        draft,
        schema=schema,
        typed=typed,
        replaces=visit.text("replaces") or strict_json.encode(schema.definition).decode(),
        estimate=estimate,
        plan=plan,
        planned=planned,
        obstacles=[] if plan is None else list(_obstacles(plan)),
        lost=_lost(schema, draft) if draft.rows else [],
        dropped=_drops(visit),
    )


routes = [
    page("/datasets/{id}/new-schema/", create, methods=("GET", "POST")),
    moved("/schemas/{id}/", "/schemas/{id}/search/"),
    page("/schemas/{id}/reseal/", reseal, methods=("GET", "POST")),
    page("/schemas/{id}/settings/", settings, methods=("GET", "POST")),
    moved("/schemas/{id}/retention/", "/schemas/{id}/settings/"),
    page("/schemas/{id}/delete/", delete, methods=("GET", "POST")),
    page("/schemas/{id}/fields/", show_fields, methods=("GET", "POST")),
    moved("/schemas/{id}/edit/", "/schemas/{id}/fields/"),
    moved("/schemas/{id}/change/", "/schemas/{id}/fields/"),
]
