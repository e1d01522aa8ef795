"""Fetch sealed segments and rows from the API and open them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from encrypted_records import runtime
from encrypted_records.client.api import MAX_PAGES
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.errors import Altered, DoesNotOpen
from encrypted_records.fair_queue import FairQueue
from encrypted_records.index.columns.dictionary import ByRow
from encrypted_records.index.columns.sums import ColumnSums
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
    SealedRow,
    Segment,
    SegmentHeader,
)
from encrypted_records.proxy.process.coalescing import Fetches, wait_for
from encrypted_records.proxy.process.offload import current_user
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.memory_cache import MemoryCache
from encrypted_records.proxy.search.page_fetcher import LackingPages, PageFetcher
from encrypted_records.proxy.search.row_fetcher import RowFetcher
from encrypted_records.proxy.search.upstream import Upstream

#: What a row takes of a column by row, mostly.
ROW_BYTES = 2


class Fetcher:
    def __init__(
        self, cache: MemoryCache, pager: PageFetcher, rows: RowFetcher, turns: FairQueue
    ) -> None:
        """
        Args:
            turns: at the memory that questions take beside the caches.
        """
        self._cache = cache
        self._turns = turns
        self._pager = pager
        self._rows = rows
        #: of segments that are being opened, by key and view
        self._opening: Fetches[tuple[bytes, bytes]] = Fetches()
        #: whether it began with an empty memory
        self.is_cold = False
        #: has minis that need not be fetched again; they count in the statistics all the same
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
        """The segments in the order asked for.

        Minis are fetched whole, all that are not cached in one request; of larger ones the header
        is opened, and :meth:`fill` fetches pages.

        Raises:
            DoesNotOpen: a page was altered or belongs elsewhere.
            Altered: a mini is not the one that its commit names.
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
        """Segments that memory does not have, by uid. What another question opens is opened once
        for both."""
        keys = upstream.state.ledger.keys
        opened: dict[bytes, KeptSegment] = {}
        names = {
            (keys.of(segment.key_version).id, upstream.view(segment)): segment
            for segment in unopened
        }
        alone = False
        while names:
            theirs = {} if alone else self._opening.of(names)
            own = [name for name in names if name not in theirs]
            if own:
                with self._opening.claim(own):
                    for new in await _fetch_and_open(upstream, [names[name] for name in own]):
                        opened[new.segment.uid] = new
                        self._cache.put(keys.of(new.segment.key_version).id, new)
            if not theirs:
                break
            # Waited for once, each opens what it still lacks.
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
        """Keep nothing of segments that were replaced while a question of before used them: the
        log drops what is kept when it tells of that, and this comes after what was put since."""
        has = upstream.state.ledger.has_segment
        if gone := [segment.segment.uid for segment in segments if not has(segment.segment.uid)]:
            await runtime.in_thread(self._pager.drop, gone)

    async def fill(
        self, upstream: Upstream, wanted: Sequence[LackingPages], *, passing: bool = False
    ) -> None:
        """Put pages into segments that were loaded from what :meth:`open` gave.

        Args:
            wanted: the numbers of the pages that each lacks.
            passing: as for :meth:`PageFetcher.fill`.

        Raises:
            DoesNotOpen, Moved, NotFound, TooLarge: as :meth:`open`.
        """
        await self._pager.fill(upstream, wanted, passing=passing)
        await self._forget_ended(upstream, [segment for segment, _ in wanted])

    @asynccontextmanager
    async def turn(self, upstream: Upstream, segment: LoadedSegment) -> AsyncIterator[None]:
        """The memory that work on one segment takes, where that is much: a question has it for one
        segment after the other, and for no two at once."""
        sizes = upstream.sizes
        if segment.covered <= sizes.alone_rows:
            yield
            return
        async with self._turns.take(current_user.get(), working_bytes(segment, sizes.reading)):
            yield

    def keep_built(self, state: SchemaState, built: Built) -> None:
        """Keep a mini that was built here, and is stored: no question fetches it then."""
        history, segment = state.ledger.history, built.segment
        definition = state.definition if history is None else history.compared
        # Under another one it is opened with other names or grids.
        if built.columns is not None and definition.digest == segment.definition:
            key_id = state.ledger.keys.of(segment.key_version).id
            self._cache.put(key_id, KnownMini(definition, built))

    async def keep(
        self, upstream: Upstream, segment: LoadedSegment, field: str, made: ByRow | ColumnSums
    ) -> None:
        """Keep what was made of a column, and count it as large as it has become."""
        if isinstance(made, ColumnSums):
            self._cache.put_sums(segment.view, field, made)
        else:
            self._cache.put_column(segment.view, field, made)
        await self._forget_ended(upstream, [segment])

    def kept(self, wanted: KeptColumn | KeptSums) -> ByRow | ColumnSums | None:
        """A column by row, or its sums, where they are kept."""
        view = wanted.segment.view
        if isinstance(wanted, KeptSums):
            return self._cache.sums(view, wanted.field, again=wanted.again)
        return self._cache.column(view, wanted.field)

    def keeps_column(self, segment: LoadedSegment, field: str) -> bool:
        """Whether :meth:`kept` would find a column."""
        return self._cache.column(segment.view, field) is not None

    def keeps_columns(self, rows: int, fields: int) -> bool:
        """Whether row-major columns of ``rows`` rows and ``fields`` fields leave half of the memory
        to others. Columns that are not kept are made for one query only.
        """
        return rows * fields * ROW_BYTES <= self._cache.pool.budget // 2

    def window(self, state: SchemaState) -> int:
        """The same as :meth:`RowFetcher.window`."""
        return self._rows.window(state.id)

    def forget(self, segments: Sequence[Segment]) -> None:
        """Fetch these again when they are needed next."""
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

    async def sealed_rows(self, upstream: Upstream, wanted: Sequence[RowRef]) -> list[SealedRow]:
        """The same as :meth:`RowFetcher.fetch_sealed`."""
        return await self._rows.fetch_sealed(upstream, wanted)


