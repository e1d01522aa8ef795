"""Overview: a picture of every field of what the filters find, each loaded on its own.

The same pictures stand beside the records; the most frequent values complete what is typed.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from encrypted_records.client.sdk.condition_language import NotUnderstood
from encrypted_records.errors import ErsError, NotFound
from encrypted_records.http import problem as problems
from encrypted_records.proxy.pages.completions import complete_line
from encrypted_records.proxy.pages.heat_map import draw_heat_map
from encrypted_records.proxy.pages.page import Visit, moved, page
from encrypted_records.proxy.pages.pictures import Bar, Picture, draw_picture, draw_suggestions
from encrypted_records.proxy.pages.question_changes import change
from encrypted_records.proxy.pages.questions import SchemaQuestion, find_question, keep_question


async def overview(visit: Visit) -> Response:
    on = await find_question(visit)
    if visit.sends:
        try:
            on.question = change(on.question, visit.text("do"), visit.form, on.schema["schema"])
        except NotUnderstood as error:
            on.question.typed = visit.text("ask").strip()
            return await _show(visit, on, error)
        kept = keep_question(visit, on)
        if kept and "hx-request" not in visit.request.headers:
            return visit.go(f"/schemas/{visit.id}/overview/{on.query}")
        response = await _show(visit, on)
        header, address = on.address(visit, "overview")
        response.headers[header] = address
        return response
    if on.unknown:
        return visit.render("unknown_question.html", 404, schema=on.schema, page="overview")
    return await _show(visit, on)


async def _show(visit: Visit, on: SchemaQuestion, misread: NotUnderstood | None = None) -> Response:
    """The frames of all pictures; with ``?all``, and so without scripts, the pictures as well."""
    total = None
    pictures: dict[str, Picture] = {}
    problem = misread or on.down
    try:
        if problem is None:
            where = on.question.where(on.types)
            body = {"schema": on.schema["url"], "where": where}
            answer = await visit.ask("POST", "/api/records/aggregate/", body)
            total = answer["measures"][0]["value"]
            if "all" in visit.request.query_params:
                pictures = {name: await draw_picture(visit, on, name) for name in on.types}
    except ErsError as error:
        problem = error
    shown: dict[str, Any] = {
        "schema": on.schema,
        "types": on.types,
        "question": on.question,
        "query": on.query,
        "q": on.name,
        "misread": misread,
        "total": total,
        "pictures": pictures,
    }
    if problem is not None:
        response = visit.problem(problem, "overview.html", **shown)
        # The earlier chart stays, below the filters of this request.
        response.headers["HX-Retarget"] = response.headers["HX-Reselect"] = "#filters"
        response.headers["HX-Reswap"] = "outerHTML"
        return response
    return visit.render("overview.html", **shown)


async def facet(visit: Visit) -> Response:
    """The picture of a field, as a fragment of a page: small beside records, or large."""
    on = await find_question(visit)
    name = _field(visit, on)
    shown: dict[str, Any] = {"schema": on.schema, "large": visit.text("large") == "yes"}
    try:
        drawn = await draw_picture(visit, on, name)
    except ErsError as error:
        return _refuse(visit, error)
    return visit.render("facet.html", one=drawn, failed=None, **shown)


async def complete(visit: Visit) -> Response:
    """Completions for the line; their values are those of the index.

    The schema is taken as it was shown, so that typing asks the API for nothing but what a search
    for the beginning of a value asks.
    """
    on = await find_question(visit, early=True, asks=False)
    caret = visit.text("caret")
    text = visit.text("ask")
    if caret.isdecimal():
        text = text[: int(caret[:9])]
    found = complete_line(text, on.types, on.schema["schema"]["properties"])
    values: list[Bar] = []
    if found.field and found.asks_index:
        try:
            values = (await draw_suggestions(visit, on, found.field, found.typed)).bars
        except ErsError as error:
            return _refuse(visit, error)
    return visit.render("completions.html", found=found, options=found.with_values(values))


async def pair(visit: Visit) -> Response:
    """Two fields of what the filters find against each other, as a page and as a part of one."""
    on = await find_question(visit)
    keep_question(visit, on)
    down, across = (_field_at(on, visit.text(name)) for name in ("down", "across"))
    shown: dict[str, Any] = {
        "schema": on.schema,
        "query": on.query,
        "said": on.question.says(on.types),
    }
    try:
        return visit.render("pair.html", map=await draw_heat_map(visit, on, down, across), **shown)
    except ErsError as error:
        return visit.problem(error, "pair.html", map=None, **shown)


def _field(visit: Visit, on: SchemaQuestion) -> str:
    return _field_at(on, visit.part("position"))


def _field_at(on: SchemaQuestion, position: str) -> str:
    for at, name in enumerate(on.types):
        if position == str(at):
            return name
    raise NotFound("there is no such field")


def _refuse(visit: Visit, error: ErsError) -> Response:
    """The error instead of the picture; the others stay."""
    return visit.render("facet.html", problems.status_of(error), one=None, failed=error)


routes = [
    moved("/schemas/{id}/look/", "/schemas/{id}/overview/"),
    page("/schemas/{id}/overview/", overview, methods=("GET", "POST"), changes=False),
    page("/schemas/{id}/pair/", pair, methods=("POST",), changes=False),
    page("/schemas/{id}/facet/{position}/", facet, methods=("POST",), changes=False, part=True),
    page("/schemas/{id}/complete/", complete, methods=("POST",), changes=False, part=True),
]
