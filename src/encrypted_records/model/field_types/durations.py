"""Lengths of time: those of ISO 8601 that are exact, as ``xs:dayTimeDuration`` has them.

Days of 24 hours, hours, minutes and seconds; years and months are refused, since their lengths
differ (W3C XML Schema Definition Language 1.1, part 2, section 3.4.27, has the same subset).
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from encrypted_records.model.field_types.base import Control, FrameTypes, Sql, grid_of, refuse_form
from encrypted_records.model.field_types.calendar import MICROSECONDS_PER_DAY, OnClock

if TYPE_CHECKING:
    from encrypted_records.model.definition import FieldSpec

#: The longest duration, in days: its microseconds and those of its negative fit 64 bits together.
MOST_DAYS = 100_000_000
_MOST = MOST_DAYS * MICROSECONDS_PER_DAY
_DECIMALS = 6
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
    # Months and years of an interval make a text that is refused by name.
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
        if len(decimals) > _DECIMALS:
            raise refuse_form(f"has more than {_DECIMALS} decimals of a second")
        whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        return _bounded(found[1], whole * 10**6 + int(decimals.ljust(_DECIMALS, "0")))

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
