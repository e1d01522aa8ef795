"""Which extra rows to request, so that a request tells less about the needed ones.

An API that watches learns much from exact rows: how many records match, from their distances;
which field was searched, from their lengths; and what the rows between them are not. So rows are
requested in aligned runs, and as many runs as a power of two; the extra runs lie between the needed
ones, or next to them. ``python -m bench.observer`` measures what that is worth
(docs/decisions/0020-what-watching-tells.md).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Rows of a run: the first size with which the request is not too large. Of rows that are needed
#: because of their rank in an order, runs are larger: page by page, the order would be told.
SIZES = (16, 4)
RANKED_SIZES = (64, 16, 4)
#: At least so many runs are requested, even if only one is needed.
LEAST = 4
#: Rows that a request may grow to. Where more are needed, exactly those are requested.
MOST = 512
#: Rows of one request that are needed because of their rank, and what it may grow to.
RANKED_AT_ONCE = 64
MOST_RANKED = RANKED_AT_ONCE * RANKED_SIZES[0]
#: So many rows are always hidden in runs of the smallest size.
MOST_HIDDEN = MOST // SIZES[-1]

_chance = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class RowCover:
    """Runs of ``size`` rows each, by number: the ``needed`` ones, and ``others`` in the order in
    which to take those that are not here yet, until there are ``total``."""

    size: int
    needed: frozenset[int]
    total: int
    others: Sequence[int]


def choose_cover(
    rows: Iterable[int], stored: int, most: int = MOST, sizes: Sequence[int] | None = None
) -> RowCover:
    """How to request these rows.

    Args:
        rows: their numbers, in the order of storing; one at least.
        stored: how many rows there are.
        most: rows in all; fewer where rows are wide.
        sizes: rows of a run, the largest first; ``SIZES`` if None.
    """
    numbers = list(rows)
    for size in (*(SIZES if sizes is None else sizes), 1):
        needed = frozenset(number // size for number in numbers)
        total = max(LEAST, 1 << (len(needed) - 1).bit_length())
        if total * size <= most:
            return RowCover(size, needed, total, _others(needed, total, -(-stored // size)))
    return RowCover(1, needed, len(needed), ())


def _others(needed: frozenset[int], total: int, end: int) -> list[int]:
    """Extra runs: some at random from between the needed ones, then those after, then those
    before. More than fit, since some may be here already."""
    room = total - len(needed)
    if not room:
        return []
    first, last = min(needed), max(needed)
    between = range(first, last + 1)
    if len(between) <= 8 * total:
        inside = [one for one in between if one not in needed]
        _chance.shuffle(inside)
    else:
        drawn = dict.fromkeys(_chance.choice(between) for _ in range(4 * room))
        inside = [one for one in drawn if one not in needed]
    after = range(last + 1, min(end, last + 1 + 2 * total))
    before = range(first - 1, max(-1, first - 1 - 2 * total), -1)
    return [*inside, *after, *before]
