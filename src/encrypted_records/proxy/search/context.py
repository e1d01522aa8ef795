"""Optimistic read: run a query on the last verified state, and have the API confirm that state.

The first call of a query to the API confirms the state (docs/http-api.md, `since`). A query that
needs nothing else requests the log: only the API decides whether the caller may read the schema. If
the log has a newer version, the answer so far is dropped and the query runs again on the new state,
which was current while the query ran.

:func:`drive` fetches the needs that the generators in ``index.query`` yield, and resumes them. A
generator does no I/O, and uses no clock and no thread; the driver decides nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import msgspec

from encrypted_records import errors, runtime
from encrypted_records.client.api import Api, Moved
from encrypted_records.client.messages import note_query
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.asking import (
    Asking,
    Keep,
    KeptColumn,
    KeptSums,
    Need,
    Open,
    Rows,
    Sizes,
    Step,
    Together,
    Work,
    WorkSizes,
    Workspace,
)
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.key_sets import MAX_OPENED
from encrypted_records.index.query.matching import match_rows
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.model import ids, resources
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.predicates import Predicate, values_of
from encrypted_records.model.records import PlainRecord, RowRef
from encrypted_records.model.signatures import require_shown
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import Run, aside, here
from encrypted_records.proxy.schemas.state import SchemaState, read_shown
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.search.cover import MOST_HIDDEN
from encrypted_records.proxy.search.fetcher import Fetcher
from encrypted_records.proxy.search.row_fetcher import MOST_OPENED
from encrypted_records.proxy.search.upstream import Confirmations, QueryStats, RowsGone, Upstream
from encrypted_records.proxy.sharing.reading import FRESH, View
from encrypted_records.proxy.sharing.settling import Sharing

T = TypeVar("T")


async def drive(
    fetcher: Fetcher,
    upstream: Upstream,
    asking: Asking[T],
    stop: Callable[[], None] = lambda: None,
) -> T:
    """Run ``asking`` and return its answer. It reserves memory for one segment at a time: the
    segment of its last heavy need, until it needs another segment, several together, or rows.

    Errors of fetches are raised inside ``asking``, where it yielded. It is closed when this
    function ends or, if a thread still runs it then, when that thread leaves it.

    Args:
        stop: called if a thread still runs ``asking`` at the end, because its result is no longer
            needed.

    Raises:
        Moved, DoesNotOpen, NotFound: as for :meth:`Fetcher.fill`.
    """
    run: Run = here
    work = Work(None)
    worked_on: LoadedSegment | None = None
    error: Exception | None = None
    found: object = None
    try:
        async with AsyncExitStack() as turn:
            while True:
                with upstream.stats.stage(work.stage) if work.stage else nullcontext():
                    step = await run(_resume, asking, found, error)
                found = error = None
                if isinstance(step, _ReturnedValue):
                    return step.value
                if isinstance(step, Work):
                    found, work = work, step
                    run = _place_for(step, upstream.sizes.work)
                    continue
                if isinstance(step, KeptColumn | KeptSums):
                    found = fetcher.kept(step)
                    continue
                if isinstance(step, Keep):
                    await fetcher.keep(upstream, step.segment, step.field, step.made)
                    continue
                try:
                    if not isinstance(step, Need):
                        await turn.aclose()
                        worked_on = None
                    elif not step.light and step.segment is not worked_on:
                        await turn.aclose()
                        worked_on = step.segment
                        await turn.enter_async_context(fetcher.turn(upstream, step.segment))
                    found = await _fetch(fetcher, upstream, step)
                except Exception as failed:  # the generator decides what the error means
                    error = failed
    finally:
        try:
            asking.close()
        except ValueError:  # a thread runs the generator; a check beforehand could be outdated
            stop()


@dataclass(frozen=True, slots=True)
class _ReturnedValue(Generic[T]):
    """The value that a generator returned."""

    value: T


def _resume(asking: Asking[T], found: object, error: Exception | None) -> Step | _ReturnedValue[T]:
    try:
        return asking.send(found) if error is None else asking.throw(error)
    except StopIteration as end:
        return _ReturnedValue(end.value)


def _place_for(work: Work, sizes: WorkSizes) -> Run:
    if work.long or work.entries > sizes.in_thread:
        return aside
    return here if work.entries <= sizes.on_loop else runtime.in_thread


async def _fetch(
    fetcher: Fetcher, upstream: Upstream, step: Open | Rows | Need | Together
) -> object:
    """The segments or records to send back; None for pages, which are put into segments."""
    if isinstance(step, Rows):
        return await fetcher.rows(upstream, step.refs, alone=step.alone, ranked=step.ranked)
    with upstream.stats.stage("fetch_pages"):
        if isinstance(step, Open):
            return await fetcher.open(upstream, step.segments)
        needs = step.needs if isinstance(step, Together) else (step,)
        wanted = [(need.segment, _lacking(need)) for need in needs]
        passing = all(need.passing for need in needs)
        await fetcher.fill(upstream, wanted, passing=passing)
    return None


def _lacking(need: Need) -> set[int]:
    """The numbers of the pages that are still missing."""
    segment = need.segment
    pages = segment.directories.without_own(need.pages - segment.blocks.keys())
    return pages | segment.missing_directories(need.directories)


@dataclass(frozen=True, slots=True)
class DatasetSchema:
    """A schema with its signed names; if it is not ``signed``, with the API's names."""

    id: bytes
    slug: str
    name: str
    signed: bool


