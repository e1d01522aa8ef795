"""Dates, times of day, instants and durations.

A value is stored in its canonical spelling, as text, and is a point of a grid, like numbers, so
that values sort, compare and count as such (docs/SPEC.md, section 3.1). Dates and times are parsed
by RFC 3339.

Durations are the exact subset of ISO 8601 that is ``xs:dayTimeDuration``: days of 24 hours, hours,
minutes and seconds. Years and months are refused, because their lengths differ (W3C XML Schema
Definition Language 1.1, part 2, section 3.4.27, defines the same subset).
"""

from __future__ import annotations

import re
import struct
from abc import abstractmethod
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from encrypted_records.model.field_types.base import (
    SIGNS,
    Control,
    FieldType,
    FrameTypes,
    Phrases,
    Span,
    Sql,
    ValueRefused,
    grid_of,
    refuse_form,
    require_text,
)

if TYPE_CHECKING:
    from encrypted_records.model.definition import FieldSpec, Value


#: Calendar periods by which dates and instants can be grouped.
Period = Literal["year", "month", "week", "day"]
PERIODS: tuple[Period, ...] = ("year", "month", "week", "day")
MICROSECONDS_PER_DAY = 86_400 * 10**6
DAYS = date.max.toordinal()
#: Maximum offset from UTC in minutes, in both directions.
MOST_MINUTES = 23 * 60 + 59

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_MONTH = re.compile(r"([0-9]{4})(?:-([0-9]{2}))?")
_CLOCK = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
_TIME = re.compile(_CLOCK)
_INSTANT = re.compile(
    rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})[Tt]({_CLOCK})([Zz]|[+-][0-9]{{2}}:[0-9]{{2}})"
)
_LOCAL = re.compile(rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})[Tt]({_CLOCK})")
_DECIMALS = 6
_SIGNED = re.compile(r"([<>]=?)\s*(.+)")
_PACKED_INSTANT = struct.Struct(">QH")
_SHOWN_CLOCK = "[0-9]{2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]{1,3})?)?"


class OnClock(FieldType):
    """Texts that are points on a time scale."""

    json_type = "string"
    phrases: ClassVar[Phrases] = "time"

    def accept(self, spec: FieldSpec, raw: object) -> str:
        return self.show(self.read(require_text(self.name, raw)))

    @abstractmethod
    def read(self, text: str) -> int:
        """The point of a text.

        Raises:
            ValueRefused: of another form, or not an existing value.
        """

    @abstractmethod
    def show(self, point: int) -> str:
        """The canonical spelling of a point."""

    def to_point(self, spec: FieldSpec, value: Value) -> int:
        assert isinstance(value, str)
        return self.read(value)

    def from_point(self, spec: FieldSpec, point: int) -> str:
        return self.show(point)

    def read_cell(self, cell: str) -> str | None:
        try:
            return self.show(self.read(cell.strip()))
        except ValueRefused:
            return None

    def read_filter(self, typed: str) -> tuple[str, Any]:
        found = _SIGNED.fullmatch(typed)
        return super().read_filter(typed) if found is None else (SIGNS[found[1]], found[2])


class InCalendar(OnClock):
    """Values with a year, a month and a day; a comparison may name only a year or a month."""

    day_points: ClassVar[int]

    def read_span(self, spec: FieldSpec, raw: object) -> Span:
        """A point, or all points of a year, a month or a day (``2026``, ``2026-01``)."""
        if not isinstance(raw, str):
            detail = 'expected a text such as "2026-01-31"; a month is "2026-01", a year is "2026"'
            raise ValueRefused("type", detail)
        days = _read_days(raw)
        if days is None:
            return super().read_span(spec, raw)
        return Span(days.first * self.day_points, (days.last + 1) * self.day_points - 1)


class Date(InCalendar):
    name = "date"
    type_byte = 4
    day_points = 1
    is_day = True
    is_moment = True
    said = "date"
    about = "days, such as 2026-01-31"
    reading = "date"
    frame = FrameTypes("string", "string", taken=r"date(32|64)\[.*", declared="DateType")
    sql = Sql(("date",))
    control = Control(
        "native",
        "date",
        _DATE.pattern,
        {"min": "0001-01-01", "max": "9999-12-31"},
        example="2026-01-31",
    )
    grid = grid_of(0, DAYS - 1)

    def column_type(self, spec: FieldSpec) -> str:
        return "date32[day]"

    def read(self, text: str) -> int:
        return _day(text).toordinal() - 1

    def show(self, point: int) -> str:
        return date.fromordinal(point + 1).isoformat()


