"""The distribution of a column's values, which a preview shows above the first rows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from encrypted_records.ingest.check import text_of_cell
from encrypted_records.model.field_types.base import as_decimal
from encrypted_records.model.field_types.plain import NUMBER

#: Values that are listed, and stretches of a histogram.
MOST_COMMON = 4
BINS = 16


@dataclass(frozen=True, slots=True)
class Common:
    """A value, cut as cells are, and in how many rows it stands."""

    value: str
    count: int


@dataclass(frozen=True, slots=True)
class Spread:
    """
    Attributes:
        present: rows that have a value; ``distinct`` of them differ.
        common: the most frequent values, for fields that are not numeric.
        least, most: extremes of a numeric field's column; cells that are not numbers are ignored.
        bins: the number of values in each of the bins of equal width from ``least`` to ``most``.
    """

    name: str
    present: int
    distinct: int
    common: list[Common]
    least: Decimal | None
    most: Decimal | None
    bins: list[int]


@dataclass(slots=True)
class SeenValues:
    """The values of a column, as far as they were looked at."""

    values: Counter[Any] = field(default_factory=Counter)

    def add(self, value: Any) -> None:
        """A cell; None where the row has none. Lists and objects count as one value."""
        if value is not None:
            self.values[value if isinstance(value, str | int | Decimal) else ""] += 1

    def spread(self, name: str, *, numeric: bool) -> Spread:
        present, distinct = self.values.total(), len(self.values)
        if not numeric:
            common = [
                Common(text_of_cell(value), count)
                for value, count in self.values.most_common(MOST_COMMON)
            ]
            return Spread(name, present, distinct, common, None, None, [])
        numbers = [
            (number, count)
            for value, count in self.values.items()
            if (number := _number(value)) is not None
        ]
        if not numbers:
            return Spread(name, present, distinct, [], None, None, [])
        least, most = min(numbers)[0], max(numbers)[0]
        return Spread(name, present, distinct, [], least, most, _bins(numbers, least, most))


def _number(value: Any) -> Decimal | None:
    number = NUMBER.of_cell(value) if isinstance(value, str) else value
    return as_decimal(number)


def _bins(numbers: Sequence[tuple[Decimal, int]], least: Decimal, most: Decimal) -> list[int]:
    width = most - least
    if not width:
        return [sum(count for _, count in numbers)]
    bins = [0] * BINS
    try:
        for number, count in numbers:
            bins[min(BINS - 1, int((number - least) * BINS / width))] += count
    except ArithmeticError:  # further apart than Decimal computes with; no field takes them
        return []
    return bins
