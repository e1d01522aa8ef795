"""Whether this machine's clock may decide which records are old enough to be deleted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from encrypted_records import runtime
from encrypted_records.errors import Conflict
from encrypted_records.index.log.past import Past
from encrypted_records.model.retention import DAY_MILLISECONDS
from encrypted_records.proxy.schemas.heads import ClockMark, Doubt, Heads

log = logging.getLogger(__name__)

DAY_SECONDS = DAY_MILLISECONDS // 1000
#: How far the clock may be from others, and how far it may step without a doubt, in seconds.
MOST_SECONDS = float(DAY_SECONDS)
#: Seconds that a proxy has to run with a clock that does not step before a doubt ends.
SETTLED_SECONDS = float(DAY_SECONDS)
#: Seconds between two notes of the time.
NOTE_SECONDS = 600.0
#: Between two looks the proxy ran for no longer than this: it was stopped, or the machine slept.
_MOST_RUN_SECONDS = 2 * NOTE_SECONDS
#: Doubts that are kept one by one.
_MOST_DOUBTS = 64
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def name_boot() -> str:
    """A name for the time since this machine was started, in which :func:`runtime.elapsed` is one
    clock; empty where the system has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


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
        raise _wrong("the API does not send its time, so this clock cannot be compared")
    if abs(now - api) > MOST_SECONDS:
        raise _wrong("this machine's clock differs from the API's by more than a day")
    if newest / 1000 - now > MOST_SECONDS:
        raise _wrong("this machine's clock is more than a day behind the newest commit of the log")


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The clock at a moment: ``now`` in seconds since 1970, and ``doubts`` about it."""

    now: float
    doubts: tuple[Doubt, ...] = ()

    @property
    def doubtful(self) -> float:
        """The number of seconds of ``now`` that nothing but this clock bears out."""
        return sum(doubt.seconds for doubt in self.doubts if doubt.seconds is not None)

    @property
    def certain(self) -> float:
        """The latest time that does not rest on a step in doubt, in seconds since 1970.

        A new proxy has nothing to compare with: there it is ``now``.
        """
        return self.now - self.doubtful

    def certain_for(self, past: Past) -> float:
        """:attr:`certain`, by the commits of a log too: those are authenticated, and each is
        evidence that its time has come.

        Commits of the two days before a doubt began may be this machine's own, made by the clock
        that is in doubt; those before are not.
        """
        if not self.doubts:
            return self.now
        began = min(doubt.noticed for doubt in self.doubts)
        proven = max((day for day in past.stored if (day + 2) * DAY_SECONDS <= began), default=None)
        if proven is None:
            return self.certain
        is_new = any(doubt.seconds is None for doubt in self.doubts)
        known = 0.0 if is_new else self.certain
        return min(self.now, max(known, float(proven * DAY_SECONDS)))

    def doubt(self, past: Past) -> str | None:
        """The reason why a log's records are deleted by an earlier time than the clock's; None if
        they are not.
        """
        missing = self.now - self.certain_for(past)
        if missing < MOST_SECONDS:
            return None
        if self.doubtful > 0:
            return (
                f"this machine's clock jumped ahead by {round(self.doubtful / DAY_SECONDS)}"
                " days, and nothing else shows that so much time has passed"
            )
        return (
            "this proxy has not run for a day yet, and according to this machine's clock,"
            " the newest records of the log from before its start are"
            f" {int(missing // DAY_SECONDS)} days old"
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
            real: seconds that only go on while the machine is not started again.
            boot: a name for the time since the machine was started; empty if unknown.
        """
        self._heads = heads
        self.wall = wall
        self.real = real
        self._boot = boot()
        self._mark: ClockMark | None = None
        #: on the clock of ``real``: when the mark was stored
        self._noted = 0.0
        self._lock = threading.Lock()

    @property
    def doubtful(self) -> float:
        """Seconds that the last look found in doubt."""
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
        return (await self.look()).certain

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
            if step > MOST_SECONDS:
                mark = self._go_ahead(mark, now, step)
            elif step < -MOST_SECONDS:
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
            round(step / DAY_SECONDS),
        )
        doubts = (*mark.doubts, Doubt(step, now, 0.0))
        return replace(mark, wall=now, behind=0.0, doubts=_shorten(doubts))

    def _settle(self) -> None:
        self._look()
        with self._lock:
            self._keep(ClockMark(self.wall(), self.real(), self._boot, 0.0, ()))

    def _keep(self, mark: ClockMark) -> None:
        """Hold the mark, and store it where it says something new or the stored one is old."""
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
    return tuple(doubt for doubt in aged if doubt.ran < SETTLED_SECONDS)


def _shorten(doubts: tuple[Doubt, ...]) -> tuple[Doubt, ...]:
    """The same doubts, the two oldest as one where they are too many."""
    if len(doubts) <= _MOST_DOUBTS:
        return doubts
    first, other, *rest = doubts
    unknown = first.seconds is None or other.seconds is None
    seconds = None if unknown else (first.seconds or 0.0) + (other.seconds or 0.0)
    both = Doubt(seconds, min(first.noticed, other.noticed), min(first.ran, other.ran))
    return (both, *rest)


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
        rest = doubt.seconds - back
        back = max(-rest, 0.0)
        if rest > MOST_SECONDS:
            left.append(Doubt(rest, now, 0.0))
    if len(left) < len(mark.doubts):
        log.warning("this machine's clock went back by the time that was in doubt")
    mark = replace(mark, doubts=tuple(reversed(left)))
    if back <= MOST_SECONDS:
        return replace(mark, wall=now, behind=0.0)
    behind = mark.behind + min(passed, _MOST_RUN_SECONDS)
    if behind >= SETTLED_SECONDS:
        return replace(mark, wall=now, behind=0.0)
    return replace(mark, wall=now + back, behind=behind)


def _wrong(why: str) -> Conflict:
    return Conflict(
        f"no record is deleted by age: {why}",
        code="clock_wrong",
        hint="set the clocks of this machine and of the API's machine, then try again",
    )
