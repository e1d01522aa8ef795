"""Fetch sealed segments and rows from the API and open them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Sequence

from encrypted_records.client.api import MAX_PAGES, MAX_ROWS, Api, Known
from encrypted_records.errors import DoesNotOpen, LogBroken, NotFound
from encrypted_records.index.paged import Opened, PagedSegment
from encrypted_records.index.rows import open_row
from encrypted_records.index.segments import OpenSegment
from encrypted_records.index.view import View
from encrypted_records.model.records import Page, PageRef, PlainRecord, RowRef, Segment, StoredRow
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.cache import SegmentCache
from encrypted_records.proxy.cost import Cost
from encrypted_records.proxy.pager import Missing, Pager
from encrypted_records.proxy.schemas import SchemaState

#: So many rows are opened sooner than a thread has taken them over.
FEW_ROWS = 32


class Reader:
    def __init__(self, api: Api, cache: SegmentCache, pager: Pager) -> None:
        self._api = api
        self._cache = cache
        self._pager = pager

    async def segments(
        self,
        caller: Caller,
        state: SchemaState,
        wanted: Sequence[Segment],
        missing: Missing,
        *,
        known: Known | None = None,
        cost: Cost | None = None,
    ) -> list[Opened]:
        """The segments in the order asked for, each with all that ``missing`` names of it.

        Minis come whole, those that are not cached in one request. Of larger segments come pages:
        directories in one request, data in a second.

        Args:
            known: what the API is to confirm as the present state, should it be asked at all.

        Raises:
            DoesNotOpen: a page was altered or is of another place.
            Moved: the present state is another than ``known``.
            NotFound: a segment is gone from the API: merged away and cleaned up meanwhile.
        """
        cost = cost or Cost()
        keys = state.ledger.keys
        found = {
            segment.uid: self._cache.get(keys.of(segment.key_version).id, segment.uid)
            for segment in wanted
        }
        unopened = [segment for segment in wanted if found[segment.uid] is None]
        minis = [segment for segment in unopened if segment.form == "mini"]
        cost.pages["api"] += len(minis)
        cost.pages["memory"] += len(wanted) - len(unopened)
        if unopened:
            refs = [PageRef(segment.uid, 0) for segment in minis]
            pages: list[Page] = []
            if refs:
                pages = await self._api.pages(state.id, refs, caller.auth, known=known)
                cost.requests += -(-len(refs) // MAX_PAGES)
                known = None
            for opened in await asyncio.to_thread(_open_all, state, unopened, pages):
                found[opened.segment.uid] = opened
                self._cache.put(keys.of(opened.segment.key_version).id, opened)
        segments = [_own(opened) for opened in found.values() if opened is not None]
        await self._pager.fill(caller, state, segments, missing, known=known, cost=cost)
        return segments

    async def fill(
        self,
        caller: Caller,
        state: SchemaState,
        segments: Sequence[Opened],
        missing: Missing,
        *,
        known: Known | None = None,
        cost: Cost | None = None,
    ) -> None:
        """Bring further pages into segments that :meth:`segments` gave.

        Raises:
            DoesNotOpen, Moved, NotFound: as :meth:`segments`.
        """
        await self._pager.fill(caller, state, segments, missing, known=known, cost=cost or Cost())

    async def columns(
        self,
        caller: Caller,
        state: SchemaState,
        segments: Sequence[Opened],
        fields: Collection[str],
        *,
        known: Known | None = None,
        cost: Cost | None = None,
    ) -> None:
        """Bring whole columns, by row, into segments that :meth:`segments` gave.

        Raises:
            DoesNotOpen, Moved, NotFound: as :meth:`segments`.
        """
        wanted = [
            (one, name)
            for one in segments
            if isinstance(one, PagedSegment)
            for name in fields
            if not self._remembered(one, name)
        ]
        if not wanted:
            return
        await self.fill(
            caller,
            state,
            segments,
            lambda segment: segment.missing_columns(fields),
            known=known,
            cost=cost,
        )
        await asyncio.to_thread(self._decode, wanted)

    def _remembered(self, segment: PagedSegment, field: str) -> bool:
        found = self._cache.column(segment.segment.uid, field)
        if found is not None:
            segment.columns[field] = found
        return found is not None

    def _decode(self, wanted: Sequence[tuple[PagedSegment, str]]) -> None:
        for segment, field in wanted:
            self._cache.put_column(segment.segment.uid, field, segment.coded(field))

    def forget(self, segments: Sequence[Segment]) -> None:
        """Fetch these anew when they are needed next."""
        self._cache.drop(segment.uid for segment in segments)

    async def rows(
        self,
        caller: Caller,
        state: SchemaState,
        view: View,
        wanted: Sequence[RowRef],
        *,
        known: Known | None = None,
        cost: Cost | None = None,
    ) -> list[PlainRecord]:
        """The rows, opened, in the order asked for; ``known`` as for :meth:`segments`.

        They are asked for in random order: the order of an answer would tell the API how rows
        follow one another.

        Raises:
            DoesNotOpen: a row was altered or is of another place.
            LogBroken: the API lacks a row, or returned another than it was asked for.
            Moved: the present state is another than ``known``.
        """
        cost = cost or Cost()
        cost.rows += len(wanted)
        cost.requests += -(-len(wanted) // MAX_ROWS)
        order = list(range(len(wanted)))
        secrets.SystemRandom().shuffle(order)
        try:
            asked = [wanted[at] for at in order]
            stored = await self._api.rows(state.id, asked, caller.auth, known=known)
        except NotFound as error:
            if error.reason != "row_gone":
                raise
            raise LogBroken("the API lacks a row that its log holds") from None
        for at, row in zip(order, stored, strict=True):
            if (row.group, row.ordinal) != (wanted[at].group, wanted[at].ordinal):
                raise LogBroken("the API returned another row than it was asked for")
        if len(stored) <= FEW_ROWS:
            opened = _open_rows(state, view, stored)
        else:
            opened = await asyncio.to_thread(_open_rows, state, view, stored)
        records: list[PlainRecord | None] = [None] * len(wanted)
        for at, record in zip(order, opened, strict=True):
            records[at] = record
        return [record for record in records if record is not None]


def _own(segment: Opened) -> Opened:
    """A segment whose pages stay while this reader needs them, whatever the cache drops."""
    return segment.over({}) if isinstance(segment, PagedSegment) else segment


def _open_all(
    state: SchemaState, segments: Sequence[Segment], pages: Sequence[Page]
) -> list[Opened]:
    """``pages`` are those of the minis among the segments, in their order."""
    opened: list[Opened] = []
    found = iter(pages)
    for segment in segments:
        key = state.ledger.keys.of(segment.key_version)
        if segment.form == "paged":
            opened.append(PagedSegment(key, state.definition, segment))
            continue
        page = next(found)
        if (page.segment, page.number) != (segment.uid, 0):
            raise DoesNotOpen("the API returned another page than it was asked for")
        opened.append(OpenSegment(key, state.definition, segment, page))
    return opened


def _open_rows(state: SchemaState, view: View, stored: Sequence[StoredRow]) -> list[PlainRecord]:
    opened = []
    for row in stored:
        group = view.groups[row.group].group
        key = state.ledger.keys.of(group.key_version)
        opened.append(open_row(key, state.definition, group, row.ordinal, row.row))
    return opened
