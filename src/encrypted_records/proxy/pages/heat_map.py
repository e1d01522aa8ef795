"""Two fields against each other: how many records have both, from aggregates of the index.

Texts are grouped by their most common values, numbers by intervals of one width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from encrypted_records.errors import BadInput
from encrypted_records.model.field_types.plain import step_of
from encrypted_records.proxy.pages import formatting as words
from encrypted_records.proxy.pages.page import Visit
from encrypted_records.proxy.pages.questions import SchemaQuestion
from encrypted_records.proxy.pages.search_form import is_listed

TOP_VALUES = 8
BINS = 8
#: How many shades a cell may have, beside none.
SHADES = 8


@dataclass(frozen=True, slots=True)
class Stretch:
    """A row or column of the heat map: a text, or the numbers from ``low`` on, below ``above``."""

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
    """``shade`` is from 0, of none, to :data:`SHADES`, of the most."""

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
    """The rows or columns that a field gives."""
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
    """The least difference of two values of a number."""
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
    """How many records of one row are in each of the columns."""
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
