"""All calls of one query to the API, and whether its state is confirmed as current.

Nothing else requests pages or rows from the API, so the call that confirms the state is noted here.
A query may answer from a state that the API confirms after the query began: then no write that was
acknowledged before is missing. One request to the API confirms the state for every query that began
before the request was sent. During a long read, the API holds the data of one version of a log.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Self, TypeVar

from encrypted_records import runtime
from encrypted_records.client.api import Api, KnownState, Moved
from encrypted_records.errors import ErsError, LogBroken, TooLarge, Unavailable
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.asking import Counted, Sizes
from encrypted_records.index.query.key_sets import MAX_OPENED
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.records import ManifestDelta, Page, PageRef, RowRef, Segment, StoredRow
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import Gathering, WaitingLine, attempt
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.cover import Draw

log = logging.getLogger(__name__)


@dataclass
class QueryStats(Counted):
    """Rows, pages and requests of one query.

    ``pages`` are the needed index pages, from cache or API.

    ``requests`` is how many requests a proxy with empty caches would make for those pages and rows.
    ``seconds`` are by stage, wall-clock: queries that run at the same time count the same seconds.
    """

    pages: int = 0
    requests: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, other: QueryStats) -> None:
        """Add the statistics of a semi-join, except its stages: they ran in one of this query's."""
        self.pages += other.pages
        self.rows += other.rows
        self.requests += other.requests

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = runtime.monotonic()
        try:
            yield
        finally:
            spent = runtime.monotonic() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + spent


#: Schema, version and the credentials of the caller: confirmations of other callers do not count.
_Key = tuple[bytes, int, str]


class Confirmations:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._gathering: Gathering[_Key, _Key, Sequence[ManifestDelta]] = Gathering(self._serve)

    async def after(self, schema: bytes, version: int, caller: Holder) -> Sequence[ManifestDelta]:
        """The log after a version, as the API has it now: :meth:`Api.manifest`."""
        key = (schema, version, caller.auth)
        return await self._gathering.ask(key, key)

    async def _serve(self, line: WaitingLine[_Key, Sequence[ManifestDelta]]) -> None:
        together = line.take()
        if not together:
            return
        # An error holds for all of them: they made the same request with the same credentials.
        try:
            deltas = await self._api.manifest(*together[0].item)
        except Unavailable as error:
            # The API is also unavailable for queries that came meanwhile: they need not retry for
            # as long again.
            for waiting in [*together, *line.take()]:
                waiting.refuse(error)
        else:
            for waiting in together:
                waiting.settle(deltas)


#: Streamed pages that a query may read, as a multiple of the pages that it may retain.
PASSING = 8


class RowsGone(LogBroken):
    """The API lacks rows that live in a snapshot. The log says whether they have ended since."""

    def __init__(self) -> None:
        super().__init__("the API lacks a row that its log contains")


