"""Cover rows are authenticated in arrival order and stored on disk.

An API that altered a cover row could otherwise learn from later events whether it was needed.
Queries are answered before that, so this is background work: it is done in small steps, one answer
after another, in the order in which the rows came. If many rows wait, a query that brings more is
answered only once enough of the earlier rows are done.

The disk takes one write at a time. So rows that were checked meanwhile are stored together, in one
thread: with a thread for each answer, all threads would wait for the disk, and queries for a
thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from encrypted_records import runtime
from encrypted_records.crypto.sealing import RowOpener, opener_of
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model.records import PlainRecord, RowRef, SealedRow
from encrypted_records.proxy.process import (
    ROW_CHECKS,
    Background,
    Gathering,
    Run,
    WaitingLine,
    aside,
)
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.caches import RowCache
from encrypted_records.proxy.search.cover import RetrySets

log = logging.getLogger(__name__)


#: Up to this many fields and bytes, rows are opened on the event loop: a thread would take longer
#: to start. Above ``MANY_FIELDS`` or ``MANY_BYTES``, opening takes long.
FEW_FIELDS, FEW_BYTES = 512, 256 << 10
MANY_FIELDS, MANY_BYTES = 20_000, 4 << 20
#: Authenticating a field takes a third of the time of opening it.
FEW_AUTHENTICATED = 4 * FEW_FIELDS

_decoder = msgspec.msgpack.Decoder(SealedRow)

#: Rows, each as the MessagePack of its SealedRow.
Sealed = Mapping[RowRef, bytes]
Records = dict[RowRef, PlainRecord]
_Openers = dict[bytes, RowOpener]
T = TypeVar("T")


async def open_rows(state: SchemaState, snapshot: Snapshot, sealed: Sealed) -> Records:
    """
    Raises:
        DoesNotOpen: a row was altered or belongs elsewhere.
    """
    return await _run(_open_all, state, snapshot, sealed, FEW_FIELDS)


async def authenticate(state: SchemaState, snapshot: Snapshot, sealed: Sealed) -> None:
    """Verify that these are the rows that were sealed; no value is decrypted.

    Raises:
        DoesNotOpen: a row was altered or belongs elsewhere.
    """
    await _run(_authenticate_all, state, snapshot, sealed, FEW_AUTHENTICATED)


async def _run(
    work: Callable[[SchemaState, Snapshot, Sealed], T],
    state: SchemaState,
    snapshot: Snapshot,
    sealed: Sealed,
    few: int,
) -> T:
    fields = len(sealed) * len(state.definition.fields)
    size = sum(map(len, sealed.values()))
    if fields <= few and size <= FEW_BYTES:
        return work(state, snapshot, sealed)
    run: Run = aside if fields > MANY_FIELDS or size > MANY_BYTES else runtime.in_thread
    return await run(work, state, snapshot, sealed)


async def prove_rows(state: SchemaState, snapshot: Snapshot, sealed: Sealed) -> dict[RowRef, bytes]:
    """The bytes of these rows, each verified to be the row that was sealed.

    Raises:
        DoesNotOpen: as :func:`authenticate`.
    """
    await authenticate(state, snapshot, sealed)
    return dict(sealed)


def open_row(state: SchemaState, snapshot: Snapshot, ref: RowRef, row: bytes) -> PlainRecord:
    """
    Raises:
        DoesNotOpen: as :func:`open_rows`.
    """
    return _opener(state, snapshot, ref.group).open(ref.ordinal, decode_row(row))


def decode_row(row: bytes) -> SealedRow:
    """
    Raises:
        DoesNotOpen: it is not a row.
    """
    try:
        return _decoder.decode(row)
    except msgspec.DecodeError:
        raise DoesNotOpen("a cached row does not have the format of a row") from None


def _open_all(state: SchemaState, snapshot: Snapshot, sealed: Sealed) -> Records:
    openers = _openers(state, snapshot, sealed)
    return {
        ref: openers[ref.group].open(ref.ordinal, decode_row(row)) for ref, row in sealed.items()
    }


def _authenticate_all(state: SchemaState, snapshot: Snapshot, sealed: Sealed) -> None:
    openers = _openers(state, snapshot, sealed)
    for ref, row in sealed.items():
        openers[ref.group].authenticate(ref.ordinal, decode_row(row))


def _openers(state: SchemaState, snapshot: Snapshot, rows: Iterable[RowRef]) -> _Openers:
    """The openers of these rows' groups."""
    return {uid: _opener(state, snapshot, uid) for uid in {ref.group for ref in rows}}


