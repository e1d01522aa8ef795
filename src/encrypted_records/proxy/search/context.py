"""Optimistic read: run a query on the last verified state, and have the API confirm that state.

The first call of a query to the API confirms the state (docs/http-api.md, `since`). A query that
needs nothing else asks for the log: only the API decides whether the caller may read the schema. If
the log has a newer version, the answer so far is dropped and the query runs again on the new
state, which was current while the query ran.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import msgspec

from encrypted_records.client import journal
from encrypted_records.client.api import Api
from encrypted_records.client.known import Moved
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.errors import (
    Altered,
    Conflict,
    DoesNotOpen,
    InvalidQuery,
    LogBroken,
    NotFound,
)
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.asking import Asking
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.long_strings import MAX_OPENED
from encrypted_records.index.query.matching import match_rows
from encrypted_records.index.query.sizes import Sizes
from encrypted_records.index.query.workspace import Workspace
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.predicates import Predicate, values_of
from encrypted_records.model.records import PlainRecord, RowRef, SealedRow
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.offload import Run, aside, here
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.search.confirmations import Confirmations
from encrypted_records.proxy.search.dataset_schemas import DatasetSchemas
from encrypted_records.proxy.search.driver import drive
from encrypted_records.proxy.search.fetcher import Fetcher
from encrypted_records.proxy.search.row_cover import MOST_HIDDEN
from encrypted_records.proxy.search.row_fetcher import MOST_OPENED
from encrypted_records.proxy.search.stats import QueryStats
from encrypted_records.proxy.search.upstream import RowsGone, Upstream

_ATTEMPTS = 3

#: Pages of 16 KiB that one question may need of the index: a gibibyte, of which a part is in memory
#: at once. A full segment takes a page or two of each comparison; a whole column of a hundred
#: million records has some 25,000. Of pages that it reads a window at a time, it may need
#: ``PASSING`` times as many: a column of a hundred million different texts has some 130,000.
MOST_PAGES = 1 << 16

SIZES = Sizes()
#: What the work of questions on large segments may hold together, beside the caches: one segment of
#: the largest tier takes some 120 MiB.
QUESTION_BYTES = 160 << 20
#: The index keys of so many values take some milliseconds to compute.
MANY_VALUES = 100

#: The same bytes in every process: sets in order, and of values of another schema that there are.
_encoder = msgspec.json.Encoder(order="deterministic", enc_hook=lambda value: type(value).__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JoinedSchema:
    """The result of a semi-join at one version of another schema's log.

    ``pointer`` is its JSON pointer in the query. ``stored`` is the number of rows that the schema
    had, of which ``rows`` matched and have ``values`` different values.
    """

    pointer: str
    schema: bytes
    field: str
    version: int
    stored: int
    rows: int
    values: int


@dataclass(frozen=True)
class QueryContext:
    """A query; all of it uses the same snapshot and definition."""

    upstream: Upstream
    fetcher: Fetcher
    #: for what is asked of other schemas; None of what never asks any
    runner: QueryRunner | None = None
    #: what the question's semi-joins found, once it was read
    joined: list[JoinedSchema] = field(default_factory=list)

    @property
    def state(self) -> SchemaState:
        return self.upstream.state

    @property
    def snapshot(self) -> Snapshot:
        return self.upstream.snapshot

    @property
    def definition(self) -> SchemaDefinition:
        return self.upstream.definition

    @property
    def tails(self) -> SchemaKey:
        """The key of the tails in the index keys of this snapshot's segments."""
        return self.snapshot.tails or self.state.ledger.tails

    @property
    def stats(self) -> QueryStats:
        return self.upstream.stats

    async def condition(self, where: Predicate) -> Condition:
        """The predicate with its key ranges under the present keys."""
        run: Run = aside if values_of(where) > MANY_VALUES else here
        self.upstream.question = await run(_name_of, where)
        return await run(Condition.of, where, self.tails, self.definition, self.space.texts())

    @cached_property
    def space(self) -> Workspace:
        """The snapshot, definition and limits that the question is asked with."""
        return Workspace(
            self.snapshot,
            self.definition,
            self.tails,
            most_opened=self.upstream.most_opened,
            most_kept=MOST_OPENED,
            most_hidden=MOST_HIDDEN,
            keeps_columns=self.fetcher.keeps_columns,
            keeps_column=self.fetcher.keeps_column,
            sizes=self.upstream.sizes,
            is_explained=self.fetcher.is_cold,
            counted=self.stats,
        )

    async def run(self, asking: Asking[T]) -> T:
        """Run ``asking`` like :func:`drive`."""
        return await drive(self.fetcher, self.upstream, asking, self.space.stop)

    async def match_rows(self, where: Predicate) -> list[Candidates]:
        """Match rows like :func:`.match_rows`.

        Raises:
            Moved, NotFound: as for :func:`drive`.
        """
        return await self.run(match_rows(self.space, await self.condition(where)))

    async def rows(self, wanted: Sequence[RowRef], *, alone: bool = False) -> list[PlainRecord]:
        """The rows, opened, in the order asked for.

        Args:
            alone: as :meth:`RowFetcher.open_rows`.

        Raises:
            Moved, DoesNotOpen, LogBroken: as :meth:`RowFetcher.open_rows`.
        """
        if not wanted:
            return []
        return await self.fetcher.rows(self.upstream, wanted, alone=alone)

    async def prove_rows(
        self, wanted: Sequence[RowRef], *, alone: bool = False
    ) -> dict[RowRef, bytes]:
        """The same as :meth:`RowFetcher.prove_rows`."""
        return await self.fetcher.prove_rows(self.upstream, wanted, alone=alone)

    async def sealed_rows(self, wanted: Sequence[RowRef]) -> list[SealedRow]:
        """The rows as the API has them, in the order asked for.

        Raises:
            Moved, DoesNotOpen, LogBroken: as :meth:`RowFetcher.open_rows`.
        """
        return await self.fetcher.sealed_rows(self.upstream, wanted)

    async def confirm(self) -> None:
        """Confirm like :meth:`Upstream.confirm`; the query then counts at least one request."""
        # A proxy with empty caches would ask here as well, where nothing else was needed.
        self.stats.requests = max(1, self.stats.requests)
        await self.upstream.confirm()


