"""Answer a search: plan -> ask for a page (:mod:`encrypted_records.index.query.pages`) -> cursor.

One query uses one snapshot of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from encrypted_records import runtime
from encrypted_records.index.query.cursor import Cursor, decode_cursor, encode_cursor
from encrypted_records.index.query.pages import FIRST_ROWS, Found, PageRequest, find_page
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.queries import Query, parse_query
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.joins import parse_body


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of results. ``definition`` and ``fields`` determine the fields to show, and their
    order.
    """

    count: int | None
    next_cursor: str | None
    records: list[PlainRecord]
    definition: SchemaDefinition
    fields: tuple[str, ...] | None


class SearchService:
    def __init__(self, runner: QueryRunner, first_rows: int = FIRST_ROWS) -> None:
        """
        Args:
            first_rows: as for :func:`answer`.
        """
        self._runner = runner
        self._first_rows = first_rows

    async def ask(self, caller: Holder, schema: bytes, body: Mapping[str, Any]) -> SearchPage:
        """Records that match, at a version that was current during the call.

        Raises:
            InvalidQuery: the search is not valid, or the cursor is not from an earlier answer to
                it.
            Closed: the API's data is not consistent.
            ErsError: as :meth:`QueryRunner.ask`.
        """

        async def question(context: QueryContext) -> SearchPage:
            query = await parse_body(parse_query, body, context)
            return await answer(context, query, first_rows=self._first_rows)

        return await self._runner.ask(caller, schema, question)

    async def page(
        self, caller: Holder, schema: bytes, *, offset: int, limit: int
    ) -> tuple[int, SearchPage]:
        """The number of records, and those from ``offset`` on."""

        async def question(context: QueryContext) -> tuple[int, SearchPage]:
            snapshot = context.snapshot
            wanted = await runtime.in_thread(snapshot.find_live, offset, offset + limit)
            records = await context.rows(wanted)
            return snapshot.count, SearchPage(None, None, records, context.definition, None)

        return await self._runner.ask(caller, schema, question)


async def answer(
    context: QueryContext, query: Query, *, first_rows: int = FIRST_ROWS
) -> SearchPage:
    """Run a search and return one page.

    Args:
        first_rows: number of rows in the segments that are searched first, if the oldest matches
            are sufficient.

    Raises:
        InvalidQuery: the cursor is not from an earlier answer to this query.
        Moved: as for :class:`QueryContext`.
    """
    asked = _Asked.of(context, query)
    condition = await context.condition(query.where)
    request = PageRequest(context.space, query, condition, asked.start, asked.stored)
    count, rows = await context.run(find_page(request, first_rows))
    return asked.page(count, rows)


@dataclass(frozen=True, slots=True)
class _Asked:
    """``start`` is where the page begins, None for the first; rows beyond the first ``stored``,
    which came since, do not count."""

    context: QueryContext
    query: Query
    question: bytes
    start: Cursor | None
    stored: int

    @staticmethod
    def of(context: QueryContext, query: Query) -> _Asked:
        """
        Raises:
            InvalidQuery: the cursor is not one of ours.
        """
        # Of the schema as a whole: it stays when keys are rotated.
        question = context.tails.uids.of_question(query.question)
        start = None
        if query.cursor is not None:
            joins = len(context.joined)
            start = decode_cursor(query.cursor, context.snapshot, question, joins)
        stored = start.stored if start else context.snapshot.stored
        return _Asked(context, query, question, start, stored)

    def page(self, count: int | None, rows: Found) -> SearchPage:
        """
        Args:
            rows: up to one more than the page has, which says that there is another page.
        """
        context, query = self.context, self.query
        cursor = None
        if len(rows) > query.limit:
            rows = rows[: query.limit]
            joined = tuple(other.stored for other in context.joined)
            last = rows[-1][0].position
            cursor = encode_cursor(Cursor(last, self.stored, joined, self.question))
        records = [record for _, record in rows]
        return SearchPage(count, cursor, records, context.definition, query.fields)
