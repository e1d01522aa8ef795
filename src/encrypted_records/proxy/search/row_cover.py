"""Cover rows of a request, so that it reveals less about the needed rows.

An API that watches learns much from exact rows: how many records match, from their distances;
which field was searched, from their lengths; and what the rows between them are not. So rows are
requested in aligned runs, and as many runs as a power of two; the extra runs lie between the needed
ones, or next to them. ``python -m bench.observer`` measures what that is worth
(docs/decisions/watching.md).

Extra runs are drawn by the question under the schema's key, so that other proxies of a team, and
this one after a restart, draw the same: what two requests have in common would be what is needed
(docs/decisions/watching.md).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

#: A number from 0 to 2**64 - 1 for what the parts name, the same in every proxy
#: (:meth:`.CoverKey.draw`).
Draw = Callable[..., int]

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


#: Rows of a run, and its number or that of a draw.
_PLACE = struct.Struct(">IQ")


@dataclass(frozen=True, slots=True)
class RowCover:
    """Runs of ``size`` rows each, by number: the ``needed`` ones, and ``others`` in the order in
    which to take those that are not here yet, until there are ``total``."""

    size: int
    needed: frozenset[int]
    total: int
    others: Sequence[int]


def choose_cover(
    rows: Iterable[int],
    stored: int,
    draw: Draw,
    most: int = MOST,
    sizes: Sequence[int] | None = None,
) -> RowCover:
    """Choose the cover for these rows.

    Args:
        rows: their numbers, in the order of storing; one at least.
        stored: how many rows there are.
        draw: chooses extra runs.
        most: rows in all; fewer where rows are wide.
        sizes: rows of a run, the largest first; ``SIZES`` if None.
    """
    numbers = list(rows)
    for size in (*(SIZES if sizes is None else sizes), 1):
        needed = frozenset(number // size for number in numbers)
        total = max(LEAST, 1 << (len(needed) - 1).bit_length())
        if total * size <= most:
            others = _others(needed, total, -(-stored // size), size, draw)
            return RowCover(size, needed, total, others)
    return RowCover(1, needed, len(needed), ())


def _others(needed: frozenset[int], total: int, end: int, size: int, draw: Draw) -> list[int]:
    """Extra runs: some that are drawn from between the needed ones, then those after, then those
    before. More than fit, since some may be here already."""
    room = total - len(needed)
    if not room:
        return []
    first, last = min(needed), max(needed)
    between = range(first, last + 1)
    if len(between) <= 8 * total:
        inside = [row for row in between if row not in needed]
        inside.sort(key=lambda run: draw(b"run", _PLACE.pack(size, run)))
    else:
        draws = (draw(b"any", _PLACE.pack(size, at)) for at in range(4 * room))
        drawn = dict.fromkeys(between[draw % len(between)] for draw in draws)
        inside = [row for row in drawn if row not in needed]
    after = range(last + 1, min(end, last + 1 + 2 * total))
    before = range(first - 1, max(-1, first - 1 - 2 * total), -1)
    return [*inside, *after, *before]
