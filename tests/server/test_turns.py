"""Requests of several senders take turns in the API's threads, and none has them all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.errors import Overloaded
from encrypted_records.server.gateway.admission import SENDER, RequestPlaces, Room
from encrypted_records.server.gateway.gateway import Gateway

BUSY, QUIET = b"busy", b"quiet"
PATIENCE = 30.0


@dataclass
class Works:
    """Requests that say when they begin, and last until the gate opens."""

    begun: list[bytes] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def of(self, sender: bytes, *, waits: bool = True) -> Callable[[Any], bytes]:
        def work(_begin: Any) -> bytes:
            with self.changed:
                self.begun.append(sender)
                self.changed.notify_all()
            if waits:
                assert self.gate.wait(PATIENCE)
            return sender

        return work

    async def until_begun(self, count: int) -> None:
        def wait() -> None:
            with self.changed:
                assert self.changed.wait_for(lambda: len(self.begun) >= count, PATIENCE)

        await asyncio.to_thread(wait)


def tasks(
    places: RequestPlaces, works: Works, sender: bytes, count: int
) -> list[asyncio.Task[bytes]]:
    return [asyncio.create_task(places.run(works.of(sender), sender)) for _ in range(count)]


def test_who_asks_little_waits_for_no_line_of_others() -> None:
    async def ask() -> list[bytes]:
        works, places = Works(), RequestPlaces(1)
        crowd = tasks(places, works, BUSY, 40)
        await works.until_begun(1)
        beside = tasks(places, works, QUIET, 1)
        await asyncio.sleep(0)  # it is in its line
        works.gate.set()
        await asyncio.gather(*crowd, *beside)
        return works.begun

    begun = asyncio.run(ask())
    assert begun.count(BUSY) == 40
    # One was under way, and one had its turn at most.
    assert begun.index(QUIET) <= 2


def test_senders_take_turns_and_each_keeps_its_order() -> None:
    async def ask() -> list[bytes]:
        works, places = Works(), RequestPlaces(1)
        first = tasks(places, works, b"first", 1)
        await works.until_begun(1)
        every = [task for name in (b"a", b"b", b"c") for task in tasks(places, works, name, 3)]
        await asyncio.sleep(0)
        works.gate.set()
        await asyncio.gather(*first, *every)
        return works.begun[1:]

    assert asyncio.run(ask()) == [b"a", b"b", b"c"] * 3


def test_no_sender_has_all_threads() -> None:
    async def ask() -> None:
        works, places = Works(), RequestPlaces(3, most_per_sender=2)
        crowd = tasks(places, works, BUSY, 10)
        await works.until_begun(2)
        for _ in range(5):
            assert await places.run(works.of(QUIET, waits=False), QUIET) == QUIET
        assert works.begun.count(BUSY) == 2
        works.gate.set()
        assert await asyncio.gather(*crowd) == [BUSY] * 10

    asyncio.run(ask())


def test_full_lines_have_room_for_who_is_not_in_them() -> None:
    async def ask() -> None:
        works, places = Works(), RequestPlaces(1, waiting=10)
        crowd = tasks(places, works, BUSY, 1)
        await works.until_begun(1)
        crowd += tasks(places, works, BUSY, 10)
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await places.run(works.of(BUSY), BUSY)
        beside = tasks(places, works, QUIET, 1)
        await asyncio.sleep(0)
        works.gate.set()
        assert await asyncio.gather(*crowd, *beside) == [BUSY] * 11 + [QUIET]
        assert await places.run(works.of(BUSY), BUSY) == BUSY  # and everything is as before

    asyncio.run(ask())


def test_no_number_of_senders_with_long_lines_keeps_others_out() -> None:
    async def ask() -> None:
        works, places = Works(), RequestPlaces(1, waiting=10)
        crowd = tasks(places, works, BUSY, 1)
        await works.until_begun(1)
        for sender in (b"a", b"b", b"c", b"d", b"e", b"f"):
            crowd += tasks(places, works, sender, 20)
            await asyncio.sleep(0)
        refused = sum(one.done() for one in crowd)
        beside = tasks(places, works, QUIET, 1)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not beside[0].done()
        assert len(crowd) - sum(one.done() for one in crowd) <= 2 * 10
        works.gate.set()
        outcomes = await asyncio.gather(*crowd, *beside, return_exceptions=True)
        assert outcomes[-1] == QUIET
        assert refused > 0
        answered = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        assert {type(outcome) for outcome in outcomes} == {bytes, Overloaded}
        # Each of them was done, and nothing else.
        assert sorted(works.begun) == sorted(answered)

    asyncio.run(ask())


def test_who_waited_too_long_is_refused_and_leaves_no_place_taken() -> None:
    async def ask() -> None:
        works, places = Works(), RequestPlaces(1, waiting=2, wait_seconds=0.1)
        first = tasks(places, works, BUSY, 1)
        await works.until_begun(1)
        late = tasks(places, works, BUSY, 2)
        outcomes = await asyncio.gather(*late, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Overloaded, Overloaded]
        waiting = tasks(places, works, BUSY, 1)
        await asyncio.sleep(0)
        works.gate.set()
        assert await asyncio.gather(*first, *waiting) == [BUSY] * 2

    asyncio.run(ask())


class Lines(RequestPlaces):
    """That say in whose line each request was."""

    def __init__(self) -> None:
        super().__init__(1)
        self.senders: list[bytes] = []

    async def run(self, work: Callable[[Callable[[Any], None]], Any], sender: bytes = b"") -> Any:
        self.senders.append(sender)
        return await super().run(work, sender)


def ask_by(
    folder: Path, asks: Iterable[tuple[bytes, int]], *, revoked: Callable[[], bool] = bool
) -> list[bytes]:
    """In whose line each of these requests was; each is by its token, with a cookie beside it."""

    def app(environ: dict[str, Any], begin: Callable[..., Any]) -> Iterable[bytes]:
        if revoked():
            begin("401 Unauthorized", [])
        else:
            environ[SENDER] = environ["HTTP_AUTHORIZATION"]
            begin("200 OK", [])
        return [b""]

    async def receive() -> Any:
        raise AssertionError("there is no body")

    async def send(_message: Any) -> None:
        pass

    async def ask() -> list[bytes]:
        lines = Lines()
        gateway = Gateway(app, Room(folder), lines, lambda *_: None)
        for sender, cookie in asks:
            head = [(b"authorization", sender), (b"cookie", b"%d" % cookie)]
            scope = {"type": "http", "method": "GET", "path": "/x", "raw_path": b"/x"}
            more = {"query_string": b"", "http_version": "1.1", "scheme": "http", "headers": head}
            await gateway(scope | more | {"server": None, "client": None}, receive, send)
        return lines.senders

    return asyncio.run(ask())


def test_who_makes_up_credentials_ousts_those_of_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("encrypted_records.server.gateway.gateway.MOST_KNOWN", 30)
    monkeypatch.setattr("encrypted_records.server.gateway.gateway.MOST_OF_ONE", 10)
    crowd = [(b"busy", cookie) for cookie in range(100)]
    last = [(b"busy", 99), (b"busy", 0), (b"quiet", 0)]
    senders = ask_by(tmp_path, [(b"quiet", 0), *crowd, *last])
    assert senders[:2] == [b"", b""]
    assert senders[-3:] == [b"busy", b"", b"quiet"]


def test_what_was_revoked_waits_in_its_owners_line_once(tmp_path: Path) -> None:
    answers = iter([False, False, True, True])
    senders = ask_by(tmp_path, [(b"ada", 0)] * 4, revoked=lambda: next(answers))
    assert senders == [b"", b"ada", b"ada", b""]
