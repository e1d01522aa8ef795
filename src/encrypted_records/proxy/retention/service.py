"""Retention: delete records past the period in the signed definition of their schema.

The rule comes from the log that this proxy has verified. Expired records are found in the index, or
by verified ids; the API is trusted for neither, because otherwise it could have everything deleted.

The day on which the record of each row was first stored, according to its id.

A record keeps its id when it is changed or re-encrypted, so the time in the id is that of its first
version. The index has no ids; the API sends them, and they are accepted only if a field of the row
decrypts with them.

Daily retention, run when a user with the right to delete works with this proxy.

A proxy acts only with a caller's credentials. So the first search or change of a day in a schema
starts it in the background, with the credentials of that request; what they do not permit is not
done, and no request waits for it or fails because of it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from encrypted_records.client.api import Api
from encrypted_records.errors import Conflict, ErsError, NotAllowed, NotFound
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model import ids
from encrypted_records.model.condition_parser import Conditions
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.retention import DAY_MILLISECONDS, Retention, number_of
from encrypted_records.proxy.jobs.names import look_up_names
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.background import RETENTION, Background
from encrypted_records.proxy.process.offload import aside
from encrypted_records.proxy.retention.clocks import WatchedClock, require_right
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.upstream import RowsGone, Upstream
from encrypted_records.proxy.write.update import Updater

#: Logs whose rows' ages are kept.
_KEPT = 64
#: Users and schemas of which it is known when they are due; beyond that, all are due again.
_MOST_DUE = 10_000
_DAY_SECONDS = DAY_MILLISECONDS // 1000
#: Until it is tried again, where it failed.
AGAIN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class DueRecords:
    """Records that a rule lets go at a version of the log: ``records`` whose day is before
    ``before``.

    ``held`` counts those that would go by this machine's clock and stay, because that is in doubt;
    ``doubt`` says why, and is None where there are none.
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
        self._ages: OrderedDict[tuple[bytes, bytes], tuple[weakref.ref[Ledger], Ages]]
        self._ages = OrderedDict()
        #: by schema; two runs at once would count the same records
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        #: by user and schema, when its rule is to be carried out next, in seconds of real time: a
        #: clock that was ahead and is set right again must not put it off
        self._due: dict[tuple[bytes, bytes], float] = {}

    def is_due(self, caller: Holder, schema: bytes) -> bool:
        """Whether this user has not carried out the schema's rule today, nor tried to just now."""
        return self._clock.real() >= self._due.get((caller.user, schema), -math.inf)

    def put_off(self, caller: Holder, schema: bytes) -> None:
        """Try again in a while."""
        if len(self._due) >= _MOST_DUE:
            self._due.clear()
        self._due[caller.user, schema] = self._clock.real() + AGAIN_SECONDS

    def put_off_to_tomorrow(self, caller: Holder, schema: bytes) -> None:
        """It is done, or this user cannot do it."""
        left = _DAY_SECONDS - self._clock.wall() % _DAY_SECONDS
        self._due[caller.user, schema] = self._clock.real() + left

    async def look(self, caller: Holder, schema: bytes) -> DueRecords:
        """Records that go now; nothing is changed.

        Raises:
            ErsError: as :meth:`QueryRunner.ask` and :meth:`WatchedClock.look`.
        """
        standing = await self._clock.look()
        now = standing.now

        async def question(context: QueryContext) -> DueRecords:
            rule, version = rule_of(context), context.snapshot.version
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
        """The number of records that would go at once by the rule of a definition that may come; 0
        without one, and by a field that no stored record has as a date.

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
        """Delete what goes now; how many records that were. Time of this machine's clock that is
        in doubt makes no record older.

        Args:
            clock_is_right: the caller says that a clock in doubt is right. Once the caller was
                allowed to delete by it, it is no longer in doubt.

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
            raise no_retention()
        async with state.lock:
            await self._schemas.ready(caller, state)
        api, standing = await self._api.clock(), await self._clock.look()
        now, past = standing.now, state.ledger.past
        require_right(now, api=api, newest=past.last)
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
        """The numbers of the rows that go.

        Raises:
            Conflict: ``no_retention``; the rule was taken away meanwhile.
        """
        rule = rule_of(context)
        if rule is None:
            raise no_retention()
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
        held = self._ages.pop(key, None)
        # Another log may have other rows of the same numbers.
        ages = held[1] if held is not None and held[0]() is ledger else Ages()
        self._ages[key] = (weakref.ref(ledger), ages)
        while len(self._ages) > _KEPT:
            self._ages.popitem(last=False)
        return ages


def rule_of(context: QueryContext) -> Retention | None:
    """The rule of the snapshot's definition; None where it has none, or nothing was ever stored."""
    history = context.snapshot.history
    return None if history is None else history.present.retention


def no_retention() -> Conflict:
    return Conflict(
        "the schema's definition has no retention period: records stay until somebody deletes them",
        code="no_retention",
        hint='add one: "retention": {"days": 365} at the root of the definition, by ers schema '
        "change",
    )


#: Rows that are asked for before the next ones are.
AT_ONCE = 1 << 15
#: Of a row that has ended; the last day that can be told from it is the one before.
_NEVER = 0xFFFF


class Ages:
    """Ages of one log's rows: the day since 1970 by the number of each row, as far as it was asked
    for.

    A row keeps its number, whatever is merged, ended or sealed again. ``known`` is how many were
    asked for.
    """

    def __init__(self) -> None:
        #: end to end, as they were asked for
        self._days: list[NDArray[np.uint16]] = []
        self.known = 0

    async def learn(self, upstream: Upstream) -> None:
        """Ask for the rows that are not known yet.

        Raises:
            RowsGone: a row is gone that lived in the snapshot.
            DoesNotOpen: what the API says of a row is not so.
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
                # No row is old for being gone: the log has to say that it ended, or it is broken.
                raise RowsGone from None
            days = np.full(end - first, _NEVER, np.uint16)
            for number, (record, _) in names.items():
                days[number - first] = min(ids.milliseconds(record) // DAY_MILLISECONDS, _NEVER - 1)
            if self.known == first:  # else another question was quicker
                self._days.append(days)
                self.known = end

    def find_before(self, day: int, snapshot: Snapshot) -> list[int]:
        """The numbers of the rows that live and whose records were first stored before a day."""
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
                    days[at] = _NEVER  # it does not come back
            first += len(days)
        return found


def _living(snapshot: Snapshot, first: int, end: int) -> list[int]:
    return [snapshot.number(ref) for ref in snapshot.live_between(first, end)]


log = logging.getLogger(__name__)


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
        # It opens the keyring that there is, and takes in no device with a new one.
        run = partial(self._run, replace(caller, newcomer=None), state.id)
        self._background.start(RETENTION, run)

    async def _run(self, caller: Holder, schema: bytes) -> None:
        try:
            done = await self._retainer.run(caller, schema)
        except NotAllowed as error:
            # A reader's: the first request of somebody who writes does it. An API that says so of a
            # writer wins a day, as it does by giving no answer.
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
