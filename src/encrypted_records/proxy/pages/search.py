"""Records of a schema: filters, sorted columns, pages, export, and why nothing was found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.responses import Response

from encrypted_records.client.sdk.condition_language import NotUnderstood
from encrypted_records.errors import BadInput, ErsError, NotAuthenticated
from encrypted_records.model.queries import MAX_OFFSET
from encrypted_records.proxy.pages import formatting as words
from encrypted_records.proxy.pages import record_table
from encrypted_records.proxy.pages.frame import keep_count
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.questions import (
    SchemaQuestion,
    SearchCounts,
    answer_question,
    find_question,
    keep_question,
    measure,
    show_answer,
)
from encrypted_records.proxy.pages.record_table import (
    Links,
    columns_of,
    write_facets,
    write_heads,
    write_menus,
    write_rows,
)
from encrypted_records.proxy.pages.records import PageMessage, RestorableRecords
from encrypted_records.proxy.pages.search_form import (
    PAGE_RECORDS,
    SHOWN_OF_PART,
    Question,
    condition_of,
    is_text,
)

# --- why nothing was found ------------------------------------------------------------------------

#: Maximum parts of the question that are examined, and spellings of a text that are shown.
_MOST_PARTS = 6
_MOST_SPELLINGS = 3


_cut = partial(words.shortened, most=SHOWN_OF_PART)


@dataclass(frozen=True, slots=True)
class ReasonText:
    """A sentence without its full stop; ``offers`` are buttons of the page, each with its text."""

    text: str
    offers: tuple[tuple[str, str], ...] = ()


async def explain_nothing(visit: Visit, on: SchemaQuestion) -> list[ReasonText]:
    """The parts of the question that exclude everything, if that is cheap to determine."""
    reasons: list[ReasonText] = []
    says = on.question.says(on.types)
    for at, part in enumerate(on.question.parts[:_MOST_PARTS]):
        try:
            where = condition_of(part, on.types)
            reasons += await _explain(visit, on, at, where, says[at] if len(says) > 1 else "")
        except ErsError:
            continue  # an optional part of the answer
    return reasons


async def _explain(
    visit: Visit, on: SchemaQuestion, at: int, where: dict[str, Any], part: str
) -> list[ReasonText]:
    """
    Args:
        part: the part, if it is not the only part.
    """
    name, op, value = where.get("field", ""), where.get("op", ""), where.get("value")
    if op == "between" and value and value[0] > value[1]:
        low, high = map(words.plain, value)
        return [ReasonText(f"{name}: {low} is above {high}; swap the two")]
    reasons = []
    (counted,) = await measure(visit, on, where)
    count = int(counted["value"])
    if part:
        found = words.format_count(count, "record") if count else "none"
        reasons.append(ReasonText(f"{part}: alone, {found}"))
    is_exact = name in on.types and is_text(on.types[name]) and not where.get("fold")
    if count or value is None or not is_exact or op not in ("eq", "in", "prefix"):
        return reasons
    texts: list[str] = value if op == "in" else [value]
    for typed in texts[:_MOST_SPELLINGS]:
        stored = await _find_spellings(visit, on, where, typed)
        if stored:
            offers = [(f"value:{at}:{text}", f"{_cut(text)}: {many:,}") for text, many in stored]
            reasons.append(ReasonText(f"{_cut(typed)}: none;", tuple(offers)))
    if op != "in":
        offer = (f"loosen:{at}", "anywhere in it, ignoring case and accents")
        reasons.append(ReasonText(f"{name}: search for {_cut(value)}", (offer,)))
    return reasons


async def _find_spellings(
    visit: Visit, on: SchemaQuestion, where: dict[str, Any], typed: str
) -> list[tuple[str, int]]:
    """The stored texts that differ from a typed text only in case and outer blanks, with the number
    of records of each.
    """
    spelled = list(_spellings(typed))
    if not spelled:
        return []
    name = where["field"]
    condition: dict[str, Any] = {"field": name, "op": "in", "value": spelled}
    if where["op"] == "prefix":
        condition = {"or": [{"field": name, "op": "prefix", "value": it} for it in spelled]}
    values = {"op": "distinct", "field": name, "limit": _MOST_SPELLINGS, "order": "-count"}
    (found,) = await measure(visit, on, condition, values)
    return [(item["value"], item["count"]) for item in found["values"]]


def _spellings(typed: str) -> Iterator[str]:
    bare = typed.strip()
    forms = (bare, bare.lower(), bare.upper(), bare.capitalize(), bare.title(), bare.casefold())
    yield from dict.fromkeys(form for form in forms if form and form != typed)


# --- the page -------------------------------------------------------------------------------------

#: Relative to the address of the page: these are shorter than addresses below the secret path.
_RECORDS, _SCHEMA = "../../../records/", "../"
_FORMATS = {"csv": "text/csv", "ndjson": "application/x-ndjson"}


async def search(visit: Visit) -> Response:
    """The records, by the schema as it was shown last unless that was changed since."""
    on = await find_question(visit, early=True)
    try:
        response = await answer_question(visit, on, "search", _show)
        if not await on.is_outdated(visit):
            return response
        visit.refusal = None
    except BadInput:
        # The button may be for a field that is newer than the cached schema.
        on.in_doubt = True
        if not await on.is_outdated(visit):
            raise
    return await answer_question(visit, await find_question(visit), "search", _show)


async def _show(visit: Visit, on: SchemaQuestion, misread: NotUnderstood | None = None) -> Response:
    question = on.question
    problem = misread or on.refused
    answer: dict[str, Any] = {"count": None, "results": [], "next_cursor": None}
    reasons: list[ReasonText] = []
    sealed: dict[str, Any] = {}
    try:
        if on.down is not None:
            raise on.down
        if misread is not None and visit.is_for_part:
            raise misread  # the page keeps the previous answer
        query = question.body(on.schema.url, on.types)
        answer = await _ask(visit, question, query)
        visit.desk.item(("searches",), SearchCounts).add()
        if not question.parts:
            keep_count(visit.desk, visit.id, answer["count"])
        if question.start and not answer["results"] and answer["count"]:
            question.begin()  # beyond the end: go to the last page
            question.go_to(str(max(0, answer["count"] - PAGE_RECORDS)))
            answer = await _ask(visit, question, query)
        if answer["count"] == 0:
            reasons = await explain_nothing(visit, on)
        if question.sealed:
            sealed = await record_table.fetch_sealed(
                visit, [result["id"] for result in answer["results"]]
            )
        known = on.types.keys()
        on.in_doubt = any(not result["data"].keys() <= known for result in answer["results"])
    except NotAuthenticated:  # this browser has to be registered first
        raise
    except ErsError as error:
        problem = misread or error
        on.in_doubt = True
    ids = tuple(result["id"] for result in answer["results"])
    if answer["count"] is not None:  # otherwise the page shows the previous records
        visit.desk.put(("found", visit.id, on.name), ids)
    opened = f"{on.query}{'&' if on.query else '?'}sealed" if question.sealed else on.query
    definition = on.schema.definition
    seen = columns_of(definition, on.types, question.hidden)
    look = f"{_SCHEMA}overview/{on.query}"
    message = visit.desk.take(("said", visit.id), PageMessage)
    gone = ("gone", visit.id, message.gone if message else "")
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
        "message": message,
        "gone": visit.desk.find(gone, RestorableRecords),
        "misread": misread,
        "found": answer,
        "sealed": sealed,
        "reasons": reasons,
        "first": question.first,
        "tally": visit.tally,
        "cost": visit.cost,
        "columns": len(seen),
        "furthest": MAX_OFFSET + 1,
        "formats": _FORMATS,
        "rows": write_rows(
            answer["results"], seen, sealed, Links(_RECORDS, opened), question.first
        ),
    }
    return show_answer(visit, "search.html", problem, **shown)


async def _ask(visit: Visit, question: Question, query: dict[str, Any]) -> dict[str, Any]:
    """The answer's page for the question's position."""
    if question.pages:
        where: dict[str, Any] = {"cursor": question.pages[-1]}
    else:
        where = {"offset": question.start}
    body = {**query, "limit": PAGE_RECORDS, "count": True, **where}
    return (await visit.answer("POST", "/api/records/search/", body)).read(dict[str, Any])


async def export(visit: Visit) -> Response:
    """All records that match, as a file, which is streamed.

    A refusal leads back to the page, which shows it.
    """
    on = await find_question(visit)
    kind = visit.text("format")
    chosen = kind if kind in _FORMATS else "csv"
    name = f"{on.schema.slug}.{chosen}"

    try:
        if on.down is not None:
            raise on.down
        query = on.question.body(on.schema.url, on.types) | {"format": chosen}
        if chosen == "csv" and visit.text("safe_cells"):
            query["safe_cells"] = True
        return await visit.hand_on(
            "POST", "/api/records/export/", name, _FORMATS[chosen], body=query
        )
    except ErsError as error:
        keep_question(visit, on)
        visit.desk.put(("refused", visit.id, on.name), error)
        return visit.go(f"/schemas/{visit.id}/search/{on.query}")


routes = [
    page("/schemas/{id}/search/", search, methods=("GET", "POST"), changes=False),
    page("/schemas/{id}/export/", export, methods=("POST",), changes=False),
]
