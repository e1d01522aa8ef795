"""What pages keep in memory between two requests, and for how long."""

from __future__ import annotations

from encrypted_records.proxy import desk
from encrypted_records.proxy.desk import Desks


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_one_session_finds_its_things_again_and_no_other_does() -> None:
    desks = Desks()
    desks.of("one").item(("search", "s"), list).append("typed")

    assert desks.of("one").item(("search", "s"), list) == ["typed"]
    assert desks.of("two").item(("search", "s"), list) == []
    assert "search" in desks.of("one")
    assert "look" not in desks.of("one")


def test_a_desk_is_empty_after_the_session_ended() -> None:
    desks = Desks()
    desks.of("one").item(("search", "s"), list).append("typed")

    desks.clear("one")

    assert desks.of("one").item(("search", "s"), list) == []


def test_a_desk_that_nobody_uses_is_cleared_and_one_in_use_is_not() -> None:
    clock = Clock()
    desks = Desks(clock)
    for session in ("left", "used"):
        desks.of(session).item(("search", "s"), list).append("typed")
    clock.now += desk.IDLE_SECONDS - 1
    desks.of("used")
    clock.now += 2

    assert desks.of("used").item(("search", "s"), list) == ["typed"]
    assert desks.of("left").item(("search", "s"), list) == []


def test_memory_is_bounded_and_what_was_used_last_stays() -> None:
    desks = Desks()
    for number in range(desk.MAX_DESKS + 5):
        desks.of(f"session {number}").item(("search", "s"), list).append("typed")
    mine = desks.of("mine")
    for number in range(desk.MAX_ITEMS + 5):
        mine.put(("search", str(number)), "typed")

    assert desks.of("session 0").item(("search", "s"), list) == []
    assert desks.of(f"session {desk.MAX_DESKS + 4}").item(("search", "s"), list) == ["typed"]
    assert mine.item(("search", "0"), str) == ""
    assert mine.item(("search", str(desk.MAX_ITEMS + 4)), str) == "typed"


def test_what_lies_there_does_not_print() -> None:
    mine = Desks().of("one")
    mine.put(("search", "s"), "a diagnosis")

    assert "diagnosis" not in repr(mine)
