"""How much of this machine's clock's time is certain, by which retention deletes. No real time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from encrypted_records.errors import Unavailable
from encrypted_records.index.log.history import Past
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.retention import NOTE_SECONDS, ClockReading, Retainer, WatchedClock
from encrypted_records.proxy.schemas.store import Doubt, Heads

DAY = 86_400.0
HOUR = 3_600.0


class Machine:
    """A machine with a clock that can be set, one that nobody sets, and a proxy."""

    def __init__(self, folder: Path) -> None:
        self.wall = 1_700_000_000.0
        self.real = 1_000.0
        self.boot = "first"
        self._folder = folder
        self.clock = self.start()

    def start(self) -> WatchedClock:
        """Start the proxy, as on the first and every later run."""
        heads = Heads(self._folder / "heads.sqlite3")
        self.clock = WatchedClock(heads, lambda: self.wall, lambda: self.real, lambda: self.boot)
        self.look()
        return self.clock

    def pass_by(self, seconds: float) -> None:
        """Time passes, and nobody looks at the clock."""
        self.wall += seconds
        self.real += seconds

    def run(self, seconds: float) -> None:
        """The proxy runs, and looks at the clock now and then."""
        for _ in range(round(seconds / (2 * NOTE_SECONDS))):
            self.pass_by(2 * NOTE_SECONDS)
            self.look()

    def restart(self, *, after: float = 60.0) -> None:
        """The machine is off for so many seconds, and started again, and the proxy with it."""
        self.wall += after
        self.real, self.boot = 5.0, f"{self.boot}, then another"
        self.start()

    def look(self) -> ClockReading:
        return asyncio.run(self.clock.look())

    def settle(self) -> None:
        asyncio.run(self.clock.settle())

    @property
    def doubted(self) -> float:
        """Days in doubt."""
        return round(self.look().doubtful / DAY, 1)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """One whose proxy has run for long enough to know the time."""
    machine = Machine(tmp_path)
    machine.run(DAY)
    assert machine.look().doubts == ()
    return machine


def test_a_clock_that_jumps_while_the_proxy_runs_is_in_doubt_until_it_has_run_for_a_day(
    machine: Machine,
) -> None:
    machine.pass_by(40 * DAY)
    assert machine.doubted == 0
    machine.wall += 2 * DAY
    assert machine.doubted == 2
    machine.run(0.9 * DAY)
    assert machine.doubted == 2
    machine.run(0.2 * DAY)
    assert machine.doubted == 0


@pytest.mark.parametrize("days", [2, 20, 31, 400])
def test_a_clock_that_jumps_while_the_machine_is_off_is_in_doubt_whatever_the_jump(
    machine: Machine, days: int
) -> None:
    before = machine.wall
    machine.restart(after=60 + days * DAY)
    assert machine.doubted == days
    assert machine.look().certain <= before + 60
    machine.run(0.9 * DAY)
    assert machine.look().certain <= before + 60 + DAY
    machine.run(0.2 * DAY)
    assert machine.look().certain == machine.wall


def test_a_night_off_is_not_in_doubt(machine: Machine) -> None:
    for _ in range(5):
        machine.run(8 * HOUR)
        machine.restart(after=16 * HOUR)
        assert machine.doubted == 0


def test_a_proxy_that_was_stopped_for_a_month_on_a_machine_that_ran_knows_the_time(
    machine: Machine,
) -> None:
    machine.pass_by(35 * DAY)
    machine.start()
    assert machine.look().certain == machine.wall


def test_a_jump_on_a_machine_that_ran_while_the_proxy_was_stopped_is_found(
    machine: Machine,
) -> None:
    machine.pass_by(3 * DAY)
    machine.wall += 20 * DAY
    machine.start()
    assert machine.doubted == 20
    assert machine.look().certain == machine.wall - 20 * DAY


def test_a_system_that_does_not_name_its_starts_has_every_long_stop_in_doubt(
    machine: Machine,
) -> None:
    machine.boot = ""
    machine.start()
    machine.pass_by(3 * DAY)
    machine.start()
    assert machine.doubted == 3


def test_neither_a_start_nor_a_later_jump_changes_when_a_doubt_ends(machine: Machine) -> None:
    machine.restart(after=5 * DAY)
    machine.run(12 * HOUR)
    machine.start()
    machine.wall += 3 * DAY
    assert machine.doubted == 8
    machine.run(11 * HOUR)
    assert machine.doubted == 8
    machine.run(2 * HOUR)
    assert machine.doubted == 3
    machine.run(12 * HOUR)
    assert machine.doubted == 0


def test_a_proxy_that_runs_for_an_hour_a_week_still_goes_on_in_time(machine: Machine) -> None:
    weeks = 40
    for _ in range(weeks):
        machine.restart(after=7 * DAY - HOUR)
        machine.run(HOUR)
    # Each week is certain after the proxy has run for a day altogether.
    assert 20 * 7 < machine.doubted < 26 * 7


def test_time_in_which_nobody_looked_ends_no_doubt(machine: Machine) -> None:
    machine.restart(after=5 * DAY)
    machine.pass_by(3 * DAY)  # suspended
    assert machine.doubted == 5
    machine.pass_by(3 * DAY)
    machine.start()  # stopped meanwhile
    assert machine.doubted == 5


def test_a_clock_that_is_set_right_again_is_no_longer_in_doubt(machine: Machine) -> None:
    machine.wall += 400 * DAY
    assert machine.doubted == 400
    machine.wall -= 200 * DAY
    assert machine.doubted == 200  # set, and not right
    machine.wall -= 200 * DAY
    assert machine.doubted == 0


def test_a_clock_that_went_ahead_during_a_real_stop_and_is_set_right_leaves_the_stop_in_doubt(
    machine: Machine,
) -> None:
    machine.restart(after=10 * DAY + 20 * DAY)
    assert machine.doubted == 30
    machine.wall -= 20 * DAY
    assert machine.doubted == 10
    machine.run(1.1 * DAY)
    assert machine.doubted == 0


def test_a_clock_that_was_behind_for_a_moment_has_not_jumped(machine: Machine) -> None:
    machine.pass_by(3 * DAY)
    machine.look()
    machine.wall -= 300 * DAY
    assert machine.doubted == 0
    machine.start()
    machine.run(0.3 * DAY)
    machine.wall += 300 * DAY
    assert machine.doubted == 0
    # Behind for longer than a day, it showed the right time.
    machine.wall -= 300 * DAY
    machine.run(1.1 * DAY)
    assert machine.doubted == 0
    machine.wall += 300 * DAY
    assert machine.doubted == 300


def test_a_clock_that_somebody_confirms_is_certain_after_starts_too(machine: Machine) -> None:
    machine.restart(after=40 * DAY)
    assert machine.doubted == 40
    machine.settle()
    assert machine.look().certain == machine.wall
    machine.restart()
    assert machine.look().certain == machine.wall


def test_doubts_that_become_too_many_are_kept_together(machine: Machine) -> None:
    for _ in range(100):
        machine.restart(after=2 * DAY)
    assert machine.doubted == 200
    assert len(machine.look().doubts) <= 64


def test_a_clock_that_was_ahead_for_a_moment_does_not_put_the_next_day_off(
    machine: Machine,
) -> None:
    nothing = cast("Any", None)
    retainer = Retainer(nothing, nothing, nothing, nothing, machine.clock)
    caller, schema = Holder.of_accepted_work(b"u" * 16), b"s" * 16
    machine.wall += 400 * DAY
    retainer.put_off_to_tomorrow(caller, schema)
    machine.wall -= 400 * DAY
    assert not retainer.is_due(caller, schema)
    machine.pass_by(DAY)
    assert retainer.is_due(caller, schema)


def past_of(*days: float) -> Past:
    return Past(stored={int(day): 1 for day in days})


TODAY = 20_000
NOW = TODAY * DAY + 5


def test_commits_of_long_before_a_doubt_are_evidence_and_those_of_its_clock_are_not() -> None:
    """A proxy that was off for 30 days; others stored meanwhile, or this clock's own did since."""
    off = ClockReading(NOW, (Doubt(30 * DAY, NOW, 0.0),))
    assert off.certain_for(past_of(TODAY - 40)) == NOW - 30 * DAY
    assert off.certain_for(past_of(TODAY - 40, TODAY - 3)) == (TODAY - 3) * DAY
    assert off.certain_for(past_of(TODAY - 40, TODAY - 1, TODAY)) == NOW - 30 * DAY
    assert "30 days" in (off.doubt(past_of(TODAY - 40)) or "")
    assert ClockReading(NOW).certain_for(past_of(TODAY - 40)) == NOW


def test_a_new_proxy_goes_by_the_commits_of_a_log_that_is_older_than_it() -> None:
    new = ClockReading(NOW, (Doubt(None, NOW, 0.0),))
    assert new.certain_for(past_of(TODAY - 400, TODAY)) == (TODAY - 400) * DAY
    assert "400 days" in (new.doubt(past_of(TODAY - 400, TODAY)) or "")
    # Tomorrow, its own of today are no evidence either.
    later = ClockReading(NOW + DAY, new.doubts)
    assert later.certain_for(past_of(TODAY - 400, TODAY)) == (TODAY - 400) * DAY
    # A log that began with it has nothing to compare with.
    assert new.certain_for(past_of(TODAY)) == NOW
    assert new.doubt(past_of(TODAY)) is None


def test_a_clock_whose_last_time_cannot_be_read_lets_nothing_go(tmp_path: Path) -> None:
    heads = Heads(tmp_path / "heads.sqlite3")
    clock = WatchedClock(heads)
    heads.close()
    with pytest.raises(Unavailable):
        asyncio.run(clock.look())
