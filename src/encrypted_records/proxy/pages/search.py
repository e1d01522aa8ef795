"""Records of a schema: filters, sorted columns, pages, export."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from encrypted_records.client.sdk.condition_language import NotUnderstood
from encrypted_records.errors import BadInput, ErsError, NotAuthenticated
from encrypted_records.model.queries import MAX_OFFSET
from encrypted_records.proxy.pages import explanations, sealed_values
from encrypted_records.proxy.pages.cells import Links, write_rows
from encrypted_records.proxy.pages.column_heads import (
    columns_of,
    write_facets,
    write_heads,
    write_menus,
)
from encrypted_records.proxy.pages.frame import keep_count
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.question_changes import change
from encrypted_records.proxy.pages.questions import SchemaQuestion, find_question, keep_question
from encrypted_records.proxy.pages.records import DeletedRecords, PageMessage
from encrypted_records.proxy.pages.search_counts import SearchCounts
from encrypted_records.proxy.pages.search_form import PAGE_RECORDS, Question

#: From the address of the page: these are shorter than those below the secret path.
_RECORDS, _SCHEMA = "../../../records/", "../"
_FORMATS = {"csv": "text/csv", "ndjson": "application/x-ndjson"}
#: Where the answer to a script's request goes when it is a problem: what was found before stays.
_PROBLEM_ONLY = {"HX-Retarget": "#filters", "HX-Reselect": "#filters", "HX-Reswap": "outerHTML"}


async def search(visit: Visit) -> Response:
    """The form changes the question and leads to its address; a script gets the answer at once."""
    on = await find_question(visit, early=True)
    try:
        response = await _search(visit, on)
    except BadInput:
        # A button may be of a field that is newer than the schema that was taken.
        on.in_doubt = True
        if not await on.is_outdated(visit):
            raise
        return await _search(visit, await find_question(visit))
    if await on.is_outdated(visit):
        return await _search(visit, await find_question(visit))
    return response


async def _search(visit: Visit, on: SchemaQuestion) -> Response:
    if on.unknown:
        return visit.render("unknown_question.html", 404, schema=on.schema, page="search")
    if not visit.sends:
        return await _show(visit, on, on.refused)
    try:
        on.question = change(on.question, visit.text("do"), visit.form, on.schema["schema"])
    except NotUnderstood as error:
        # The line may be about a field that is newer than the schema that was taken.
        on.in_doubt = True
        on.question.typed = visit.text("ask").strip()
        return await _show(visit, on, error)
    kept = keep_question(visit, on)
    if kept and "hx-request" not in visit.request.headers:
        return visit.go(f"/schemas/{visit.id}/search/{on.query}")
    response = await _show(visit, on)
    header, address = on.address(visit, "search")
    response.headers[header] = address
    return response


async def _show(visit: Visit, on: SchemaQuestion, problem: ErsError | None = None) -> Response:
    question = on.question
    answer: dict[str, Any] = {"count": None, "results": [], "next_cursor": None}
    reasons: list[explanations.ReasonText] = []
    sealed: dict[str, Any] = {}
    misread = problem if isinstance(problem, NotUnderstood) else None
    try:
        if on.down is not None:
            raise on.down
        if misread is not None and visit.is_for_part:
            raise misread  # the page has the answer to what was asked before
        asked = question.body(on.schema["url"], on.types)
        answer = await _ask(visit, question, asked)
        visit.desk.item(("searches",), SearchCounts).add()
        if not question.parts:
            keep_count(visit.desk, visit.id, answer["count"])
        if question.start and not answer["results"] and answer["count"]:
            question.begin()  # beyond the last one: the last page of those that there are
            question.go_to(str(max(0, answer["count"] - PAGE_RECORDS)))
            answer = await _ask(visit, question, asked)
        if answer["count"] == 0:
            reasons = await explanations.explain_nothing(visit, on)
        if question.sealed:
            sealed = await sealed_values.fetch(
                visit, [result["id"] for result in answer["results"]]
            )
        known = on.types.keys()
        on.in_doubt = any(not result["data"].keys() <= known for result in answer["results"])
    except NotAuthenticated:  # this browser is to be let in first
        raise
    except ErsError as error:
        problem = misread or error
        on.in_doubt = True
    ids = tuple(result["id"] for result in answer["results"])
    if answer["count"] is not None:  # otherwise the page still shows those of before
        visit.desk.put(("found", visit.id, on.name), ids)
    opened = f"{on.query}{'&' if on.query else '?'}sealed" if question.sealed else on.query
    definition = on.schema["schema"]
    seen = columns_of(definition, on.types, question.hidden)
    look = f"{_SCHEMA}overview/{on.query}"
    shown: dict[str, Any] = {
        "schema": on.schema,
        "types": on.types,
        "heads": write_heads(seen, question),
        "menus": write_menus(seen, look),
        "facets": write_facets(columns_of(definition, on.types), _SCHEMA),
        "look": look,
        "question": question,
        "query": on.query,
        "q": on.name,
        "said": visit.desk.take(("said", visit.id), PageMessage),
        "gone": visit.desk.find(("gone", visit.id), DeletedRecords),
        "misread": misread,
        "found": answer,
        "sealed": sealed,
        "reasons": reasons,
        "first": question.first,
        "tally": visit.tally,
        "asked": visit.asked,
        "columns": len(seen),
        "furthest": MAX_OFFSET + 1,
        "formats": _FORMATS,
        "rows": write_rows(
            answer["results"], seen, sealed, Links(_RECORDS, opened), question.first
        ),
    }
    if problem is None:
        return visit.render("search.html", **shown)
    response = visit.problem(problem, "search.html", **shown)
    response.headers.update(_PROBLEM_ONLY)
    return response


async def _ask(visit: Visit, question: Question, asked: dict[str, Any]) -> dict[str, Any]:
    """The page of the answer that the question is at."""
    if question.pages:
        where: dict[str, Any] = {"cursor": question.pages[-1]}
    else:
        where = {"offset": question.start}
    body = {**asked, "limit": PAGE_RECORDS, "count": True, **where}
    answered = await visit.answer("POST", "/api/records/search/", body)
    found: dict[str, Any] = answered.records()
    return found


async def export(visit: Visit) -> Response:
    """All records that match, as a file, which is sent while they are found.

    A refusal leads back to the page, which says it.
    """
    on = await find_question(visit)
    kind = visit.text("format")
    chosen = kind if kind in _FORMATS else "csv"
    name = f"{on.schema['slug']}.{chosen}"

    async def refuse(error: ErsError) -> Response:
        keep_question(visit, on)
        visit.desk.put(("refused", visit.id, on.name), error)
        return visit.go(f"/schemas/{visit.id}/search/{on.query}")

    try:
        if on.down is not None:
            raise on.down
        asked = on.question.body(on.schema["url"], on.types) | {"format": chosen}
    except ErsError as error:
        return await refuse(error)
    if chosen == "csv" and visit.text("safe_cells"):
        asked["safe_cells"] = True
    return visit.hand_on("POST", "/api/records/export/", name, body=asked, refused=refuse)


routes = [
    page("/schemas/{id}/search/", search, methods=("GET", "POST"), changes=False),
    page("/schemas/{id}/export/", export, methods=("POST",), changes=False),
]
