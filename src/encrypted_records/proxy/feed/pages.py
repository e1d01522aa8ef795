"""A page of the change feed: what comes after a cursor, opened, at one snapshot of the log.

Every commit is followed row by row. A row that it added is an ``upsert``, unless the row is dead by
now: then a later commit says what became of the record, and no value is handed out that is known to
be old. A row that it ended is a ``delete``, unless the same commit added another version of the
record. The index has no ids, so those of ended rows are read from the API, which keeps the rows for
a while; each opens for its own id alone. Where one is gone, the consumer has to start again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from encrypted_records import runtime
from encrypted_records.crypto.sealing import RowOpener
from encrypted_records.errors import KeyMissing, LogBroken, NotFound
from encrypted_records.index.log.effects import Effects, PlacedGroup
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.ids import reference, to_text
from encrypted_records.model.records import PlainRecord, RowRef, StoredRow
from encrypted_records.proxy.feed.cursor import FeedCursor, start_again
from encrypted_records.proxy.feed.trail import read_effects
from encrypted_records.proxy.http.messages import FEW_CELLS, record_json, to_json
from encrypted_records.proxy.process.offload import Run, aside, here
from encrypted_records.proxy.search.context import QueryContext
from encrypted_records.proxy.search.row_fetcher import MOST_OPENED

#: Rows that one commit may both end and add: of more it would take long to tell which rows are new
#: versions of which records.
MOST_PAIRED = 1 << 17
#: Rows whose ids are asked for at once, at most.
_AT_ONCE = 1000

#: A row by its place when it was ended.
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
    """``changes`` lead to ``cursor``. With ``current``, a consumer that has applied all of them
    holds what a search finds at ``version``."""

    changes: list[RecordChange]
    cursor: FeedCursor
    version: int
    current: bool
    definition: SchemaDefinition


@dataclass(slots=True)
class _Plan:
    """The rows that a page is about, in order.

    ``room`` is how many more there may be. ``ended`` and ``added`` are by version and number within
    the commit.
    """

    room: int
    ended: dict[tuple[int, int], _Ended] = field(default_factory=dict)
    added: dict[tuple[int, int], RowRef] = field(default_factory=dict)
    listed: list[RowRef] = field(default_factory=list)
    #: commits of which ended rows are here, and that added rows, too
    paired: list[Effects] = field(default_factory=list)


async def read_page(
    context: QueryContext, successors: SuccessorIds, cursor: FeedCursor | None, limit: int
) -> FeedPage:
    """The changes after ``cursor``, of at most ``limit`` rows; without it, of all live records.

    Raises:
        Gone: ``start_again``.
        Moved, LogBroken, DoesNotOpen: as :meth:`QueryContext.rows`.
    """
    snapshot, ledger = context.snapshot, context.state.ledger
    plan = _Plan(limit)
    if cursor is None:
        cursor = present_cursor(context, listing=True)
        every: list[Effects] = []
    else:
        _require_same_log(cursor, ledger, snapshot.version)
        upstream = context.upstream
        every = await read_effects(upstream.api, upstream.caller, ledger, snapshot, cursor.version)
        if any(effects.rewrites for effects in every):
            raise start_again("a change of the schema's definition changed how its records read")
    begun = cursor
    cursor = await runtime.in_thread(_plan_commits, plan, context, every, cursor)
    caught_up = cursor.version == snapshot.version
    if caught_up:
        cursor = await runtime.in_thread(_plan_listing, plan, context, cursor)
    changes = await _open(context, successors, plan, every, begun)
    current = caught_up and not cursor.left
    definition = context.state.definition if snapshot.history is None else snapshot.definition
    return FeedPage(changes, cursor, snapshot.version, current, definition)


def present_cursor(context: QueryContext, *, listing: bool) -> FeedCursor:
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
        raise start_again("the schema's log is older than the cursor, or a different log")
    digest = ledger.digest_at(cursor.version)
    if digest is None:
        raise start_again("it is too old")
    if not cursor.is_of(digest):
        raise start_again("the schema's log is a different one")


async def write_changes(page: FeedPage, schema: bytes) -> list[bytes]:
    """The changes of a page as JSON; in a thread where that takes long."""

    def write(change: RecordChange) -> bytes:
        described = {
            "op": change.op,
            "version": change.version,
            "id": to_text(change.record_id),
            "url": reference("records", change.record_id),
            "schema": reference("schemas", schema),
            "etag": f'"{change.record_version}"',
        }
        if change.record is not None:
            described |= record_json(change.record, schema, page.definition)
        return to_json(described)

    cells = len(page.changes) * len(page.definition.fields)
    run: Run = here if cells <= FEW_CELLS else aside
    return await run(lambda: [write(change) for change in page.changes])


# --- which rows ----------------------------------------------------------------------------------


def _plan_commits(
    plan: _Plan, context: QueryContext, every: Sequence[Effects], cursor: FeedCursor
) -> FeedCursor:
    """Plan the rows of commits until there is no more room; where that ends."""
    for effects in every:
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
    """Plan the rows of one commit behind the first ``skip``; the number of rows that are done,
    where that is not all."""
    version, ended = effects.version, effects.ended_count
    if skip < ended:
        some = list(islice(_rows_of(effects), skip, skip + plan.room))
        plan.ended |= {(version, skip + at): row for at, row in enumerate(some)}
        plan.room -= len(some)
        skip += len(some)
        if some and effects.added:
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
    if len(effects.added) > MOST_PAIRED:
        raise start_again("too many records were replaced at once to follow each of them")


def _rows_of(effects: Effects) -> Iterator[_Ended]:
    for placed, killed in effects.ended:
        for row in killed.rows():
            yield placed, row.ordinal


def _plan_listing(plan: _Plan, context: QueryContext, cursor: FeedCursor) -> FeedCursor:
    """Plan rows that a new consumer has not been told of; where that ends."""
    left = cursor.left
    live = context.snapshot.live_between(left.start, left.stop)
    plan.listed = list(islice(live, plan.room + 1))
    if len(plan.listed) > plan.room:
        first = context.snapshot.number(plan.listed.pop())
        return FeedCursor(cursor.version, 0, cursor.digest, range(first, left.stop))
    return FeedCursor(cursor.version, 0, cursor.digest)


# --- what is in them -----------------------------------------------------------------------------


async def _open(
    context: QueryContext,
    successors: SuccessorIds,
    plan: _Plan,
    every: Sequence[Effects],
    begun: FeedCursor,
) -> list[RecordChange]:
    names = await _read_ended(context, list(plan.ended.values()))
    replaced = {
        effects.version: await successors.of(context, effects, every) for effects in plan.paired
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
    # By commit, what it ended first: what is sorted is in order within each of both.
    changes.sort(key=lambda change: (change.cursor.version, change.cursor.number))
    at = _at(context, context.snapshot.version, 0, begun.left)
    for ref, record in zip(plan.listed, records[len(plan.added) :], strict=True):
        left = range(context.snapshot.number(ref) + 1, begun.left.stop)
        name = (record.record_id, record.version)
        add(at.version, FeedCursor(at.version, 0, at.digest, left), name, record)
    return changes


async def _read_added(
    context: QueryContext, effects: Effects, every: Sequence[Effects]
) -> frozenset[bytes]:
    """The ids of all records of which a commit added rows, also of those that are dead by now."""
    snapshot, added = context.snapshot, effects.added
    live = list(snapshot.live_between(added.start, added.stop))
    records = await context.rows(live, alone=len(live) > MOST_OPENED)
    ids = {record.record_id for record in records}
    if len(live) < len(added):
        ended = await runtime.in_thread(_find_ended, every, added)
        ids |= {record_id for record_id, _ in await _read_ended(context, ended)}
    return frozenset(ids)


def _find_ended(every: Iterable[Effects], positions: range) -> list[_Ended]:
    """The rows at these positions that commits ended."""
    return [
        (placed, ordinal)
        for effects in every
        for placed, killed in effects.ended
        if placed.start < positions.stop and placed.start + killed.end > positions.start
        for ordinal in (row.ordinal for row in killed.rows())
        if placed.start + ordinal in positions
    ]


async def _read_ended(context: QueryContext, ended: Sequence[_Ended]) -> list[_Name]:
    """The ids and versions of ended rows.

    Raises:
        Gone: ``start_again``; the API has one of the rows no longer, or its key was forgotten.
        DoesNotOpen: the API returned another row.
    """
    names: list[_Name] = []
    at_once = min(_AT_ONCE, context.fetcher.window(context.state))
    for start in range(0, len(ended), at_once):
        some = ended[start : start + at_once]
        refs = [RowRef(placed.group.uid, ordinal) for placed, ordinal in some]
        try:
            rows = await context.upstream.fetch_rows(refs)
            names += await runtime.in_thread(_authenticate, context, some, rows)
        except (NotFound, KeyMissing) as error:
            if isinstance(error, NotFound) and error.reason != "row_gone":
                raise
            raise start_again("records were erased that can no longer be named") from None
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
            raise LogBroken("the API returned a row that was not requested")
        if group.uid not in openers:
            key = keys.of(group.key_version)
            openers[group.uid] = RowOpener(key, placed.made, group, placed.made)
        openers[group.uid].authenticate(ordinal, stored.row)
        names.append((stored.row.record_id, stored.row.version))
    return names


class SuccessorIds:
    """The ids of records of which large commits added rows: such a commit takes many pages."""

    def __init__(self, most: int = 2 * MOST_PAIRED) -> None:
        """
        Args:
            most: ids that are kept.
        """
        self._most = most
        self._kept: OrderedDict[bytes, frozenset[bytes]] = OrderedDict()

    async def of(
        self, context: QueryContext, effects: Effects, every: Sequence[Effects]
    ) -> frozenset[bytes]:
        """Read the ids like :func:`_read_added`, or return those that are kept."""
        log = context.state.ledger.digest_at(effects.version)
        assert log is not None, "a page is of versions that are known"
        ids = self._kept.get(log)
        if ids is None:
            ids = self._kept[log] = await _read_added(context, effects, every)
        self._kept.move_to_end(log)
        while len(self._kept) > 1 and sum(map(len, self._kept.values())) > self._most:
            self._kept.popitem(last=False)
        return ids
