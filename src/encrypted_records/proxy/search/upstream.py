"""All calls of one query to the API, and whether its state is confirmed as the present one.

Nothing else asks the API for pages or rows, so the call that confirms the state is noted here. A
query may answer from a state that the API confirms after the query began: then nothing that was
acknowledged before it is missing. One question to the API confirms it for every query that began
before the question was sent. During a long read, the API holds the data of one version of a log.
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
from encrypted_records.client.api import Api, Known, Moved
from encrypted_records.client.checkpoints import ErasureApi
from encrypted_records.errors import ErsError, LogBroken, TooLarge, Unavailable
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.asking import Counted, Sizes
from encrypted_records.index.query.long_strings import MAX_OPENED
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.records import ManifestDelta, Page, PageRef, RowRef, Segment, StoredRow
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.background import attempt
from encrypted_records.proxy.process.coalescing import Gathering, WaitingLine
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.cover import Draw

log = logging.getLogger(__name__)


@dataclass
class QueryStats(Counted):
    """Rows, pages and requests of one query.

    ``pages`` are the index pages that were needed, from cache or API.

    ``requests`` is how many requests a proxy with empty caches would make for those pages and rows;
    ``asked`` how many this one made. ``seconds`` are by stage, wall-clock: queries that run at the
    same time count the same seconds.
    """

    pages: int = 0
    requests: int = 0
    asked: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, other: QueryStats) -> None:
        """Count in what another schema was asked for; its stages are one of this query's."""
        self.pages += other.pages
        self.rows += other.rows
        self.requests += other.requests
        self.asked += other.asked

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = runtime.monotonic()
        try:
            yield
        finally:
            spent = runtime.monotonic() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + spent


#: Schema, version and the credentials that are to see the schema: of others nothing is shared.
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
        # An error is right for all: they asked the same question under the same credentials.
        try:
            deltas = await self._api.manifest(*together[0].item)
        except Unavailable as error:
            # An API that is away is away for those who came meanwhile: they need not try for as
            # long again.
            for waiting in [*together, *line.take()]:
                waiting.refuse(error)
        else:
            for waiting in together:
                waiting.settle(deltas)


#: So many times as many pages may be read a window at a time as may stay.
PASSING = 8


class RowsGone(LogBroken):
    """The API lacks rows that live in a snapshot. The log says whether they have ended since."""

    def __init__(self) -> None:
        super().__init__("the API lacks a row that its log contains")


