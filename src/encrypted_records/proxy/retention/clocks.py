"""Whether this machine's clock may decide which records are old enough to be deleted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from encrypted_records import runtime
from encrypted_records.errors import Conflict, ErsError
from encrypted_records.index.log.past import Past
from encrypted_records.model.retention import DAY_MILLISECONDS
from encrypted_records.proxy.schemas.heads import ClockMark, Heads

log = logging.getLogger(__name__)

DAY_SECONDS = DAY_MILLISECONDS // 1000
#: How far the clock may be from others, in seconds.
MOST_SECONDS = float(DAY_SECONDS)
#: For how many days a proxy may be stopped, or a log may have no new rows, before a later time is
#: doubted.
MOST_DAYS = 31
#: Seconds of real time after which a later time is no longer doubted.
SETTLED_SECONDS = float(DAY_SECONDS)
#: Seconds between two notes of the time.
NOTE_SECONDS = 600.0


def require_right(now: float, *, api: float | None, newest: int) -> None:
    """Compare the clock with what others say. Neither of them alone has anything deleted: they only
    prevent it.

    Args:
        now: by the clock, in seconds since 1970.
        api: the API's time; None where it states none.
        newest: when the newest commit of the log stored or ended records, in milliseconds.

    Raises:
        Conflict: ``clock_wrong``.
    """
    if api is None:
        raise _wrong("the API states no time, with which this clock could be compared")
    if abs(now - api) > MOST_SECONDS:
        raise _wrong("this machine's clock is more than a day off the API's")
    if newest / 1000 - now > MOST_SECONDS:
        raise _wrong("this machine's clock is more than a day behind the newest commit of the log")


@dataclass(frozen=True, slots=True)
class Standing:
    """The clock at a moment. ``now`` is in seconds since 1970; ``jumped`` is the number of days of
    a jump that is in doubt, or None; ``new`` says that the proxy has not seen a day pass yet."""

    now: float
    jumped: int | None
    new: bool

    def doubt(self, past: Past) -> str | None:
        """Why a log's records may not be deleted by their age now; None where they may be.

        A proxy that has not run for a day knows no earlier time of its own. The log's earlier
        commits, which are authenticated, stand in for it.
        """
        if self.jumped is not None:
            return f"this machine's clock went ahead by {self.jumped} days"
        today = int(self.now // DAY_SECONDS)
        earlier = max((day for day in past.stored if day < today), default=None)
        if self.new and earlier is not None and today - earlier > MOST_DAYS:
            return (
                "this proxy is new, and by this machine's clock the log's newest records before"
                f" today are {today - earlier} days old"
            )
        return None


class WatchedClock:
    """This machine's clock, and whether it has jumped ahead.

    A jump is a step of more than a day against real time while the proxy runs, and more than
    MOST_DAYS since the last note in its folder when it starts. It is in doubt until a day of real
    time has passed, somebody settles it, or the clock goes back.
    """

    def __init__(
        self,
        heads: Heads,
        wall: Callable[[], float] = runtime.wall,
        real: Callable[[], float] = runtime.elapsed,
    ) -> None:
        """
        Args:
            wall: seconds since 1970.
            real: seconds that only go on.
        """
        self._heads = heads
        self.wall = wall
        self._real = real
        self._mark: ClockMark | None = None
        #: on the clock of ``real``: when it was looked at, and when its mark was stored
        self._looked = self._noted = 0.0
        self._lock = threading.Lock()

    @property
    def jumped(self) -> bool:
        """Whether the last look found a jump that is in doubt."""
        mark = self._mark
        return mark is not None and mark.before is not None

    async def look(self) -> Standing:
        """
        Raises:
            OutOfSpace, Unavailable: the time seen last cannot be read or stored.
        """
        return await runtime.in_thread(self._look)

    async def is_right(self) -> bool:
        """Whether no jump is in doubt. Raises as :meth:`look`."""
        return (await self.look()).jumped is None

    async def settle(self) -> None:
        """Somebody says that the clock is right. Raises as :meth:`look`."""
        await runtime.in_thread(self._settle)

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            try:
                await self.look()
            except ErsError as error:
                log.warning("this machine's clock is not watched: %s", error.message)
            await runtime.sleep(NOTE_SECONDS)

    def _look(self) -> Standing:
        with self._lock:
            now, real = self.wall(), self._real()
            mark = self._mark or self._begin(now, real)
            passed = max(real - self._looked, 0.0)
            if now - mark.wall - passed > MOST_SECONDS:
                mark = self._doubt(mark, now)
            elif mark.before is not None and now < mark.wall - MOST_SECONDS:
                mark = _go_back(mark, now)
            elif mark.before is None and now < mark.wall + passed - MOST_SECONDS:
                mark = _stay_behind(mark, now, passed)
            else:
                observed = mark.observed + passed
                settled = observed >= SETTLED_SECONDS
                mark = ClockMark(now, None if settled else mark.before, observed)
            self._keep(mark, real)
            jumped = None if mark.before is None else int((now - mark.before) // DAY_SECONDS)
            return Standing(now, jumped, mark.observed < SETTLED_SECONDS)

    def _begin(self, now: float, real: float) -> ClockMark:
        """The first look since the start: nobody knows how long the proxy was stopped."""
        self._looked = real
        mark = self._heads.clock()
        if mark is None:
            return ClockMark(now, None, 0.0)
        if 0 <= now - mark.wall <= MOST_DAYS * DAY_SECONDS:
            return ClockMark(now, mark.before, mark.observed)
        return mark

    def _doubt(self, mark: ClockMark, now: float) -> ClockMark:
        before = mark.wall if mark.before is None else mark.before
        days = int((now - before) // DAY_SECONDS)
        log.warning("this machine's clock went ahead by %d days: nothing is deleted by age", days)
        return ClockMark(now, before, 0.0)

    def _settle(self) -> None:
        self._look()
        with self._lock:
            self._keep(ClockMark(self.wall(), None, SETTLED_SECONDS), self._real())

    def _keep(self, mark: ClockMark, real: float) -> None:
        """Hold the mark, and store it where it says something new or the stored one is old."""
        before = self._mark
        self._mark, self._looked = mark, real
        if (
            before is None
            or before.before != mark.before
            or before.wall > mark.wall
            or before.observed > mark.observed
            or real - self._noted >= NOTE_SECONDS
        ):
            self._heads.note_clock(mark)
            self._noted = real


def _go_back(mark: ClockMark, now: float) -> ClockMark:
    """The mark after somebody set a clock that is in doubt: right, or still too far ahead."""
    before = now if mark.before is None else mark.before
    if now - before > MOST_DAYS * DAY_SECONDS:
        return ClockMark(now, before, 0.0)
    log.warning("this machine's clock went back, and is no longer in doubt")
    return ClockMark(max(now, before), None, SETTLED_SECONDS)


def _stay_behind(mark: ClockMark, now: float, passed: float) -> ClockMark:
    """The mark while the clock shows an earlier time than before.

    A clock that is set right soon, as that of a machine which starts without a battery, has not
    jumped then. After a day the earlier time is taken for the right one.
    """
    observed = 0.0 if mark.observed >= SETTLED_SECONDS else mark.observed + passed
    if observed >= SETTLED_SECONDS:
        return ClockMark(now, None, observed)
    return ClockMark(mark.wall + passed, None, observed)


def doubted(why: str) -> Conflict:
    return Conflict(
        f"nothing is deleted by age: {why}",
        code="clock_jumped",
        hint="set the clock; if it is right, repeat with ?clock_is_right=true; or let the proxy run"
        " for a day",
    )


def _wrong(why: str) -> Conflict:
    return Conflict(
        f"nothing is deleted by age: {why}",
        code="clock_wrong",
        hint="set the clocks of this machine and of the API's, then try again",
    )
