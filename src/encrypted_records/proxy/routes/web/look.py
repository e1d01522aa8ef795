"""Look: a picture of every field, from the sealed index; a click on a bar filters by it.

The pictures are of the records that the visitor's filters find, which the search page shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import Response

from encrypted_records.errors import BadInput, ErsError, Malformed
from encrypted_records.model import strict_json
from encrypted_records.proxy.routes.web import words
from encrypted_records.proxy.routes.web.question import PHRASES, Filter
from encrypted_records.proxy.routes.web.search import Searched, searched
from encrypted_records.proxy.routes.web.visit import Visit, page

BINS = 20
TOP_VALUES = 8
#: A request takes 32 measures: how many records there are, and two of each field.
_FIELDS_AT_ONCE = 15


@dataclass(frozen=True, slots=True)
class Bar:
    """``share`` is of the longest bar, in percent; ``pick`` the filter that a click adds."""

    label: str
    count: int
    share: float
    pick: str


@dataclass(frozen=True, slots=True)
class Picture:
    """One field: of strings the most frequent of ``distinct`` values, of numbers a histogram
    from ``least`` to ``most``."""

    name: str
    type: str
    present: int
    missing: Bar | None
    bars: list[Bar]
    distinct: int = 0
    least: str = ""
    most: str = ""


async def look(visit: Visit) -> Response:
    on = await searched(visit)
    if visit.sends:
        _change(visit, on)
        return visit.go(f"/schemas/{visit.id}/look/")
    total = 0
    pictures: list[Picture] = []
    problem: ErsError | None = None
    try:
        total, pictures = await _pictures(visit, on)
    except ErsError as error:
        problem = error
    shown: dict[str, Any] = {
        "schema": on.schema,
        "filters": [
            (one.name, one.phrases(on.types).get(one.op, ("", 0))[0], one.values)
            for one in on.question.filters
        ],
        "any_of": on.question.any_of,
        "total": total,
        "pictures": pictures,
    }
    if problem is not None:
        return visit.problem(problem, "look.html", **shown)
    return visit.render("look.html", **shown)


def _change(visit: Visit, on: Searched) -> None:
    """Add the filter that a bar stands for, or take one away."""
    do, _, target = visit.text("do").partition(":")
    if do == "remove" and target.isdecimal():
        del on.question.filters[int(target) : int(target) + 1]
    if do == "pick":
        on.question.filters.append(_picked(target, on))
        on.question.any_of = False
    on.question.pages = []


def _picked(text: str, on: Searched) -> Filter:
    try:
        name, op, values = strict_json.loads(text.encode())
        known = op in PHRASES[on.types[name]] and isinstance(values, list)
    except (Malformed, ValueError, TypeError, KeyError):
        known = False
    if not known:
        raise BadInput("this is no bar of the page", hint="load the page again")
    return Filter(name, op, [str(value) for value in values])


async def _pictures(visit: Visit, on: Searched) -> tuple[int, list[Picture]]:
    """How many records the filters find, and what they look like."""
    asked = on.question.body(on.schema["url"], on.types)
    asked.pop("order_by", None)
    names = list(on.types)
    total = 0
    pictures: list[Picture] = []
    for start in range(0, len(names), _FIELDS_AT_ONCE):
        some = names[start : start + _FIELDS_AT_ONCE]
        measures = [measure for name in some for measure in _measures(name, on.types[name])]
        body = {**asked, "measures": [{"op": "count"}, *measures]}
        answer = await visit.ask("POST", "/api/records/aggregate/", body)
        counted, *found = answer["measures"]
        total = counted["value"]
        for name, count, drawn in zip(some, found[::2], found[1::2], strict=True):
            pictures.append(_picture(name, on.types[name], total, count["value"], drawn))
    return total, pictures


def _measures(name: str, kind: str) -> Iterator[dict[str, Any]]:
    yield {"op": "count", "field": name}
    if kind == "string":
        yield {"op": "distinct", "field": name, "limit": TOP_VALUES, "order": "-count"}
    else:
        yield {"op": "histogram", "field": name, "bins": BINS}


def _picture(name: str, kind: str, total: int, present: int, drawn: dict[str, Any]) -> Picture:
    missing = None
    if total > present:
        share = 100 * (total - present) / total
        missing = Bar(f"{share:.1f} %", total - present, share, _pick(name, "missing", []))
    if kind == "string":
        values = drawn["values"] or []
        most = max((one["count"] for one in values), default=1)
        bars = [
            Bar(
                one["value"],
                one["count"],
                100 * one["count"] / most,
                _pick(name, "eq", [one["value"]]),
            )
            for one in values
        ]
        return Picture(name, kind, present, missing, bars, drawn["count"] or 0)
    bins = drawn["bins"] or []
    most = max((one["count"] for one in bins), default=1) or 1
    bars = []
    for one in bins:
        ends = [words.plain(one["from"]), words.plain(one["to"])]
        share = 100 * one["count"] / most
        label = f"{ends[0]} to {ends[1]}" if ends[0] != ends[1] else ends[0]
        bars.append(Bar(label, one["count"], share, _pick(name, "between", ends)))
    ends = [words.plain(one) for one in ((bins[0]["from"], bins[-1]["to"]) if bins else ("", ""))]
    return Picture(name, kind, present, missing, bars, least=ends[0], most=ends[1])


def _pick(name: str, op: str, values: list[str]) -> str:
    return msgspec.json.encode([name, op, values]).decode()


routes = [page("/schemas/{id}/look/", look, methods=("GET", "POST"))]
