"""Fetch sealed segments and rows from the API and open them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from pyroaring import BitMap

from encrypted_records import runtime
from encrypted_records.client.api import MAX_PAGES, MAX_ROWS
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.errors import Altered, DoesNotOpen
from encrypted_records.index.segments.mini import Built, KnownMini, MiniSegment
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment
from encrypted_records.index.segments.reading import (
    Reading,
    sum_column,
    turn_round,
    working_bytes,
)
from encrypted_records.memory.turns import MemoryTurns
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.digests import check_mini
from encrypted_records.model.records import (
    Page,
    PageRef,
    PlainRecord,
    RowRef,
    SealedRow,
    Segment,
    SegmentHeader,
)
from encrypted_records.proxy.process.fetches import Fetches, wait_for
from encrypted_records.proxy.process.offload import aside, current_user
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.memory_cache import MemoryCache
from encrypted_records.proxy.search.page_fetcher import Missing, PageFetcher
from encrypted_records.proxy.search.row_fetcher import RowFetcher
from encrypted_records.proxy.search.upstream import Upstream

T = TypeVar("T")
#: What a row takes of a column by row, mostly.
ROW_BYTES = 2


class Fetcher:
    def __init__(
        self, cache: MemoryCache, pager: PageFetcher, rows: RowFetcher, turns: MemoryTurns
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

    async def open(self, upstream: Upstream, wanted: Sequence[Segment]) -> list[OpenedSegment]:
        """The segments in the order asked for.

        Minis are fetched whole, all that are not cached in one request. Larger segments have no
        pages yet: :meth:`fill` fetches those.

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
        segments = [_own(one) for one in opened.values() if one is not None]
        await self._forget_ended(upstream, segments)
        return segments

    async def _open(
        self, upstream: Upstream, unopened: Sequence[Segment]
    ) -> dict[bytes, OpenedSegment]:
        """Segments that memory does not have, by uid. What another question opens is opened once
        for both."""
        keys = upstream.state.ledger.keys
        opened: dict[bytes, OpenedSegment] = {}
        names = {(keys.of(one.key_version).id, upstream.view(one)): one for one in unopened}
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
            opened |= {one.segment.uid: one for one in found.values() if one is not None}
            names = {name: one for name, one in names.items() if found[name] is None}
        return opened

    async def _forget_ended(self, upstream: Upstream, segments: Sequence[OpenedSegment]) -> None:
        """Keep nothing of segments that were replaced while a question of before used them: the
        log drops what is kept when it tells of that, and this comes after what was put since."""
        has = upstream.state.ledger.has_segment
        if gone := [segment.segment.uid for segment in segments if not has(segment.segment.uid)]:
            await runtime.in_thread(self._pager.drop, gone)

    async def fill(
        self,
        upstream: Upstream,
        segments: Sequence[OpenedSegment],
        missing: Missing,
        *,
        passing: bool = False,
    ) -> None:
        """Bring into segments that :meth:`open` gave all that ``missing`` names of them:
        directories in one request, data in a second.

        Args:
            passing: as for :meth:`PageFetcher.fill`.

        Raises:
            DoesNotOpen, Moved, NotFound, TooLarge: as :meth:`open`.
        """
        await self._pager.fill(upstream, segments, missing, passing=passing)
        await self._forget_ended(upstream, segments)

    async def columns(
        self, upstream: Upstream, segments: Sequence[OpenedSegment], fields: Collection[str]
    ) -> None:
        """Bring whole columns, by row, into segments that :meth:`open` gave.

        Raises:
            DoesNotOpen, Moved, NotFound: as :meth:`fill`.
        """
        wanted = [
            (segment, name)
            for segment in segments
            if isinstance(segment, PagedSegment)
            for name in fields
            if not self._use_cached_keys(segment, name)
        ]
        if not wanted:
            return
        await self.fill(upstream, segments, lambda segment: segment.missing_columns(fields))
        await runtime.in_thread(self._decode, wanted)
        await self._forget_ended(upstream, segments)

    async def by_row(self, upstream: Upstream, segment: PagedSegment, field: str) -> None:
        """Bring a whole column by row, with its keys if these are not too many, a window of its
        pages at a time. Its directory must be here.

        Raises:
            DoesNotOpen, Moved, NotFound: as :meth:`fill`.
        """
        if self.use_cached(segment, field):
            return
        limits = upstream.sizes.reading
        column = await self.read(upstream, segment, turn_round(segment, field, limits))
        segment.columns[field] = column
        self._cache.put_column(segment.view, field, column)
        await self._forget_ended(upstream, [segment])

    async def sums(
        self, upstream: Upstream, segment: PagedSegment, field: str, rows: BitMap
    ) -> None:
        """Bring what a column of numbers adds up to, with the keys of some rows. Its directory must
        be here.

        Raises:
            DoesNotOpen, Moved, NotFound: as :meth:`fill`.
        """
        # Another question may have brought it since the caller looked.
        if self.use_sums(segment, field, rows, again=True):
            return
        limits = upstream.sizes.reading
        sums = await self.read(upstream, segment, sum_column(segment, field, rows, limits))
        segment.sums[field] = sums
        self._cache.put_sums(segment.view, field, sums)
        await self._forget_ended(upstream, [segment])

    async def read(self, upstream: Upstream, segment: PagedSegment, reading: Reading[T]) -> T:
        """Run what reads a segment, and bring the pages that it lacks.

        Raises:
            DoesNotOpen, Moved, NotFound: as :meth:`fill`.
        """
        while not isinstance(step := await aside(_go_on, reading), _Read):
            await self._pager.fill(upstream, [segment], partial(_lacking, step), passing=True)
        return step.value

    @asynccontextmanager
    async def turn(self, upstream: Upstream, segment: OpenedSegment) -> AsyncIterator[None]:
        """The memory that work on one segment takes, where that is much: a question has it for one
        segment after the other, and for no two at once."""
        sizes = upstream.sizes
        if not isinstance(segment, PagedSegment) or segment.covered <= sizes.alone_rows:
            yield
            return
        async with self._turns.take(working_bytes(segment, sizes.reading), current_user.get()):
            yield

    def keep_built(self, state: SchemaState, built: Built) -> None:
        """Keep a mini that was built here, and is stored: no question fetches it then."""
        history, segment = state.ledger.history, built.segment
        definition = state.definition if history is None else history.compared
        # Under another one it is opened with other names or grids.
        if built.columns is not None and definition.digest == segment.definition:
            key_id = state.ledger.keys.of(segment.key_version).id
            self._cache.put(key_id, KnownMini(definition, built))

    async def keep(self, upstream: Upstream, segment: PagedSegment, field: str) -> None:
        """Keep a column of a segment, and count it as large as it has become."""
        self._cache.put_column(segment.view, field, segment.columns[field])
        await self._forget_ended(upstream, [segment])

    def use_cached(self, segment: PagedSegment, field: str) -> bool:
        """Put a column that is kept by row into the segment, if there is one."""
        column = self._cache.column(segment.view, field)
        if column is not None:
            segment.columns[field] = column
        return column is not None

    def keeps_column(self, segment: PagedSegment, field: str) -> bool:
        """Whether :meth:`use_cached` would find a column."""
        return self._cache.column(segment.view, field) is not None

    def use_sums(
        self, segment: PagedSegment, field: str, rows: BitMap, *, again: bool = False
    ) -> bool:
        """Put what a column adds up to into the segment, if it is kept with the keys of these rows.

        Args:
            again: whether it was looked for just before.
        """
        sums = self._cache.sums(segment.view, field, again=again)
        if sums is None or not sums.has(rows):
            return False
        segment.sums[field] = sums
        return True

    def keeps_columns(self, rows: int, fields: int) -> bool:
        """Whether columns by row of so many rows and fields leave half of the memory to others.
        What does not stay is made for one question alone."""
        return rows * fields * ROW_BYTES <= self._cache.pool.budget // 2

    def _use_cached_keys(self, segment: PagedSegment, field: str) -> bool:
        """The same, if it has its keys."""
        return self.use_cached(segment, field) and segment.has_keys(field)

    def _decode(self, wanted: Sequence[tuple[PagedSegment, str]]) -> None:
        for segment, field in wanted:
            self._cache.put_column(segment.view, field, segment.dictionary(field))

    def window(self, state: SchemaState) -> int:
        """As :meth:`RowFetcher.window`."""
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
        """As :meth:`RowFetcher.open_rows`."""
        upstream.stats.rows += len(wanted)
        upstream.stats.requests += -(-len(wanted) // MAX_ROWS)
        with upstream.stats.stage("fetch_rows"):
            return await self._rows.open_rows(upstream, wanted, alone=alone, ranked=ranked)

    async def prove_rows(
        self, upstream: Upstream, wanted: Sequence[RowRef], *, alone: bool = False
    ) -> dict[RowRef, bytes]:
        """As :meth:`RowFetcher.prove_rows`."""
        return await self._rows.prove_rows(upstream, wanted, alone=alone)

    async def sealed_rows(self, upstream: Upstream, wanted: Sequence[RowRef]) -> list[SealedRow]:
        """As :meth:`RowFetcher.fetch_sealed`."""
        return await self._rows.fetch_sealed(upstream, wanted)


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """What was read."""

    value: T


def _go_on(reading: Reading[T]) -> set[int] | _Read[T]:
    try:
        return next(reading)
    except StopIteration as end:
        return _Read(end.value)


def _lacking(numbers: set[int], segment: OpenedSegment) -> set[int]:
    assert isinstance(segment, PagedSegment)
    return numbers - segment.blocks.keys()


def _own(segment: OpenedSegment) -> OpenedSegment:
    """A segment whose pages stay while this query needs them, whatever the cache drops."""
    return segment.share() if isinstance(segment, PagedSegment) else segment


def _open_paged(
    key: SchemaKey,
    definition: SchemaDefinition,
    segment: Segment,
    header: SegmentHeader,
    made: SchemaDefinition,
) -> PagedSegment:
    """
    Raises:
        Altered: the header does not open, so that it is not the one that was stored.
    """
    try:
        return PagedSegment(key, definition, segment, header, made=made)
    except DoesNotOpen:
        raise Altered(
            f"the index is not the one that was stored: header of segment {segment.uid.hex()}"
        ) from None


async def _fetch_and_open(upstream: Upstream, unopened: Sequence[Segment]) -> list[OpenedSegment]:
    """The segments, of which minis are fetched in one request."""
    refs = [PageRef(segment.uid, 0) for segment in unopened if segment.form == "mini"]
    pages = await upstream.fetch_pages(refs) if refs else []
    return await runtime.in_thread(_open_all, upstream, unopened, pages)


def _open_all(
    upstream: Upstream, segments: Sequence[Segment], pages: Sequence[Page]
) -> list[OpenedSegment]:
    """``pages`` are those of the minis among the segments, in their order."""
    state, snapshot, definition = upstream.state, upstream.snapshot, upstream.definition
    opened: list[OpenedSegment] = []
    rest = iter(pages)
    for segment in segments:
        key = state.ledger.keys.of(segment.key_version)
        header, made = snapshot.header(segment), snapshot.made_under(segment)
        if segment.form == "paged":
            opened.append(_open_paged(key, definition, segment, header, made))
            continue
        page = next(rest)
        if (page.segment, page.number) != (segment.uid, 0):
            raise DoesNotOpen("the API returned another page than it was asked for")
        check_mini(segment, header, page.data)
        opened.append(MiniSegment(key, definition, segment, header, page, made))
    return opened
