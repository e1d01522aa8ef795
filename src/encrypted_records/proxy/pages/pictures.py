"""Pictures of fields, measured on the encrypted index: histograms, and frequencies of values.

A picture of filtered records shows the whole schema behind them. Both are then shares of their own
totals, so that the two can be compared.
"""

from __future__ import annotations

import math
from calendar import monthrange
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

from encrypted_records.model.field_types import BY_NAME
from encrypted_records.model.field_types.plain import TEXT, step_of
from encrypted_records.proxy.pages import formatting as words
from encrypted_records.proxy.pages.page import Visit
from encrypted_records.proxy.pages.questions import SchemaQuestion, measure, write_pick
from encrypted_records.proxy.pages.search_form import is_dated, is_listed

BINS = 20
#: Periods for counting dates and instants, each with the number of periods per column; the first
#: that gives no more than this number of columns is used.
PERIODS, MOST_PERIODS = (("day", 1), ("month", 1), ("year", 1), ("year", 10), ("year", 100)), 100
#: Maximum number of periods in an answer of the API.
_MOST_AT_ONCE = 1000
TOP_VALUES = 8
_QUARTILES = (25, 50, 75)
#: Share of one bar above which the others are also drawn on a logarithmic scale.
_STEEP = 0.8
_NAMES = ("lower quartile", "median", "upper quartile")


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a picture: one value, or a range of numbers or days.

    ``length`` is in percent of the longest bar of the picture, and ``behind`` the same for the
    whole schema; ``caption`` is the count, with the share if useful; ``pick`` is the filter.
    """

    label: str
    count: int
    length: float
    behind: float
    caption: str
    pick: str
    low: str = ""
    high: str = ""
    #: whether the question filters by this value
    picked: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """The picture of a field: the most frequent of ``distinct`` values of strings, or a histogram
    of numbers and dates.

    ``ticks`` are three marks of the scale of heights, the highest first; ``figures`` are names and
    numbers, such as the median. ``unique``: no value occurs twice. ``steep``: one bar has nearly
    all records, so that others are visible only on a logarithmic scale.
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
    #: the bounds of the filtered range, empty for an open bound
    bounds: tuple[str, str] = ("", "")

    def on_a_logarithmic_scale(self) -> Picture:
        """The picture of the filtered records only, on a logarithmic scale."""
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
    def is_listed(self) -> bool:
        """Whether each bar is a value, instead of a range."""
        return BY_NAME[self.type].is_text

    @property
    def is_dated(self) -> bool:
        return self.type in BY_NAME and is_dated(self.type)

    @property
    def least(self) -> str:
        return self.bars[0].low if self.bars else ""

    @property
    def most(self) -> str:
        return self.bars[-1].high if self.bars else ""


@dataclass(frozen=True, slots=True)
class _Measurement:
    """The measurement of one field on some records: their number, how many have the field, and its
    measure.
    """

    total: int
    present: int
    items: Sequence[Mapping[str, Any]]
    distinct: int = 0
    figures: Sequence[tuple[str, str]] = ()


async def draw_picture(visit: Visit, on: SchemaQuestion, name: str) -> Picture:
    """The picture of a field, for the records that match the filters.

    Raises:
        ErsError: as /api/records/aggregate/ does.
    """
    pick = None
    if _is_counted_by_value(on.types[name]):
        # The field's other values are shown with the counts that they would have.
        pick = on.question.own_pick(name, on.types)
    where = on.question.where(on.types, without=pick[0] if pick else None)
    unfiltered = await _measure(visit, on, name, None)
    if _is_counted_by_value(on.types[name]):
        return await _draw_values(visit, on, name, unfiltered, where, pick[1] if pick else [])
    if where is None or not unfiltered.items:
        return _picture(on, name, unfiltered, None)
    _, ends = on.question.own_stretch(name, on.types) or (0, (None, None))
    if is_dated(on.types[name]):
        found = await _measure_dates(visit, on, name, where, unfiltered)
    else:
        found = await _measure(visit, on, name, where, _bounds(on, name, unfiltered))
    # The bins of the whole schema, with the counts of the filtered records.
    counts = [item["count"] for item in found.items]
    bins = [{**item, "count": count} for item, count in zip(unfiltered.items, counts, strict=True)]
    behind_counts = [item["count"] for item in unfiltered.items]
    drawn = _picture(on, name, replace(found, items=bins), behind_counts, unfiltered.present)
    return replace(drawn, bounds=(words.plain(ends[0]), words.plain(ends[1])))


