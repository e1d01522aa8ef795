"""Answer a search: plan -> fetch pages -> resolve -> order -> fetch rows -> open -> check.

One question works on one view of the log. Rows come in the order that was asked for, and else in
the order in which they were stored. A cursor names the last row given and the newest group of the
first page's view, so that later pages neither repeat nor skip rows while others store more. It
holds no value: where its row stands in an order is read from the row itself.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
from pyroaring import BitMap

from encrypted_records.errors import DoesNotOpen, Flaw, InvalidQuery
from encrypted_records.index.candidates import Candidates
from encrypted_records.index.long_texts import Texts
from encrypted_records.index.ordering import Ordered, Position, first, position_of
from encrypted_records.index.resolve import Matches
from encrypted_records.index.view import View, place_of, place_parts
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.predicates import Everything, Predicate, matches
from encrypted_records.model.questions import Query, parse_query
from encrypted_records.model.records import PlainRecord, RowRef
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.asking import Asker, Asking
from encrypted_records.proxy.resolving import (
    Resolved,
    count_unsure,
    counted,
    learn_texts,
    opened,
    resolved,
)
from encrypted_records.proxy.sorting import walked

#: Rows that are looked into at first, where some few are asked for in the order of storing.
FIRST_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class Answer:
    """One page. ``definition`` and ``fields`` say which fields to show, and in which order."""

    count: int | None
    next_cursor: str | None
    records: list[PlainRecord]
    definition: SchemaDefinition
    fields: tuple[str, ...] | None


class _Cursor(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The last row given, and how many groups the first page's view had."""

    sequence: int
    ordinal: int
    groups: int

    @property
    def place(self) -> int:
        return place_of(self.sequence, self.ordinal)


@dataclass(frozen=True, slots=True)
class Found:
    """One candidate row; ``certain`` is whether it surely matches."""

    place: int
    ref: RowRef
    certain: bool


class Search:
    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def ask(self, caller: Caller, schema: bytes, body: Mapping[str, Any]) -> Answer:
        """Records that match, at a version that was current meanwhile.

        Raises:
            InvalidQuery: the search cannot be asked, or the cursor is none of ours.
            Closed: the API's data does not hold together.
            ErsError: as :meth:`Asker.ask`.
        """

        async def question(asking: Asking) -> Answer:
            return await answer(asking, parse_query(body, asking.definition))

        return await self._asker.ask(caller, schema, question)

    async def page(
        self, caller: Caller, schema: bytes, *, offset: int, limit: int
    ) -> tuple[int, Answer]:
        """How many records there are, and those from ``offset`` on."""

        async def question(asking: Asking) -> tuple[int, Answer]:
            found = await resolved(asking, Everything())
            rows = islice(stored(found, asking.view, None), offset, offset + limit)
            records = await opened(asking, [row.ref for row in rows])
            count = sum(len(one.answer.possible) for one in found)
            return count, Answer(None, None, records, asking.definition, None)

        return await self._asker.ask(caller, schema, question)


async def answer(asking: Asking, query: Query) -> Answer:
    """One page of a search.

    Raises:
        InvalidQuery: the cursor is none of ours.
        Moved: as :class:`Asking`.
    """
    start = None if query.cursor is None else _decode_cursor(query.cursor, asking.view)
    if query.count and not query.limit and start is None:
        known = await counted(asking, query.where)
        if known is not None:
            return Answer(known, None, [], asking.definition, query.fields)
    groups = start.groups if start else len(asking.view.groups)
    # One row more than asked for tells whether there is a next page.
    wanted = query.limit + 1 if query.limit else 0
    count = None
    if query.order or query.count:
        found = [one.within(asking.view, groups) for one in await resolved(asking, query.where)]
        count = await _count(asking, query.where, found) if query.count else None
        if query.order:
            given = await _take_sorted(asking, query, found, start, wanted)
        else:
            given = await _take(asking, query.where, stored(found, asking.view, start), wanted)
    else:
        given = await _take_oldest(asking, query.where, groups, start, wanted)
    cursor = None
    if len(given) > query.limit:
        given = given[: query.limit]
        cursor = _encode_cursor(_Cursor(*place_parts(given[-1][0].place), groups))
    records = [record for _, record in given]
    return Answer(count, cursor, records, asking.definition, query.fields)


# --- in the order in which they were stored ----------------------------------------------------


def stored(found: Sequence[Resolved], view: View, after: _Cursor | None) -> Iterator[Found]:
    """Candidates in the order in which they were stored, from behind the cursor's row on."""
    last = after.place if after else -1
    every = (_of_segment(one, view, last) for one in found)
    return heapq.merge(*every, key=lambda one: one.place)


