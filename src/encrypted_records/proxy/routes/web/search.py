"""Search: filters, sorted columns, pages, export. What is asked stays on the visitor's desk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from encrypted_records.errors import ErsError
from encrypted_records.proxy.routes.web.question import PAGE_RECORDS, PHRASES, Filter, Question
from encrypted_records.proxy.routes.web.visit import Visit, page

_FORMATS = {"csv": "text/csv", "ndjson": "application/x-ndjson"}


@dataclass(frozen=True, slots=True)
class Searched:
    """A schema that is being searched: ``types`` of its fields by name, in their order."""

    schema: dict[str, Any]
    types: dict[str, str]
    question: Question


async def searched(visit: Visit) -> Searched:
    """The schema in the page's path and the question that this visitor has about it."""
    schema = await visit.ask("GET", f"/api/schemas/{visit.id}/")
    types = {name: one["type"] for name, one in schema["schema"]["properties"].items()}
    question = visit.desk.item(("search", schema["id"]), Question)
    return Searched(schema, types, question)


async def search(visit: Visit) -> Response:
    """The form changes the question and leads back here, where it is asked."""
    on = await searched(visit)
    if visit.sends:
        _change(visit, on)
        return visit.go(f"/schemas/{visit.id}/search/")
    question = on.question
    found: dict[str, Any] = {"count": None, "results": [], "next_cursor": None}
    problem: ErsError | None = None
    try:
        asked = question.body(on.schema["url"], on.types)
        cursor = question.pages[-1] if question.pages else None
        found = await visit.ask(
            "POST",
            "/api/records/search/",
            {**asked, "limit": PAGE_RECORDS, "count": True, "cursor": cursor},
        )
    except ErsError as error:
        problem = error
    shown: dict[str, Any] = {
        "schema": on.schema,
        "types": on.types,
        "phrases": PHRASES,
        "question": question,
        "found": found,
        "first": len(question.pages) * PAGE_RECORDS + 1,
        "formats": _FORMATS,
    }
    if problem is not None:
        return visit.problem(problem, "search.html", **shown)
    return visit.render("search.html", **shown)


def _change(visit: Visit, on: Searched) -> None:
    """What the button that was pressed says."""
    question = on.question
    do, _, target = visit.text("do").partition(":")
    match do:
        case "next":
            question.pages.append(visit.text("cursor"))
        case "previous":
            del question.pages[-1:]
        case "sort":
            question.sort(target)
        case "clear":
            visit.desk.put(("search", on.schema["id"]), Question())
        case _:
            question.take(visit.form, on.types)
            if do == "add":
                name = next(iter(on.types), "")
                question.filters.append(Filter(name, next(iter(PHRASES[on.types[name]]))))
            if do == "remove" and target.isdecimal():
                del question.filters[int(target) : int(target) + 1]


async def export(visit: Visit) -> Response:
    """All records that the question finds, as a file, while they are being found."""
    on = await searched(visit)
    kind = visit.text("format")
    chosen = kind if kind in _FORMATS else "csv"
    asked = on.question.body(on.schema["url"], on.types) | {"format": chosen}
    name = f'attachment; filename="{on.schema["slug"]}.{chosen}"'
    return visit.hand_on("/api/records/export/", asked, {"content-disposition": name})


routes = [
    page("/schemas/{id}/search/", search, methods=("GET", "POST")),
    page("/schemas/{id}/export/", export, methods=("POST",)),
]