@dataclass
class Upstream:
    """Access of one caller to one schema: a query uses the same snapshot and definition throughout.

    ``definition`` serves to compare keys and to read conditions: it is the present definition, with
    grids that cover those of all stored records.

    ``confirmed`` tells whether the API has confirmed, since the query began, that the snapshot is
    the present state. The objects of a confirmed state are immutable, so the API is asked only
    once.
    """

    api: Api
    caller: Holder
    state: SchemaState
    confirmed: bool
    #: needed unless the state is confirmed already
    confirmations: Confirmations | None = None
    stats: QueryStats = field(default_factory=QueryStats)
    #: pages of the index that the query may need; any number where it is nobody's question
    most_pages: int | None = None
    #: records that the query may open to decide texts that the index does not hold as a whole
    most_opened: int = MAX_OPENED
    sizes: Sizes = field(default_factory=Sizes)
    #: names the condition; empty where nobody asked one
    question: bytes = b""
    snapshot: Snapshot = field(init=False)
    definition: SchemaDefinition = field(init=False)
    #: digest of the definition that holds
    _present: bytes = field(init=False)
    #: pages that were read a window at a time
    _passing: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.use(self.state.ledger.snapshot())

    def use(self, snapshot: Snapshot) -> None:
        """Work on this snapshot, and under its definitions."""
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
        question = self.question or hashlib.sha256(b"".join(sorted(needed))).digest()
        newest = self.snapshot.newest
        return partial(self.state.ledger.keys.of(newest.key_version).cover.draw, question)

    def view(self, segment: Segment) -> bytes:
        """The key of a segment's view in caches, as opened for this query."""
        return segment.uid + self.definition.digest

    def need_pages(self, count: int, *, passing: bool = False) -> None:
        """Count pages of the index that the query needs, and that memory does not have.

        Args:
            passing: whether they are read a window at a time, and none stays.

        Raises:
            TooLarge: ``question_too_large``; with those before they are more than it may need.
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
        """Sealed pages, not checked yet, in the order asked for.

        Raises:
            Moved: the present state is another than the snapshot.
            NotFound: a segment is gone from the API: merged and cleaned up meanwhile.
        """
        pages = await self.api.pages(self.state.id, refs, self.caller.auth, known=self._known)
        self._count()
        return pages

    async def fetch_rows(self, refs: Sequence[RowRef]) -> list[StoredRow]:
        """Sealed rows, not checked yet, in the order asked for.

        Raises:
            Moved: the present state is another than the snapshot.
            NotFound: the API lacks a row.
        """
        rows = await self.api.rows(self.state.id, refs, self.caller.auth, known=self._known)
        self._count()
        return rows

    async def confirm(self) -> None:
        """Have the API confirm the snapshot, unless it has done so already.

        Raises:
            Moved: it is not the present state.
        """
        known = self._known
        if known is None:
            return
        assert self.confirmations is not None
        deltas = await self.confirmations.after(self.state.id, known.version, self.caller)
        if Known(deltas[-1].version, deltas[-1].definition) != known:
            raise Moved(known, deltas)
        self._count()

    @property
    def _known(self) -> Known | None:
        """The state that the API must confirm with its next answer."""
        return None if self.confirmed else Known(self.snapshot.version, self._present)

    def _count(self) -> None:
        """Count an answer: the API answers only where the state is the present one."""
        self.confirmed = True
        self.stats.asked += 1


T = TypeVar("T")

#: Seconds between two renewals; a hold counts for five minutes.
RENEW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class VersionHold:
    """A hold on one version of a schema's log, as read by ``caller``; ``reason`` is
    one that the API knows.
    """

    api: Api
    caller: Holder
    schema: bytes
    version: int
    reason: str
    uid: uuid.UUID = field(default_factory=runtime.uuid4)

    @classmethod
    def of_export(cls, upstream: Upstream) -> VersionHold:
        """The snapshot that an export reads."""
        version = upstream.snapshot.version
        return cls(upstream.api, upstream.caller, upstream.state.id, version, "export")

    async def begin(self) -> None:
        """Hold it, or go on holding it. Where that fails, what is read may be erased meanwhile,
        which then has a name of its own."""
        erasures = ErasureApi(self.api.transport)
        try:
            await erasures.hold(self.schema, self.uid, self.version, self.reason, self.caller.auth)
        except ErsError as error:
            log.warning("a version is not held at the API: %s", error.message)

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """Renew it, once it has begun, as long as the block runs; it ends with that."""
        renewal = asyncio.create_task(self._renew())  # noqa: TID251 # ends with its request
        try:
            yield
        finally:
            renewal.cancel()
            # Also where the request was cancelled, because its client went away.
            await asyncio.shield(self.end())

    async def end(self) -> None:
        """Hold it no longer; where that fails, it ends by itself."""
        with suppress(ErsError):
            erasures = ErasureApi(self.api.transport)
            await erasures.release(self.schema, self.uid, self.caller.auth)

    async def _renew(self) -> None:
        while True:
            await runtime.sleep(RENEW_SECONDS)
            await attempt("renewing a hold", self.begin)


class DeferredHold:
    """A hold that begins only when data is going to be read later; it ends with the block."""

    def __init__(self, hold: VersionHold) -> None:
        self._hold, self._renewal = hold, AsyncExitStack()
        self._begun = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._renewal.aclose()

    async def begin(self) -> None:
        """Hold it until the block ends, if it is not held yet."""
        if not self._begun:
            self._begun = True
            await self._hold.begin()
            await self._renewal.enter_async_context(self._hold.renewed())


async def holding(hold: VersionHold, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The items, while the hold is renewed; it ends with them, and they are closed with this."""
    async with hold.renewed(), aclosing(items):
        async for item in items:
            yield item
