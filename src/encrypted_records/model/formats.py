"""Dates, times, instants, uuids and booleans: types that enforced formats make.

A value of a format is kept in its one spelling, as text; a boolean as ``True`` or ``False``. All
but uuids are points of a grid, as numbers are, so that they sort, compare and count as such
(docs/SPEC.md, section 3.1). Texts are read by the rules of RFC 3339 and RFC 9562.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final, Literal

from encrypted_records.model.rules import NumberRules, ValueRefused

Format = Literal["date", "time", "date-time", "uuid", "boolean"]
#: Whole stretches of dates and instants that can be counted together.
Period = Literal["year", "month", "week", "day"]
PERIODS: tuple[Period, ...] = ("year", "month", "week", "day")

#: Which JSON type each format is of.
JSON_TYPES: Final[dict[Format, Literal["string", "integer"]]] = {
    "date": "string",
    "time": "string",
    "date-time": "string",
    "uuid": "string",
    "boolean": "integer",
}
MICROSECONDS_PER_DAY = 86_400 * 10**6
DAYS = date.max.toordinal()
#: Offsets from UTC lie between these many minutes.
MOST_MINUTES = 23 * 60 + 59

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_MONTH = re.compile(r"([0-9]{4})(?:-([0-9]{2}))?")
_CLOCK = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
_TIME = re.compile(_CLOCK)
_INSTANT = re.compile(
    rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})[Tt]({_CLOCK})([Zz]|[+-][0-9]{{2}}:[0-9]{{2}})"
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DECIMALS = 6


def _rules(highest: int) -> NumberRules:
    return NumberRules(Decimal(0), Decimal(highest))


#: The grids of the formats that have one.
RULES: Final[dict[Format, NumberRules]] = {
    "date": _rules(DAYS - 1),
    "time": _rules(MICROSECONDS_PER_DAY - 1),
    "date-time": _rules(DAYS * MICROSECONDS_PER_DAY - 1),
    "boolean": _rules(1),
}


def _refused(detail: str) -> ValueRefused:
    return ValueRefused("format", detail)


def accept(kind: Format, raw: object) -> str | bool:
    """The value in its one spelling.

    Raises:
        ValueRefused: of another type, of another form, or no such day or time.
    """
    if kind == "boolean":
        if not isinstance(raw, bool):
            raise ValueRefused("type", "expected true or false")
        return raw
    if not isinstance(raw, str):
        raise ValueRefused("type", f"expected a string that is a {kind}")
    match kind:
        case "date":
            return _day(raw).isoformat()
        case "time":
            return _show_clock(_read_clock(raw))
        case "date-time":
            return show_instant(*read_instant(raw))
        case "uuid":
            if not _UUID.fullmatch(raw):
                raise _refused("expected a uuid: 32 hexadecimal digits in five groups")
            return raw.lower()


def to_point(kind: Format, value: str | int) -> int:
    """Where a value that was accepted lies on the grid of its format."""
    if isinstance(value, int):
        return int(value)
    match kind:
        case "date":
            return date.fromisoformat(value).toordinal() - 1
        case "time":
            return _read_clock(value)
        case _:
            return read_instant(value)[0]


def from_point(kind: Format, point: int) -> str | bool:
    """The value at a point; of an instant its spelling in UTC."""
    match kind:
        case "boolean":
            return bool(point)
        case "date":
            return date.fromordinal(point + 1).isoformat()
        case "time":
            return _show_clock(point)
        case _:
            return show_instant(point, 0)


def read_instant(text: str) -> tuple[int, int]:
    """Microseconds since the first of January of the year 1 in UTC, and minutes from UTC.

    Raises:
        ValueRefused: of another form, no such day or time, or not in the years 1 to 9999 of UTC.
    """
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise _refused("expected date, T, time and offset, such as 2026-01-31T08:30:00+02:00")
    day, offset = match[1], match[7]
    minutes = 0
    if offset not in "Zz":
        hours, rest = int(offset[1:3]), int(offset[4:6])
        if hours > 23 or rest > 59:
            raise _refused("there is no such offset from UTC")
        minutes = (60 * hours + rest) * (-1 if offset[0] == "-" else 1)
    local = (_day(day).toordinal() - 1) * MICROSECONDS_PER_DAY + _read_clock(match[2])
    instant = local - minutes * 60 * 10**6
    if not 0 <= instant <= RULES["date-time"].highest:
        raise _refused("lies outside the years 0001 to 9999 in UTC")
    return instant, minutes


def show_instant(instant: int, minutes: int) -> str:
    """Undo :func:`read_instant`, in the one spelling.

    Raises:
        ValueRefused: there is no such local time.
    """
    local = instant + minutes * 60 * 10**6
    if not 0 <= local <= RULES["date-time"].highest or abs(minutes) > MOST_MINUTES:
        raise _refused("there is no such local time")
    days, clock = divmod(local, MICROSECONDS_PER_DAY)
    hours, rest = divmod(abs(minutes), 60)
    offset = f"{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}" if minutes else "Z"
    return f"{date.fromordinal(days + 1).isoformat()}T{_show_clock(clock)}{offset}"


def _day(text: str) -> date:
    match = _DATE.fullmatch(text)
    if match is None:
        raise _refused("expected a date such as 2026-01-31")
    try:
        return date(*map(int, match.groups()))
    except ValueError:
        raise _refused("there is no such day") from None


def _read_clock(text: str) -> int:
    """Microseconds of the day."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise _refused("expected a time such as 08:30:00, without an offset")
    hours, minutes, seconds = (int(match[at]) for at in (1, 2, 3))
    decimals = match[4] or ""
    if seconds == 60:
        raise _refused("a second 60 cannot be stored")
    if hours > 23 or minutes > 59 or seconds > 59:
        raise _refused("there is no such time of day")
    if len(decimals) > _DECIMALS:
        raise _refused(f"has more than {_DECIMALS} decimals of a second")
    whole = (hours * 60 + minutes) * 60 + seconds
    return whole * 10**6 + int(decimals.ljust(_DECIMALS, "0"))


