"""Bring the pages of large segments together: from memory, from disk, and the rest from the API.

One request brings what is missing of all segments. Beside it ask for as many other pages as make
the number a power of two, in random order: the API sees how much was asked for only roughly, and
not which of it. What comes beside is kept, since it may be wanted next.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence

from encrypted_records.client.api import MAX_PAGES, Api, Known
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.paged import Opened, PagedSegment
from encrypted_records.model.records import PageRef, Segment
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.cache import SegmentCache
from encrypted_records.proxy.cost import Cost
from encrypted_records.proxy.schemas import SchemaState
from encrypted_records.proxy.sealed_pages import SealedPages

#: The pages that a segment lacks for what it is needed for.
Missing = Callable[[Opened], set[int]]

_Wanted = list[tuple[PagedSegment, set[int]]]
#: By segment and number.
_Sealed = dict[bytes, dict[int, bytes]]


class Pager:
    def __init__(self, api: Api, cache: SegmentCache, stored: SealedPages) -> None:
        self._api = api
        self._cache = cache
        self._stored = stored

    async def fill(
        self,
        caller: Caller,
        state: SchemaState,
        segments: Sequence[Opened],
        missing: Missing,
        *,
        known: Known | None,
        cost: Cost,
    ) -> None:
        """Put pages into ``segments`` until nothing is missing.

        Args:
            known: what the API is to confirm as the present state, should it be asked at all.
            cost: the API's pages count with those that are asked for beside.

        Raises:
            Moved: the present state is another than ``known``.
            DoesNotOpen: the API returned a page that was altered, or another one.
            NotFound: a segment is gone from the API: merged away and cleaned up meanwhile.
        """
        while unread := self._from_memory(segments, missing, cost):
            wanted = await asyncio.to_thread(self._from_disk, unread, cost)
            if not wanted:
                continue  # directories among them tell which pages are missing now
            refs = _with_dummies([(one.segment, numbers) for one, numbers in wanted])
            sealed = await self._fetched(caller, state, refs, known=known)
            known = None
            cost.pages["api"] += len(refs)
            cost.requests += -(-len(refs) // MAX_PAGES)
            await asyncio.to_thread(self._take, state, wanted, sealed)

    async def sealed(
        self,
        caller: Caller,
        state: SchemaState,
        segments: Sequence[Segment],
        wanted: Sequence[PageRef],
    ) -> list[bytes]:
        """Pages of ``segments``, in the order asked for, from disk or the API; none is opened.

        Raises:
            DoesNotOpen: the API returned another page.
            NotFound: as :meth:`fill`.
        """
        by_uid = {one.uid: one for one in segments}
        found, left = await asyncio.to_thread(self._stored_ones, by_uid, wanted)
        if left:
            refs = _with_dummies([(by_uid[uid], numbers) for uid, numbers in left.items()])
            fetched = await self._fetched(caller, state, refs, known=None)
            for uid, pages in fetched.items():
                found.setdefault(uid, {}).update(pages)
                if by_uid[uid].form == "paged":
                    await asyncio.to_thread(self._stored.put, uid, pages)
        return [found[ref.segment][ref.number] for ref in wanted]

    def _stored_ones(
        self, segments: Mapping[bytes, Segment], wanted: Sequence[PageRef]
    ) -> tuple[_Sealed, dict[bytes, set[int]]]:
        """What is on disk of these pages, and the others."""
        left: dict[bytes, set[int]] = {}
        for ref in wanted:
            left.setdefault(ref.segment, set()).add(ref.number)
        found: _Sealed = {}
        for uid in list(left):
            if segments[uid].form == "paged":
                found[uid] = self._stored.get(uid, left[uid])
                left[uid] -= found[uid].keys()
            if not left[uid]:
                del left[uid]
        return found, left

    async def _fetched(
        self, caller: Caller, state: SchemaState, refs: Sequence[PageRef], *, known: Known | None
    ) -> _Sealed:
        pages = await self._api.pages(state.id, refs, caller.auth, known=known)
        sealed: _Sealed = {}
        for ref, page in zip(refs, pages, strict=True):
            if (page.segment, page.number) != (ref.segment, ref.number):
                raise DoesNotOpen("the API returned another page than it was asked for")
            sealed.setdefault(page.segment, {})[page.number] = page.data
        return sealed

    def drop(self, uids: Sequence[bytes]) -> None:
        """Forget segments that are no more."""
        self._cache.drop(uids)
        self._stored.drop(uids)

    def _from_memory(self, segments: Sequence[Opened], missing: Missing, cost: Cost) -> _Wanted:
        """What memory does not have, of what is missing."""
        unread: _Wanted = []
        for segment in segments:
            # What is found here may tell what is missing next.
            while numbers := missing(segment):
                assert isinstance(segment, PagedSegment)
                left = self._not_in_memory(segment, numbers)
                cost.pages["memory"] += len(numbers) - len(left)
                if left:
                    unread.append((segment, left))
                    break
        return unread

    def _not_in_memory(self, segment: PagedSegment, numbers: set[int]) -> set[int]:
        left = set()
        for number in numbers:
            block = self._cache.block(segment.segment.uid, number)
            if block is None:
                left.add(number)
            else:
                segment.blocks[number] = block
        return left

    def _from_disk(self, unread: _Wanted, cost: Cost) -> _Wanted:
        """What the disk does not have either."""
        wanted: _Wanted = []
        for segment, numbers in unread:
            found = self._stored.get(segment.segment.uid, numbers)
            left = numbers - found.keys()
            for number, sealed in found.items():
                try:
                    self._put(segment, number, sealed)
                except DoesNotOpen:
                    # Of a damaged file; what the API has may be well.
                    left.add(number)
            cost.pages["disk"] += len(numbers) - len(left)
            if left:
                wanted.append((segment, left))
        return wanted

    def _put(self, segment: PagedSegment, number: int, sealed: bytes) -> None:
        segment.put(number, sealed)
        block = segment.blocks.get(number)
        if block is not None:
            self._cache.put_block(segment.segment.uid, number, block)

    def _take(self, state: SchemaState, wanted: _Wanted, sealed: _Sealed) -> None:
        for segment, numbers in wanted:
            uid = segment.segment.uid
            for number in numbers:
                self._put(segment, number, sealed[uid][number])
            # Directories are held by the segment, which is larger for them now.
            key = state.ledger.keys.of(segment.segment.key_version)
            self._cache.put(key.id, segment.over({}))
        for uid, pages in sealed.items():
            self._stored.put(uid, pages)


def _with_dummies(wanted: Sequence[tuple[Segment, set[int]]]) -> list[PageRef]:
    """What is wanted and pages at random of the same segments, up to a power of two, shuffled."""
    chosen = {(segment.uid, number) for segment, numbers in wanted for number in numbers}
    everything = sum(segment.pages for segment, _ in wanted)
    total = min(1 << (len(chosen) - 1).bit_length(), everything)
    while len(chosen) < total:
        at = secrets.randbelow(everything)
        for segment, _ in wanted:
            if at < segment.pages:
                chosen.add((segment.uid, at))
                break
            at -= segment.pages
    refs = [PageRef(uid, number) for uid, number in chosen]
    secrets.SystemRandom().shuffle(refs)
    return refs