def _name_of(where: Predicate) -> bytes:
    """32 bytes that name a condition, however it was written (docs/SPEC.md, section 17). Conditions
    that share a name are drawn others for alike, and answered each for itself."""
    return hashlib.sha256(_encoder.encode([type(where).__name__, where])).digest()


class QueryRunner:
    def __init__(
        self,
        api: Api,
        schemas: Schemas,
        fetcher: Fetcher,
        datasets: DatasetSchemas,
        own_origins: tuple[str, ...] = (),
        most_pages: int = MOST_PAGES,
        most_opened: int = MAX_OPENED,
        sizes: Sizes = SIZES,
    ) -> None:
        """
        Args:
            own_origins: of absolute URLs that name schemas here.
            most_pages: pages of the index that a question may need.
            most_opened: records that it may open to decide texts that the index does not hold.
            sizes: from which on a question is answered segment by segment.
        """
        self._most_pages = most_pages
        self._most_opened = most_opened
        self._sizes = sizes
        self._api = api
        self.datasets = datasets
        self.own_origins = own_origins
        self._confirmations = Confirmations(api)
        self._schemas = schemas
        self._fetcher = fetcher
        #: told whose questions are of which schema
        self.notice: Callable[[Holder, SchemaState], None] = lambda _caller, _state: None

    async def require_moved(self, context: QueryContext) -> SchemaState:
        """The present state, where the log has moved on since the context's snapshot: so rows that
        it holds may have ended, and be gone.

        Raises:
            LogBroken: it has not, so that the API lacks what it must have.
        """
        upstream = context.upstream
        state = await self._schemas.refresh(upstream.caller, upstream.state.id)
        if state.ledger.version == context.snapshot.version:
            raise RowsGone
        return state

    async def ask(
        self,
        caller: Holder,
        schema: bytes,
        question: Callable[[QueryContext], Awaitable[T]],
        *,
        cold: bool = False,
        confirmed_state: SchemaState | None = None,
    ) -> T:
        """The query's answer at a version that was the newest while it ran.

        Args:
            question: the query; may be awaited more than once, each time with a newer state.
            cold: count statistics as :meth:`Fetcher.cold` does.
            confirmed_state: a state that the API has confirmed to the caller lately enough for this
                query: an answer from it may be older than the query by that time.

        Raises:
            InvalidQuery: the query is not valid under the present definition.
            TooLarge: ``question_too_large``; it needs more pages of the index than any may.
            NotFound: there is no such schema, or not for this caller.
            KeyMissing, LogBroken: as :meth:`Schemas.refresh`.
        """
        state = confirmed_state or await self._schemas.cached(caller, schema)
        confirmed = state is None or confirmed_state is not None
        if state is None:
            state = await self._schemas.refresh(caller, schema)
        self.notice(caller, state)
        dropped_cache = False
        for _ in range(_ATTEMPTS):
            fetcher = self._fetcher.cold() if cold else self._fetcher
            upstream = Upstream(self._api, caller, state, confirmed, self._confirmations)
            upstream.most_pages = self._most_pages
            upstream.most_opened = self._most_opened
            upstream.sizes = self._sizes
            context = QueryContext(upstream, fetcher, self)
            try:
                answer = await question(context)
                await context.confirm()
                journal.count(context.stats.pages, context.stats.rows)
            except Moved as moved:
                await self._schemas.follow(caller, state, moved)
            except InvalidQuery:
                # The definition may have changed since: only the present one may refuse.
                if context.upstream.confirmed:
                    raise
                state = await self._schemas.refresh(caller, schema)
            except RowsGone:
                state = await self.require_moved(context)
            except DoesNotOpen as error:
                if error.reason == "row_altered":
                    # The altered rows were dropped before this was raised: a retry works.
                    raise
                # A column is opened when it is needed, so a cached page may be the altered one. It
                # must not stay once the API returns the right page.
                self._fetcher.forget(context.snapshot.segments)
                if dropped_cache:
                    raise
                dropped_cache = True
                if isinstance(error, Altered):
                    state = await self._schemas.read_again(caller, schema)
            except Conflict as error:
                if error.reason != "log_conflict":
                    raise
                raise await self._schemas.lacking(caller, schema) from None
            except NotFound as error:
                if error.reason != "segment_gone":
                    raise
                # Merged away and cleaned up since the snapshot was taken: look again.
                lacks_header = not context.snapshot.has_headers
                look = self._schemas.read_again if lacks_header else self._schemas.refresh
                state = await look(caller, schema)
            else:
                return answer
            confirmed = context.upstream.confirmed or not dropped_cache
        raise LogBroken("the API lacks a segment that its log contains")
