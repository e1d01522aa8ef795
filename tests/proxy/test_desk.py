"""What pages keep in memory between two requests, and for how long."""

from __future__ import annotations

from encrypted_records.proxy.http import sessions as desk
from encrypted_records.proxy.http.sessions import Desks


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_one_session_finds_its_things_again_and_no_other_does() -> None:
    desks = Desks()
    desks.of("one").item(("search", "s"), list[str]).append("typed")

    assert desks.of("one").item(("search", "s"), list[str]) == ["typed"]
    assert desks.of("two").item(("search", "s"), list[str]) == []
    assert "search" in desks.of("one")
    assert "look" not in desks.of("one")


def test_a_desk_is_empty_after_the_session_ended() -> None:
    desks = Desks()
    desks.of("one").item(("search", "s"), list[str]).append("typed")

    desks.clear("one")

    assert desks.of("one").item(("search", "s"), list[str]) == []


def test_a_desk_that_nobody_uses_is_cleared_and_one_in_use_is_not() -> None:
    clock = Clock()
    desks = Desks(clock)
    for session in ("left", "used"):
        desks.of(session).item(("search", "s"), list[str]).append("typed")
    clock.now += desk.IDLE_SECONDS - 1
    desks.of("used")
    clock.now += 2

    assert desks.of("used").item(("search", "s"), list[str]) == ["typed"]
    assert desks.of("left").item(("search", "s"), list[str]) == []


def test_memory_is_bounded_and_what_was_used_last_stays() -> None:
    desks = Desks()
    for number in range(desk.MAX_DESKS + 5):
        desks.of(f"session {number}").item(("search", "s"), list[str]).append("typed")
    mine = desks.of("mine")
    for number in range(desk.MAX_ITEMS + 5):
        mine.put(("search", str(number)), "typed")

    assert desks.of("session 0").item(("search", "s"), list[str]) == []
    assert desks.of(f"session {desk.MAX_DESKS + 4}").item(("search", "s"), list[str]) == ["typed"]
    assert mine.item(("search", "0"), str) == ""
    assert mine.item(("search", str(desk.MAX_ITEMS + 4)), str) == "typed"


def test_what_lies_there_does_not_print() -> None:
    mine = Desks().of("one")
    mine.put(("search", "s"), "a diagnosis")

    assert "diagnosis" not in repr(mine)


def test_looking_for_a_desk_makes_none_and_keeps_none_in_use() -> None:
    clock = Clock()
    desks = Desks(clock)
    assert desks.known("one") is None
    assert desks.known("one") is None
    desks.of("one").put(("frame",), "around")
    found = desks.known("one")
    assert found is not None
    assert (found.get(("frame",)), found.get(("other",))) == ("around", None)
    assert desks.known("two") is None
    clock.now += desk.IDLE_SECONDS + 1
    assert desks.known("one") is None
