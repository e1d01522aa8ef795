"""Ranges of one field that a record must lie in all of are one range.

``seen >= 2026-01-01 and seen < 2026-02-01`` is asked in two comparisons, and is one question to the
index: its rows are counted from where the range begins and ends, and no set of all rows above the
first bound is made. Means the same for every record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from encrypted_records.model.predicates import (
    And,
    Not,
    NumberRange,
    Or,
    Predicate,
    TextRange,
)

Range = NumberRange | TextRange


def join_ranges(predicate: Predicate) -> Predicate:
    """The same condition with at most one range of each field in every conjunction."""
    match predicate:
        case And(parts):
            joined = tuple(_join(_flatten(parts)))
            return joined[0] if len(joined) == 1 else And(joined)
        case Or(parts):
            return Or(tuple(map(join_ranges, parts)))
        case Not(part):
            return Not(join_ranges(part))
        case _:
            return predicate


def _flatten(parts: Iterable[Predicate]) -> Iterator[Predicate]:
    for part in parts:
        if isinstance(part, And):
            yield from _flatten(part.parts)
        else:
            yield join_ranges(part)


def _join(parts: Iterable[Predicate]) -> Iterable[Predicate]:
    """Each range at the place of the first of its field."""
    joined: dict[object, Predicate] = {}
    for place, part in enumerate(parts):
        if not isinstance(part, Range):
            joined[place] = part
            continue
        before = joined.get(part.field)
        if isinstance(before, NumberRange) and isinstance(part, NumberRange):
            low, high = max(before.low, part.low), min(before.high, part.high)
            joined[part.field] = NumberRange(part.field, low, high)
        elif isinstance(before, TextRange) and isinstance(part, TextRange):
            joined[part.field] = _intersect(before, part)
        else:
            joined[part.field if before is None else place] = part
    return joined.values()


def _intersect(one: TextRange, other: TextRange) -> TextRange:
    lows = [each for each in (one, other) if each.low is not None]
    highs = [each for each in (one, other) if each.high is not None]
    # Of two equal bounds, the one that leaves the value out is narrower.
    low = max(lows, key=lambda each: (each.low or "", not each.low_included), default=one)
    high = min(highs, key=lambda each: (each.high or "", each.high_included), default=one)
    return TextRange(one.field, low.low, high.high, low.low_included, high.high_included)
