"""Cover pages of a request, so that it reveals less about the needed pages.

They are drawn from all pages of the same segments, up to a power of two, by the question under the
schema's key: other proxies of a team draw the same (:mod:`.row_cover`). Of a page that had come
before, or that is coming, an API would know that it is not needed, since a proxy keeps what it has:
so it is not drawn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from encrypted_records.model.records import PageRef, Segment
from encrypted_records.proxy.process.secrecy import shuffled
from encrypted_records.proxy.search.disk_cache import DiskCache
from encrypted_records.proxy.search.row_cover import Draw

#: At least so many pages are looked at, or so many times as many as are needed, and that so many
#: times, before all are.
_LEAST, _SPARE, _ROUNDS = 16, 2, 6


class PageCover:
    """Looks on disk, and is called from threads."""

    def __init__(self, stored: DiskCache) -> None:
        self._stored = stored

    def select_lacking(
        self, segments: Sequence[Segment], refs: Collection[PageRef]
    ) -> set[PageRef]:
        """The pages among these that are of the segments, and not on disk."""
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
        draw: Draw,
        coming: Collection[PageRef] = (),
    ) -> list[PageRef]:
        """These pages and cover pages of the segments, up to a power of two; fewer if no more are
        missing here. The order is random.

        Args:
            refs: one at least, of these segments.
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
            some = dict.fromkeys(_page_at(in_order, place) for place in places)
            new = [ref for ref in some if ref not in looked_at]
            looked_at.update(new)
            lacking = self.select_lacking(segments, new)
            drawn.update([ref for ref in new if ref in lacking][:room])
            if len(drawn) == count:
                return drawn
        # Nearly all are here. Of many segments there may be millions of pages: one after the other.
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
    """The page with this number of all pages of these segments, which have more."""
    for segment in segments:
        if at < segment.pages:
            break
        at -= segment.pages
    return PageRef(segment.uid, at)
