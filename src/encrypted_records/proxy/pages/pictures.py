"""Pictures of fields, measured on the encrypted index: how values are spread, and how often each.

A picture of what filters find shows the whole schema behind it. Both are then shares of their own
records, so that the two can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from encrypted_records.proxy.pages import formatting as words
from encrypted_records.proxy.pages.page import Visit
from encrypted_records.proxy.pages.question_changes import write_pick
from encrypted_records.proxy.pages.questions import SchemaQuestion
from encrypted_records.proxy.pages.search_form import is_listed

BINS = 20
#: Dates and instants are counted by the shortest of these that gives no more bars than this.
PERIODS, MOST_PERIODS = ("day", "month", "year"), 24
DATED = ("date", "date-time")
TOP_VALUES = 8
_QUARTILES = (25, 50, 75)
#: The share of one bar above which the others are drawn once more.
_STEEP = 0.8
_NAMES = ("lower quartile", "median", "upper quartile")


@dataclass(frozen=True, slots=True)
class Bar:
    """One value, or one stretch of numbers.

    ``length`` is of the longest bar of its picture, in percent, and ``behind`` the same of the
    whole schema; ``said`` tells the count, and the share where it helps; ``pick`` is the filter.
    """

    label: str
    count: int
    length: float
    behind: float
    said: str
    pick: str
    low: str = ""
    high: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """One field: of strings the most frequent of ``distinct`` values, of numbers a histogram.

    ``ticks`` are three marks of the scale of heights, the highest first; ``figures`` are names
    and numbers, such as the median. ``unique``: no value is there twice. ``steep``: one bar has
    nearly all records, so that others can be seen on a logarithmic scale only.
    """

    name: str
    type: str
    position: int
    total: int
    present: int
    missing: Bar | None
    bars: list[Bar]
    distinct: int = 0
    unique: bool = False
    filtered: bool = False
    steep: bool = False
    ticks: tuple[str, ...] = ()
    figures: list[tuple[str, str]] = field(default_factory=list)

    def on_a_logarithmic_scale(self) -> Picture:
        """The same of what is found alone, with tens and hundreds at the same distance."""
        highest = max(bar.count for bar in self.bars)
        top = math.log10(1 + highest)
        bars = [
            replace(bar, length=100 * math.log10(1 + bar.count) / top, behind=0.0)
            for bar in self.bars
        ]
        middle = math.sqrt(1 + highest) - 1
        ticks = (words.short(highest), words.short(round(middle)), "0")
        return replace(self, bars=bars, filtered=False, steep=False, ticks=ticks)

    @property
    def least(self) -> str:
        return self.bars[0].low if self.bars else ""

    @property
    def most(self) -> str:
        return self.bars[-1].high if self.bars else ""


@dataclass(frozen=True, slots=True)
class _Measurement:
    """Of one field and some records: how many there are, how many have it, and its measure."""

    total: int
    present: int
    items: Sequence[Mapping[str, Any]]
    distinct: int = 0
    period: str = ""
    figures: Sequence[tuple[str, str]] = ()


async def draw_picture(visit: Visit, on: SchemaQuestion, name: str) -> Picture:
    """The picture of a field of what the filters find.

    Raises:
        ErsError: as /api/records/aggregate/ does.
    """
    where = on.question.where(on.types)
    whole = await _measure(visit, on, name, None)
    if where is None or not whole.items:
        return _picture(on, name, whole, None)
    if is_listed(on.types[name]):
        found = await _measure(visit, on, name, where, period=whole.period)
        values = [item["value"] for item in found.items]
        among = {"field": name, "op": "in", "value": values}
        period = whole.period
        known = await _measure(visit, on, name, among, period=period) if values else whole
        behind = {item["value"]: item["count"] for item in known.items}
        return _picture(on, name, found, [behind.get(value, 0) for value in values], whole.present)
    found = await _measure(visit, on, name, where, _bounds(on, name, whole))
    # The bins of the whole schema, with what is found in each.
    counts = [item["count"] for item in found.items]
    bins = [{**item, "count": count} for item, count in zip(whole.items, counts, strict=True)]
    behind_counts = [item["count"] for item in whole.items]
    return _picture(on, name, replace(found, items=bins), behind_counts, whole.present)


async def draw_suggestions(visit: Visit, on: SchemaQuestion, name: str, typed: str) -> Picture:
    """The picture of a field of the whole schema: of texts, those that begin as ``typed`` does, if
    any does.

    Raises:
        ErsError: as /api/records/aggregate/ does.
    """
    if on.types[name] == "string" and typed:
        beginning = {"field": name, "op": "prefix", "value": typed}
        found = await _measure(visit, on, name, beginning)
        if found.items:
            return _picture(on, name, found, None)
    return _picture(on, name, await _measure(visit, on, name, None), None)


def _bounds(on: SchemaQuestion, name: str, whole: _Measurement) -> list[Any]:
    """The bins of the whole schema: where each begins, and what is above the last."""
    spec = on.schema["schema"]["properties"][name]
    step = Decimal(1).scaleb(-int(spec.get("precision", 0) if spec["type"] == "number" else 0))
    return [*(item["from"] for item in whole.items), Decimal(whole.items[-1]["to"]) + step]


async def _measure(
    visit: Visit,
    on: SchemaQuestion,
    name: str,
    where: Any,
    bounds: Sequence[Any] | None = None,
    *,
    period: str = "",
) -> _Measurement:
    if on.types[name] in DATED:
        return await _measure_periods(visit, on, name, where, period)
    measures: list[dict[str, Any]] = [{"op": "count"}, {"op": "count", "field": name}]
    if is_listed(on.types[name]):
        measures.append({"op": "distinct", "field": name, "limit": TOP_VALUES, "order": "-count"})
    else:
        bins = {"bounds": list(bounds)} if bounds else {"bins": BINS}
        measures.append({"op": "histogram", "field": name, **bins})
        measures.append({"op": "avg", "field": name})
        measures.append({"op": "percentile", "field": name, "p": list(_QUARTILES)})
    body = {"schema": on.schema["url"], "where": where, "measures": measures}
    answer = await visit.ask("POST", "/api/records/aggregate/", body)
    total, present, spread, *more = answer["measures"]
    if is_listed(on.types[name]):
        values = spread["values"] or []
        return _Measurement(total["value"], present["value"], values, spread["count"] or 0)
    figures: list[tuple[str, str]] = []
    if present["value"]:
        mean, quartiles = more
        figures.append(("mean", words.rounded(mean["value"])))
        together = zip(_NAMES, quartiles["values"], strict=True)
        figures += [(label, words.grouped(one["value"])) for label, one in together]
    return _Measurement(total["value"], present["value"], spread["bins"] or [], figures=figures)


async def _measure_periods(
    visit: Visit, on: SchemaQuestion, name: str, where: Any, period: str
) -> _Measurement:
    """How many records each day, month or year has.

    Args:
        period: the one to take; empty for the shortest that gives few bars.
    """
    counts: list[dict[str, Any]] = [{"op": "count"}, {"op": "count", "field": name}]
    body = {"schema": on.schema["url"], "where": where, "measures": counts}
    answer = await visit.ask("POST", "/api/records/aggregate/", body)
    total, present = (one["value"] for one in answer["measures"])
    for by in (period,) if period else PERIODS:
        # One more than the bars, for the records that have no date.
        grouped = {
            **body,
            "measures": counts[:1],
            "group_by": [{"field": name, "by": by}],
            "limit": MOST_PERIODS + 1,
            "order": "-count" if by == PERIODS[-1] else "value",
        }
        answer = await visit.ask("POST", "/api/records/aggregate/", grouped)
        if answer["total"] - (total > present) <= MOST_PERIODS:
            break
    items = [
        {"value": one["group"][name], "count": one["measures"][0]["value"]}
        for one in answer["groups"]
        if one["group"][name] is not None
    ]
    items.sort(key=lambda item: str(item["value"]))
    return _Measurement(total, present, items[:MOST_PERIODS], period=by)


def _picture(
    on: SchemaQuestion,
    name: str,
    measurement: _Measurement,
    behind: Sequence[int] | None,
    all_present: int = 0,
) -> Picture:
    kind = "string" if is_listed(on.types[name]) else on.types[name]
    present = measurement.present
    counts = [int(item["count"]) for item in measurement.items]
    if behind is None:
        heights, grey = [float(count) for count in counts], [0.0] * len(counts)
    else:
        heights = [count / (present or 1) for count in counts]
        grey = [count / (all_present or 1) for count in behind]
    highest = max([*heights, *grey], default=1) or 1
    if kind != "string":
        highest = _round_up(highest) if behind is None else _round_up(100 * highest) / 100
    bars = [
        _bar(name, kind, item, present, 100 * height / highest, 100 * shade / highest)
        for item, height, shade in zip(measurement.items, heights, grey, strict=True)
    ]
    if behind is None:
        ticks = tuple(words.short(highest * part) for part in (1, 0.5, 0))
    else:
        ticks = tuple(words.percent(highest * part, 1) for part in (1, 0.5, 0))
    missing = None
    if measurement.total > present:
        lacking = measurement.total - present
        label = words.percent(lacking, measurement.total)
        missing = Bar(label, lacking, 0, 0, "", write_pick(name, "missing", []))
    return Picture(
        name,
        kind,
        list(on.types).index(name),
        measurement.total,
        present,
        missing,
        bars,
        measurement.distinct,
        unique=kind == "string" and 1 < present == measurement.distinct,
        filtered=behind is not None,
        steep=max(counts, default=0) > _STEEP * present,
        ticks=ticks,
        figures=list(measurement.figures),
    )


def _round_up(highest: float) -> float:
    """The end of a scale: a number whose half is easy to read, too."""
    unit = 10.0 ** math.floor(math.log10(highest))
    steps = (2, 4, 6, 8, 10) if unit == 1 else (1, 2, 3, 4, 5, 6, 8, 10)
    return next(unit * step for step in steps if highest <= unit * step * 1.0001)


def _bar(
    name: str, kind: str, item: Mapping[str, Any], present: int, length: float, behind: float
) -> Bar:
    count = int(item["count"])
    said = f"{words.format_count(count, 'record')} ({words.percent(count, present)})"
    if kind == "string":
        value = words.plain(item["value"])
        pick = write_pick(name, "eq", [value])
        return Bar(value, count, length, behind, said, pick)
    low, high = words.plain(item["from"]), words.plain(item["to"])
    ends = [words.grouped(item[end]) for end in ("from", "to")]
    label = "\N{EN DASH}".join(dict.fromkeys(ends))
    pick = write_pick(name, "between", [low, high])
    return Bar(label, count, length, behind, said, pick, low, high)
