"""Retention: delete records past the period in the signed definition of their schema.

The rule comes from the log that this proxy has verified. Expired records are found in the index, or
by verified ids; the API is trusted for neither, because otherwise it could cause every record to be
deleted. :class:`WatchedClock` says whether this machine's clock may decide which records are old
enough.

:class:`DailyRetention` runs when a user with the right to delete works with this proxy, because a
proxy acts only with a caller's credentials. The first search or change of a day in a schema starts
it in the background, with the credentials of that request and only as far as these permit; no
request waits for it or fails because of it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.errors import Conflict, ErsError, NotAllowed, NotFound
from encrypted_records.index.log.history import Past
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model import ids
from encrypted_records.model.definition import (
    DAY_MILLISECONDS,
    Retention,
    SchemaDefinition,
    number_of,
)
from encrypted_records.model.queries import Conditions
from encrypted_records.proxy.jobs.row_keys import look_up_names
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import RETENTION, Background, Recent, aside
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.schemas.store import ClockMark, Doubt, Heads
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.upstream import RowsGone, Upstream
from encrypted_records.proxy.write.update import Updater

log = logging.getLogger(__name__)


# The clock of this machine, and doubts about it.

_DAY_SECONDS = DAY_MILLISECONDS // 1000
#: Maximum difference in seconds between the clock and other clocks, and maximum step of the clock
#: without a doubt.
_MOST_SECONDS = float(_DAY_SECONDS)
#: Seconds that a proxy has to run without a clock step before a doubt ends.
_SETTLED_SECONDS = float(_DAY_SECONDS)
#: Seconds between two stored marks of the time.
NOTE_SECONDS = 600.0
#: Maximum running time in seconds between two checks; after a longer time the proxy was stopped, or
#: the machine slept.
_MOST_RUN_SECONDS = 2 * NOTE_SECONDS
#: Doubts that are stored separately.
_MOST_DOUBTS = 64
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def name_boot() -> str:
    """The name of the machine's current boot, within which :func:`runtime.elapsed` is one clock;
    empty if the system has none.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _require_right(now: float, *, api: float | None, newest: int) -> None:
    """Compare the clock with other clocks. These never cause a deletion: they only prevent it.

    Args:
        now: the clock's time, in seconds since 1970.
        api: the API's time; None if it states none.
        newest: the time of the log's newest commit that stored or ended records, in milliseconds.

    Raises:
        Conflict: ``clock_wrong``.
    """
    if api is None:
        raise _wrong("the API does not send its time, so this clock cannot be compared")
    if abs(now - api) > _MOST_SECONDS:
        raise _wrong("this machine's clock differs from the API's by more than a day")
    if newest / 1000 - now > _MOST_SECONDS:
        raise _wrong("this machine's clock is more than a day behind the newest commit of the log")


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The clock at a moment: ``now`` in seconds since 1970, and ``doubts`` about it."""

    now: float
    doubts: tuple[Doubt, ...] = ()

    @property
    def doubtful(self) -> float:
        """The number of seconds of ``now`` that only this clock supports."""
        return sum(doubt.seconds for doubt in self.doubts if doubt.seconds is not None)

    @property
    def certain(self) -> float:
        """The latest time that does not rest on a doubtful step, in seconds since 1970.

        A new proxy has no earlier time to compare with: there it is ``now``.
        """
        return self.now - self.doubtful

    def certain_for(self, past: Past) -> float:
        """:attr:`certain`, also by the commits of a log: these are authenticated, and each is
        evidence that its time has passed.

        Commits of the two days before a doubt began may be this machine's own, with times of the
        doubtful clock; earlier commits are not.
        """
        if not self.doubts:
            return self.now
        began = min(doubt.noticed for doubt in self.doubts)
        proven = max(
            (day for day in past.stored if (day + 2) * _DAY_SECONDS <= began), default=None
        )
        if proven is None:
            return self.certain
        is_new = any(doubt.seconds is None for doubt in self.doubts)
        known = 0.0 if is_new else self.certain
        return min(self.now, max(known, float(proven * _DAY_SECONDS)))

    def doubt(self, past: Past) -> str | None:
        """The reason why a log's records are deleted by a time earlier than the clock's; None if
        they are not.
        """
        missing = self.now - self.certain_for(past)
        if missing < _MOST_SECONDS:
            return None
        if self.doubtful > 0:
            return (
                f"this machine's clock jumped ahead by {round(self.doubtful / _DAY_SECONDS)}"
                " days, and nothing else shows that so much time has passed"
            )
        return (
            "this proxy has not run for a day yet, and according to this machine's clock,"
            " the newest records of the log from before its start are"
            f" {int(missing // _DAY_SECONDS)} days old"
        )


class WatchedClock:
    """The clock of this machine, and how much of its time is in doubt.

    A step of more than a day relative to real time is in doubt. Real time is known while the proxy
    runs, and while it was stopped if the machine was not rebooted; it is unknown across a reboot,
    so that a long stop is in doubt as well. A doubt ends when the proxy has run for a day since
    then with a clock that did not step, when a user confirms the clock, or when the clock goes back
    by the same amount. Doubts end independently: a new one does not prolong earlier ones.
    """

    def __init__(
        self,
        heads: Heads,
        wall: Callable[[], float] = runtime.wall,
        real: Callable[[], float] = runtime.elapsed,
        boot: Callable[[], str] = name_boot,
    ) -> None:
        """
        Args:
            wall: seconds since 1970.
            real: seconds of a clock that is monotonic within a boot.
            boot: the name of the current boot; empty if unknown.
        """
        self._heads = heads
        self.wall = wall
        self.real = real
        self._boot = boot()
        self._mark: ClockMark | None = None
        #: time of the last stored mark, on the clock ``real``
        self._noted = 0.0
        self._lock = threading.Lock()

    @property
    def doubtful(self) -> float:
        """Seconds that were in doubt at the last check."""
        mark = self._mark
        return 0.0 if mark is None else ClockReading(mark.wall, mark.doubts).doubtful

    async def look(self) -> ClockReading:
        """
        Raises:
            OutOfSpace, Unavailable: the time seen last cannot be read or stored.
        """
        return await runtime.in_thread(self._look)

    async def certain(self) -> float:
        """The latest time, in seconds since 1970, that is not in doubt. Raises as :meth:`look`."""
        return await runtime.in_thread(self.certain_now)

    def certain_now(self) -> float:
        """:meth:`certain`, for threads."""
        return self._look().certain

    async def settle(self) -> None:
        """Confirm that the clock is right. Raises as :meth:`look`."""
        await runtime.in_thread(self._settle)

    def _look(self) -> ClockReading:
        with self._lock:
            now, real = self.wall(), self.real()
            mark = self._mark or self._heads.clock()
            if mark is None:
                mark = ClockMark(now, real, self._boot, 0.0, (Doubt(None, now, 0.0),))
            passed = self._since(mark, real)
            step = now - mark.wall - passed
            if step > _MOST_SECONDS:
                mark = self._go_ahead(mark, now, step)
            elif step < -_MOST_SECONDS:
                mark = _go_back(mark, now, -step, passed)
            else:
                mark = replace(mark, wall=now, behind=0.0, doubts=_age(mark.doubts, passed))
            mark = replace(mark, real=real, boot=self._boot)
            self._keep(mark)
            return ClockReading(now, mark.doubts)

    def _since(self, mark: ClockMark, real: float) -> float:
        """The real seconds since a mark; 0 if unknown."""
        if self._mark is None and (not self._boot or mark.boot != self._boot):
            return 0.0
        return max(real - mark.real, 0.0)

    def _go_ahead(self, mark: ClockMark, now: float, step: float) -> ClockMark:
        log.warning(
            "this machine's clock jumped ahead by %d days, perhaps while it was off: no"
            " record is deleted because of these days before the proxy has run for a day",
            round(step / _DAY_SECONDS),
        )
        doubts = (*mark.doubts, Doubt(step, now, 0.0))
        return replace(mark, wall=now, behind=0.0, doubts=_shorten(doubts))

    def _settle(self) -> None:
        self._look()
        with self._lock:
            self._keep(ClockMark(self.wall(), self.real(), self._boot, 0.0, ()))

    def _keep(self, mark: ClockMark) -> None:
        """Keep the mark, and store it if it has changed or the stored mark is old."""
        before = self._mark
        self._mark = mark
        if (
            before is None
            or len(before.doubts) != len(mark.doubts)
            or before.wall > mark.wall
            or before.behind > mark.behind
            or mark.real - self._noted >= NOTE_SECONDS
        ):
            self._heads.note_clock(mark)
            self._noted = mark.real


def _age(doubts: Sequence[Doubt], passed: float) -> tuple[Doubt, ...]:
    """The doubts that remain after the clock has not stepped for ``passed`` seconds."""
    ran = min(passed, _MOST_RUN_SECONDS)
    aged = (replace(doubt, ran=doubt.ran + ran) for doubt in doubts)
    return tuple(doubt for doubt in aged if doubt.ran < _SETTLED_SECONDS)


def _shorten(doubts: tuple[Doubt, ...]) -> tuple[Doubt, ...]:
    """The same doubts; if there are too many, the two oldest are joined."""
    if len(doubts) <= _MOST_DOUBTS:
        return doubts
    first, other, *later = doubts
    unknown = first.seconds is None or other.seconds is None
    seconds = None if unknown else (first.seconds or 0.0) + (other.seconds or 0.0)
    both = Doubt(seconds, min(first.noticed, other.noticed), min(first.ran, other.ran))
    return (both, *later)


def _go_back(mark: ClockMark, now: float, back: float, passed: float) -> ClockMark:
    """The mark after the clock went back: a wrong clock was corrected, or the clock is wrong now.

    If a clock is corrected soon, such as on a machine without a clock battery, that does not count
    as a jump. After a day of running, the earlier time is assumed to be right.
    """
    left: list[Doubt] = []
    for doubt in reversed(mark.doubts):
        if doubt.seconds is None or back <= 0:
            left.append(doubt)
            continue
        left_seconds = doubt.seconds - back
        back = max(-left_seconds, 0.0)
        if left_seconds > _MOST_SECONDS:
            left.append(Doubt(left_seconds, now, 0.0))
    if len(left) < len(mark.doubts):
        log.warning("this machine's clock went back by the time that was in doubt")
    mark = replace(mark, doubts=tuple(reversed(left)))
    if back <= _MOST_SECONDS:
        return replace(mark, wall=now, behind=0.0)
    behind = mark.behind + min(passed, _MOST_RUN_SECONDS)
    if behind >= _SETTLED_SECONDS:
        return replace(mark, wall=now, behind=0.0)
    return replace(mark, wall=now + back, behind=behind)


def _wrong(why: str) -> Conflict:
    return Conflict(
        f"no record is deleted by age: {why}",
        code="clock_wrong",
        hint="set the clocks of this machine and of the API's machine, then try again",
    )


# Expired records: found, and deleted once a day.

#: Logs whose rows' ages are cached.
_KEPT_LOGS = 64
#: Users and schemas whose next due time is remembered; beyond that, all are due again.
_MOST_DUE = 10_000
#: Seconds until a retry after a failure.
_AGAIN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class DueRecords:
    """Records that a rule deletes at a version of the log: ``records`` whose day is before
    ``before``.

    ``held`` counts records that are old enough by this machine's clock, but stay because the clock
    is in doubt; ``doubt`` is the reason, and is None if there are no such records.
    """

    rule: Retention | None
    before: date | None
    records: int
    version: int
    held: int = 0
    doubt: str | None = None


class Retainer:
    def __init__(
        self,
        api: Api,
        schemas: Schemas,
        runner: QueryRunner,
        changer: Updater,
        clock: WatchedClock,
    ) -> None:
        self._api = api
        self._schemas = schemas
        self._runner = runner
        self._changer = changer
        self._clock = clock
        self._ages: Recent[tuple[bytes, bytes], tuple[weakref.ref[Ledger], Ages]]
        self._ages = Recent(_KEPT_LOGS)
        #: by schema; two runs at once would count the same records
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        #: by user and schema: the next run of its rule, in seconds of real time, so that a clock
        #: that was ahead and is corrected does not delay it
        self._due: dict[tuple[bytes, bytes], float] = {}

    def is_due(self, caller: Holder, schema: bytes) -> bool:
        """Whether this user has neither applied the schema's rule today nor just tried to."""
        return self._clock.real() >= self._due.get((caller.user, schema), -math.inf)

    def put_off(self, caller: Holder, schema: bytes) -> None:
        """Try again after some minutes."""
        if len(self._due) >= _MOST_DUE:
            self._due.clear()
        self._due[caller.user, schema] = self._clock.real() + _AGAIN_SECONDS

    def put_off_to_tomorrow(self, caller: Holder, schema: bytes) -> None:
        """The rule was applied, or this user may not apply it."""
        left = _DAY_SECONDS - self._clock.wall() % _DAY_SECONDS
        self._due[caller.user, schema] = self._clock.real() + left

    async def look(self, caller: Holder, schema: bytes) -> DueRecords:
        """The records that the rule deletes now; nothing is changed.

        Raises:
            ErsError: as :meth:`QueryRunner.ask` and :meth:`WatchedClock.look`.
        """
        standing = await self._clock.look()
        now = standing.now

        async def question(context: QueryContext) -> DueRecords:
            rule, version = _rule_of(context), context.snapshot.version
            if rule is None:
                return DueRecords(None, None, 0, version)
            past = context.state.ledger.past
            certain = standing.certain_for(past)
            going = len(await self._find(certain, context))
            held = len(await self._find(now, context)) - going if certain < now else 0
            doubt = standing.doubt(past) if held else None
            return DueRecords(rule, rule.before(certain), going, version, held, doubt)

        return await self._runner.ask(caller, schema, question)

    async def look_ahead(self, caller: Holder, schema: bytes, new: SchemaDefinition) -> int:
        """The number of records that a proposed definition's rule would delete at once; 0 without a
        rule, and if its field is not a date in any stored record.

        Raises:
            ErsError: as :meth:`QueryRunner.ask`.
        """
        now = self._clock.wall()

        async def question(context: QueryContext) -> int:
            history, rule = context.snapshot.history, new.retention
            if history is None or rule is None:
                return 0
            if rule.field is not None:
                spec = history.present.by_id.get(new.fields[rule.field].id)
                if spec is None or not spec.field_type.is_moment:
                    return 0
                rule = replace(rule, field=spec.name)
            return len(await self._find_by(rule, now, context))

        return await self._runner.ask(caller, schema, question)

    async def run(
        self, caller: Holder, schema: bytes, *, clock_is_right: bool = False
    ) -> DueRecords:
        """Delete the expired records; returns their number. Doubtful time of this machine's clock
        makes no record older.

        Args:
            clock_is_right: the caller confirms that a doubtful clock is right. The doubt ends if
                the caller was allowed to delete by it.

        Raises:
            Conflict: ``no_retention``; ``clock_wrong``.
            NotAllowed: ``not_writer``.
            ErsError: as :meth:`Updater.delete_found` and :meth:`WatchedClock.look`.
        """
        self.put_off(caller, schema)
        async with self._locks.setdefault(schema, asyncio.Lock()):
            done = await self._run(caller, schema, clock_is_right=clock_is_right)
        self.put_off_to_tomorrow(caller, schema)
        return done

    async def _run(self, caller: Holder, schema: bytes, *, clock_is_right: bool) -> DueRecords:
        state = await self._schemas.refresh(caller, schema)
        if state.ledger.definition is None:
            raise Conflict(
                "no record was ever stored in this schema, so there is no retention yet: the"
                " rule in its definition applies from the first record on",
                code="no_retention",
                hint="store a record first",
            )
        rule = state.ledger.definition.retention
        if rule is None:
            raise _no_retention()
        async with state.lock:
            await self._schemas.ready(caller, state)
        api, standing = await self._api.clock(), await self._clock.look()
        now, past = standing.now, state.ledger.past
        _require_right(now, api=api, newest=past.last)
        certain = now if clock_is_right else standing.certain_for(past)
        deleted = await self._changer.delete_found(
            caller, schema, partial(self._find, certain), because="retention"
        )
        if clock_is_right and standing.doubts:
            await self._clock.settle()
        held = 0
        if certain < now:
            held = await self._runner.ask(caller, schema, partial(self._count, now))
        doubt = standing.doubt(past) if held else None
        return DueRecords(rule, rule.before(certain), deleted, state.ledger.version, held, doubt)

    async def _count(self, now: float, context: QueryContext) -> int:
        return len(await self._find(now, context))

    async def _find(self, now: float, context: QueryContext) -> list[int]:
        """The numbers of the rows to delete.

        Raises:
            Conflict: ``no_retention``; the rule was removed meanwhile.
        """
        rule = _rule_of(context)
        if rule is None:
            raise _no_retention()
        return await self._find_by(rule, now, context)

    async def _find_by(self, rule: Retention, now: float, context: QueryContext) -> list[int]:
        if rule.field is None:
            ages = self._ages_of(context)
            await ages.learn(context.upstream)
            day = number_of(rule.before(now))
            return await aside(ages.find_before, day, context.snapshot)
        spec = context.snapshot.definition.fields[rule.field]
        body = {"where": rule.where(now, moments=spec.field_type.day_points != 1)}
        parts = await context.match_rows(Conditions(context.definition).read(body))
        return [number for part in parts for number in part.positions.tolist()]

    def _ages_of(self, context: QueryContext) -> Ages:
        ledger = context.state.ledger
        key = (context.upstream.caller.user, context.state.id)
        entry = self._ages.pop(key, None)
        # Another log may have other rows with the same numbers.
        ages = entry[1] if entry is not None and entry[0]() is ledger else Ages()
        self._ages[key] = (weakref.ref(ledger), ages)
        return ages