@dataclass
class Upstream:
    """Access of one caller to one schema: a query uses the same snapshot and definition throughout.

    ``definition`` serves to compare keys and to parse conditions: it is the current definition,
    with grids that cover those of all stored records.

    ``confirmed`` tells whether the API has confirmed, since the query began, that the snapshot is
    current. The objects of a confirmed state are immutable, so the API is asked only once.
    """

    api: Api
    caller: Holder
    state: SchemaState
    confirmed: bool
    #: required unless the state is confirmed already
    confirmations: Confirmations | None = None
    stats: QueryStats = field(default_factory=QueryStats)
    #: maximum index pages that the query may need; None for internal reads, without a limit
    most_pages: int | None = None
    #: records that the query may open to decide texts that the index does not hold as a whole
    most_opened: int = MAX_OPENED
    sizes: Sizes = field(default_factory=Sizes)
    #: names the condition; empty if there is none
    question: bytes = b""
    snapshot: Snapshot = field(init=False)
    definition: SchemaDefinition = field(init=False)
    #: digest of the current definition
    _present: bytes = field(init=False)
    #: number of streamed pages: they are read a window at a time and not retained
    _passing: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.use(self.state.ledger.snapshot())

    def use(self, snapshot: Snapshot) -> None:
        """Use this snapshot and its definitions."""
        self.snapshot = snapshot
        history = snapshot.history
        self.definition = self.state.definition if history is None else history.compared
        present = self.state.definition if history is None else history.present
        self._present = present.digest

    def draws(self, needed: Iterable[bytes]) -> Draw:
        """The function that draws cover items in addition to the needed ones; the draw is the same
        in every proxy.

        Args:
            needed: the name of each needed item, as bytes.
        """
        # Without a condition, the needed items determine the draw.
        question = self.question or hashlib.sha256(b"".join(sorted(needed))).digest()
        newest = self.snapshot.newest
        return partial(self.state.ledger.keys.of(newest.key_version).cover.draw, question)

    def view(self, segment: Segment) -> bytes:
        """The key of a segment's view in caches, as opened for this query."""
        return segment.uid + self.definition.digest

    def need_pages(self, count: int, *, passing: bool = False) -> None:
        """Count index pages that the query needs and that memory does not have.

        Args:
            passing: whether they are streamed: read a window at a time and not retained.

        Raises:
            TooLarge: ``question_too_large``; the query needs more pages in total than it may.
        """
        self.stats.pages += count
        self._passing += count if passing else 0
        if self.most_pages is None:
            return
        staying = self.stats.pages - self._passing
        if staying > self.most_pages or self._passing > PASSING * self.most_pages:
            raise TooLarge(
                f"the query needs more than {self.most_pages} pages of the index",
                code="question_too_large",
                hint="narrow it by another field, or use a shorter range",
            )

    async def fetch_pages(self, refs: Sequence[PageRef]) -> list[Page]:
        """Sealed pages, not checked yet, in the order of ``refs``.

        Raises:
            Moved: the current state is not the snapshot.
            NotFound: a segment is gone from the API: merged and cleaned up meanwhile.
        """
        pages = await self.api.pages(self.state.id, refs, self.caller.auth, known=self._known)
        self._confirm()
        return pages

    async def fetch_rows(self, refs: Sequence[RowRef]) -> list[StoredRow]:
        """Sealed rows, not checked yet, in the order of ``refs``.

        Raises:
            Moved: the current state is not the snapshot.
            NotFound: the API lacks a row.
        """
        rows = await self.api.rows(self.state.id, refs, self.caller.auth, known=self._known)
        self._confirm()
        return rows

    async def confirm(self) -> None:
        """Have the API confirm the snapshot, unless it has done so already.

        Raises:
            Moved: it is not the current state.
        """
        known = self._known
        if known is None:
            return
        assert self.confirmations is not None
        deltas = await self.confirmations.after(self.state.id, known.version, self.caller)
        if KnownState(deltas[-1].version, deltas[-1].definition) != known:
            raise Moved(known, deltas)
        self._confirm()

    @property
    def _known(self) -> KnownState | None:
        """The state that the API must confirm with its next answer."""
        return None if self.confirmed else KnownState(self.snapshot.version, self._present)

    def _confirm(self) -> None:
        """Note an answer: the API answers only if the state is current."""
        self.confirmed = True


T = TypeVar("T")

#: Seconds between two renewals; a hold expires after five minutes.
RENEW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class VersionHold:
    """A read lease on one version of a schema's log, as read by ``caller``; ``reason`` is a code
    that the API knows.
    """

    api: Api
    caller: Holder
    schema: bytes
    version: int
    reason: str
    uid: uuid.UUID = field(default_factory=runtime.uuid4)

    @classmethod
    def of_export(cls, upstream: Upstream) -> VersionHold:
        """A hold on the snapshot that an export reads."""
        version = upstream.snapshot.version
        return cls(upstream.api, upstream.caller, upstream.state.id, version, "export")

    async def begin(self) -> None:
        """Begin or extend the hold. If that fails, data may be erased while it is read, which has
        its specific error."""
        auth = self.caller.auth
        try:
            await self.api.hold(self.schema, self.uid, self.version, self.reason, auth)
        except ErsError as error:
            log.warning("a version is not held at the API: %s", error.message)

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """Renew the hold, once it has begun, while the block runs; it ends with the block."""
        renewal = asyncio.create_task(self._renew())  # noqa: TID251 # ends with its request
        try:
            yield
        finally:
            renewal.cancel()
            # Shielded: a client that disconnects cancels the request.
            await asyncio.shield(self.end())

    async def end(self) -> None:
        """End the hold; if that fails, it expires."""
        with suppress(ErsError):
            await self.api.release(self.schema, self.uid, self.caller.auth)

    async def _renew(self) -> None:
        while True:
            await runtime.sleep(RENEW_SECONDS)
            await attempt("renewing a hold", self.begin)


class DeferredHold:
    """A hold that begins only if data remains to be read; it ends with the block."""

    def __init__(self, hold: VersionHold) -> None:
        self._hold, self._renewal = hold, AsyncExitStack()
        self._begun = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._renewal.aclose()

    async def begin(self) -> None:
        """Hold the version until the block ends, if it is not held yet."""
        if not self._begun:
            self._begun = True
            await self._hold.begin()
            await self._renewal.enter_async_context(self._hold.renewed())


async def holding(hold: VersionHold, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The items, while the hold is renewed; it ends with them, and they are closed with this
    generator."""
    async with hold.renewed(), aclosing(items):
        async for item in items:
            yield item
