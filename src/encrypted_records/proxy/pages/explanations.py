"""Why nothing was found, and what would find something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from encrypted_records.errors import ErsError
from encrypted_records.model.field_types import BY_NAME
from encrypted_records.proxy.pages import formatting as words
from encrypted_records.proxy.pages.page import Visit
from encrypted_records.proxy.pages.questions import SchemaQuestion
from encrypted_records.proxy.pages.search_form import Filter, condition_of, number

#: Filters that are looked at, and spellings of a text that are shown.
_MOST_FILTERS = 6
_MOST_SPELLINGS = 3


@dataclass(frozen=True, slots=True)
class Reason:
    """A sentence without its full stop; ``offers`` are buttons of the page, each with its text."""

    said: str
    offers: tuple[tuple[str, str], ...] = ()


async def explain_nothing(visit: Visit, on: SchemaQuestion) -> list[Reason]:
    """Which filter keeps everything out, cheap enough to ask at once."""
    filters = [(at, one) for at, one in enumerate(on.question.filters) if one.is_filled(on.types)]
    reasons: list[Reason] = []
    for at, one in filters[:_MOST_FILTERS]:
        try:
            reasons += await _explain(visit, on, at, one, alone=len(filters) == 1)
        except ErsError:
            continue  # the answer stands without it
    return reasons


async def _explain(
    visit: Visit, on: SchemaQuestion, at: int, one: Filter, *, alone: bool
) -> list[Reason]:
    if _is_turned(one):
        low, high = one.first.strip(), one.second.strip()
        return [Reason(f"{one.name}: {low} is above {high}; swap the two")]
    reasons = []
    count = await _count(visit, on, condition_of(one, on.types, []))
    if not alone:
        found = words.format_count(count, "record") if count else "none"
        reasons.append(Reason(f"{' '.join(one.says(on.types)).strip()}: alone {found}"))
    is_text = one.name in on.types and BY_NAME[on.types[one.name]].is_text
    if not count and is_text and not one.folds(on.types) and one.op in ("eq", "in", "prefix"):
        for typed in one.values[:_MOST_SPELLINGS]:
            stored = await _find_spellings(visit, on, one, typed)
            if stored:
                offers = [(f"value:{at}:{text}", f"{text}: {many:,}") for text, many in stored]
                reasons.append(Reason(f"{typed}: none;", tuple(offers)))
    if not count and is_text and one.op in ("eq", "prefix"):
        offer = (f"loosen:{at}", "anywhere in it, in any spelling")
        reasons.append(Reason(f"{one.name}: look for {one.first}", (offer,)))
    return reasons


def _is_turned(one: Filter) -> bool:
    ends = [number(text, one.name, []) for text in (one.first, one.second)]
    low, high = ends
    return one.op == "between" and low is not None and high is not None and low > high


async def _count(visit: Visit, on: SchemaQuestion, condition: dict[str, Any]) -> int:
    body = {"schema": on.schema["url"], "where": condition}
    answer = await visit.ask("POST", "/api/records/aggregate/", body)
    return int(answer["measures"][0]["value"])


async def _find_spellings(
    visit: Visit, on: SchemaQuestion, one: Filter, typed: str
) -> list[tuple[str, int]]:
    """The stored texts that differ from a typed one in letters' case and outer blanks only, with
    how many records have each."""
    spelled = list(_spellings(typed))
    if not spelled:
        return []
    condition: dict[str, Any] = {"field": one.name, "op": "in", "value": spelled}
    if one.op == "prefix":
        condition = {"or": [{"field": one.name, "op": "prefix", "value": it} for it in spelled]}
    measure = {"op": "distinct", "field": one.name, "limit": _MOST_SPELLINGS, "order": "-count"}
    body = {"schema": on.schema["url"], "where": condition, "measures": [measure]}
    answer = await visit.ask("POST", "/api/records/aggregate/", body)
    return [(item["value"], item["count"]) for item in answer["measures"][0]["values"]]


def _spellings(typed: str) -> Iterator[str]:
    bare = typed.strip()
    forms = (bare, bare.lower(), bare.upper(), bare.capitalize(), bare.title(), bare.casefold())
    yield from dict.fromkeys(form for form in forms if form and form != typed)
