"""Fetch sealed segments, their pages and rows from the API, and open them.

Pages of large segments come from memory, then from disk, then from the API. Missing pages of all
segments are fetched together, with cover pages up to a power of two, in random order
(:mod:`.cover`): the API sees only roughly how many pages are needed, and not which. Cover pages are
cached, because a query may need them later. More than ``AT_ONCE`` pages go in several requests, one
after another.

A page that another query is fetching is not requested again (single flight).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

from encrypted_records import runtime
from encrypted_records.client.api import MAX_PAGES
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.errors import Altered, DoesNotOpen
from encrypted_records.fair_queue import FairQueue
from encrypted_records.index.columns.dictionary import ByRow, ColumnSums
from encrypted_records.index.query.asking import KeptColumn, KeptSums
from encrypted_records.index.segments.loaded import KeptSegment, LoadedSegment
from encrypted_records.index.segments.mini import Built, KnownMini, MiniSegment
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.index.segments.reading import working_bytes
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.digests import check_mini
from encrypted_records.model.records import (
    MAX_ROW_REFS,
    Page,
    PageRef,
    PlainRecord,
    RowRef,
    Segment,
    SegmentHeader,
)
from encrypted_records.proxy.process import Fetch, Fetches, current_user, shuffled, wait_for
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.caches import DiskCache, MemoryCache
from encrypted_records.proxy.search.cover import PageCover, RetrySets
from encrypted_records.proxy.search.row_fetcher import RowFetcher
from encrypted_records.proxy.search.upstream import Upstream

#: Pages of one request.
AT_ONCE = 500
#: A query waits for another's fetch of at most this many pages, or this many times as many as it
#: needs: a query that needs one page must not wait for a thousand.
FEW, TIMES = 64, 4

#: Maximum number of pages in failed requests that are remembered.
_MOST_RETRY_ITEMS = 1 << 17

#: A segment, and the numbers of its missing pages.
LackingPages = tuple[LoadedSegment, set[int]]
_Wanted = list[LackingPages]
#: Sealed pages, by segment and number.
_Sealed = dict[bytes, dict[int, bytes]]


class PageFetcher:
    def __init__(self, cache: MemoryCache, stored: DiskCache) -> None:
        self._cache = cache
        self._stored = stored
        self._cover = PageCover(stored)
        self._fetches: Fetches[PageRef] = Fetches()
        self._retry_sets: RetrySets[PageRef] = RetrySets(_MOST_RETRY_ITEMS)

    def with_memory(self, cache: MemoryCache) -> PageFetcher:
        """The same fetcher with another memory cache."""
        fetcher = PageFetcher(cache, self._stored)
        fetcher._fetches, fetcher._retry_sets = self._fetches, self._retry_sets
        return fetcher

    async def fill(
        self, upstream: Upstream, wanted: Sequence[LackingPages], *, passing: bool = False
    ) -> None:
        """Load each page into its segment. Cover pages do not count in the statistics.

        Args:
            passing: whether data pages are streamed: they are used once and not kept in memory.

        Raises:
            Moved: as for :meth:`Upstream.fetch_pages`.
            DoesNotOpen: the API returned a page that was altered, or another page.
            NotFound: a segment is gone from the API: merged away and cleaned up meanwhile.
            TooLarge: as for :meth:`Upstream.need_pages`.
        """
        # This takes microseconds, less than a thread takes to start.
        if not (unread := self._from_memory(wanted)):
            return
        pages = sum(len(numbers) for _, numbers in unread)
        upstream.need_pages(pages, passing=passing)
        upstream.stats.requests += -(-pages // AT_ONCE)
        await self._bring(upstream, unread, passing)

    async def _bring(self, upstream: Upstream, unread: _Wanted, passing: bool) -> None:
        """Load pages that memory does not have into their segments."""
        alone = False
        while unread and (wanted := await runtime.in_thread(self._from_disk, unread, passing)):
            refs = _refs(wanted)
            theirs = {} if alone else self._find_fetches(refs)
            if unclaimed := _only(wanted, refs - theirs.keys()):
                await self._fetch_own(upstream, unclaimed, passing)
            if not theirs:
                return
            # Wait only once; then fetch the pages that failed or were evicted.
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
            with self._retry_sets.request(lambda: refs):
                async with aclosing(_fetch_in_parts(upstream, refs)) as parts:
                    async for sealed in parts:
                        await runtime.in_thread(self._take, wanted, sealed, passing)

    async def _choose(
        self, upstream: Upstream, segments: Sequence[Segment], needed: Collection[PageRef]
    ) -> list[PageRef]:
        """The pages to request: the needed pages, the pages of failed requests that contained some
        of them, except those on disk, and cover pages.
        """
        refs = set(needed)
        if again := self._retry_sets.same_request(needed) - refs:
            refs |= await runtime.in_thread(self._cover.select_lacking, segments, again)
        if len(refs).bit_count() == 1:  # a power of two needs no cover, and so no thread
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
        """Pages of ``segments``, in the order of ``wanted``, from disk or the API, unopened.

        They are not cached: the caller is about to replace these segments, and their pages would
        evict pages that queries need.

        Raises:
            DoesNotOpen: the API returned another page.
            NotFound: as :meth:`fill`.
        """
        by_uid = {segment.uid: segment for segment in segments}
        pages_of, left = await runtime.in_thread(self._read_stored, by_uid, wanted)
        if left:
            lacking = {PageRef(uid, number) for uid, numbers in left.items() for number in numbers}
            refs = await self._choose(upstream, [by_uid[uid] for uid in left], lacking)
            with self._retry_sets.request(lambda: refs):
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
        """Drop segments that no longer exist."""
        self._cache.drop(uids)
        self._stored.drop(uids)

    def _from_memory(self, wanted: Sequence[LackingPages]) -> _Wanted:
        """The pages that memory does not have."""
        lacking = ((segment, self._not_in_memory(segment, numbers)) for segment, numbers in wanted)
        return [(segment, left) for segment, left in lacking if left]

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
            listed = list(numbers)
            for at in range(0, len(listed), AT_ONCE):
                batch = set(listed[at : at + AT_ONCE])
                pages = self._stored.get(segment.segment.uid, batch)
                left |= batch - pages.keys()
                for number, sealed in pages.items():
                    try:
                        self._put(segment, number, sealed, passing)
                    except DoesNotOpen:
                        # The file is damaged; the API's page may open.
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
    """The pages, at most ``AT_ONCE`` at a time, so that few are held sealed; the next part is
    fetched while the previous part is opened."""
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


#: Usual bytes of a row in a row-major column.
ROW_BYTES = 2


class Fetcher:
    def __init__(
        self, cache: MemoryCache, pager: PageFetcher, rows: RowFetcher, turns: FairQueue
    ) -> None:
        """
        Args:
            turns: slots for the memory that queries take in addition to the caches.
        """
        self._cache = cache
        self._turns = turns
        self._pager = pager
        self._rows = rows
        #: single flight of segments that are being opened, by key and view
        self._opening: Fetches[tuple[bytes, bytes]] = Fetches()
        #: whether it began with an empty memory
        self.is_cold = False
        #: has minis that need not be fetched again; they still count in the statistics
        self._shared = cache

    def cold(self) -> Fetcher:
        """A fetcher with an empty memory, so that its statistics do not depend on earlier
        queries."""
        cache = MemoryCache(self._cache.pool)
        fetcher = Fetcher(cache, self._pager.with_memory(cache), self._rows, self._turns)
        fetcher._shared = self._shared
        fetcher.is_cold = True
        return fetcher

    async def open(self, upstream: Upstream, wanted: Sequence[Segment]) -> list[KeptSegment]:
        """The segments in the order of ``wanted``.

        Minis are fetched whole, all uncached minis in one request. Of larger segments the header is
        opened, and :meth:`fill` fetches pages.

        Raises:
            DoesNotOpen: a page was altered or belongs elsewhere.
            Altered: a mini is not the mini that its commit names.
            Moved: as :meth:`Upstream.fetch_pages`.
            NotFound: a segment is gone from the API: merged away and cleaned up meanwhile.
            TooLarge: as :meth:`Upstream.need_pages`.
        """
        state, stats = upstream.state, upstream.stats
        keys = state.ledger.keys
        opened = {
            segment.uid: self._cache.get(keys.of(segment.key_version).id, upstream.view(segment))
            for segment in wanted
        }
        unopened = [segment for segment in wanted if opened[segment.uid] is None]
        minis = [segment for segment in unopened if segment.form == "mini"]
        upstream.need_pages(len(minis))
        stats.requests += -(-len(minis) // MAX_PAGES)
        for segment in minis:
            key_id = keys.of(segment.key_version).id
            shared = self._shared.get(key_id, upstream.view(segment))
            if shared is not None:
                opened[segment.uid] = shared
                self._cache.put(key_id, shared)
        unopened = [segment for segment in unopened if opened[segment.uid] is None]
        if unopened:
            opened |= await self._open(upstream, unopened)
        segments = [segment for segment in opened.values() if segment is not None]
        await self._forget_ended(upstream, segments)
        return segments

    async def _open(
        self, upstream: Upstream, unopened: Sequence[Segment]
    ) -> dict[bytes, KeptSegment]:
        """Segments that memory does not have, by uid. A segment that another query is opening is
        not opened twice (single flight)."""
        keys = upstream.state.ledger.keys
        opened: dict[bytes, KeptSegment] = {}
        names = {
            (keys.of(segment.key_version).id, upstream.view(segment)): segment
            for segment in unopened
        }
        alone = False
        while names:
            theirs = {} if alone else self._opening.of(names)
            unclaimed = [name for name in names if name not in theirs]
            if unclaimed:
                with self._opening.claim(unclaimed):
                    for new in await _fetch_and_open(upstream, [names[name] for name in unclaimed]):
                        opened[new.segment.uid] = new
                        self._cache.put(keys.of(new.segment.key_version).id, new)
            if not theirs:
                break
            # Wait only once; then open the segments that are still missing.
            alone = not await wait_for(theirs.values())
            names = {name: names[name] for name in theirs}
            found = {name: self._cache.get(*name) for name in names}
            opened |= {
                segment.segment.uid: segment for segment in found.values() if segment is not None
            }
            names = {name: segment for name, segment in names.items() if found[name] is None}
        return opened

    async def _forget_ended(
        self, upstream: Upstream, segments: Sequence[KeptSegment | LoadedSegment]
    ) -> None:
        """Drop cached data of segments that were replaced while an earlier query used them. The log
        dropped the cached data when it reported the change; this drops data cached since."""
        has = upstream.state.ledger.has_segment
        if gone := [segment.segment.uid for segment in segments if not has(segment.segment.uid)]:
            await runtime.in_thread(self._pager.drop, gone)

    async def fill(
        self, upstream: Upstream, wanted: Sequence[LackingPages], *, passing: bool = False
    ) -> None:
        """Load pages into segments that were loaded from results of :meth:`open`.

        Args:
            wanted: segments, with the numbers of their missing pages.
            passing: as for :meth:`PageFetcher.fill`.

        Raises:
            DoesNotOpen, Moved, NotFound, TooLarge: as :meth:`open`.
        """
        await self._pager.fill(upstream, wanted, passing=passing)
        await self._forget_ended(upstream, [segment for segment, _ in wanted])

    @asynccontextmanager
    async def turn(self, upstream: Upstream, segment: LoadedSegment) -> AsyncIterator[None]:
        """Reserve memory for work on one segment, if it is large. A query reserves memory for one
        segment after the other, never for two at once."""
        sizes = upstream.sizes
        if segment.covered <= sizes.alone_rows:
            yield
            return
        async with self._turns.take(current_user.get(), working_bytes(segment, sizes.reading)):
            yield

    def keep_built(self, state: SchemaState, built: Built) -> None:
        """Cache a mini that was built here and is stored, so that no query fetches it."""
        history, segment = state.ledger.history, built.segment
        definition = state.definition if history is None else history.compared
        # Under another definition it is opened with other names or grids.
        if built.columns is not None and definition.digest == segment.definition:
            key_id = state.ledger.keys.of(segment.key_version).id
            self._cache.put(key_id, KnownMini(definition, built))

    async def keep(
        self, upstream: Upstream, segment: LoadedSegment, field: str, made: ByRow | ColumnSums
    ) -> None:
        """Cache the data made of a column; its size counts as it is now."""
        if isinstance(made, ColumnSums):
            self._cache.put_sums(segment.view, field, made)
        else:
            self._cache.put_column(segment.view, field, made)
        await self._forget_ended(upstream, [segment])

    def kept(self, wanted: KeptColumn | KeptSums) -> ByRow | ColumnSums | None:
        """A cached row-major column, or the cached sums of a column."""
        view = wanted.segment.view
        if isinstance(wanted, KeptSums):
            return self._cache.sums(view, wanted.field, again=wanted.again)
        return self._cache.column(view, wanted.field)

    def keeps_column(self, segment: LoadedSegment, field: str) -> bool:
        """Whether :meth:`kept` would find a column."""
        return self._cache.column(segment.view, field) is not None

    def keeps_columns(self, rows: int, fields: int) -> bool:
        """Whether row-major columns of ``rows`` rows and ``fields`` fields leave half of the memory
        free. Columns that are not cached are made for one query only.
        """
        return rows * fields * ROW_BYTES <= self._cache.pool.budget // 2

    def window(self, state: SchemaState) -> int:
        """The same as :meth:`RowFetcher.window`."""
        return self._rows.window(state.id)

    def forget(self, segments: Sequence[Segment]) -> None:
        """Drop these segments from the caches."""
        self._cache.drop(segment.uid for segment in segments)

    async def rows(
        self,
        upstream: Upstream,
        wanted: Sequence[RowRef],
        *,
        alone: bool = False,
        ranked: bool = False,
    ) -> list[PlainRecord]:
        """Open rows like :meth:`RowFetcher.open_rows`, and count them in the statistics."""
        upstream.stats.rows += len(wanted)
        upstream.stats.requests += -(-len(wanted) // MAX_ROW_REFS)
        with upstream.stats.stage("fetch_rows"):
            return await self._rows.open_rows(upstream, wanted, alone=alone, ranked=ranked)

    async def prove_rows(
        self, upstream: Upstream, wanted: Sequence[RowRef], *, alone: bool = False
    ) -> dict[RowRef, bytes]:
        """The same as :meth:`RowFetcher.prove_rows`."""
        return await self._rows.prove_rows(upstream, wanted, alone=alone)


def _open_paged(
    key: SchemaKey,
    definition: SchemaDefinition,
    segment: Segment,
    header: SegmentHeader,
    made: SchemaDefinition,
) -> OpenedHeader:
    """
    Raises:
        Altered: the header does not open, so it is not the header that was stored.
    """
    try:
        return OpenedHeader(key, definition, segment, header, made)
    except DoesNotOpen:
        raise Altered(
            f"the index is not the one that was stored: header of segment {segment.uid.hex()}"
        ) from None


async def _fetch_and_open(upstream: Upstream, unopened: Sequence[Segment]) -> list[KeptSegment]:
    """The segments; minis are fetched in one request."""
    refs = [PageRef(segment.uid, 0) for segment in unopened if segment.form == "mini"]
    pages = await upstream.fetch_pages(refs) if refs else []
    return await runtime.in_thread(_open_all, upstream, unopened, pages)


def _open_all(
    upstream: Upstream, segments: Sequence[Segment], pages: Sequence[Page]
) -> list[KeptSegment]:
    """``pages`` are those of the minis among the segments, in their order."""
    state, snapshot, definition = upstream.state, upstream.snapshot, upstream.definition
    opened: list[KeptSegment] = []
    mini_pages = iter(pages)
    for segment in segments:
        key = state.ledger.keys.of(segment.key_version)
        header, made = snapshot.header(segment), snapshot.made_under(segment)
        if segment.form == "paged":
            opened.append(_open_paged(key, definition, segment, header, made))
            continue
        page = next(mini_pages)
        if (page.segment, page.number) != (segment.uid, 0):
            raise DoesNotOpen("the API returned a page that was not requested")
        check_mini(segment, header, page.data)
        opened.append(MiniSegment(key, definition, segment, header, page, made))
    return opened
