"""All calls of one query to the API, and whether its state is confirmed as the present one.

Nothing else asks the API for pages or rows, so the call that confirms the state is noted here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from encrypted_records.client.api import Api
from encrypted_records.client.known import Known, Moved
from encrypted_records.errors import LogBroken, TooLarge
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.long_strings import MAX_OPENED
from encrypted_records.index.query.sizes import Sizes
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.records import Page, PageRef, RowRef, Segment, StoredRow
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.confirmations import Confirmations
from encrypted_records.proxy.search.row_cover import Draw
from encrypted_records.proxy.search.stats import QueryStats

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