def _of_segment(one: Resolved, view: View, last: int) -> Iterator[Found]:
    sequences = view.sequences(one.segment.segment)
    for place, row in sequences.in_order(one.answer.possible, behind=last):
        yield Found(place, view.ref(place), row in one.answer.certain)


async def _take_oldest(
    asking: Asking, where: Predicate, groups: int, start: _Cursor | None, wanted: int
) -> list[tuple[Found, PlainRecord]]:
    """As :func:`_take`, without looking into segments whose rows all come later, where those
    before them have enough."""
    given: list[tuple[Found, PlainRecord]] = []
    behind = start.sequence if start else 0
    for segments in asking.view.by_age(behind=behind, rows=FIRST_ROWS):
        if len(given) == wanted:
            break
        answers = await resolved(asking, where, segments)
        found = [one.within(asking.view, groups) for one in answers]
        candidates = stored(found, asking.view, start)
        given += await _take(asking, where, candidates, wanted - len(given))
    return given


async def _count(asking: Asking, where: Predicate, found: Sequence[Resolved]) -> int:
    unsure = []
    for one in found:
        undecided = Matches(BitMap(), one.answer.possible - one.answer.certain)
        part = Candidates.of(one.segment, undecided, asking.view)
        unsure += [asking.view.ref(place) for place in part.places.tolist()]
    certain = sum(len(one.answer.certain) for one in found)
    return certain + await count_unsure(asking, where, unsure)


async def _take(
    asking: Asking, where: Predicate, candidates: Iterator[Found], wanted: int
) -> list[tuple[Found, PlainRecord]]:
    """The first ``wanted`` candidates that match, opened and checked."""
    given: list[tuple[Found, PlainRecord]] = []
    while batch := list(islice(candidates, wanted - len(given))):
        records = await opened(asking, [one.ref for one in batch])
        given += checked(where, asking.definition, batch, records)
    return given


def checked(
    where: Predicate,
    definition: SchemaDefinition,
    candidates: Sequence[Found],
    records: Sequence[PlainRecord],
) -> Iterator[tuple[Found, PlainRecord]]:
    """The candidates that match, with their records.

    Raises:
        DoesNotOpen: one that surely matches does not.
    """
    for candidate, record in zip(candidates, records, strict=True):
        if matches(where, record.data, definition):
            yield candidate, record
        elif candidate.certain:
            raise DoesNotOpen("the index and a record contradict each other")


# --- in the order of fields --------------------------------------------------------------------


async def _take_sorted(
    asking: Asking,
    query: Query,
    found: Sequence[Resolved],
    start: _Cursor | None,
    wanted: int,
) -> list[tuple[Found, PlainRecord]]:
    texts = Texts()
    after = await _position(asking, query, start, texts) if start and wanted else None
    given: list[tuple[Found, PlainRecord]] = []
    while len(given) < wanted:
        want = wanted - len(given)
        ordered = await sort(asking, query, found, texts, want=want, after=after)
        batch = list(found_in(asking, ordered))
        records = await opened(asking, [one.ref for one in batch])
        given += checked(query.where, asking.definition, batch, records)
        if len(ordered) < want:
            break
        after = ordered.position(-1)
    return given


async def sort(
    asking: Asking,
    query: Query,
    found: Sequence[Resolved],
    texts: Texts,
    *,
    want: int,
    after: Position | None = None,
) -> Ordered:
    """The first ``want`` candidates behind ``after``, in the order of the query."""
    parts = await walked(asking, query, found, want=want, after=after)
    while True:
        with asking.cost.stage("order"):
            ordered = await asyncio.to_thread(
                first, parts, query.order, texts, want=want, after=after
            )
        if ordered is not None:
            return ordered
        await learn_texts(asking, texts)


def found_in(asking: Asking, ordered: Ordered) -> Iterator[Found]:
    for place, certain in zip(ordered.places.tolist(), ordered.certain.tolist(), strict=True):
        yield Found(place, asking.view.ref(place), certain)


async def _position(asking: Asking, query: Query, start: _Cursor, texts: Texts) -> Position:
    (record,) = await opened(asking, [asking.view.ref(start.place)])
    return position_of(
        record, start.place, query.order, asking.state.ledger.tails, asking.definition, texts
    )


# --- cursors -----------------------------------------------------------------------------------


def _encode_cursor(cursor: _Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(cursor)).decode()


def _decode_cursor(text: str, view: View) -> _Cursor:
    detail = "expected the next_cursor of an earlier answer"
    try:
        cursor = msgspec.msgpack.decode(base64.urlsafe_b64decode(text.encode()), type=_Cursor)
        if cursor.ordinal >= 0 and view.has(cursor.place):
            return cursor
    except (binascii.Error, msgspec.DecodeError, ValueError):
        pass
    raise InvalidQuery(detail, flaws=(Flaw("cursor", detail, "/cursor"),))
