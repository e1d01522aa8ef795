"""The change feed: what commits did to a schema's records, decrypted, for programs that follow it.

A page of the feed has the changes after a cursor, at one snapshot of the log. Every commit is
followed row by row. A row that it added is an ``upsert``, unless the row is dead now: then a later
commit reports the record, and no outdated value is returned. A row that it ended is a ``delete``,
unless the same commit added another version of the record. The index has no ids, so the ids of
ended rows are read from the API, which keeps the rows for a while; each row decrypts for its own id
only. If such a row is gone, the consumer has to start again.

Consumers that have all changes wait for the next: one request per second and schema to the API,
however many consumers wait. They take turns, each with its own credentials. So no request relies on
the rights of another user for long, and a user who has lost the right to read the schema gets an
error at the next turn.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal
from weakref import WeakValueDictionary

import msgspec

from encrypted_records import errors, runtime
from encrypted_records.client.api import Api
from encrypted_records.client.proxy.changes import Change
from encrypted_records.crypto.sealing import RowOpener
from encrypted_records.index.log.history import (
    Effects,
    GroupUnknown,
    PlacedGroup,
    Replay,
    stored_before,
)
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.order import EMPTY_DIGEST
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model import wire
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.ids import reference, to_text
from encrypted_records.model.records import LogEntry, PlainRecord, RowRef, StoredRow
from encrypted_records.proxy.http.messages import FEW_CELLS, shown_record, to_json
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import Recent, Run, aside, here
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.row_fetcher import MOST_OPENED

#: Bytes of the log's digest in a cursor: enough to exclude collisions with another log.
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class FeedCursor:
    """All commits up to ``version`` are done, and the first ``number`` rows of the next commit: the
    rows that it ended, then the rows that it added.

    Attributes:
        digest: digest of the log at ``version``. Another log may have the same number of commits.
        left: positions of the rows that are still to be listed for a consumer that began with
            nothing.
    """

    version: int
    number: int
    digest: bytes
    left: range = range(0)

    def __str__(self) -> str:
        parts = [self.version, self.number, self.digest[:_DIGEST_BYTES]]
        if self.left:
            parts += [self.left.start, self.left.stop]
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(parts)).rstrip(b"=").decode()

    def is_of(self, digest: bytes | None) -> bool:
        """Whether a log with this digest at the cursor's version is the cursor's log."""
        return digest is not None and digest[:_DIGEST_BYTES] == self.digest[:_DIGEST_BYTES]


class _CursorText(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    version: int
    number: int
    digest: bytes
    first: int = 0
    end: int = 0


def parse_cursor(text: str) -> FeedCursor:
    """
    Raises:
        InvalidQuery: the cursor is malformed.
    """
    try:
        data = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        sent = msgspec.msgpack.decode(data, type=_CursorText)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise _unknown_cursor() from None
    numbers = (sent.version, sent.number, sent.first, sent.end)
    if len(sent.digest) != _DIGEST_BYTES or not all(0 <= number < 1 << 62 for number in numbers):
        raise _unknown_cursor()
    return FeedCursor(sent.version, sent.number, sent.digest, range(sent.first, sent.end))


def _unknown_cursor() -> errors.InvalidQuery:
    detail = "expected the cursor of an earlier answer"
    return errors.InvalidQuery(
        detail,
        hint="begin without a cursor: every record is listed then",
        flaws=(errors.Flaw("cursor", detail, parameter="cursor"),),
    )


def _start_again(why: str) -> errors.Gone:
    """The error of a consumer that cannot continue from its cursor."""
    return errors.Gone(
        f"the feed cannot continue from this cursor: {why}",
        code="start_again",
        hint="drop your copy and begin without a cursor: every record is listed, then changes",
    )


# The effects of all commits between a version and a snapshot. Effects of the newest commits are in
# memory. Earlier commits are read from the API again: they are the verified commits if they lead
# from one of the log's digests to another.

#: Maximum number of commits that are read again for a consumer; if a consumer is further behind,
#: listing all records is faster.
_MOST_COMMITS = 20_000


async def _read_effects(
    api: Api, caller: Holder, ledger: Ledger, snapshot: Snapshot, since: int
) -> list[Effects]:
    """The effects of the commits after ``since``, up to the snapshot.

    Raises:
        Gone: ``start_again``; there are too many commits, or they end rows that cannot be
            identified.
        LogBroken: the API returns commits other than the verified commits.
        ErsError: as :meth:`Api.manifest`.
    """
    recent = ledger.effects_since(since)
    if recent is not None:
        return [effects for effects in recent if effects.version <= snapshot.version]
    digest = ledger.digest_at(since)
    passed = range(since, snapshot.version)
    if digest is None or len(passed) > _MOST_COMMITS or not all(map(ledger.digest_at, passed)):
        raise _start_again("it is too old")
    entries = await _fetch_commits(api, caller, ledger, snapshot, since, digest)
    try:
        return await runtime.in_thread(_replay, entries, snapshot)
    except GroupUnknown:
        pass
    if snapshot.version > _MOST_COMMITS:
        raise _start_again("it is too old")
    entries = await _fetch_commits(api, caller, ledger, snapshot, 0, EMPTY_DIGEST)
    try:
        effects_of_log = await runtime.in_thread(_replay, entries, snapshot)
    except GroupUnknown:
        raise _start_again("records were deleted that can no longer be named") from None
    return [effects for effects in effects_of_log if effects.version > since]


async def _fetch_commits(
    api: Api, caller: Holder, ledger: Ledger, snapshot: Snapshot, since: int, digest: bytes
) -> list[LogEntry]:
    deltas = await api.manifest(ledger.keys.schema, since, caller.auth)
    entries = [entry for delta in deltas for entry in delta.entries]
    entries = [entry for entry in entries if entry.version <= snapshot.version]
    if [entry.version for entry in entries] != list(range(since + 1, snapshot.version + 1)):
        raise errors.LogBroken("the log has a gap")
    reached = await runtime.in_thread(_digest_after, digest, entries)
    if reached != ledger.digest_at(snapshot.version):
        raise errors.LogBroken("the API returns other commits than those that were verified")
    return entries


def _digest_after(digest: bytes, entries: Sequence[LogEntry]) -> bytes:
    for entry in entries:
        digest = wire.next_log_digest(digest, entry.commit)
    return digest


def _replay(entries: Sequence[LogEntry], snapshot: Snapshot) -> list[Effects]:
    """
    Raises:
        GroupUnknown: as :meth:`Replay.follow`.
    """
    bodies = [wire.decode_commit_body(entry.commit) for entry in entries]
    replay = Replay(snapshot, stored_before(snapshot, bodies))
    return [replay.follow(body, entry.version) for body, entry in zip(bodies, entries, strict=True)]


#: Maximum number of rows that one commit may both end and add: with more rows, matching new
#: versions with their records would take long.
_MOST_PAIRED = 1 << 17
#: Maximum number of rows whose ids are requested at once.
_AT_ONCE = 1000

#: A row, by its place when it was ended.
_Ended = tuple[PlacedGroup, int]
#: Record id and version.
_Name = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class RecordChange:
    """A change of a record by the commit of ``version``; ``record`` is None if it was deleted.
    ``record_version`` is the version of the record, or its last version if it was deleted.

    ``cursor`` continues after this change.
    """

    version: int
    record_id: bytes
    record_version: int
    record: PlainRecord | None
    cursor: FeedCursor

    @property
    def op(self) -> Literal["upsert", "delete"]:
        return "delete" if self.record is None else "upsert"


@dataclass(frozen=True, slots=True)
class FeedPage:
    """``changes`` lead to ``cursor``. With ``current``, a consumer that has applied them has
    exactly the records that a search finds at ``version``.
    """

    changes: list[RecordChange]
    cursor: FeedCursor
    version: int
    current: bool
    definition: SchemaDefinition


@dataclass(slots=True)
class _Plan:
    """The rows of a page, in order.

    ``room`` is the number of rows that may be added. ``ended`` and ``added`` are by version and
    number within the commit.
    """

    room: int
    ended: dict[tuple[int, int], _Ended] = field(default_factory=dict)
    added: dict[tuple[int, int], RowRef] = field(default_factory=dict)
    listed: list[RowRef] = field(default_factory=list)
    #: commits with ended rows in this page that also added rows
    paired: list[Effects] = field(default_factory=list)


async def _read_page(
    context: QueryContext, successors: SuccessorIds, cursor: FeedCursor | None, limit: int
) -> FeedPage:
    """The changes after ``cursor``, of at most ``limit`` rows; without a cursor, of all live
    records.

    Raises:
        Gone: ``start_again``.
        Moved, LogBroken, DoesNotOpen: as :meth:`QueryContext.rows`.
    """
    snapshot, ledger = context.snapshot, context.state.ledger
    plan = _Plan(limit)
    if cursor is None:
        cursor = _present_cursor(context, listing=True)
        effects_since: list[Effects] = []
    else:
        _require_same_log(cursor, ledger, snapshot.version)
        upstream = context.upstream
        effects_since = await _read_effects(
            upstream.api, upstream.caller, ledger, snapshot, cursor.version
        )
        if any(effects.rewrites for effects in effects_since):
            raise _start_again("a change of the schema's definition changed how its records read")
    begun = cursor
    cursor = await runtime.in_thread(_plan_commits, plan, context, effects_since, cursor)
    caught_up = cursor.version == snapshot.version
    if caught_up:
        cursor = await runtime.in_thread(_plan_listing, plan, context, cursor)
    changes = await _open(context, successors, plan, effects_since, begun)
    current = caught_up and not cursor.left
    definition = context.state.definition if snapshot.history is None else snapshot.definition
    return FeedPage(changes, cursor, snapshot.version, current, definition)


def _present_cursor(context: QueryContext, *, listing: bool) -> FeedCursor:
    """The cursor of a consumer that begins now; with ``listing``, all records come first."""
    snapshot = context.snapshot
    digest = context.state.ledger.digest_at(snapshot.version)
    assert digest is not None, "a ledger knows its newest versions"
    return FeedCursor(snapshot.version, 0, digest, range(snapshot.stored if listing else 0))


def _require_same_log(cursor: FeedCursor, ledger: Ledger, version: int) -> None:
    """
    Raises:
        Gone: ``start_again``.
    """
    if cursor.version > version:
        raise _start_again("the schema's log is older than the cursor, or a different log")
    digest = ledger.digest_at(cursor.version)
    if digest is None:
        raise _start_again("it is too old")
    if not cursor.is_of(digest):
        raise _start_again("the schema's log is a different one")


async def write_changes(page: FeedPage, schema: bytes) -> list[bytes]:
    """The changes of a page as JSON; in a thread where that takes long."""

    def write(change: RecordChange) -> bytes:
        data = None
        if change.record is not None:
            data = shown_record(change.record, schema, page.definition).data
        return to_json(
            Change(
                op=change.op,
                version=change.version,
                id=to_text(change.record_id),
                url=reference("records", change.record_id),
                schema=reference("schemas", schema),
                etag=f'"{change.record_version}"',
                data=data,
            )
        )

    cells = len(page.changes) * len(page.definition.fields)
    run: Run = here if cells <= FEW_CELLS else aside
    return await run(lambda: [write(change) for change in page.changes])


# --- selection of the rows -----------------------------------------------------------------------


def _plan_commits(
    plan: _Plan, context: QueryContext, effects_since: Sequence[Effects], cursor: FeedCursor
) -> FeedCursor:
    """Plan the rows of commits until the page is full; returns the end position."""
    for effects in effects_since:
        before = cursor.version == effects.version - 1
        skip = cursor.number if before else 0
        done = _plan_commit(plan, context, effects, skip)
        if done is not None:
            return _at(context, effects.version - 1, done, cursor.left)
        cursor = _at(context, effects.version, 0, cursor.left)
    return cursor


def _at(context: QueryContext, version: int, number: int, left: range) -> FeedCursor:
    digest = context.state.ledger.digest_at(version)
    assert digest is not None, "it is between a version that is known and the newest"
    return FeedCursor(version, number, digest, left)


def _plan_commit(plan: _Plan, context: QueryContext, effects: Effects, skip: int) -> int | None:
    """Plan the rows of one commit after the first ``skip``; returns the number of planned rows if
    some are left.
    """
    version, ended = effects.version, effects.ended_count
    if skip < ended:
        rows = list(islice(_rows_of(effects), skip, skip + plan.room))
        plan.ended |= {(version, skip + at): row for at, row in enumerate(rows)}
        plan.room -= len(rows)
        skip += len(rows)
        if rows and effects.added:
            _require_few(effects)
            plan.paired.append(effects)
        if skip < ended:
            return skip
    first = effects.added.start + skip - ended
    for ref in context.snapshot.live_between(first, effects.added.stop):
        number = context.snapshot.number(ref) - effects.added.start + ended
        if not plan.room:
            return number
        plan.added[version, number] = ref
        plan.room -= 1
    return None


def _require_few(effects: Effects) -> None:
    """
    Raises:
        Gone: ``start_again``.
    """
    if len(effects.added) > _MOST_PAIRED:
        raise _start_again("too many records were replaced at once to follow each of them")


def _rows_of(effects: Effects) -> Iterator[_Ended]:
    for placed, killed in effects.ended:
        for row in killed.rows():
            yield placed, row.ordinal


def _plan_listing(plan: _Plan, context: QueryContext, cursor: FeedCursor) -> FeedCursor:
    """Plan rows that a new consumer has not received yet; returns the end position."""
    left = cursor.left
    live = context.snapshot.live_between(left.start, left.stop)
    plan.listed = list(islice(live, plan.room + 1))
    if len(plan.listed) > plan.room:
        first = context.snapshot.number(plan.listed.pop())
        return FeedCursor(cursor.version, 0, cursor.digest, range(first, left.stop))
    return FeedCursor(cursor.version, 0, cursor.digest)


# --- contents of the rows ------------------------------------------------------------------------


async def _open(
    context: QueryContext,
    successors: SuccessorIds,
    plan: _Plan,
    effects_since: Sequence[Effects],
    begun: FeedCursor,
) -> list[RecordChange]:
    names = await _read_ended(context, list(plan.ended.values()))
    replaced = {
        effects.version: await successors.of(context, effects, effects_since)
        for effects in plan.paired
    }
    refs = [*plan.added.values(), *plan.listed]
    records = await context.rows(refs, alone=len(refs) > MOST_OPENED)
    changes: list[RecordChange] = []

    def add(version: int, cursor: FeedCursor, name: _Name, record: PlainRecord | None) -> None:
        changes.append(RecordChange(version, *name, record, cursor))

    for (version, number), name in zip(plan.ended, names, strict=True):
        if name[0] not in replaced.get(version, ()):
            add(version, _at(context, version - 1, number + 1, begun.left), name, None)
    for (version, number), record in zip(plan.added, records, strict=False):
        cursor = _at(context, version - 1, number + 1, begun.left)
        add(version, cursor, (record.record_id, record.version), record)
    # By commit, ended rows first: the input is in order within each of the two.
    changes.sort(key=lambda change: (change.cursor.version, change.cursor.number))
    at = _at(context, context.snapshot.version, 0, begun.left)
    for ref, record in zip(plan.listed, records[len(plan.added) :], strict=True):
        left = range(context.snapshot.number(ref) + 1, begun.left.stop)
        name = (record.record_id, record.version)
        add(at.version, FeedCursor(at.version, 0, at.digest, left), name, record)
    return changes


async def _read_added(
    context: QueryContext, effects: Effects, effects_since: Sequence[Effects]
) -> frozenset[bytes]:
    """The ids of all records of which a commit added rows, including rows that are dead now."""
    snapshot, added = context.snapshot, effects.added
    live = list(snapshot.live_between(added.start, added.stop))
    records = await context.rows(live, alone=len(live) > MOST_OPENED)
    ids = {record.record_id for record in records}
    if len(live) < len(added):
        ended = await runtime.in_thread(_find_ended, effects_since, added)
        ids |= {record_id for record_id, _ in await _read_ended(context, ended)}
    return frozenset(ids)


def _find_ended(effects_since: Iterable[Effects], positions: range) -> list[_Ended]:
    """The rows at these positions that commits ended."""
    return [
        (placed, ordinal)
        for effects in effects_since
        for placed, killed in effects.ended
        if placed.start < positions.stop and placed.start + killed.end > positions.start
        for ordinal in (row.ordinal for row in killed.rows())
        if placed.start + ordinal in positions
    ]


async def _read_ended(context: QueryContext, ended: Sequence[_Ended]) -> list[_Name]:
    """The ids and versions of ended rows.

    Raises:
        Gone: ``start_again``; the API no longer has one of the rows, or its key was forgotten.
        DoesNotOpen: the API returned another row.
    """
    names: list[_Name] = []
    at_once = min(_AT_ONCE, context.fetcher.window(context.state))
    for start in range(0, len(ended), at_once):
        batch = ended[start : start + at_once]
        refs = [RowRef(placed.group.uid, ordinal) for placed, ordinal in batch]
        try:
            rows = await context.upstream.fetch_rows(refs)
            names += await runtime.in_thread(_authenticate, context, batch, rows)
        except (errors.NotFound, errors.KeyMissing) as error:
            if isinstance(error, errors.NotFound) and error.reason != "row_gone":
                raise
            raise _start_again("records were erased that can no longer be named") from None
    return names


def _authenticate(
    context: QueryContext, ended: Sequence[_Ended], rows: Sequence[StoredRow]
) -> list[_Name]:
    keys = context.state.ledger.keys
    openers: dict[bytes, RowOpener] = {}
    names: list[_Name] = []
    for (placed, ordinal), stored in zip(ended, rows, strict=True):
        group = placed.group
        if (stored.group, stored.ordinal) != (group.uid, ordinal):
            raise errors.LogBroken("the API returned a row that was not requested")
        if group.uid not in openers:
            key = keys.of(group.key_version)
            openers[group.uid] = RowOpener(key, placed.made, group, placed.made)
        openers[group.uid].authenticate(ordinal, stored.row)
        names.append((stored.row.record_id, stored.row.version))
    return names


class SuccessorIds:
    """Cached ids of the records of which large commits added rows: such a commit takes many
    pages.
    """

    def __init__(self, most: int = 2 * _MOST_PAIRED) -> None:
        """
        Args:
            most: maximum number of cached ids.
        """
        self._most = most
        self._kept: OrderedDict[bytes, frozenset[bytes]] = OrderedDict()

    async def of(
        self, context: QueryContext, effects: Effects, effects_since: Sequence[Effects]
    ) -> frozenset[bytes]:
        """The ids as from :func:`_read_added`, read or cached."""
        log = context.state.ledger.digest_at(effects.version)
        assert log is not None, "a page is of versions that are known"
        ids = self._kept.get(log)
        if ids is None:
            ids = self._kept[log] = await _read_added(context, effects, effects_since)
        self._kept.move_to_end(log)
        while len(self._kept) > 1 and sum(map(len, self._kept.values())) > self._most:
            self._kept.popitem(last=False)
        return ids


# Waiting for changes.

#: Seconds between two requests about one schema.
ASK_SECONDS = 1.0


class WatchedSchema:
    """A watched schema. Belongs to the event loop.

    Attributes:
        newest: the newest version of its log that any request of this proxy has seen.
        waiting: the number of waiting requests.
    """

    def __init__(self) -> None:
        self.newest = 0
        self.waiting = 0
        self._asked_at = -math.inf
        self._is_requested = False
        self._line: deque[asyncio.Future[None]] = deque()

    def see(self, version: int) -> None:
        """Record that the log is at a version."""
        if version > self.newest:
            self.newest = version
            self._call(len(self._line))

    async def wait(self, since: int, until: float, ask: Callable[[], Awaitable[int]]) -> None:
        """Wait until the log goes beyond version ``since``, or until a time.

        Args:
            ask: refreshes the waiting caller's state; returns the newest version.

        Raises:
            Unavailable: the API could not be reached at the end.
            ErsError: as ``ask``.
        """
        self.waiting += 1
        failed: errors.Unavailable | None = None
        try:
            while self.newest <= since and (left := until - runtime.monotonic()) > 0:
                if self._is_requested:
                    await self._wait_for_turn(left)
                    continue
                self._is_requested = True
                try:
                    due = self._asked_at + ASK_SECONDS - runtime.monotonic()
                    await runtime.sleep(min(left, max(0.0, due)))
                    if due <= left:
                        self._asked_at = runtime.monotonic()
                        self.see(await ask())
                    failed = None
                except errors.Unavailable as error:
                    failed = error  # the API may answer before the end
                finally:
                    self._is_requested = False
                    self._call(1)
                    # Let the other waiting tasks continue first.
                    await runtime.sleep(0)
        finally:
            self.waiting -= 1
            if not self._is_requested:
                self._call(1)  # it may have been this task's turn
        if failed is not None and self.newest <= since:
            raise failed

    async def _wait_for_turn(self, seconds: float) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await turn
        finally:
            if turn in self._line:
                self._line.remove(turn)

    def _call(self, count: int) -> None:
        for _ in range(min(count, len(self._line))):
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)


#: Maximum number of requests that wait at once, of all schemas.
_MOST_WAITING = 1000
#: Maximum number of schema and credential pairs whose last request to the API is remembered.
_MOST_REQUESTED = 1000

#: A schema, and the credentials for reading it: nothing is shared between credentials.
_Key = tuple[bytes, bytes, str]


class Feed:
    def __init__(self, schemas: Schemas, runner: QueryRunner) -> None:
        self._schemas = schemas
        self._runner = runner
        self._successors = SuccessorIds()
        self._watches: WeakValueDictionary[bytes, WatchedSchema] = WeakValueDictionary()
        #: time of the last request to the API for a schema's state
        self._requested_at: Recent[_Key, float] = Recent(_MOST_REQUESTED)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for changes."""
        return sum(watch.waiting for watch in self._watches.values())

    def watch(self, schema: bytes) -> WatchedSchema:
        """The watch of the schema; it exists while a caller has a reference to it."""
        watch = self._watches.get(schema)
        if watch is None:
            watch = self._watches[schema] = WatchedSchema()
        return watch

    async def read(
        self, caller: Holder, schema: bytes, cursor: FeedCursor | None, limit: int
    ) -> FeedPage:
        """The changes after a cursor, at most a second old; without a cursor, all records.

        Raises:
            Gone: ``start_again``.
            ErsError: as :meth:`QueryRunner.ask`.
        """

        async def question(context: QueryContext) -> FeedPage:
            return await _read_page(context, self._successors, cursor, limit)

        state = await self._find_confirmed(caller, schema, 0 if cursor is None else cursor.version)
        return await self._runner.ask(caller, schema, question, confirmed_state=state)

    async def begin_now(self, caller: Holder, schema: bytes) -> FeedPage:
        """An empty page whose cursor leads to future changes. Raises as :meth:`read`."""

        async def question(context: QueryContext) -> FeedPage:
            cursor = _present_cursor(context, listing=False)
            return FeedPage([], cursor, cursor.version, True, context.definition)

        return await self._runner.ask(caller, schema, question)

    async def wait(
        self, caller: Holder, schema: bytes, watch: WatchedSchema, since: int, until: float
    ) -> None:
        """Wait until the schema's log goes beyond version ``since``, or until a time.

        Raises:
            Overloaded: too many wait already.
            ErsError: as :meth:`Schemas.refresh`, also if the caller may no longer read the schema.
        """
        if self.waiting >= _MOST_WAITING:
            raise errors.Overloaded(
                f"{_MOST_WAITING} requests are already waiting for changes", retry_after=10
            )

        async def ask() -> int:
            return (await self._refresh(caller, schema)).ledger.version

        await watch.wait(since, until, ask)

    async def _find_confirmed(self, caller: Holder, schema: bytes, least: int) -> SchemaState:
        """The schema's state that the API has confirmed to this caller within a second.

        Args:
            least: the minimum version.
        """
        state = self._schemas.get_cached(caller, schema)
        requested_at = self._requested_at.get((schema, caller.user, caller.auth), -math.inf)
        is_recent = runtime.monotonic() < requested_at + ASK_SECONDS
        if state is None or not is_recent or state.ledger.version < least:
            return await self._refresh(caller, schema)
        return state

    async def _refresh(self, caller: Holder, schema: bytes) -> SchemaState:
        requested_at = runtime.monotonic()
        state = await self._schemas.refresh(caller, schema)
        self._requested_at[schema, caller.user, caller.auth] = requested_at
        watch = self._watches.get(schema)
        if watch is not None:
            watch.see(state.ledger.version)
        return state
