"""Explanations of empty results, and suggestions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from encrypted_records.errors import ErsError
from encrypted_records.proxy.pages import formatting as words
from encrypted_records.proxy.pages.page import Visit
from encrypted_records.proxy.pages.questions import SchemaQuestion
from encrypted_records.proxy.pages.search_form import condition_of, is_text, shorten

#: Parts of the question that are looked at, and spellings of a text that are shown.
_MOST_PARTS = 6
_MOST_SPELLINGS = 3


@dataclass(frozen=True, slots=True)
class ReasonText:
    """A sentence without its full stop; ``offers`` are buttons of the page, each with its text."""

    said: str
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
            continue  # the answer stands without it
    return reasons


async def _explain(
    visit: Visit, on: SchemaQuestion, at: int, where: dict[str, Any], said: str
) -> list[ReasonText]:
    """
    Args:
        said: the part, where it is not alone.
    """
    name, op, value = where.get("field", ""), where.get("op", ""), where.get("value")
    if op == "between" and value and value[0] > value[1]:
        low, high = map(words.plain, value)
        return [ReasonText(f"{name}: {low} is above {high}; swap the two")]
    reasons = []
    count = await _count(visit, on, where)
    if said:
        found = words.format_count(count, "record") if count else "none"
        reasons.append(ReasonText(f"{said}: alone, {found}"))
    is_exact = name in on.types and is_text(on.types[name]) and not where.get("fold")
    if count or value is None or not is_exact or op not in ("eq", "in", "prefix"):
        return reasons
    texts: list[str] = value if op == "in" else [value]
    for typed in texts[:_MOST_SPELLINGS]:
        stored = await _find_spellings(visit, on, where, typed)
        if stored:
            offers = [(f"value:{at}:{text}", f"{shorten(text)}: {many:,}") for text, many in stored]
            reasons.append(ReasonText(f"{shorten(typed)}: none;", tuple(offers)))
    if op != "in":
        offer = (f"loosen:{at}", "anywhere in it, ignoring case and accents")
        reasons.append(ReasonText(f"{name}: search for {shorten(value)}", (offer,)))
    return reasons


async def _count(visit: Visit, on: SchemaQuestion, condition: dict[str, Any]) -> int:
    body = {"schema": on.schema["url"], "where": condition}
    answer = await visit.ask("POST", "/api/records/aggregate/", body)
    return int(answer["measures"][0]["value"])


async def _find_spellings(
    visit: Visit, on: SchemaQuestion, where: dict[str, Any], typed: str
) -> list[tuple[str, int]]:
    """The stored texts that differ from a typed one in letters' case and outer blanks only, with
    how many records have each."""
    spelled = list(_spellings(typed))
    if not spelled:
        return []
    name = where["field"]
    condition: dict[str, Any] = {"field": name, "op": "in", "value": spelled}
    if where["op"] == "prefix":
        condition = {"or": [{"field": name, "op": "prefix", "value": it} for it in spelled]}
    measure = {"op": "distinct", "field": name, "limit": _MOST_SPELLINGS, "order": "-count"}
    body = {"schema": on.schema["url"], "where": condition, "measures": [measure]}
    answer = await visit.ask("POST", "/api/records/aggregate/", body)
    return [(item["value"], item["count"]) for item in answer["measures"][0]["values"]]


def _spellings(typed: str) -> Iterator[str]:
    bare = typed.strip()
    forms = (bare, bare.lower(), bare.upper(), bare.capitalize(), bare.title(), bare.casefold())
    yield from dict.fromkeys(form for form in forms if form and form != typed)