class Time(OnClock):
    name = "time"
    type_byte = 5
    said = "time"
    about = "times of a day"
    reading = "time"
    cell_form = "a time of day"
    frame = FrameTypes("string", "string", taken=r"time(32|64)\[.*", declared="TimeType")
    sql = Sql(("time without time zone",))
    control = Control("native", "time", _SHOWN_CLOCK, example="08:30:00", steps=True)
    grid = grid_of(0, MICROSECONDS_PER_DAY - 1)

    def column_type(self, spec: FieldSpec) -> str:
        return "time64[us]"

    def read(self, text: str) -> int:
        return _read_clock(text)

    def show(self, point: int) -> str:
        return _show_clock(point)


class Instant(InCalendar):
    """A point in time, and the UTC offset with which it was written."""

    name = "date-time"
    type_byte = 6
    fixed_bytes = _PACKED_INSTANT.size
    #: the offset is not in the index
    keys_tell_all = False
    day_points = MICROSECONDS_PER_DAY
    is_moment = True
    said = "date and time"
    about = "instants, with their offset"
    reading = "date-time"
    frame = FrameTypes(
        "string",
        "string",
        taken=r"timestamp\[\w+, tz=.*",
        declared="DateTimeType",
        note="times have an offset from UTC",
    )
    sql = Sql(("timestamp with time zone",), "replace({0}::text, ' ', 'T') || ':00'")
    control = Control(
        "instant",
        "datetime-local",
        rf"(?P<local>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_SHOWN_CLOCK})"
        r"(?P<offset>Z|[+-][0-9]{2}:[0-9]{2})",
        example="2026-01-31T08:30:00Z",
        steps=True,
    )
    grid = grid_of(0, DAYS * MICROSECONDS_PER_DAY - 1)

    def column_type(self, spec: FieldSpec) -> str:
        return "timestamp[us, tz=UTC]"

    def accept(self, spec: FieldSpec, raw: object) -> str:
        return show_instant(*read_instant(require_text(self.name, raw)))

    def read(self, text: str) -> int:
        return read_instant(text)[0]

    def show(self, point: int) -> str:
        """Format the instant in UTC."""
        return show_instant(point, 0)

    def pack(self, spec: FieldSpec, value: Value) -> bytes:
        assert isinstance(value, str)
        instant, minutes = read_instant(value)
        return _PACKED_INSTANT.pack(instant, minutes + MOST_MINUTES)

    def unpack(self, spec: FieldSpec, plain: bytes) -> str:
        instant, offset = _PACKED_INSTANT.unpack(plain)
        if instant > _LAST_INSTANT:
            raise refuse_form("lies outside the years 0001 to 9999 in UTC")
        return show_instant(instant, offset - MOST_MINUTES)


class LocalDateTime(InCalendar):
    """A date and a local time, without an offset from UTC."""

    name = "local-date-time"
    type_byte = 10
    day_points = MICROSECONDS_PER_DAY
    said = "local date and time"
    about = "dates and times without an offset"
    reading = "local"
    frame = FrameTypes(
        "timestamp[us]",
        "datetime64[us]",
        taken=r"timestamp\[\w+\]",
        declared="DateTimeType without tz",
        note="times without a zone: local times",
    )
    sql = Sql(
        ("timestamp without time zone",),
        "replace({0}::text, ' ', 'T')",
        "times without a zone: local times",
    )
    control = Control(
        "native",
        "datetime-local",
        rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_SHOWN_CLOCK}",
        {"min": "0001-01-01T00:00", "max": "9999-12-31T23:59:59.999"},
        example="2026-01-31T08:30:00",
        steps=True,
    )
    grid = grid_of(0, DAYS * MICROSECONDS_PER_DAY - 1)

    def column_type(self, spec: FieldSpec) -> str:
        return "timestamp[us]"

    def read(self, text: str) -> int:
        match = _LOCAL.fullmatch(text)
        if match is None:
            if _INSTANT.fullmatch(text):
                raise refuse_form("has an offset from UTC, which a local time has not")
            raise refuse_form("expected date, T and time, such as 2026-01-31T08:30:00")
        return (_day(match[1]).toordinal() - 1) * MICROSECONDS_PER_DAY + _read_clock(match[2])

    def show(self, point: int) -> str:
        days, clock = divmod(point, MICROSECONDS_PER_DAY)
        return f"{date.fromordinal(days + 1).isoformat()}T{_show_clock(clock)}"

    def to_frame(self, value: Any) -> datetime | None:
        return None if value is None else datetime.fromisoformat(value)


