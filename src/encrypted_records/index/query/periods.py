"""Years, months, weeks and days of sorted keys of dates and instants, in numpy.

Instants are cut into periods of UTC, and weeks begin on Mondays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.errors import InvalidQuery
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.field_types.calendar import DATE, Period

#: Days from the first of January of the year 1 to numpy's first day.
_TO_EPOCH = 719_162
_UNITS = {"year": "Y", "month": "M", "day": "D"}
#: Characters of a date that name its period.
_LABELS = {"year": 4, "month": 7, "week": 10, "day": 10}
_DAYS_OF_WEEK = 7

Points = NDArray[Any]


def _point_step(spec: FieldSpec) -> int:
    """Points of a day."""
    step = spec.field_type.day_points
    assert step is not None, "values without days have no periods"
    return step


def begin_periods(spec: FieldSpec, points: Points, period: Period) -> Points:
    """For each point the first one of its period."""
    step = _point_step(spec)
    days = (points // np.uint64(step)).astype(np.int64)
    if period == "week":
        # The first of January of the year 1 was a Monday.
        begins = days - days % _DAYS_OF_WEEK
    else:
        dates = (days - _TO_EPOCH).astype("M8[D]")
        begins = dates.astype(f"M8[{_UNITS[period]}]").astype("M8[D]").astype(np.int64) + _TO_EPOCH
    return begins.astype(np.uint64) * np.uint64(step)


def cut_periods(spec: FieldSpec, points: Points, period: Period, most: int) -> list[int]:
    """The bounds of the periods that contain these sorted points: the beginning of each period, and
    the end of the last.

    Raises:
        InvalidQuery: there are more than ``most`` periods.
    """
    if not len(points):
        return []
    step = _point_step(spec)
    first, last = (
        int(begin_period) // step for begin_period in begin_periods(spec, points[[0, -1]], period)
    )
    if period == "week":
        days = np.arange(first, last + 2 * _DAYS_OF_WEEK, _DAYS_OF_WEEK)
    else:
        unit = f"M8[{_UNITS[period]}]"
        ends = (np.array([first, last]) - _TO_EPOCH).astype("M8[D]").astype(unit).astype(np.int64)
        # Not more than would be refused anyway, however far apart the values are.
        numbers = np.arange(ends[0], min(ends[1] + 2, ends[0] + most + 2))
        days = numbers.astype(unit).astype("M8[D]").astype(np.int64) + _TO_EPOCH
    if len(days) - 1 > most:
        raise InvalidQuery(
            f"the histogram would have more than {most} bins",
            code="too_many_values",
            hint="narrow the condition, or ask for longer periods",
        )
    # No value lies beyond the field's last point.
    return [min(day * step, spec.numbers.highest + 1) for day in days.tolist()]


def show_period(spec: FieldSpec, begin: int, period: Period) -> str:
    """``2026``, ``2026-01``, or the first day of a week, or a day."""
    day = begin // _point_step(spec)
    return DATE.show(day)[: _LABELS[period]]
