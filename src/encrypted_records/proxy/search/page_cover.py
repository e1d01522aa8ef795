"""Which extra pages to request, so that a request tells less about the needed ones.

They are drawn by chance from all pages of the same segments, up to a power of two. Of a page that
had come before, or that is coming, an API would know that it is not needed, since a proxy keeps
what it has: so it is not drawn.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence

from encrypted_records.model.records import PageRef, Segment
from encrypted_records.proxy.process.shuffling import shuffled
from encrypted_records.proxy.search.disk_cache import DiskCache

#: At least so many pages are looked at, or so many times as many as are needed, and that so many
#: times, before all are.
_LEAST, _SPARE, _ROUNDS = 16, 2, 6

_chance = secrets.SystemRandom()


class PageCover:
    """Looks on disk, and is called from threads."""

    def __init__(self, stored: DiskCache) -> None:
        self._stored = stored

    def select_lacking(
        self, segments: Sequence[Segment], refs: Collection[PageRef]
    ) -> set[PageRef]:
        """Those of these pages that are of the segments, and not on disk."""
        lacking = set()
        for segment in segments:
            if numbers := {ref.number for ref in refs if ref.segment == segment.uid}:
                held = self._stored.has(segment.uid, numbers)
                lacking |= {PageRef(segment.uid, number) for number in numbers - held}
        return lacking

    def fill_up(
        self,
        segments: Sequence[Segment],
        refs: Collection[PageRef],
        coming: Collection[PageRef] = (),
    ) -> list[PageRef]:
        """These pages and others of the segments by chance, up to a power of two, in random order;
        fewer where there are no more that are not here.

        Args:
            refs: one at least, of these segments.
            coming: pages that are being fetched.
        """
        total = 1 << (len(refs) - 1).bit_length()
        chosen = set(refs)
        if len(chosen) < total:
            chosen |= self._draw(segments, chosen.union(coming), total - len(chosen))
        return shuffled(chosen)

    def _draw(
        self, segments: Sequence[Segment], others: Collection[PageRef], count: int
    ) -> set[PageRef]:
        """So many pages that are not on disk, and not among the others; fewer if there are no
        more."""
        everything = sum(segment.pages for segment in segments)
        looked_at, drawn = set(others), set[PageRef]()
        for _ in range(_ROUNDS):
            room = count - len(drawn)
            draws = (_draw_one(segments, everything) for _ in range(max(_LEAST, _SPARE * room)))
            some = set(draws) - looked_at
            looked_at |= some
            drawn |= _choose(self.select_lacking(segments, some), room)
            if len(drawn) == count:
                return drawn
        # Nearly all are here. Of many segments there may be millions of pages: one after the other.
        for segment in _chance.sample(segments, len(segments)):
            left = {PageRef(segment.uid, number) for number in range(segment.pages)} - looked_at
            drawn |= _choose(self.select_lacking([segment], left), count - len(drawn))
            if len(drawn) == count:
                break
        return drawn


def _choose(refs: Collection[PageRef], most: int) -> set[PageRef]:
    return set(_chance.sample(list(refs), min(len(refs), most)))


def _draw_one(segments: Sequence[Segment], everything: int) -> PageRef:
    """Any page of these segments, which have so many in all."""
    at = secrets.randbelow(everything)
    for segment in segments:
        if at < segment.pages:
            break
        at -= segment.pages
    return PageRef(segment.uid, at)