DATE: Final = Date()
TIME: Final = Time()
INSTANT: Final = Instant()
LOCAL: Final = LocalDateTime()
_LAST_INSTANT = DAYS * MICROSECONDS_PER_DAY - 1


def read_instant(text: str) -> tuple[int, int]:
    """Microseconds since 0001-01-01 in UTC, and the offset from UTC in minutes.

    Raises:
        ValueRefused: of another form, not an existing day or time, or not in the years 1 to 9999
            UTC.
    """
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise refuse_form("expected date, T, time and offset, such as 2026-01-31T08:30:00+02:00")
    day, offset = match[1], match[7]
    minutes = 0
    if offset not in "Zz":
        hours, minutes_of_hour = int(offset[1:3]), int(offset[4:6])
        if hours > 23 or minutes_of_hour > 59:
            raise refuse_form("there is no such offset from UTC")
        minutes = (60 * hours + minutes_of_hour) * (-1 if offset[0] == "-" else 1)
    local = (_day(day).toordinal() - 1) * MICROSECONDS_PER_DAY + _read_clock(match[2])
    instant = local - minutes * 60 * 10**6
    if not 0 <= instant <= _LAST_INSTANT:
        raise refuse_form("lies outside the years 0001 to 9999 in UTC")
    return instant, minutes


def show_instant(instant: int, minutes: int) -> str:
    """Undo :func:`read_instant`, in the canonical spelling.

    Raises:
        ValueRefused: there is no such local time.
    """
    local = instant + minutes * 60 * 10**6
    if not 0 <= local <= _LAST_INSTANT or abs(minutes) > MOST_MINUTES:
        raise refuse_form("there is no such local time")
    days, clock = divmod(local, MICROSECONDS_PER_DAY)
    hours, minutes_of_hour = divmod(abs(minutes), 60)
    offset = f"{'-' if minutes < 0 else '+'}{hours:02d}:{minutes_of_hour:02d}" if minutes else "Z"
    return f"{date.fromordinal(days + 1).isoformat()}T{_show_clock(clock)}{offset}"


def _day(text: str) -> date:
    match = _DATE.fullmatch(text)
    if match is None:
        raise refuse_form("expected a date such as 2026-01-31")
    try:
        return date(*map(int, match.groups()))
    except ValueError:
        raise refuse_form("there is no such day") from None