async def _draw_values(
    visit: Visit,
    on: SchemaQuestion,
    name: str,
    unfiltered: _Measurement,
    where: Any,
    picked: Sequence[Any],
) -> Picture:
    """The most frequent values; picked values come first, however frequent they are."""
    found = unfiltered if where is None else await _measure(visit, on, name, where)
    if picked:
        conditions: list[Any] = [{"field": name, "op": "in", "value": picked}]
        conditions += [where] if where else []
        first = (await _measure(visit, on, name, {"and": conditions})).items
        values = [item["value"] for item in first]
        others = [item for item in found.items if item["value"] not in values]
        found = replace(found, items=[*first, *others])
    if where is None:
        return _picture(on, name, found, None, picked=picked)
    values = [item["value"] for item in found.items]
    among = {"field": name, "op": "in", "value": values}
    known = await _measure(visit, on, name, among) if values else unfiltered
    behind = {item["value"]: item["count"] for item in known.items}
    counts = [behind.get(value, 0) for value in values]
    return _picture(on, name, found, counts, unfiltered.present, picked=picked)


async def draw_suggestions(visit: Visit, on: SchemaQuestion, name: str, typed: str) -> Picture:
    """The picture of a string field: values in the whole schema that begin with ``typed``.

    Raises:
        ErsError: as /api/records/aggregate/ does.
    """
    beginning = {"field": name, "op": "prefix", "value": typed} if typed else None
    return _picture(on, name, await _measure(visit, on, name, beginning), None)


def _bounds(on: SchemaQuestion, name: str, unfiltered: _Measurement) -> list[Any]:
    """The bins of the whole schema: the start of each, and the end of the last."""
    spec = on.schema.definition["properties"][name]
    step = Decimal(step_of(spec))
    return [
        *(item["from"] for item in unfiltered.items),
        Decimal(unfiltered.items[-1]["to"]) + step,
    ]


async def _measure(
    visit: Visit,
    on: SchemaQuestion,
    name: str,
    where: Any,
    bounds: Sequence[Any] | None = None,
) -> _Measurement:
    if is_dated(on.types[name]):
        return await _measure_dates(visit, on, name, where)
    measures: list[dict[str, Any]] = [{"op": "count"}, {"op": "count", "field": name}]
    if _is_counted_by_value(on.types[name]):
        measures.append({"op": "distinct", "field": name, "limit": TOP_VALUES, "order": "-count"})
    else:
        bins = {"bounds": list(bounds)} if bounds else {"bins": BINS}
        measures.append({"op": "histogram", "field": name, **bins})
        measures.append({"op": "avg", "field": name})
        measures.append({"op": "percentile", "field": name, "p": list(_QUARTILES)})
    total, present, spread, *more = await measure(visit, on, where, *measures)
    if _is_counted_by_value(on.types[name]):
        values = spread["values"] or []
        return _Measurement(total["value"], present["value"], values, spread["count"] or 0)
    figures: list[tuple[str, str]] = []
    if present["value"]:
        mean, quartiles = more
        figures.append(("mean", words.rounded(mean["value"])))
        together = zip(_NAMES, quartiles["values"], strict=True)
        figures += [(label, words.grouped(figure["value"])) for label, figure in together]
    return _Measurement(total["value"], present["value"], spread["bins"] or [], figures=figures)


def _is_counted_by_value(kind: str) -> bool:
    return is_listed(kind) and not is_dated(kind)


async def _measure_dates(
    visit: Visit, on: SchemaQuestion, name: str, where: Any, like: _Measurement | None = None
) -> _Measurement:
    """The number of records per period, from the first to the last, including empty periods.

    Args:
        like: measurement whose periods are used.
    """
    measures: list[dict[str, Any]] = [{"op": "count"}, {"op": "count", "field": name}]
    measures += [{"op": op, "field": name} for op in ("min", "max")]
    measures.append({"op": "percentile", "field": name, "p": [50]})
    total, present, least, most, middle = await measure(visit, on, where, *measures)
    if not present["value"]:
        items = [{**item, "count": 0} for item in like.items] if like else []
        return _Measurement(total["value"], 0, items)
    first, last = _day_of(least["value"]), _day_of(most["value"])
    if like is None:
        columns = columns_of_dates(first, last)
    else:
        columns = [(item["period"], item["from"], item["to"]) for item in like.items]
    period = columns[0][0]
    days: dict[date, int] = {}
    for year in range(first.year, last.year + 1, _MOST_AT_ONCE):
        ends = [
            {"field": name, "op": op, "value": f"{end:04}"}
            for op, end in (("ge", year), ("le", min(year + _MOST_AT_ONCE - 1, last.year)))
        ]
        within = where
        if last.year - first.year >= _MOST_AT_ONCE:
            within = {"and": [*ends, *([where] if where else [])]}
        per_period = {"op": "histogram", "field": name, "by": period}
        (found,) = await measure(visit, on, within, per_period)
        for bin_ in found["bins"] or []:
            days[_day_of(bin_["from"])] = bin_["count"]
    items = [
        {
            "period": period,
            "from": low,
            "to": high,
            "count": sum(days[day] for day in days if low <= day <= high),
        }
        for _, low, high in columns
    ]
    known = zip(("earliest", "median", "latest"), (least, middle["values"][0], most), strict=True)
    figures = [(label, words.plain(figure["value"])) for label, figure in known]
    return _Measurement(total["value"], present["value"], items, figures=figures)


