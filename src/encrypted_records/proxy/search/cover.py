"""Cover rows and pages of a request, so that it reveals less about the needed ones.

An API that watches learns much from exact rows: how many records match, from the distances between
them; which field was searched, from their lengths; and which rows do not match, from the gaps. So
rows are requested in aligned runs, and the number of runs is a power of two; the extra runs lie
between the needed runs, or next to them. ``python -m bench.observer`` measures the effect
(docs/decisions/watching.md).

Extra runs and pages are drawn by the question under the schema's key, so that other proxies of a
team, and this proxy after a restart, draw the same: otherwise the intersection of two requests
would be the needed runs. For the same reason a retry repeats the whole first request.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from encrypted_records.model.records import PageRef, Segment
from encrypted_records.proxy.process import shuffled
from encrypted_records.proxy.search.caches import DiskCache

#: A pseudorandom number from 0 to 2**64 - 1 for the named parts, the same in every proxy
#: (:meth:`.CoverKey.draw`).
Draw = Callable[..., int]

#: Rows of a run: the first size with which the request is not too large. Rows that are needed
#: because of their rank in an order have larger runs: page by page, they would reveal the order.
SIZES = (16, 4)
RANKED_SIZES = (64, 16, 4)
#: The minimum number of requested runs, even if only one is needed.
LEAST = 4
#: Maximum rows of a request with cover. If more rows are needed, exactly those are requested.
MOST = 512
#: Rows of one request that are needed because of their rank, and the request's maximum with cover.
RANKED_AT_ONCE = 64
MOST_RANKED = RANKED_AT_ONCE * RANKED_SIZES[0]
#: Up to this many needed rows always fit into runs of the smallest size.
MOST_HIDDEN = MOST // SIZES[-1]


#: The rows of a run, and the number of the run or of a draw.
_PLACE = struct.Struct(">IQ")


@dataclass(frozen=True, slots=True)
class RowCover:
    """Runs of ``size`` rows each, by number: the ``needed`` runs, and ``others`` in the order in
    which to take those with missing rows, until there are ``total``."""

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
        rows: the numbers of the rows, in the order of storing; at least one.
        stored: how many rows there are.
        draw: chooses extra runs.
        most: maximum rows in all; smaller if rows are wide.
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
    """Extra runs: some drawn from between the needed runs, then the runs after them, then the runs
    before. There are more than fit, because some may be cached already."""
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


#: Pages are drawn in rounds, at least ``_LEAST`` at a time or ``_SPARE`` times as many as are
#: needed. After ``_ROUNDS`` rounds, all pages are looked at.
_LEAST, _SPARE, _ROUNDS = 16, 2, 6


class PageCover:
    """Reads the disk cache; called from threads."""

    def __init__(self, stored: DiskCache) -> None:
        self._stored = stored

    def select_lacking(
        self, segments: Sequence[Segment], refs: Collection[PageRef]
    ) -> set[PageRef]:
        """The pages among these that belong to the segments and are not on disk."""
        lacking = set()
        for segment in segments:
            if numbers := {ref.number for ref in refs if ref.segment == segment.uid}:
                stored = self._stored.has(segment.uid, numbers)
                lacking |= {PageRef(segment.uid, number) for number in numbers - stored}
        return lacking

    def fill_up(
        self,
        segments: Sequence[Segment],
        refs: Collection[PageRef],
        draw: Draw,
        coming: Collection[PageRef] = (),
    ) -> list[PageRef]:
        """These pages and cover pages of the segments, up to a power of two; fewer if no more are
        missing from the caches. The order is random.

        Args:
            refs: at least one page, all of these segments.
            draw: as for :func:`.choose_cover`.
            coming: pages that are being fetched.
        """
        total = 1 << (len(refs) - 1).bit_length()
        chosen = set(refs)
        if len(chosen) < total:
            chosen |= self._draw(segments, chosen.union(coming), total - len(chosen), draw)
        return shuffled(chosen)

    def _draw(
        self,
        segments: Sequence[Segment],
        others: Collection[PageRef],
        count: int,
        draw: Draw,
    ) -> set[PageRef]:
        """Draw ``count`` pages that are not on disk, and not among the others; fewer if there are
        no more.
        """
        in_order = sorted(segments, key=lambda segment: segment.uid)
        everything = sum(segment.pages for segment in in_order)
        looked_at, drawn = set(others), set[PageRef]()
        turn = 0
        for _ in range(_ROUNDS):
            room = count - len(drawn)
            turns = range(turn, turn + max(_LEAST, _SPARE * room))
            turn = turns.stop
            places = (draw(b"page", turn.to_bytes(8, "big")) % everything for turn in turns)
            candidates = dict.fromkeys(_page_at(in_order, place) for place in places)
            new = [ref for ref in candidates if ref not in looked_at]
            looked_at.update(new)
            lacking = self.select_lacking(segments, new)
            drawn.update([ref for ref in new if ref in lacking][:room])
            if len(drawn) == count:
                return drawn
        # Nearly all pages are cached. Many segments may have millions: take one after the other.
        for segment in sorted(
            in_order, key=lambda drawn_segment: draw(b"segment", drawn_segment.uid)
        ):
            left = {PageRef(segment.uid, number) for number in range(segment.pages)} - looked_at
            found = sorted(
                self.select_lacking([segment], left),
                key=lambda ref: draw(b"left", ref.segment, ref.number.to_bytes(4, "big")),
            )
            drawn.update(found[: count - len(drawn)])
            if len(drawn) == count:
                break
        return drawn


def _page_at(segments: Sequence[Segment], at: int) -> PageRef:
    """The page at this position among all pages of these segments."""
    for segment in segments:
        if at < segment.pages:
            break
        at -= segment.pages
    return PageRef(segment.uid, at)


K = TypeVar("K", bound=Hashable)

#: Maximum number of failed requests that are remembered: the newest.
MOST_REQUESTS = 256
#: A small request does not repeat a large failed request: it grows to at most this many items, or
#: this many times its needed items.
LEAST_ROOM, TIMES = 1024, 4


class RetrySets(Generic[K]):
    """The items of failed requests, so that a retry repeats the whole first request. Used by one
    event loop.
    """

    def __init__(self, most: int) -> None:
        """
        Args:
            most: maximum number of items in all remembered requests.
        """
        self._most = most
        #: the items of each remembered request
        self._requests: deque[frozenset[K]] = deque(maxlen=MOST_REQUESTS)

    def same_request(self, needed: Collection[K]) -> set[K]:
        """All items of failed requests that contained some of these; only of the newest requests if
        they would be too many.
        """
        found: set[K] = set()
        room = max(LEAST_ROOM, TIMES * len(needed))
        for items in reversed(self._requests):
            if not items.isdisjoint(needed) and len(items) + len(found) <= room:
                found |= items
        return found

    @contextmanager
    def request(self, name: Callable[[], Collection[K]]) -> Iterator[None]:
        """Remember the request that the block makes, unless the block succeeds.

        Args:
            name: returns the items of the request; called only if they are needed.
        """
        try:
            yield
        except BaseException:  # a client that disconnects leaves the request without an answer too
            self.remember(name())
            raise
        if self._requests:
            self._forget_contained(frozenset(name()))

    def remember(self, items: Collection[K]) -> None:
        """Remember a request; it replaces the requests that it contains."""
        new = frozenset(items)
        self._forget_contained(new)
        self._requests.append(new)
        while sum(map(len, self._requests)) > self._most:
            self._requests.popleft()

    def _forget_contained(self, items: frozenset[K]) -> None:
        """Forget the requests that this request contains."""
        for contained in [request for request in self._requests if request <= items]:
            self._requests.remove(contained)
