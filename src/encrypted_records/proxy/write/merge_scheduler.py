"""Start merges of segments, and run them, by :mod:`encrypted_records.index.segments.merge_policy`.

Every direct ingest adds a small segment, and a query reads all of them. When there are too many,
the ingest that crosses the limit starts a merge. Ingests return without waiting for it until there
are half as many segments again; then each waits for the merge. All other merges run in the
background after a commit, with the credentials of the request that made it. Such a merge may fail
or lose a race, and then a later commit tries again.

Three lanes keep long merges from delaying short merges; each runs one merge at a time, and the
number of rows of a merge determines its lane. No two merges of one proxy take the same segment:
small merges of a schema run one after another, whichever request starts them, and a merge claims
its segments before it begins.

A merge is built, and then stored as one commit that conserves every live row. Another proxy may
merge some of the same segments meanwhile, and only one of the two is stored. A merge of minutes
checks from time to time whether that has happened, and stops if it has.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from encrypted_records import errors, runtime
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.segments.merge_policy import (
    ANY_ROWS,
    LARGE_ROWS,
    MOST_DEAD,
    ORDINARY_ROWS,
    TIERS,
    Crowd,
    Tier,
    listing_dead,
    rows_of,
    worth_merging,
)
from encrypted_records.model.records import MAX_SMALL_SEGMENTS, SMALL_SEGMENT_ROWS, Segment
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import MERGES, Background
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.fetcher import PageFetcher
from encrypted_records.proxy.write.committer import Committer
from encrypted_records.proxy.write.compactor import Compactor
from encrypted_records.proxy.write.merge_executor import FetchRows, MergeExecutor, PreparedSegment

log = logging.getLogger(__name__)


#: The shortest and the longest pause of a merge after it failed, in seconds.
LEAST_REST, MOST_REST = 2.0, 900.0

#: The ids of a user and of a schema.
MergeKey = tuple[bytes, bytes]


class Tasks:
    """Background tasks, at most one for each user and schema."""

    def __init__(self) -> None:
        self.running: dict[MergeKey, asyncio.Task[None]] = {}

    def start(
        self, background: Background, key: MergeKey, work: Callable[[], Awaitable[None]]
    ) -> None:
        async def run() -> None:
            # The end shows at once, not a turn of the event loop later: a caller in between would
            # rely on this task, which looks for no more work.
            try:
                await work()
            finally:
                self._end(key, asyncio.current_task())

        task = self.running[key] = background.start(MERGES, run)
        task.add_done_callback(partial(self._end, key))  # cancelled before it began

    def _end(self, key: MergeKey, task: asyncio.Task[Any] | None) -> None:
        if self.running.get(key) is task:
            del self.running[key]


@dataclass(frozen=True, slots=True)
class Rest:
    """The number of consecutive failures, and the end of the pause by the lane's clock."""

    failures: int
    until: float


class Lane(Tasks):
    """The queue of merges with a number of rows in ``rows``; each merge holds ``lock``."""

    def __init__(
        self,
        rows: range,
        clock: Callable[[], float] = runtime.monotonic,
        *,
        yields: bool = False,
    ) -> None:
        """
        Args:
            yields: whether a merge that lost a race to another proxy pauses like a failed merge.
        """
        super().__init__()
        self.rows = rows
        self.lock = asyncio.Lock()
        self._clock = clock
        self._yields = yields
        self._rests: dict[MergeKey, Rest] = {}

    @contextmanager
    def attempt(self, key: MergeKey) -> Iterator[None]:
        """Run one merge in the block. If it fails, merges of its schema pause for as long as it
        took, and for twice as long after each further failure. A conflict with data that others
        have stored is not a failure unless the lane yields.
        """
        began = self._clock()
        try:
            yield
        except Exception as error:
            if isinstance(error, errors.Conflict) and not self._yields:
                raise
            now = self._clock()
            # After a long pause the entry has no effect, and it may never be looked up again.
            kept = {
                lane: pause_of_lane
                for lane, pause_of_lane in self._rests.items()
                if now < pause_of_lane.until + MOST_REST
            }
            failures = kept[key].failures + 1 if key in kept else 1
            pause = max(LEAST_REST, now - began) * 2 ** min(failures - 1, 10)
            self._rests = kept | {key: Rest(failures, now + min(pause, MOST_REST))}
            raise
        self._rests.pop(key, None)

    def rests(self, key: MergeKey) -> bool:
        """Whether merges of this schema pause after a recent failure. Ordinary merges are not
        checked: they take a second or two, and writers may wait for them.
        """
        return key in self._rests and self._clock() < self._rests[key].until


