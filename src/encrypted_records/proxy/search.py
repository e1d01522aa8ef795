"""Answer a question: plan -> locate -> fetch pages -> resolve -> fetch rows -> open -> check.

One question works on one view of the log. Rows come in the order in which they were stored;
a cursor names the last row given and the newest group of the first page's view, so that later
pages neither repeat nor skip rows while others store more.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec
from pyroaring import BitMap

from encrypted_records.errors import DoesNotOpen, Flaw, InvalidQuery, LogBroken, NotFound
from encrypted_records.index.ledger import View
from encrypted_records.index.paged import Opened
from encrypted_records.index.resolve import Matches, missing, resolve
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.predicates import Everything, Predicate, Query, matches
from encrypted_records.model.records import PlainRecord, RowRef
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.pager import Missing
from encrypted_records.proxy.reader import Reader
from encrypted_records.proxy.schemas import Schemas, SchemaState

#: Rows opened at once while deciding the uncertain ones.
_BATCH = 500
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Answer:
    count: int | None
    next_cursor: str | None
    records: list[PlainRecord]


class _Cursor(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The last row given, and how many groups the first page's view had."""

    sequence: int
    ordinal: int
    groups: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A group's candidate rows, as ordinals; ``sequence`` orders groups as they were stored."""

    sequence: int
    group: bytes
    certain: BitMap
    possible: BitMap


@dataclass(frozen=True, slots=True)
class _Found:
    """One candidate row."""

    sequence: int
    ref: RowRef
    certain: bool


class Search:
    def __init__(self, schemas: Schemas, reader: Reader) -> None:
        self._schemas = schemas
        self._reader = reader

    async def ask(self, caller: Caller, state: SchemaState, query: Query) -> Answer:
        """Records that match, at the version ``state`` was just brought to.

        Raises:
            InvalidQuery: the cursor is none of ours.
            Closed: the API's data does not hold together.
        """
        start = None if query.cursor is None else _decode_cursor(query.cursor)
        view, parts = await self._candidates(caller, state, query.where)
        groups = start.groups if start else len(view.groups)
        parts = [part for part in parts if part.sequence < groups]
        count = await self._count(caller, state, view, query, parts) if query.count else None
        # One row more than asked for tells whether there is a next page.
        wanted = query.limit + 1 if query.limit else 0
        given = await self._take(caller, state, view, query, _rows(parts, start), wanted)
        more = len(given) > query.limit
        given = given[: query.limit]
        cursor = None
        if more:
            last, _ = given[-1]
            cursor = _encode_cursor(_Cursor(last.sequence, last.ref.ordinal, groups))
        return Answer(count, cursor, [record for _, record in given])

    async def page(
        self, caller: Caller, state: SchemaState, *, offset: int, limit: int
    ) -> tuple[int, list[PlainRecord]]:
        """How many records there are, and those from ``offset`` on."""
        view, parts = await self._candidates(caller, state, Everything())
        refs = [row.ref for row in islice(_rows(parts, None), offset, offset + limit)]
        records = await self._reader.rows(caller, state, view, refs)
        return sum(len(part.certain) for part in parts), records

    async def _candidates(
        self, caller: Caller, state: SchemaState, where: Predicate
    ) -> tuple[View, list[_Part]]:
        for attempt in range(1, _ATTEMPTS + 1):
            view = state.ledger.view()
            try:
                segments = await self._reader.segments(
                    caller, state, view.segments, _missing(where, state)
                )
            except NotFound as error:
                if error.reason != "segment_gone":
                    raise
                # Merged away and cleaned up since the view was taken: look again.
                if attempt == _ATTEMPTS:
                    raise LogBroken("the API lacks a segment that its log holds") from None
                state = await self._schemas.fresh(caller, state.id)
                continue
            return view, await asyncio.to_thread(_resolve_all, where, state, view, segments)
        raise AssertionError("the last attempt returns or raises")

    async def _count(
        self,
        caller: Caller,
        state: SchemaState,
        view: View,
        query: Query,
        parts: Sequence[_Part],
    ) -> int:
        count = sum(len(part.certain) for part in parts)
        unsure = [
            RowRef(part.group, ordinal)
            for part in parts
            for ordinal in part.possible - part.certain
        ]
        for at in range(0, len(unsure), _BATCH):
            records = await self._reader.rows(caller, state, view, unsure[at : at + _BATCH])
            count += sum(matches(query.where, record.data, state.definition) for record in records)
        return count

    async def _take(
        self,
        caller: Caller,
        state: SchemaState,
        view: View,
        query: Query,
        candidates: Iterator[_Found],
        wanted: int,
    ) -> list[tuple[_Found, PlainRecord]]:
        """The first ``wanted`` candidates that match, opened and checked."""
        given: list[tuple[_Found, PlainRecord]] = []
        while batch := list(islice(candidates, wanted - len(given))):
            records = await self._reader.rows(caller, state, view, [one.ref for one in batch])
            given += _checked(query.where, state.definition, batch, records)
        return given


def _checked(
    where: Predicate,
    definition: SchemaDefinition,
    candidates: Sequence[_Found],
    records: Sequence[PlainRecord],
) -> Iterator[tuple[_Found, PlainRecord]]:
    for candidate, record in zip(candidates, records, strict=True):
        if matches(where, record.data, definition):
            yield candidate, record
        elif candidate.certain:
            raise DoesNotOpen("the index and a record contradict each other")


def _missing(where: Predicate, state: SchemaState) -> Missing:
    tails, definition = state.ledger.tails, state.definition
    return lambda segment: missing(where, segment, tails, definition)


def _resolve_all(
    where: Predicate, state: SchemaState, view: View, segments: Sequence[Opened]
) -> list[_Part]:
    """Candidates by group, in the order in which groups were stored."""
    parts: list[_Part] = []
    for segment in segments:
        answer = resolve(where, segment, state.ledger.tails, state.definition)
        dead = view.dead_rows(segment.segment)
        parts += _by_group(Matches(answer.certain - dead, answer.possible - dead), segment, view)
    parts.sort(key=lambda part: part.sequence)
    return parts


def _by_group(answer: Matches, segment: Opened, view: View) -> Iterator[_Part]:
    for uid, base in segment.segment.groups:
        state = view.groups[uid]
        own = BitMap(range(base, base + state.group.count))
        possible = (answer.possible & own).shift(-base)
        if possible:
            yield _Part(state.sequence, uid, (answer.certain & own).shift(-base), possible)


def _rows(parts: Sequence[_Part], after: _Cursor | None) -> Iterator[_Found]:
    """Candidates in the order in which they were stored, from behind the cursor's row on."""
    last = (after.sequence, after.ordinal) if after else (-1, -1)
    for part in parts:
        if part.sequence < last[0]:
            continue
        for ordinal in part.possible:
            if (part.sequence, ordinal) > last:
                certain = ordinal in part.certain
                yield _Found(part.sequence, RowRef(part.group, ordinal), certain)


def _encode_cursor(cursor: _Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(cursor)).decode()


def _decode_cursor(text: str) -> _Cursor:
    try:
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(text.encode()), type=_Cursor)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        detail = "expected the next_cursor of an earlier answer"
        raise InvalidQuery(detail, flaws=(Flaw("cursor", detail, "/cursor"),)) from None
