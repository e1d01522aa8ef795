"""Put a question to a schema as it is now, with as few round trips as that takes.

A question is answered from the newest state that this proxy has verified, and the API confirms
that state with the first thing it is asked for (docs/http-api.md, `since`); a question that needs
nothing of the API asks it for the log all the same, since whether the caller may ask is the API's
to decide. Should the log have moved on, the answer so far is dropped and the question put again,
once: by then the state is one that was current while it was being answered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from encrypted_records.client.api import Api, Known, Moved
from encrypted_records.errors import Conflict, DoesNotOpen, InvalidQuery, LogBroken, NotFound
from encrypted_records.index.paged import Opened
from encrypted_records.index.view import View
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.records import PlainRecord, RowRef, Segment
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.cost import Cost
from encrypted_records.proxy.pager import Missing
from encrypted_records.proxy.reader import Reader
from encrypted_records.proxy.schemas import Schemas, SchemaState

_ATTEMPTS = 3

T = TypeVar("T")


@dataclass
class Asking:
    """One question under way: all of it works on one view and one definition."""

    api: Api
    reader: Reader
    caller: Caller
    state: SchemaState
    #: whether the API has said, while this was asked, that the view is the present state
    confirmed: bool
    cost: Cost = field(default_factory=Cost)
    view: View = field(init=False)
    definition: SchemaDefinition = field(init=False)

    def __post_init__(self) -> None:
        self.view = self.state.ledger.view()
        self.definition = self.state.definition

    @property
    def _known(self) -> Known | None:
        if self.confirmed:
            return None
        return Known(self.view.version, self.definition.digest)

    async def segments(
        self, missing: Missing, among: Sequence[Segment] | None = None
    ) -> list[Opened]:
        """Live segments, each with the pages that ``missing`` names.

        Args:
            among: some of the live ones; all if None.

        Raises:
            Moved, DoesNotOpen, NotFound: as :meth:`Reader.segments`.
        """
        requests = self.cost.requests
        found = await self.reader.segments(
            self.caller,
            self.state,
            self.view.segments if among is None else among,
            missing,
            known=self._known,
            cost=self.cost,
        )
        self.confirmed |= self.cost.requests > requests
        return found

    async def fill(self, segments: Sequence[Opened], missing: Missing) -> None:
        """Bring further pages into segments that :meth:`segments` gave."""
        requests = self.cost.requests
        await self.reader.fill(
            self.caller, self.state, segments, missing, known=self._known, cost=self.cost
        )
        self.confirmed |= self.cost.requests > requests

    async def columns(self, segments: Sequence[Opened], fields: Collection[str]) -> None:
        """Bring whole columns into segments that :meth:`segments` gave."""
        requests = self.cost.requests
        await self.reader.columns(
            self.caller, self.state, segments, fields, known=self._known, cost=self.cost
        )
        self.confirmed |= self.cost.requests > requests

    async def rows(self, wanted: Sequence[RowRef]) -> list[PlainRecord]:
        """The rows, opened, in the order asked for.

        Raises:
            Moved, DoesNotOpen, LogBroken: as :meth:`Reader.rows`.
        """
        if not wanted:
            return []
        found = await self.reader.rows(
            self.caller, self.state, self.view, wanted, known=self._known, cost=self.cost
        )
        self.confirmed = True
        return found

    async def confirm(self) -> None:
        """Have the API confirm the view, unless it has.

        Raises:
            Moved: it is not the present state.
        """
        known = self._known
        if known is not None:
            self.cost.requests += 1
            deltas = await self.api.manifest(self.state.id, known.version, self.caller.auth)
            if Known(deltas[-1].version, deltas[-1].definition) != known:
                raise Moved(known, deltas)
            self.confirmed = True


class Asker:
    def __init__(self, api: Api, schemas: Schemas, reader: Reader) -> None:
        self._api = api
        self._schemas = schemas
        self._reader = reader

    async def ask(
        self, caller: Caller, schema: bytes, question: Callable[[Asking], Awaitable[T]]
    ) -> T:
        """The question's answer at a version that was the newest while it was asked.

        Args:
            question: may be awaited more than once, each time with a newer state.

        Raises:
            InvalidQuery: under the present definition the question cannot be asked.
            NotFound: there is no such schema, or not for this caller.
            KeyMissing, LogBroken: as :meth:`Schemas.fresh`.
        """
        state = self._schemas.seen(caller, schema)
        confirmed = state is None
        if state is None:
            state = await self._schemas.fresh(caller, schema)
        fetched_anew = False
        for _ in range(_ATTEMPTS):
            asking = Asking(self._api, self._reader, caller, state, confirmed)
            try:
                answer = await question(asking)
                await asking.confirm()
            except Moved as moved:
                await self._schemas.follow(caller, state, moved)
            except InvalidQuery:
                # By a definition that may have changed since: only the present one may refuse.
                if asking.confirmed:
                    raise
                state = await self._schemas.fresh(caller, schema)
            except DoesNotOpen:
                # Columns are opened when they are needed: what is kept may be what was altered,
                # and must not stand in the way once the API hands out the right one.
                self._reader.forget(asking.view.segments)
                if fetched_anew:
                    raise
                fetched_anew = True
            except Conflict as error:
                if error.reason != "log_conflict":
                    raise
                raise LogBroken("the API's log is shorter than what this proxy has seen") from None
            except NotFound as error:
                if error.reason != "segment_gone":
                    raise
                # Merged away and cleaned up since the view was taken: look again.
                state = await self._schemas.fresh(caller, schema)
            else:
                return answer
            confirmed = asking.confirmed or not fetched_anew
        raise LogBroken("the API lacks a segment that its log holds")