def _day_of(value: str) -> date:
    """The day in UTC of a date or an instant."""
    try:
        instant = datetime.fromisoformat(value)
        return (instant.astimezone(UTC) if instant.tzinfo else instant).date()
    except OverflowError:  # a day outside datetime's years
        return date.fromisoformat(value[:10])


def columns_of_dates(first: date, last: date) -> list[tuple[str, date, date]]:
    """Period, first and last day of each column of a picture."""
    for period, width in PERIODS:
        found = list(islice(_periods(first, last, period, width), MOST_PERIODS + 1))
        if len(found) <= MOST_PERIODS:
            break
    return found


def _periods(first: date, last: date, period: str, width: int) -> Iterator[tuple[str, date, date]]:
    low = first
    if period == "month":
        low = first.replace(day=1)
    elif period == "year":
        low = date(max(1, first.year // width * width), 1, 1)
    while low <= last:
        if period == "day":
            high = low
        elif period == "month":
            high = low.replace(day=monthrange(low.year, low.month)[1])
        else:
            high = date(min(9999, low.year // width * width + width - 1), 12, 31)
        yield period, low, high
        if high == date.max:
            return
        low = high + timedelta(days=1)


def period_text(period: str, low: date, high: date) -> str:
    if period == "day":
        return str(low)
    if period == "month":
        return f"{low.year:04}-{low.month:02}"
    return "\N{EN DASH}".join(dict.fromkeys(f"{day.year:04}" for day in (low, high)))


def _picture(
    on: SchemaQuestion,
    name: str,
    measurement: _Measurement,
    behind: Sequence[int] | None,
    all_present: int = 0,
    *,
    picked: Sequence[Any] = (),
) -> Picture:
    kind = TEXT.name if _is_counted_by_value(on.types[name]) else on.types[name]
    present = measurement.present
    counts = [int(item["count"]) for item in measurement.items]
    if behind is None:
        heights, grey = [float(count) for count in counts], [0.0] * len(counts)
    else:
        heights = [count / (present or 1) for count in counts]
        grey = [count / (all_present or 1) for count in behind]
    highest = max([*heights, *grey], default=1) or 1
    if not BY_NAME[kind].is_text:
        highest = _round_up(highest) if behind is None else _round_up(100 * highest) / 100
    bars = [
        _bar(name, kind, item, present, 100 * height / highest, 100 * shade / highest)
        for item, height, shade in zip(measurement.items, heights, grey, strict=True)
    ]
    labels = [words.plain(value) for value in picked]
    bars = [replace(bar, picked=bar.label in labels) for bar in bars]
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
        unique=BY_NAME[kind].is_text and 1 < present == measurement.distinct,
        filtered=behind is not None,
        steep=max(counts, default=0) > _STEEP * present,
        ticks=ticks,
        figures=list(measurement.figures),
    )


def _round_up(highest: float) -> float:
    """The end of a scale: a number that is easy to read, and half of which is too."""
    unit = 10.0 ** math.floor(math.log10(highest))
    steps = (2, 4, 6, 8, 10) if unit == 1 else (1, 2, 3, 4, 5, 6, 8, 10)
    return next(unit * step for step in steps if highest <= unit * step * 1.0001)


def _bar(
    name: str, kind: str, item: Mapping[str, Any], present: int, length: float, behind: float
) -> Bar:
    count = int(item["count"])
    caption = f"{words.format_count(count, 'record')} ({words.percent(count, present)})"
    if BY_NAME[kind].is_text:
        value = words.plain(item["value"])
        pick = write_pick(name, "eq", [value])
        return Bar(value, count, length, behind, caption, pick)
    low, high = words.plain(item["from"]), words.plain(item["to"])
    if is_dated(kind):
        label = period_text(item["period"], item["from"], item["to"])
    else:
        ends = [words.grouped(item[end]) for end in ("from", "to")]
        label = "\N{EN DASH}".join(dict.fromkeys(ends))
    pick = write_pick(name, "between", [low, high])
    return Bar(label, count, length, behind, caption, pick, low, high)
