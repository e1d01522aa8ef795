"""Overview: a picture of every field for the filtered records, each loaded separately.

The records page shows the same pictures; the most frequent values are completions. A heat map shows
two fields against each other: how many records have both, from aggregates of the index. It groups
texts by their most common values, and numbers by intervals of equal width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from starlette.responses import Response

from encrypted_records.client.sdk.condition_language import NotUnderstood
from encrypted_records.errors import BadInput, ErsError, NotFound
from encrypted_records.http import problem as problems
from encrypted_records.model.field_types.plain import step_of
from encrypted_records.proxy.pages import formatting as words
from encrypted_records.proxy.pages.completions import complete_line
from encrypted_records.proxy.pages.page import Visit, moved, page
from encrypted_records.proxy.pages.pictures import Bar, Picture, draw_picture, draw_suggestions
from encrypted_records.proxy.pages.questions import (
    SchemaQuestion,
    change_question,
    find_question,
    keep_question,
)
from encrypted_records.proxy.pages.search_form import is_listed

# --- two fields against each other ----------------------------------------------------------------

TOP_VALUES = 8
BINS = 8
#: Number of shades of a cell, besides none.
SHADES = 8


@dataclass(frozen=True, slots=True)
class Stretch:
    """A row or column of the heat map: a text, or the numbers from ``low`` (inclusive) to ``above``
    (exclusive).
    """

    label: str
    value: str | None = None
    low: Any = None
    above: Any = None

    def condition(self, name: str) -> dict[str, Any]:
        if self.value is not None:
            return {"field": name, "op": "eq", "value": self.value}
        return {
            "and": [
                {"field": name, "op": "ge", "value": self.low},
                {"field": name, "op": "lt", "value": self.above},
            ]
        }


@dataclass(frozen=True, slots=True)
class Cell:
    """``shade`` is from 0, for no records, to :data:`SHADES`, for the maximum."""

    count: int
    shade: int
    share: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    down: str
    across: str
    columns: list[str]
    rows: list[tuple[str, list[Cell]]]


async def draw_heat_map(visit: Visit, on: SchemaQuestion, down: str, across: str) -> HeatMap:
    """
    Raises:
        BadInput: a field against itself.
        ErsError: as /api/records/aggregate/ does.
    """
    if down == across:
        raise BadInput("these are the same field", hint="choose two")
    where = on.question.where(on.types)
    rows = await _divide(visit, on, down, where)
    columns = await _divide(visit, on, across, where)
    counts = [await _count(visit, on, where, row.condition(down), across, columns) for row in rows]
    most = max((count for line in counts for count in line), default=0)
    total = sum(count for line in counts for count in line)
    lines = [
        (row.label, [_cell(count, most, total) for count in line])
        for row, line in zip(rows, counts, strict=True)
    ]
    return HeatMap(down, across, [column.label for column in columns], lines)


def _cell(count: int, most: int, total: int) -> Cell:
    shade = -(-SHADES * count // most) if most else 0
    return Cell(count, shade, words.percent(count, total))


async def _divide(visit: Visit, on: SchemaQuestion, name: str, where: Any) -> list[Stretch]:
    """The rows or columns of a field."""
    if is_listed(on.types[name]):
        measure = {"op": "distinct", "field": name, "limit": TOP_VALUES, "order": "-count"}
        (found,) = await _measure(visit, on, where, measure)
        return [
            Stretch(words.plain(value["value"]) or "(empty)", value["value"])
            for value in found["values"] or []
        ]
    (found,) = await _measure(visit, on, where, {"op": "histogram", "field": name, "bins": BINS})
    bins = found["bins"] or []
    lows = [bin_["from"] for bin_ in bins]
    above = [*lows[1:], bins[-1]["to"] + _step(on, name)] if bins else []
    return [
        Stretch(_label(bin_), low=low, above=end)
        for bin_, low, end in zip(bins, lows, above, strict=True)
    ]


def _label(bin_: dict[str, Any]) -> str:
    ends = [words.grouped(bin_[end]) for end in ("from", "to")]
    return "\N{EN DASH}".join(dict.fromkeys(ends))


def _step(on: SchemaQuestion, name: str) -> Decimal | int:
    """The smallest difference between two values of a number field."""
    spec = on.schema["schema"]["properties"][name]
    return step_of(spec)


async def _count(
    visit: Visit,
    on: SchemaQuestion,
    where: Any,
    condition: dict[str, Any],
    across: str,
    columns: Sequence[Stretch],
) -> list[int]:
    """The number of one row's records in each of the columns."""
    both = condition if where is None else {"and": [where, condition]}
    if is_listed(on.types[across]):
        values = [column.value for column in columns]
        among = {"and": [both, {"field": across, "op": "in", "value": values}]}
        measure = {"op": "distinct", "field": across, "limit": len(values), "order": "-count"}
        (found,) = await _measure(visit, on, among, measure)
        counts = {value["value"]: int(value["count"]) for value in found["values"] or []}
        return [counts.get(value, 0) for value in values]
    bounds = [*(column.low for column in columns), columns[-1].above]
    measure = {"op": "histogram", "field": across, "bounds": bounds}
    (found,) = await _measure(visit, on, both, measure)
    return [int(bin_["count"]) for bin_ in found["bins"]]


async def _measure(visit: Visit, on: SchemaQuestion, where: Any, measure: dict[str, Any]) -> Any:
    body = {"schema": on.schema["url"], "where": where, "measures": [measure]}
    return (await visit.ask("POST", "/api/records/aggregate/", body))["measures"]


# --- pages ----------------------------------------------------------------------------------------


async def overview(visit: Visit) -> Response:
    on = await find_question(visit)
    if visit.sends:
        try:
            on.question = change_question(
                on.question, visit.text("do"), visit.form, on.schema["schema"]
            )
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
    """The frames of all pictures; with ``?all``, which is used without scripts, also the
    pictures.
    """
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
    """The picture of a field, as a fragment of a page: small for the records page, or large."""
    on = await find_question(visit)
    name = _field(visit, on)
    shown: dict[str, Any] = {"schema": on.schema, "large": visit.text("large") == "yes"}
    try:
        drawn = await draw_picture(visit, on, name)
    except ErsError as error:
        return _refuse(visit, error)
    return visit.render("facet.html", one=drawn, failed=None, **shown)


async def complete(visit: Visit) -> Response:
    """Completions for the line, with values from the index.

    The cached schema is used, so that typing sends the API no more than a search for the beginning
    of a value.
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
    """Two fields of the filtered records against each other, as a page and as a part of a page."""
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
    """The error instead of the picture; other pictures stay."""
    return visit.render("facet.html", problems.status_of(error), one=None, failed=error)


routes = [
    moved("/schemas/{id}/look/", "/schemas/{id}/overview/"),
    page("/schemas/{id}/overview/", overview, methods=("GET", "POST"), changes=False),
    page("/schemas/{id}/pair/", pair, methods=("POST",), changes=False),
    page("/schemas/{id}/facet/{position}/", facet, methods=("POST",), changes=False, part=True),
    page("/schemas/{id}/complete/", complete, methods=("POST",), changes=False, part=True),
]
