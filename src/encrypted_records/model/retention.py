"""For how long the records of a schema stay, by whole days in UTC."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

#: A hundred years.
MAX_DAYS = 36_525
DAY_MILLISECONDS = 86_400_000
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Retention:
    """Records go when more than ``days`` whole days lie between today and a day of theirs: that on
    which they were first stored, or that of their value of ``field``. Without a value they stay."""

    days: int
    field: str | None = None

    @property
    def canonical(self) -> str:
        """The period in the one spelling of definitions."""
        named = (
            "" if self.field is None else f',"field":{json.dumps(self.field, ensure_ascii=False)}'
        )
        return f'{{"days":{self.days}{named}}}'

    def before(self, now: float) -> date:
        """The day before which a record's day has to lie, at a moment in seconds since 1970."""
        return datetime.fromtimestamp(now, UTC).date() - timedelta(days=self.days)

    def where(self, now: float, *, moments: bool) -> dict[str, Any]:
        """The condition that records fit by their value of :attr:`field`.

        Args:
            moments: whether the values are of the format ``date-time``, and else ``date``.
        """
        day = self.before(now).isoformat()
        value = f"{day}T00:00:00Z" if moments else day
        return {"field": self.field, "op": "lt", "value": value}


def number_of(day: date) -> int:
    """Days since 1970."""
    return (day - _EPOCH).days