def _opener(state: SchemaState, snapshot: Snapshot, uid: bytes) -> RowOpener:
    group = snapshot.groups[uid].group
    key = state.ledger.keys.of(group.key_version)
    return opener_of(key, snapshot.definition, group, snapshot.made_under(group))


#: Bytes of unchecked cover rows above which queries wait for checks.
MOST_BYTES = 8 << 20
#: Bytes of rows that are stored at once: queries that look for others on disk wait for them.
STORED_AT_ONCE = 256 << 10
#: Fields of one step for each waiting answer, and the maximum number of answers that count.
_CELLS_AT_ONCE, _MOST_TIMES = 160, 12


#: A schema and the number of a row. The number does not change when groups are compacted.
RowNumber = tuple[bytes, int]


class _CheckedVersion(NamedTuple):
    """A log, and a version of it: while the log stays there, no row dies."""

    ledger: Ledger
    version: int

    def is_of(self, state: SchemaState) -> bool:
        """Whether the state has this very log object at this version. An equal log is not enough:
        comparing the content would take long, and gain nothing."""
        return state.ledger is self.ledger and state.ledger.version == self.version


class _Checked(NamedTuple):
    """Rows of one answer, and the log's version when all of them were live."""

    state: SchemaState
    snapshot: Snapshot
    rows: Sealed
    lived: _CheckedVersion