class DatasetSchemas:
    def __init__(self, api: Api, sharing: Sharing) -> None:
        self._api = api
        self._datasets = sharing.api
        self._finder = sharing.finder

    async def of_dataset(
        self, caller: Holder, dataset: bytes, *, within: float = 0.0
    ) -> dict[bytes, DatasetSchema]:
        """The schemas of a dataset that the caller may read, by id.

        Args:
            within: as for :meth:`RosterFinder.of_dataset`.

        Raises:
            NotFound: the dataset does not exist, or the caller may not read it.
            ApiFailed: the API returned a malformed id.
            Refused: with a specific code: a roster was not accepted.
        """
        resource = await self._datasets.dataset(dataset, caller.auth)
        organization = _id_of(resource.organization)
        view = await self._finder.of_dataset(caller, dataset, shown=organization, within=within)
        return await self._list(caller, dataset, view)

    async def of_same_dataset(self, caller: Holder, schema: bytes) -> dict[bytes, DatasetSchema]:
        """The schemas of the same dataset as ``schema``, including it.

        Raises:
            ErsError: as for :meth:`of_dataset`.
        """
        view = await self._finder.of_schema(caller, schema, within=FRESH)
        placed = None if view is None else view.roster.schema(schema)
        if placed is not None:
            return await self._list(caller, placed.dataset, view)
        shown = await read_shown(self._api, caller, schema)
        return await self.of_dataset(caller, shown.dataset, within=FRESH)

    async def _list(
        self, caller: Holder, dataset: bytes, view: View | None
    ) -> dict[bytes, DatasetSchema]:
        schemas = [_shown(schema) for schema in await self._api.schemas_of(dataset, caller.auth)]
        if view is None:
            return {schema.id: schema for schema in schemas}
        roster = view.roster
        signed = [
            schema
            for schema in roster.schemas(dataset)
            if schema.slug and roster.may_read(view.user, schema.schema)
        ]
        require_shown(*(schema.slug for schema in signed))
        found = {
            schema.schema: DatasetSchema(schema.schema, schema.slug, schema.name, signed=True)
            for schema in signed
        }
        for schema in schemas:
            placed = roster.schema(schema.id)  # in any dataset
            if placed is None or not placed.slug:
                found[schema.id] = schema
        return found

    async def require_removed(self, caller: Holder, schema: DatasetSchema) -> None:
        """Require that a schema missing at the API is legitimately gone: it is unsigned, or its
        name was freed.

        Raises:
            SchemaUnsigned: the roster contains the schema, so the API hides it.
            ErsError: as for :meth:`of_dataset`.
        """
        if not schema.signed:
            return
        view = await self._finder.of_schema(caller, schema.id)
        if view is not None and view.roster.may_read(view.user, schema.id):
            raise errors.SchemaUnsigned(
                f"the API does not show the schema {schema.slug}, which was signed in this dataset",
                hint="its records could not be searched; if it was deleted, an owner can free its"
                f" name: ers api DELETE {ids.reference('schemas', schema.id)}",
            )


def _shown(resource: resources.SchemaResource) -> DatasetSchema:
    return DatasetSchema(_id_of(resource.id), resource.slug, resource.name, signed=False)


