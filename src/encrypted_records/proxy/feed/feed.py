"""The change feed of each schema, for everybody who follows it."""

from __future__ import annotations

import math
from collections import OrderedDict
from weakref import WeakValueDictionary

from encrypted_records import runtime
from encrypted_records.errors import Overloaded
from encrypted_records.proxy.feed.cursor import FeedCursor
from encrypted_records.proxy.feed.pages import FeedPage, SuccessorIds, present_cursor, read_page
from encrypted_records.proxy.feed.waiting import ASK_SECONDS, WatchedSchema
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.search.context import QueryContext, QueryRunner

#: Requests that may wait at once, of all schemas.
MOST_WAITING = 1000
#: Schemas and credentials of which it is remembered when the API was asked.
_MOST_ASKED = 1000

#: A schema, and the credentials that are to see it: of others nothing is shared.
_Key = tuple[bytes, bytes, str]


class Feed:
    def __init__(self, schemas: Schemas, runner: QueryRunner) -> None:
        self._schemas = schemas
        self._runner = runner
        self._successors = SuccessorIds()
        self._watches: WeakValueDictionary[bytes, WatchedSchema] = WeakValueDictionary()
        #: when the API was last asked for the state of a schema
        self._asked: OrderedDict[_Key, float] = OrderedDict()

    @property
    def waiting(self) -> int:
        """The number of requests that wait for changes."""
        return sum(watch.waiting for watch in self._watches.values())

    def watch(self, schema: bytes) -> WatchedSchema:
        """The watch of the schema; it exists as long as a caller has a reference."""
        watch = self._watches.get(schema)
        if watch is None:
            watch = self._watches[schema] = WatchedSchema()
        return watch

    async def read(
        self, caller: Holder, schema: bytes, cursor: FeedCursor | None, limit: int
    ) -> FeedPage:
        """The changes after a cursor, as of at most a second ago; without one, all records.

        Raises:
            Gone: ``start_again``.
            ErsError: as :meth:`QueryRunner.ask`.
        """

        async def question(context: QueryContext) -> FeedPage:
            return await read_page(context, self._successors, cursor, limit)

        state = await self._find_confirmed(caller, schema, 0 if cursor is None else cursor.version)
        return await self._runner.ask(caller, schema, question, confirmed_state=state)

    async def begin_now(self, caller: Holder, schema: bytes) -> FeedPage:
        """An empty page whose cursor leads to what changes from now on. Raises as :meth:`read`."""

        async def question(context: QueryContext) -> FeedPage:
            cursor = present_cursor(context, listing=False)
            return FeedPage([], cursor, cursor.version, True, context.definition)

        return await self._runner.ask(caller, schema, question)

    async def wait(
        self, caller: Holder, schema: bytes, watch: WatchedSchema, since: int, until: float
    ) -> None:
        """Wait until the schema's log goes beyond version ``since``, or until a time.

        Raises:
            Overloaded: too many wait already.
            ErsError: as :meth:`Schemas.refresh`: a caller who may not read it any more is told.
        """
        if self.waiting >= MOST_WAITING:
            raise Overloaded(
                f"{MOST_WAITING} requests are already waiting for changes", retry_after=10
            )

        async def ask() -> int:
            return (await self._refresh(caller, schema)).ledger.version

        await watch.wait(since, until, ask)

    async def _find_confirmed(self, caller: Holder, schema: bytes, least: int) -> SchemaState:
        """The schema's state, as the API has confirmed it to this caller within a second.

        Args:
            least: a version that it should have reached.
        """
        state = self._schemas.get_cached(caller, schema)
        asked_at = self._asked.get((schema, caller.user, caller.auth), -math.inf)
        is_recent = runtime.monotonic() < asked_at + ASK_SECONDS
        if state is None or not is_recent or state.ledger.version < least:
            return await self._refresh(caller, schema)
        return state

    async def _refresh(self, caller: Holder, schema: bytes) -> SchemaState:
        asked_at = runtime.monotonic()
        state = await self._schemas.refresh(caller, schema)
        key = (schema, caller.user, caller.auth)
        self._asked[key] = asked_at
        self._asked.move_to_end(key)
        while len(self._asked) > _MOST_ASKED:
            self._asked.popitem(last=False)
        watch = self._watches.get(schema)
        if watch is not None:
            watch.see(state.ledger.version)
        return state