def _read_clock(text: str) -> int:
    """Microseconds of the day."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise refuse_form("expected a time such as 08:30:00, without an offset")
    hours, minutes, seconds = (int(match[at]) for at in (1, 2, 3))
    decimals = match[4] or ""
    if seconds == 60:
        raise refuse_form("a second 60 cannot be stored")
    if hours > 23 or minutes > 59 or seconds > 59:
        raise refuse_form("there is no such time of day")
    if len(decimals) > _DECIMALS:
        raise refuse_form(f"has more than {_DECIMALS} decimals of a second")
    total_seconds = (hours * 60 + minutes) * 60 + seconds
    return total_seconds * 10**6 + int(decimals.ljust(_DECIMALS, "0"))


def _show_clock(microseconds: int) -> str:
    seconds, decimals = divmod(microseconds, 10**6)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{decimals:06d}".rstrip("0") if decimals else text


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
        raise refuse_form("there is no such month" if match[2] else "there is no such year")
    first = date(year, month or 1, 1).toordinal() - 1
    after = (year + 1, 1) if not month or month == 12 else (year, month + 1)
    last = DAYS - 1 if after[0] > date.max.year else date(*after, 1).toordinal() - 2
    return Span(first, last)


#: The longest duration, in days: microseconds of both signs fit 64 bits together.
MOST_DAYS = 100_000_000
_MOST = MOST_DAYS * MICROSECONDS_PER_DAY
_DURATION_DECIMALS = 6
_FORM = re.compile(
    r"(-?)P(?:([0-9]{1,12})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,14})H)?(?:([0-9]{1,16})M)?(?:([0-9]{1,18})(?:[.,]([0-9]+))?S)?)?"
)
_WEEKS = re.compile(r"(-?)P([0-9]{1,12})W")
_VARYING = re.compile(r"-?P(?=[0-9])(?:[0-9.,]+Y)?(?:[0-9.,]+M)?(?:[0-9.,]+[WD])?(?:T.*)?")
_MICROSECOND = timedelta(microseconds=1)


class Duration(OnClock):
    """Points are microseconds; negative ones are allowed."""

    name = "duration"
    type_byte = 9
    said = "duration"
    about = "lengths of time, such as PT1H30M"
    phrases = "length"
    reading = "duration"
    cell_form = "a duration such as PT1H30M"
    frame = FrameTypes(
        "duration[us]", "timedelta64[us]", taken=r"duration\[\w+\]", declared="TimeDeltaType"
    )
    # An interval with months or years becomes a text that is refused with a message about them.
    sql = Sql(
        ("interval",),
        "CASE WHEN isfinite({0}) AND extract(year FROM {0}) = 0 AND extract(month FROM {0}) = 0"
        " THEN CASE WHEN {0} < interval '0' THEN '-' ELSE '' END || 'PT' || abs("
        "extract(day FROM {0})::numeric * 86400 + extract(hour FROM {0})::numeric * 3600"
        " + extract(minute FROM {0})::numeric * 60 + extract(microseconds FROM {0})::numeric"
        " / 1000000)::text || 'S' ELSE {0}::text END",
        "days of 24 hours; a row with months or years is refused",
    )
    control = Control("text", example="PT1H30M", hints=True)
    grid = grid_of(-_MOST, _MOST)

    def column_type(self, spec: FieldSpec) -> str:
        return "duration[us]"

    def read(self, text: str) -> int:
        found = _FORM.fullmatch(text)
        if found is None or found.end() == len(found[1]) + 1:
            return self._read_weeks(text)
        days, hours, minutes, seconds = (int(found[at] or 0) for at in (2, 3, 4, 5))
        decimals = (found[6] or "").rstrip("0")
        if len(decimals) > _DURATION_DECIMALS:
            raise refuse_form(f"has more than {_DURATION_DECIMALS} decimals of a second")
        total_seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        return _bounded(
            found[1], total_seconds * 10**6 + int(decimals.ljust(_DURATION_DECIMALS, "0"))
        )

    def _read_weeks(self, text: str) -> int:
        found = _WEEKS.fullmatch(text)
        if found is not None:
            return _bounded(found[1], 7 * int(found[2]) * MICROSECONDS_PER_DAY)
        date_part = text.partition("T")[0]
        if _VARYING.fullmatch(text) and ("Y" in date_part or "M" in date_part):
            raise refuse_form(
                "years and months have no exact length; say days, hours, minutes and seconds"
            )
        raise refuse_form("expected a duration such as P1DT2H30M or PT0.5S")

    def show(self, point: int) -> str:
        seconds, decimals = divmod(abs(point), 10**6)
        minutes, second = divmod(seconds, 60)
        hours, minute = divmod(minutes, 60)
        day, hour = divmod(hours, 24)
        fraction = f".{decimals:06d}".rstrip("0") if decimals else ""
        clock = "".join(f"{count}{unit}" for count, unit in ((hour, "H"), (minute, "M")) if count)
        if second or fraction:
            clock += f"{second}{fraction}S"
        if not day and not clock:
            return "PT0S"
        days = f"{day}D" if day else ""
        return f"{'-' if point < 0 else ''}P{days}{f'T{clock}' if clock else ''}"

    def is_evident(self, cell: str) -> bool:
        # P1D and P2W may be codes.
        return "T" in cell

    def to_frame(self, value: Any) -> timedelta | None:
        return None if value is None else self.read(value) * _MICROSECOND


def _bounded(sign: str, microseconds: int) -> int:
    if microseconds > _MOST:
        raise refuse_form(f"is longer than {MOST_DAYS} days")
    return -microseconds if sign else microseconds


DURATION: Final = Duration()
