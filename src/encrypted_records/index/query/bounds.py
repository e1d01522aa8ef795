"""Between which keys of a field all rows lie that a predicate selects, and if there are any."""

from __future__ import annotations

from collections.abc import Mapping

from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.key_range import KeyRange
from encrypted_records.index.query.key_ranges import KeyRanges
from encrypted_records.index.query.positions import span_of
from encrypted_records.index.segments.zones import Zone
from encrypted_records.model.predicates import (
    Absent,
    And,
    Everything,
    InColumn,
    Not,
    Or,
    Predicate,
)
from encrypted_records.model.text_tests import TextTest


def bound_keys(
    predicate: Predicate, ranges: Mapping[int, KeyRanges], field: str
) -> KeyRange | None:
    """The keys of ``field`` among which those of all rows are; None where none are known.

    Args:
        ranges: the key ranges of each comparison, by its identity.
    """
    match predicate:
        case And(parts):
            bounds = (bound_keys(part, ranges, field) for part in parts)
            return next((key_range for key_range in bounds if key_range is not None), None)
        case Everything() | Or() | Not() | Absent() | TextTest() | InColumn():
            return None
        case _:
            if predicate.field != field:
                return None
            possible = ranges[id(predicate)].possible
            return possible[0] if len(possible) == 1 else None


def take_range(
    predicate: Predicate, ranges: Mapping[int, KeyRanges], field: str
) -> tuple[KeyRange | None, Predicate]:
    """The keys of ``field`` among which those of all rows are, and what else a row fulfils whose
    key is one of these. None, and all of the predicate, where keys alone do not tell.

    Args:
        ranges: as for :func:`bound_keys`.
    """
    match predicate:
        case And(parts):
            for at, part in enumerate(parts):
                key_range, left = take_range(part, ranges, field)
                if key_range is not None:
                    return key_range, And((*parts[:at], left, *parts[at + 1 :]))
        case Everything() | Or() | Not() | Absent() | TextTest() | InColumn():
            pass
        case _ if predicate.field == field:
            own = ranges[id(predicate)]
            if own.certain == own.possible and len(own.possible) == 1:
                return own.possible[0], Everything()
    return None, predicate


def is_excluded(
    predicate: Predicate,
    zones: Mapping[str, Zone],
    ranges: Mapping[int, KeyRanges],
    keys: Mapping[int, Keys],
) -> bool:
    """Whether the least and greatest keys of a segment's fields say that no row matches.

    Args:
        keys: those that each column is compared with, as ``ranges``.
    """
    match predicate:
        case And(parts):
            return any(is_excluded(part, zones, ranges, keys) for part in parts)
        case Or(parts):
            return all(is_excluded(part, zones, ranges, keys) for part in parts)
        case Everything() | Not() | Absent() | TextTest():
            return False
        case InColumn(field):
            zone = zones.get(field)
            return zone is not None and not zone.meets(span_of(keys[id(predicate)]))
        case _:
            zone = zones.get(predicate.field)
            possible = ranges[id(predicate)].possible
            return zone is not None and not any(map(zone.meets, possible))