class RowChecks:
    def __init__(
        self,
        kept: RowCache,
        retry_sets: RetrySets[RowNumber],
        background: Background,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """
        Args:
            retry_sets: remembers the requests whose answers are not cached.
            most_bytes: bytes of unchecked rows above which queries wait.
        """
        self._kept = kept
        self._retry_sets = retry_sets
        self._background = background
        self._most = most_bytes
        self._turn = asyncio.Lock()
        #: shared by all schemas, because there is one disk
        self._stores = Gathering[None, _Checked, None](self._store_some)
        #: number of answers that wait or are being checked
        self._waiting = 0
        self._under_way: set[asyncio.Task[None]] = set()
        #: bytes of all rows that ever came, and of those that are done
        self._came = self._done = 0
        #: queries that wait until this many bytes are done, in order of arrival
        self._held_queries: deque[tuple[int, asyncio.Future[None]]] = deque()
        #: schemas with an altered row that no error has reported yet
        self._altered: set[bytes] = set()

    def __len__(self) -> int:
        """The number of answers with rows that are not checked yet, or not on disk."""
        return len(self._under_way)

    async def close(self) -> None:
        """Finish all started checks."""
        await self._background.wait(self._under_way)

    async def settle(self) -> None:
        """Wait until all rows added so far are checked and stored, or dropped."""
        await self._background.wait(self._under_way)

    def raise_altered(self, schema: bytes) -> None:
        """
        Raises:
            DoesNotOpen: ``row_altered``: a row of this schema was altered, and that was not
                reported yet.
        """
        if schema in self._altered:
            self._altered.remove(schema)
            raise altered()

    async def add(
        self, state: SchemaState, snapshot: Snapshot, rows: Sealed, needed: Collection[RowRef]
    ) -> None:
        """Queue rows for checking and for storing on disk; returns before that, unless too many
        bytes wait.

        Args:
            rows: all of them live according to :func:`select_live`, called just before.
            needed: the rows among them that were opened.
        """
        extra = {ref: row for ref, row in rows.items() if ref not in needed}
        size = sum(map(len, extra.values()))
        self._came += size
        self._waiting += 1
        checked = _Checked(state, snapshot, rows, _standing(state))
        task = self._background.start(ROW_CHECKS, partial(self._check, checked, extra))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        if self._came - self._done > self._most:
            enough = asyncio.get_running_loop().create_future()
            # Released once all bytes so far, but for the allowed backlog, are done.
            self._held_queries.append((self._came - self._most, enough))
            self._background.hurry(self._under_way)
            await enough

    async def _check(self, answer: _Checked, extra: Sealed) -> None:
        state, snapshot = answer.state, answer.snapshot
        try:
            try:
                async with self._turn:
                    await self._authenticate(state, snapshot, extra)
            finally:
                self._waiting -= 1
            await self._stores.ask(None, answer)
        except DoesNotOpen:
            log.warning("the API altered a row that was requested together with others")
            self._altered.add(state.id)
            self._retry_sets.remember(numbers_of(state.id, snapshot, answer.rows))
            # Only these rows: rows of an earlier answer must not be requested again.
            await runtime.in_thread(self._kept.forget, state.id, snapshot, answer.rows)
        finally:
            self._done += sum(map(len, extra.values()))
            self._release_waiting()

    async def _authenticate(self, state: SchemaState, snapshot: Snapshot, rows: Sealed) -> None:
        fields = len(state.definition.fields)
        batch: dict[RowRef, bytes] = {}
        size = 0
        for ref, row in rows.items():
            batch[ref] = row
            size += len(row)
            cells = _CELLS_AT_ONCE * min(_MOST_TIMES, self._waiting)
            if (len(batch) + 1) * fields > cells or size > FEW_BYTES // 2:
                await authenticate(state, snapshot, batch)
                await runtime.sleep(0)  # let queries go first
                batch, size = {}, 0
        await authenticate(state, snapshot, batch)

    def _release_waiting(self) -> None:
        while self._held_queries and self._held_queries[0][0] <= self._done:
            _, enough = self._held_queries.popleft()
            if not enough.done():
                enough.set_result(None)

    async def _store_some(self, line: WaitingLine[_Checked, None]) -> None:
        """Store the rows of waiting answers, as many as are stored at once."""
        # An error for one answer's rows means that no row of the others is cached either. No query
        # sees the error: all were answered before, and the next query asks the API again.
        taken = line.take(_count_stored_at_once)
        by_schema: dict[bytes, list[_Checked]] = {}
        for waiting in taken:
            answer = _living(waiting.item)
            by_schema.setdefault(answer.state.id, []).append(answer)
        for schema, answers in by_schema.items():
            rows = [(answer.snapshot, answer.rows) for answer in answers]
            await runtime.in_thread(self._kept.store, schema, rows)
            for stored in answers:
                # Rows that died meanwhile must not stay.
                if dead := stored.rows.keys() - _living(stored).rows.keys():
                    await runtime.in_thread(self._kept.forget, schema, stored.snapshot, dead)
        for waiting in taken:
            waiting.settle(None)


def _count_stored_at_once(answers: Sequence[_Checked]) -> int:
    """The number of answers, from the first on, whose rows are stored together."""
    size = 0
    for at, answer in enumerate(answers):
        size += sum(map(len, answer.rows.values()))
        if size > STORED_AT_ONCE:
            return at
    return len(answers)


def _living(answer: _Checked) -> _Checked:
    """The rows of an answer that are still live: all of them if the log has not moved."""
    if answer.lived.is_of(answer.state):
        return answer
    rows, lived = select_live(answer.state, answer.rows), _standing(answer.state)
    return answer._replace(rows=rows, lived=lived)


def _standing(state: SchemaState) -> _CheckedVersion:
    """The current state of the log."""
    return _CheckedVersion(state.ledger, state.ledger.version)


def numbers_of(schema: bytes, snapshot: Snapshot, rows: Iterable[RowRef]) -> set[RowNumber]:
    """The schema and the number of each of these rows: they name a row as long as it lives."""
    return {(schema, snapshot.number(ref)) for ref in rows}


def select_live(state: SchemaState, rows: Sealed) -> dict[RowRef, bytes]:
    """The rows that are live in the newest known state: an export may read an earlier version."""
    present = state.ledger.snapshot()
    return {ref: row for ref, row in rows.items() if present.is_live(ref.group, ref.ordinal)}


def altered() -> DoesNotOpen:
    """A cover row was altered; a new error for each query that it is reported to."""
    return DoesNotOpen(
        "the API altered a row that was requested together with others",
        code="row_altered",
        hint="the altered row was not used; ask again, and do not trust this API",
    )