def _rule_of(context: QueryContext) -> Retention | None:
    """The rule in the snapshot's definition; None if there is none, or nothing was ever stored."""
    history = context.snapshot.history
    return None if history is None else history.present.retention


def _no_retention() -> Conflict:
    return Conflict(
        "the schema's definition has no retention period: records stay until somebody deletes them",
        code="no_retention",
        hint='add one: "retention": {"days": 365} at the root of the definition, by ers schema '
        "change",
    )


# The day on which the record of each row was first stored, according to its id. A record keeps its
# id when it is changed or re-encrypted, so the time in the id is that of its first version. The
# index has no ids; the API sends them, and they are accepted only if a field of the row decrypts
# with them.

#: Maximum number of rows per request.
AT_ONCE = 1 << 15
#: Value for an ended row; the last day that can be represented is the day before it.
_NEVER = 0xFFFF


class Ages:
    """Ages of one log's rows: the day since 1970 by row number, for the rows that were requested.

    A row keeps its number through merges, ends and re-encryption. ``known`` is the number of
    requested rows.
    """

    def __init__(self) -> None:
        #: concatenated, in order of the requests
        self._days: list[NDArray[np.uint16]] = []
        self.known = 0

    async def learn(self, upstream: Upstream) -> None:
        """Request the rows that are not known yet.

        Raises:
            RowsGone: a live row of the snapshot is gone.
            DoesNotOpen: the API's id of a row is wrong.
        """
        snapshot = upstream.snapshot
        while self.known < snapshot.stored:
            first = self.known
            end = min(first + AT_ONCE, snapshot.stored)
            living = await aside(_living, snapshot, first, end)
            try:
                names = await look_up_names(upstream, living)
            except NotFound as error:
                if error.reason != "row_gone":
                    raise
                # A missing row is not an expired row: either the log ends it, or the log is broken.
                raise RowsGone from None
            days = np.full(end - first, _NEVER, np.uint16)
            for number, (record, _) in names.items():
                days[number - first] = min(ids.milliseconds(record) // DAY_MILLISECONDS, _NEVER - 1)
            if self.known == first:  # otherwise a concurrent request was faster
                self._days.append(days)
                self.known = end

    def find_before(self, day: int, snapshot: Snapshot) -> list[int]:
        """The numbers of live rows whose records were first stored before a day."""
        found: list[int] = []
        first = 0
        for days in list(self._days):
            for at in np.flatnonzero(days < day).tolist():
                number = first + at
                if number >= snapshot.stored:
                    return found
                ref = snapshot.ref(number)
                if snapshot.is_live(ref.group, ref.ordinal):
                    found.append(number)
                else:
                    days[at] = _NEVER  # a row that has ended never lives again
            first += len(days)
        return found


def _living(snapshot: Snapshot, first: int, end: int) -> list[int]:
    return [snapshot.number(ref) for ref in snapshot.live_between(first, end)]


class DailyRetention:
    def __init__(self, retainer: Retainer, background: Background) -> None:
        self._retainer = retainer
        self._background = background

    def notice(self, caller: Holder, state: SchemaState) -> None:
        """Apply the schema's rule in the background if this is the first use of the schema
        today.
        """
        definition = state.ledger.definition
        if definition is None or definition.retention is None:
            return
        reads = caller.token is not None and not caller.token.writes
        if caller.accepted or reads or not self._retainer.is_due(caller, state.id):
            return
        self._retainer.put_off(caller, state.id)
        # The run opens an existing keyring and never registers a device for a new keyring.
        run = partial(self._run, replace(caller, newcomer=None), state.id)
        self._background.start(RETENTION, run)

    async def _run(self, caller: Holder, schema: bytes) -> None:
        try:
            done = await self._retainer.run(caller, schema)
        except NotAllowed as error:
            # The caller may only read: the first request of a user who may write applies the rule.
            # An API that falsely refuses a writer gains a day, as it does by not answering.
            log.info("retention is left to other proxies: %s", error.reason)
            self._retainer.put_off_to_tomorrow(caller, schema)
        except ErsError as error:
            log.warning("retention is not applied: %s", error.message)
        else:
            if done.records:
                log.info("deleted %d records by retention", done.records)
            if done.held:
                log.warning(
                    "clock_jumped: retention holds back %d records: %s", done.held, done.doubt
                )