def _show_clock(microseconds: int) -> str:
    seconds, decimals = divmod(microseconds, 10**6)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{decimals:06d}".rstrip("0") if decimals else text


@dataclass(frozen=True, slots=True)
class Span:
    """The points from ``first`` to ``last``, both included."""

    first: int
    last: int


def read_span(kind: Format, raw: object) -> Span:
    """What a comparison means by a value: a point, or all points of a year, month or day.

    A date may be a year (``2026``) or a month (``2026-01``); an instant these or a date, in UTC.

    Raises:
        ValueRefused: as :func:`accept`.
    """
    if kind in ("date", "date-time") and not isinstance(raw, str):
        detail = 'expected a text such as "2026-01-31"; a month is "2026-01", a year is "2026"'
        raise ValueRefused("type", detail)
    days = _read_days(raw) if isinstance(raw, str) and kind in ("date", "date-time") else None
    if days is None:
        point = to_point(kind, accept(kind, raw))
        return Span(point, point)
    if kind == "date":
        return days
    each = MICROSECONDS_PER_DAY
    return Span(days.first * each, (days.last + 1) * each - 1)


def _read_days(text: str) -> Span | None:
    """The days of a year, a month or a day; None for text of another form."""
    if _DATE.fullmatch(text):
        only = _day(text).toordinal() - 1
        return Span(only, only)
    match = _MONTH.fullmatch(text)
    if match is None:
        return None
    year, month = int(match[1]), int(match[2] or 0)
    if not year or month > 12 or (match[2] and not month):
        raise _refused("there is no such month" if match[2] else "there is no such year")
    first = date(year, month or 1, 1).toordinal() - 1
    after = (year + 1, 1) if not month or month == 12 else (year, month + 1)
    last = DAYS - 1 if after[0] > date.max.year else date(*after, 1).toordinal() - 2
    return Span(first, last)