def _open_paged(
    key: SchemaKey,
    definition: SchemaDefinition,
    segment: Segment,
    header: SegmentHeader,
    made: SchemaDefinition,
) -> OpenedHeader:
    """
    Raises:
        Altered: the header does not open, so that it is not the one that was stored.
    """
    try:
        return OpenedHeader(key, definition, segment, header, made)
    except DoesNotOpen:
        raise Altered(
            f"the index is not the one that was stored: header of segment {segment.uid.hex()}"
        ) from None


async def _fetch_and_open(upstream: Upstream, unopened: Sequence[Segment]) -> list[KeptSegment]:
    """The segments, of which minis are fetched in one request."""
    refs = [PageRef(segment.uid, 0) for segment in unopened if segment.form == "mini"]
    pages = await upstream.fetch_pages(refs) if refs else []
    return await runtime.in_thread(_open_all, upstream, unopened, pages)


def _open_all(
    upstream: Upstream, segments: Sequence[Segment], pages: Sequence[Page]
) -> list[KeptSegment]:
    """``pages`` are those of the minis among the segments, in their order."""
    state, snapshot, definition = upstream.state, upstream.snapshot, upstream.definition
    opened: list[KeptSegment] = []
    rest = iter(pages)
    for segment in segments:
        key = state.ledger.keys.of(segment.key_version)
        header, made = snapshot.header(segment), snapshot.made_under(segment)
        if segment.form == "paged":
            opened.append(_open_paged(key, definition, segment, header, made))
            continue
        page = next(rest)
        if (page.segment, page.number) != (segment.uid, 0):
            raise DoesNotOpen("the API returned a page that was not requested")
        check_mini(segment, header, page.data)
        opened.append(MiniSegment(key, definition, segment, header, page, made))
    return opened