def _id_of(text: str) -> bytes:
    """
    Raises:
        ApiFailed: it is not an id.
    """
    try:
        return ids.from_text(text.rstrip("/").rpartition("/")[2])
    except errors.Malformed:
        raise errors.ApiFailed("the API's answer names no schema") from None


_ATTEMPTS = 3

#: Pages of 16 KiB of the index that one question may need: a gibibyte, of which only a part is in
#: memory at once. A comparison takes a page or two of a full segment; a whole column of a hundred
#: million records has some 25,000 pages. Of streamed pages, which are read a window at a time, a
#: question may need ``PASSING`` times as many: a column of a hundred million distinct texts has
#: some 130,000 pages.
MOST_PAGES = 1 << 16

SIZES = Sizes()
#: Bytes that queries on large segments may hold together, in addition to the caches: one segment of
#: the largest tier takes some 120 MiB.
QUESTION_BYTES = 160 << 20
#: Computing the index keys of this many values takes some milliseconds.
MANY_VALUES = 100

#: The same bytes in every process: sets are sorted, values of unknown types are their type's name.
_encoder = msgspec.json.Encoder(order="deterministic", enc_hook=lambda value: type(value).__name__)


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
    #: runs the query's semi-joins in other schemas; None if the query has none
    runner: QueryRunner | None = None
    #: the results of the query's semi-joins, once the query has been parsed
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
        """The predicate with its key ranges under the current keys."""
        run: Run = aside if values_of(where) > MANY_VALUES else here
        self.upstream.question = await run(_name_of, where)
        return await run(Condition.of, where, self.tails, self.definition, self.space.texts())

    @cached_property
    def space(self) -> Workspace:
        """The snapshot, definition and limits of the query."""
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
        """The rows, opened, in the order of ``wanted``.

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

    async def confirm(self) -> None:
        """Confirm like :meth:`Upstream.confirm`; the query then counts at least one request."""
        # A proxy with empty caches would make this request as well.
        self.stats.requests = max(1, self.stats.requests)
        await self.upstream.confirm()


def _name_of(where: Predicate) -> bytes:
    """32 bytes that name a condition, however it was written (docs/SPEC.md, section 17). Conditions
    with the same name draw the same cover, but each is answered separately."""
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
            own_origins: origins of absolute URLs that name schemas of this service.
            most_pages: pages of the index that a question may need.
            most_opened: records that it may open to decide texts that the index does not hold.
            sizes: from which sizes on a question is answered segment by segment.
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
        #: called with the caller and the state of the schema of each query
        self.notice: Callable[[Holder, SchemaState], None] = lambda _caller, _state: None

    async def require_moved(self, context: QueryContext) -> SchemaState:
        """The current state, if the log has moved on since the context's snapshot. Then rows of
        the snapshot may have ended, and be gone.

        Raises:
            LogBroken: the log has not moved on, so the API lacks data that it must have.
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
            InvalidQuery: the query is not valid under the current definition.
            TooLarge: ``question_too_large``; it needs more pages of the index than a query may.
            NotFound: the schema does not exist, or the caller may not read it.
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
                note_query(context.stats.pages, context.stats.rows)
            except Moved as moved:
                await self._schemas.follow(caller, state, moved)
            except errors.InvalidQuery:
                # The definition may have changed since: only the current definition may refuse.
                if context.upstream.confirmed:
                    raise
                state = await self._schemas.refresh(caller, schema)
            except RowsGone:
                state = await self.require_moved(context)
            except errors.DoesNotOpen as error:
                if error.reason == "row_altered":
                    # The altered rows were dropped before this was raised: a retry works.
                    raise
                # A column is opened when it is needed, so a cached page may be the altered page. It
                # must not stay once the API returns the right page.
                self._fetcher.forget(context.snapshot.segments)
                if dropped_cache:
                    raise
                dropped_cache = True
                if isinstance(error, errors.Altered):
                    state = await self._schemas.read_again(caller, schema)
            except errors.Conflict as error:
                if error.reason != "log_conflict":
                    raise
                raise await self._schemas.lacking(caller, schema) from None
            except errors.NotFound as error:
                if error.reason != "segment_gone":
                    raise
                # The segment was merged away and cleaned up after the snapshot: look again.
                lacks_header = not context.snapshot.has_headers
                look = self._schemas.read_again if lacks_header else self._schemas.refresh
                state = await look(caller, schema)
            else:
                return answer
            confirmed = context.upstream.confirmed or not dropped_cache
        raise errors.LogBroken("the API lacks a segment that its log contains")