class Lanes:
    """``ordinary`` merges, ``large`` merges of more than ``most`` rows, and ``huge`` merges of more
    than ``most_large``."""

    def __init__(
        self,
        most: int = ORDINARY_ROWS,
        most_large: int = LARGE_ROWS,
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        """
        Args:
            clock: seconds of a monotonic clock.
        """
        self.ordinary = Lane(range(most + 1), clock)
        self.large = Lane(range(most + 1, most_large + 1), clock)
        self.huge = Lane(range(most_large + 1, 1 << 32), clock, yields=True)

    @property
    def additional(self) -> tuple[Lane, Lane]:
        """The lanes whose merges run in additional processes."""
        return self.large, self.huge

    @property
    def every(self) -> tuple[Lane, ...]:
        return self.ordinary, *self.additional


@contextmanager
def log_errors() -> Iterator[None]:
    """Only log errors: the records are stored, whether merging succeeds or not."""
    try:
        yield
    except errors.ErsError as error:
        log.warning("merging failed, and a later ingest will try again: %s", error.message)
    except Exception as error:
        log.error("merging failed because of an internal error: %s", type(error).__name__)  # noqa: TRY400


#: Maximum seconds for which a writer waits until its schema has room for one more segment.
ROOM_SECONDS = 30.0
#: Seconds between two checks, if merges fail or are lost to another proxy.
PAUSE_SECONDS = 0.2

#: Another writer merged one of the same segments, or compacted one of its groups.
_OVERTAKEN = frozenset({"segment_not_live", "group_not_live"})

#: Lost races with other merges after which a purge gives up.
MOST_LOST = 100


class MergeScheduler:
    def __init__(
        self,
        executor: MergeExecutor,
        pager: PageFetcher,
        committer: Committer,
        background: Background,
        tiers: tuple[Tier, ...] = TIERS,
        most_dead: float = MOST_DEAD,
        room_seconds: float = ROOM_SECONDS,
        compactor: Compactor | None = None,
        lanes: Lanes | None = None,
    ) -> None:
        """
        Args:
            compactor: compacts groups after merges; None if groups stay as they are.
            most_dead: as for :func:`worth_merging`.
            room_seconds: maximum seconds for which a writer waits, see :meth:`give_up_at`.
        """
        self._executor = executor
        self._pager = pager
        self._committer = committer
        self._background = background
        self._small = Tasks()
        self._lanes = lanes or Lanes()
        #: uids of the segments that running merges replace
        self._taken: set[bytes] = set()
        self.tiers = tiers
        self._most_dead = most_dead
        self._room_seconds = room_seconds
        self._compactor = compactor

    async def after_ingest(self, caller: Holder, state: SchemaState) -> None:
        """Merge if it is time. The records are stored already, so a failure is only logged."""
        self._begin(caller, state)
        merge = self._small.running.get((caller.user, state.id))
        if merge is not None and self._has_fallen_behind(state):
            await self._background.wait([merge])

    def require_room(self, states: Sequence[SchemaState]) -> None:
        """Check that the API would take one more segment of each schema.

        Raises:
            MergeFirst: a schema has no room, as far as this proxy knows.
        """
        if any(is_full(state) for state in states):
            raise too_many_segments()

    def give_up_at(self) -> float:
        """Until when a writer who begins now waits for room, by :func:`time.monotonic`."""
        return runtime.monotonic() + self._room_seconds

    async def make_room(
        self, caller: Holder, states: Sequence[SchemaState], *, until: float
    ) -> None:
        """Merge until each schema has room for one more segment.

        Args:
            until: when to give up, from :meth:`give_up_at`.

        Raises:
            MergeFirst: there is no room by then, or nothing is left to merge.
        """
        if not any(map(is_full, states)):
            # The API has more segments than this proxy knows; the next try reads the log first.
            await runtime.sleep(PAUSE_SECONDS)
        for state in states:
            while is_full(state):
                under_way = self._begin(caller, state)
                if not under_way:
                    raise too_many_segments()
                left = until - runtime.monotonic()
                await self._background.wait(
                    under_way, timeout=max(0, left), return_when=asyncio.FIRST_COMPLETED
                )
                if left <= 0:
                    raise too_many_segments()
                if is_full(state):
                    await runtime.sleep(PAUSE_SECONDS)
        if runtime.monotonic() > until:
            raise too_many_segments()

    def _begin(self, caller: Holder, state: SchemaState) -> list[asyncio.Task[None]]:
        """The running merges of a schema, started now if it is time."""
        key = (caller.user, state.id)
        if key not in self._small.running and self._small_ones(state):
            self._small.start(self._background, key, partial(self._merge_small, caller, state))
        if key not in self._small.running:
            self._begin_others(caller, state)
        lanes = (self._small, *self._lanes.every)
        return [tasks.running[key] for tasks in lanes if key in tasks.running]

    def _begin_others(self, caller: Holder, state: SchemaState) -> None:
        key = (caller.user, state.id)
        ordinary = self._lanes.ordinary
        if key not in ordinary.running and (
            self._choose(state, self.tiers, ordinary) or self._find_crowd(state, self._taken)
        ):
            ordinary.start(self._background, key, partial(self._in_background, caller, state))
        for lane in self._lanes.additional:
            waits = key in lane.running or lane.rests(key)
            if not waits and self._choose(state, self.tiers, lane):
                lane.start(self._background, key, partial(self._merge_in_lane, caller, state, lane))

    def _choose(
        self, state: SchemaState, tiers: tuple[Tier, ...], lane: Lane
    ) -> tuple[Segment, ...]:
        return self._find(state, tiers, self._taken, rows=lane.rows)

    def _find(
        self,
        state: SchemaState,
        tiers: tuple[Tier, ...],
        taken: Collection[bytes],
        rows: range = ANY_ROWS,
    ) -> tuple[Segment, ...]:
        snapshot, dead = state.ledger.snapshot(), self._most_dead
        return worth_merging(snapshot, tiers, now=_now(), taken=taken, most_dead=dead, rows=rows)

    def _has_fallen_behind(self, state: SchemaState) -> bool:
        """Whether small segments have come faster than they are merged."""
        tier = self.tiers[0]
        small = bisect_right(state.ledger.snapshot().counts, tier.capacity // 2)
        return 2 * small > 3 * tier.few

    def _small_ones(self, state: SchemaState) -> tuple[Segment, ...]:
        """Segments that should be merged soon, because every search reads them."""
        tier = self.tiers[0]
        chosen = self._choose(state, (tier,), self._lanes.ordinary)
        # No ingest waits for a large segment with many dead rows.
        return chosen if rows_of(chosen) <= tier.capacity else ()

    async def merge_next(
        self, caller: Holder, state: SchemaState, *, unless_resting: bool = False
    ) -> MergeOutcome | None:
        """Run the next merge of a schema; None if no merge is worthwhile. Ordinary merges come
        before large merges, and those before huge merges.

        Args:
            unless_resting: skip a large or huge merge that failed a short while ago.

        Raises:
            ErsError: it failed, and changed nothing.
        """
        outcome = await self._merge_ordinary(caller, state)
        for lane in self._lanes.additional:
            if outcome:
                break
            if not (unless_resting and lane.rests((caller.user, state.id))):
                outcome = await self._next_of(caller, state, lane)
        return outcome

    async def _merge_ordinary(self, caller: Holder, state: SchemaState) -> MergeOutcome | None:
        """Merge segments that are not large; see :meth:`merge_next`."""
        small = self._small.running.get((caller.user, state.id))
        if small is not None:
            await self._background.wait([small])
        return await self._next_of(caller, state, self._lanes.ordinary)

    async def _next_of(self, caller: Holder, state: SchemaState, lane: Lane) -> MergeOutcome | None:
        async with lane.lock:
            with lane.attempt((caller.user, state.id)):
                return await self._merge(
                    caller, state, partial(self._choose, tiers=self.tiers, lane=lane)
                )

    async def compact_next(self, caller: Holder, state: SchemaState) -> int:
        """Compact many small groups whose segment stays into one; returns how many they were, or 0
        if there are none.

        Raises:
            ErsError: it failed, and changed nothing.
        """
        async with self._lanes.ordinary.lock:
            while crowd := self._find_crowd(state, self._taken):
                self._taken.add(crowd.segment)
                try:
                    assert self._compactor is not None
                    if ended := await self._compactor.compact(caller, state, crowd):
                        return ended
                finally:
                    self._taken.discard(crowd.segment)
        return 0

    def _find_crowd(self, state: SchemaState, taken: Collection[bytes]) -> Crowd | None:
        return self._compactor.find(state, taken) if self._compactor else None

    async def purge(self, caller: Holder, state: SchemaState) -> int:
        """Merge until no segment has keys of dead rows; returns the number of these rows.

        Raises:
            ErsError: it failed; completed merges stay.
        """
        rows = lost = 0
        while state.ledger.snapshot().dying:
            try:
                outcome = None
                for lane in self._lanes.every:
                    outcome = outcome or await self._purge_next(caller, state, lane)
            except errors.Conflict as error:
                lost += 1
                if error.reason not in _OVERTAKEN or lost > MOST_LOST:
                    raise
                # Another merge took one of the same segments, and left out its dead rows.
                async with state.lock:
                    await self._committer.prepare(caller, [state])
                continue
            if outcome is None:
                # All of them are being merged.
                lost += 1
                if lost > MOST_LOST:
                    raise errors.Conflict("the index is being merged", hint="try again")
                await runtime.sleep(PAUSE_SECONDS)
            else:
                rows += outcome.rows
        return rows

    async def _purge_next(
        self, caller: Holder, state: SchemaState, lane: Lane
    ) -> MergeOutcome | None:
        def choose(present: SchemaState) -> tuple[Segment, ...]:
            snapshot = present.ledger.snapshot()
            return listing_dead(snapshot, self.tiers, taken=self._taken, rows=lane.rows)

        async with lane.lock:
            return await self._merge(caller, state, choose)

    async def rebuild(
        self, caller: Holder, state: SchemaState, lost: bytes, fetch: FetchRows
    ) -> MergeOutcome | None:
        """Rebuild a segment whose pages are lost, from its rows; None if it is no longer live.

        Args:
            lost: the uid of the segment.
            fetch: returns rows of its groups.

        Raises:
            ErsError: it failed, and changed nothing.
        """

        def choose(present: SchemaState) -> tuple[Segment, ...]:
            segments = present.ledger.snapshot().segments
            return tuple(segment for segment in segments if segment.uid == lost)

        for _ in range(MOST_LOST):
            segment = choose(state)
            if not segment:
                return None
            lane = next(lane for lane in self._lanes.every if rows_of(segment) in lane.rows)
            async with lane.lock:
                if lost not in self._taken:
                    return await self._merge(caller, state, choose, fetch)
            # A running merge of this segment fails when it requests a page.
            await runtime.sleep(PAUSE_SECONDS)
        raise errors.Conflict("the index is being merged", hint="try again")

    async def close(self) -> None:
        """Cancel running merges; nothing of them is stored."""
        await self._background.stop(MERGES)

    @property
    def running(self) -> int:
        """The number of schemas that are being merged in the background."""
        return len(set().union(*(tasks.running for tasks in (self._small, *self._lanes.every))))

    def pending(self, state: SchemaState) -> bool:
        """Whether there are segments to merge, or groups to compact."""
        return bool(self._find(state, self.tiers, ())) or self._find_crowd(state, ()) is not None

    async def _merge_small(self, caller: Holder, state: SchemaState) -> None:
        with log_errors():
            while await self._merge(caller, state, self._small_ones):
                pass
        self._begin_others(caller, state)

    async def _in_background(self, caller: Holder, state: SchemaState) -> None:
        with log_errors():
            while (
                await self._merge_ordinary(caller, state)
                or await self.compact_next(caller, state)
                # The merge may have waited for its turn, while others stored more.
                or self._choose(state, self.tiers, self._lanes.ordinary)
            ):
                # Its result may make a large merge worthwhile.
                self._begin_others(caller, state)

    async def _merge_in_lane(self, caller: Holder, state: SchemaState, lane: Lane) -> None:
        with log_errors():
            while await self._next_of(caller, state, lane):
                # Its result may make a huge merge worthwhile.
                self._begin_others(caller, state)
        # Its groups may be many, and were not compacted meanwhile.
        self._begin_others(caller, state)

    async def _merge(
        self,
        caller: Holder,
        state: SchemaState,
        choose: Callable[[SchemaState], tuple[Segment, ...]],
        fetch: FetchRows | None = None,
    ) -> MergeOutcome | None:
        """Run a merge, as one commit that preserves every live row.

        It is built without the lock, because that may take long, and committed if all its inputs
        are live then. Rows that die meanwhile are dead rows of the new segment.

        Args:
            fetch: returns rows; given if there is one input, whose pages are lost.

        Raises:
            Conflict: another proxy merged some of the same segments first.
            LogBroken: the API lacks a segment that its log contains.
        """
        if state.uncertain:
            # An earlier commit failed: the same cause may make this commit fail.
            async with state.lock:
                await self._committer.prepare(caller, [state])
        inputs = choose(state)
        if not inputs:
            return None
        taken = {segment.uid for segment in inputs}
        self._taken |= taken
        try:
            return await self._replace(caller, state, inputs, fetch)
        finally:
            self._taken -= taken

    async def _replace(
        self,
        caller: Holder,
        state: SchemaState,
        inputs: Sequence[Segment],
        fetch: FetchRows | None,
    ) -> MergeOutcome:
        """Merge segments, and store the result; arguments and errors are those of
        :meth:`_merge`."""
        ledger = state.ledger
        seen = ledger.snapshot()
        rows = rows_of(inputs)
        large = rows not in self._lanes.ordinary.rows
        checked_at = runtime.monotonic()

        async def check() -> None:
            nonlocal checked_at
            if rows in self._lanes.huge.rows and runtime.monotonic() - checked_at >= CHECK_SECONDS:
                await self._check_inputs(caller, state, ledger, inputs)
                checked_at = runtime.monotonic()

        try:
            if fetch is None:
                new = await self._executor.build(
                    caller, state, seen, inputs, large=large, check=check
                )
            else:
                (lost,) = inputs
                new = await self._executor.rebuild(
                    caller, state, seen, lost, fetch, large=large, check=check
                )
        except errors.NotFound as error:
            if error.reason != "segment_gone":
                raise
            # Believed only if the log itself now says that another merge came first.
            await self._committer.catch_up(caller, state)
            _require_live(state, ledger, inputs)
            raise errors.LogBroken("the API lacks a segment that its log contains") from None
        try:
            await self._publish(caller, state, ledger, seen, inputs, new)
        except (errors.BadInput, errors.NotFound) as error:
            # Another proxy does the same merge and has replaced our parts. If the API lies about
            # it, the segments stay, and an erasure that waits for the merge fails by name.
            if new.staging is None or error.reason not in ("invalid_commit", "staging_gone"):
                raise
            raise _overtaken() from None
        except errors.Conflict:
            await self._executor.give_up(caller, new.staging)
            raise
        await runtime.in_thread(self._pager.drop, [segment.uid for segment in inputs])
        log.info("merged %d segments of %d rows", len(inputs), new.segment.count)
        return MergeOutcome(len(inputs), new.segment.count)

    async def _check_inputs(
        self, caller: Holder, state: SchemaState, ledger: Ledger, inputs: Sequence[Segment]
    ) -> None:
        """
        Raises:
            Conflict: some of the inputs are no longer live.
        """
        # If the API is unavailable, the next request for a page or part reports it.
        with suppress(errors.Unavailable):
            await self._committer.catch_up(caller, state)
        _require_live(state, ledger, inputs)

    async def _publish(
        self,
        caller: Holder,
        state: SchemaState,
        ledger: Ledger,
        seen: Snapshot,
        inputs: Sequence[Segment],
        new: PreparedSegment,
    ) -> None:
        """Replace the inputs by the new segment, as the ledger had them before it was built."""
        async with state.lock:
            await self._committer.prepare(caller, [state])
            _require_live(state, ledger, inputs)
            now = ledger.snapshot()
            if any(now.groups_of(source) != seen.groups_of(source) for source in inputs):
                raise errors.Conflict("groups of the segments were replaced", code="group_not_live")
            upload = ledger.draft(
                seen.definition,
                segments=[new.segment],
                replaced=[segment.uid for segment in inputs],
                pages=new.pages,
                headers=() if new.staging else [new.header],
            )
            await self._committer.store(
                caller, [(state, upload)], built=new.built, staging=new.staging
            )


def _now() -> int:
    return runtime.wall_ns() // 1_000_000


def is_full(state: SchemaState) -> bool:
    """Whether the API takes no more segments of a schema."""
    segments = state.ledger.snapshot().segments
    if len(segments) < MAX_SMALL_SEGMENTS:
        return False
    return sum(segment.count <= SMALL_SEGMENT_ROWS for segment in segments) >= MAX_SMALL_SEGMENTS


def too_many_segments() -> errors.MergeFirst:
    return errors.MergeFirst(
        f"the schema would have more than {MAX_SMALL_SEGMENTS} small segments, and each"
        " search has to read all of them",
        retry_after=2,
    )


#: Seconds between two reads of the log while a huge merge is built.
CHECK_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """``inputs`` segments became one segment of ``rows`` rows."""

    inputs: int
    rows: int


def _require_live(state: SchemaState, ledger: Ledger, inputs: Sequence[Segment]) -> None:
    live = {segment.uid for segment in state.ledger.snapshot().segments}
    if state.ledger is not ledger or not live.issuperset(source.uid for source in inputs):
        raise _overtaken()


def _overtaken() -> errors.Conflict:
    return errors.Conflict("another merge came first", code="segment_not_live")
