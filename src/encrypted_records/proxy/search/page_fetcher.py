"""Fetch the pages of large segments: from memory, from disk, and the rest from the API.

Missing pages of all segments are fetched together, and extra pages up to a power of two, in random
order (:mod:`.page_cover`): the API sees only roughly how many are needed, and not which. The extra
pages are kept, since a query may need them later. More than ``AT_ONCE`` go in several requests, one
after another.

A page that another question is fetching is not asked for again (:mod:`..process.coalescing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing

from encrypted_records import runtime
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.model.records import PageRef, Segment
from encrypted_records.proxy.process.coalescing import Fetch, Fetches, wait_for
from encrypted_records.proxy.process.secrecy import shuffled
from encrypted_records.proxy.search.disk_cache import DiskCache
from encrypted_records.proxy.search.memory_cache import MemoryCache
from encrypted_records.proxy.search.page_cover import PageCover
from encrypted_records.proxy.search.unanswered import Unanswered
from encrypted_records.proxy.search.upstream import Upstream

#: Pages of one request.
AT_ONCE = 500
#: A question waits for another's fetch of so many pages, or of so many times as many as it needs:
#: who needs one is not to wait for a thousand.
FEW, TIMES = 64, 4

#: Pages that were requested in vain and are remembered.
_MOST_UNANSWERED = 1 << 17

#: A segment, and the numbers of pages that it lacks.
LackingPages = tuple[LoadedSegment, set[int]]
_Wanted = list[LackingPages]
#: By segment and number.
_Sealed = dict[bytes, dict[int, bytes]]


class PageFetcher:
    def __init__(self, cache: MemoryCache, stored: DiskCache) -> None:
        self._cache = cache
        self._stored = stored
        self._cover = PageCover(stored)
        self._fetches: Fetches[PageRef] = Fetches()
        self._unanswered: Unanswered[PageRef] = Unanswered(_MOST_UNANSWERED)

    def with_memory(self, cache: MemoryCache) -> PageFetcher:
        """The same, with another memory."""
        fetcher = PageFetcher(cache, self._stored)
        fetcher._fetches, fetcher._unanswered = self._fetches, self._unanswered
        return fetcher

    async def fill(
        self, upstream: Upstream, wanted: Sequence[LackingPages], *, passing: bool = False
    ) -> None:
        """Load pages into segments, each once. Cover pages do not count in the statistics.

        Args:
            passing: whether data pages are streamed: they are used once and not kept in memory.

        Raises:
            Moved: as for :meth:`Upstream.fetch_pages`.
            DoesNotOpen: the API returned a page that was altered, or another one.
            NotFound: a segment is gone from the API: merged away and cleaned up meanwhile.
            TooLarge: as for :meth:`Upstream.need_pages`.
        """
        # It takes microseconds, less than a thread takes to start.
        if not (unread := self._from_memory(wanted)):
            return
        pages = sum(len(numbers) for _, numbers in unread)
        upstream.need_pages(pages, passing=passing)
        upstream.stats.requests += -(-pages // AT_ONCE)
        await self._bring(upstream, unread, passing)

    async def _bring(self, upstream: Upstream, unread: _Wanted, passing: bool) -> None:
        """Put these pages, which memory does not have, into their segments."""
        alone = False
        while unread and (wanted := await runtime.in_thread(self._from_disk, unread, passing)):
            refs = _refs(wanted)
            theirs = {} if alone else self._find_fetches(refs)
            if own := _only(wanted, refs - theirs.keys()):
                await self._fetch_own(upstream, own, passing)
            if not theirs:
                return
            # Waited for once, each fetches what it still lacks: that failed, or did not stay.
            alone = not await wait_for(theirs.values())
            unread = self._from_memory(_only(wanted, theirs.keys()))

    def _find_fetches(self, refs: Collection[PageRef]) -> dict[PageRef, Fetch]:
        """The fetches by other queries that are worth waiting for, by page."""
        most = max(FEW, TIMES * len(refs))
        under_way = self._fetches.of(refs)
        return {ref: fetch for ref, fetch in under_way.items() if fetch.size <= most}

    async def _fetch_own(self, upstream: Upstream, wanted: _Wanted, passing: bool) -> None:
        needed, segments = _refs(wanted), [opened.segment for opened, _ in wanted]
        with self._fetches.claim(needed) as claim:
            refs = await self._choose(upstream, segments, needed)
            claim(refs)
            with self._unanswered.request(lambda: refs):
                async with aclosing(_fetch_in_parts(upstream, refs)) as parts:
                    async for sealed in parts:
                        await runtime.in_thread(self._take, wanted, sealed, passing)

    async def _choose(
        self, upstream: Upstream, segments: Sequence[Segment], needed: Collection[PageRef]
    ) -> list[PageRef]:
        """The pages to request: the needed pages, the pages of unanswered requests that contained
        some of these, except those on disk, and cover pages.
        """
        refs = set(needed)
        if again := self._unanswered.beside(needed) - refs:
            refs |= await runtime.in_thread(self._cover.select_lacking, segments, again)
        if len(refs).bit_count() == 1:  # without a thread, for which all may wait
            return shuffled(refs)
        draw = upstream.draws(ref.segment + ref.number.to_bytes(4, "big") for ref in needed)
        coming = self._fetches.all()
        return await runtime.in_thread(self._cover.fill_up, segments, refs, draw, coming)

    async def fetch_sealed(
        self,
        upstream: Upstream,
        segments: Sequence[Segment],
        wanted: Sequence[PageRef],
    ) -> list[bytes]:
        """Pages of ``segments``, in the order asked for, from disk or the API; none is opened.

        None is kept: who asks is about to replace these segments, and they would take the place of
        what questions need.

        Raises:
            DoesNotOpen: the API returned another page.
            NotFound: as :meth:`fill`.
        """
        by_uid = {segment.uid: segment for segment in segments}
        pages_of, left = await runtime.in_thread(self._read_stored, by_uid, wanted)
        if left:
            lacking = {PageRef(uid, number) for uid, numbers in left.items() for number in numbers}
            refs = await self._choose(upstream, [by_uid[uid] for uid in left], lacking)
            with self._unanswered.request(lambda: refs):
                fetched = await _fetch(upstream, refs)
            for uid, pages in fetched.items():
                pages_of.setdefault(uid, {}).update(pages)
        return [pages_of[ref.segment][ref.number] for ref in wanted]

    def _read_stored(
        self, segments: Mapping[bytes, Segment], wanted: Sequence[PageRef]
    ) -> tuple[_Sealed, dict[bytes, set[int]]]:
        """The wanted pages that are on disk, and the numbers of the others."""
        left: dict[bytes, set[int]] = {}
        for ref in wanted:
            left.setdefault(ref.segment, set()).add(ref.number)
        pages_of: _Sealed = {}
        for uid in list(left):
            if segments[uid].form == "paged":
                pages_of[uid] = self._stored.get(uid, left[uid])
                left[uid] -= pages_of[uid].keys()
            if not left[uid]:
                del left[uid]
        return pages_of, left

    def drop(self, uids: Sequence[bytes]) -> None:
        """Forget segments that no longer exist."""
        self._cache.drop(uids)
        self._stored.drop(uids)

    def _from_memory(self, wanted: Sequence[LackingPages]) -> _Wanted:
        """The pages that memory does not have."""
        every = ((segment, self._not_in_memory(segment, numbers)) for segment, numbers in wanted)
        return [(segment, left) for segment, left in every if left]

    def _not_in_memory(self, segment: LoadedSegment, numbers: set[int]) -> set[int]:
        left = set()
        view, directories = segment.view, segment.directories
        for number in numbers:
            if (field := directories.field_of(number)) is not None:
                complete = directories.get(field) or self._cache.directory(view, field)
                if complete is None:
                    left.add(number)
                else:
                    directories.use(field, complete)
                continue
            block = self._cache.block(view, number)
            if block is None:
                left.add(number)
            else:
                segment.blocks[number] = block
        return left

    def _from_disk(self, unread: _Wanted, passing: bool) -> _Wanted:
        """Put pages from disk into their segments; returns the pages that are not on disk either,
        or do not open.
        """
        wanted: _Wanted = []
        for segment, numbers in unread:
            left: set[int] = set()
            every = list(numbers)
            for at in range(0, len(every), AT_ONCE):
                some = set(every[at : at + AT_ONCE])
                pages = self._stored.get(segment.segment.uid, some)
                left |= some - pages.keys()
                for number, sealed in pages.items():
                    try:
                        self._put(segment, number, sealed, passing)
                    except DoesNotOpen:
                        # The file is damaged; the page of the API may open.
                        left.add(number)
            if left:
                wanted.append((segment, left))
        return wanted

    def _put(self, segment: LoadedSegment, number: int, sealed: bytes, passing: bool) -> None:
        segment.put(number, sealed)
        field = segment.directories.field_of(number)
        if field is None and not passing:
            self._cache.put_block(segment.view, number, segment.blocks[number])
        elif field is not None and (complete := segment.directories.get(field)) is not None:
            self._cache.put_directory(segment.view, field, complete)

    def _take(self, wanted: _Wanted, sealed: _Sealed, passing: bool) -> None:
        for segment, numbers in wanted:
            pages = sealed.get(segment.segment.uid, {})
            for number in numbers & pages.keys():
                self._put(segment, number, pages[number], passing)
        for uid, pages in sealed.items():
            self._stored.put(uid, pages)


def _refs(wanted: _Wanted) -> set[PageRef]:
    return {PageRef(opened.segment.uid, number) for opened, numbers in wanted for number in numbers}


def _only(wanted: _Wanted, refs: Collection[PageRef]) -> _Wanted:
    """The part of ``wanted`` that is among ``refs``."""
    parts = (
        (opened, {number for number in numbers if PageRef(opened.segment.uid, number) in refs})
        for opened, numbers in wanted
    )
    return [(opened, numbers) for opened, numbers in parts if numbers]


async def _fetch_in_parts(
    upstream: Upstream, refs: Sequence[PageRef]
) -> AsyncGenerator[_Sealed, None]:
    """The pages, at most ``AT_ONCE`` at a time, so that few are held sealed; the next part comes
    while the one before is opened."""
    coming: asyncio.Task[_Sealed] | None = None
    try:
        for at in range(0, len(refs), AT_ONCE):
            part = await (coming or _fetch(upstream, refs[at : at + AT_ONCE]))
            following = refs[at + AT_ONCE : at + 2 * AT_ONCE]
            coming = asyncio.create_task(_fetch(upstream, following)) if following else None  # noqa: TID251 # ends with its request
            yield part
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


async def _fetch(upstream: Upstream, refs: Sequence[PageRef]) -> _Sealed:
    pages = await upstream.fetch_pages(refs)
    sealed: _Sealed = {}
    for ref, page in zip(refs, pages, strict=True):
        if (page.segment, page.number) != (ref.segment, ref.number):
            raise DoesNotOpen("the API returned a page that was not requested")
        sealed.setdefault(page.segment, {})[page.number] = page.data
    return sealed
