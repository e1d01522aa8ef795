"""How ``ers up`` starts, watches and ends its two sides, seen with stand-ins for them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.cli.settings import Settings
from encrypted_records.cli.supervise import supervisor as up
from encrypted_records.errors import ApiFailed, Startup
from tests.support.service import call, descendants, free_ports, gone

STUB = Path(__file__).with_name("stub_side.py")
Behave = Callable[..., "Behaviour"]


@dataclass(frozen=True)
class Behaviour:
    """How each side behaves, and the settings to start them with."""

    settings: Settings
    api: str
    proxy: str

    def start(self, side: str) -> list[str]:
        """The command line of a side."""
        return [sys.executable, str(STUB), side, getattr(self, side)]


@pytest.fixture
def behave(tmp_path: Path) -> Behave:
    def choose(*, api: str = "good", proxy: str = "good") -> Behaviour:
        api_port, proxy_port = free_ports(2)
        settings = Settings(data_dir=tmp_path / "data", api_port=api_port, proxy_port=proxy_port)
        return Behaviour(settings, api, proxy)

    return choose


async def serve_both(chosen: Behaviour, ready: Callable[[], Awaitable[None]], **more: Any) -> int:
    return await up.serve_both(chosen.settings, ready, starter=chosen.start, **more)


#: Servers that other tests share are children of this process as well.
OTHERS: set[int] = set()


def sides() -> list[int]:
    """The processes that the serving now under way has started."""
    return [pid for pid in descendants(os.getpid()) if pid not in OTHERS]


def serve(chosen: Behaviour, when_ready: Callable[[], Awaitable[None]], **more: Any) -> list[int]:
    """Serve until told to stop; the processes that were there when it was ready."""
    seen: list[int] = []
    OTHERS.clear()
    OTHERS.update(descendants(os.getpid()))

    async def ready() -> None:
        seen.extend(sides())
        await when_ready()

    try:
        asyncio.run(serve_both(chosen, ready, **more))
    finally:
        assert gone(seen, within=10), "a process was left behind"
    return seen


async def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def nothing() -> None:
    pass


def test_both_run_until_a_signal_ends_both(behave: Behave) -> None:
    chosen = behave()

    async def look() -> None:
        assert call("GET", f"{chosen.settings.api_url}/").status == 200
        await stop()

    assert len(serve(chosen, look)) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_every_usual_signal_ends_it_without_an_error(behave: Behave, number: int) -> None:
    async def kill() -> None:
        os.kill(os.getpid(), number)

    # The tests themselves may run under nohup.
    with hang_up_handled_by(signal.SIG_DFL):
        serve(behave(), kill)


@contextmanager
def hang_up_handled_by(handler: signal.Handlers) -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def test_under_nohup_a_closed_terminal_changes_nothing(behave: Behave) -> None:
    async def hang_up_then_stop() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.5)
        survived.append(True)
        await stop()

    survived: list[bool] = []
    with hang_up_handled_by(signal.SIG_IGN):
        serve(behave(), hang_up_then_stop)
    assert survived


@pytest.mark.parametrize(
    "sides", [{"api": "stubborn"}, {"proxy": "stubborn"}, {"api": "stubborn", "proxy": "stubborn"}]
)
def test_a_side_that_ignores_its_end_is_killed_in_time(
    behave: Behave, sides: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert up.HEAD_START_SECONDS < up.STOP_SECONDS < 10
    monkeypatch.setattr(up, "HEAD_START_SECONDS", 0.3)
    monkeypatch.setattr(up, "STOP_SECONDS", 1.0)
    serve(behave(**sides), stop)  # by itself it would never end


def test_a_side_that_leaves_a_worker_behind_leaves_nothing(behave: Behave) -> None:
    assert len(serve(behave(api="worker"), stop)) == 3


def test_if_one_side_dies_the_other_is_ended_and_named(behave: Behave) -> None:
    chosen = behave(proxy="dies")

    async def ask_again() -> None:
        with pytest.raises(OSError):
            call("GET", f"{chosen.settings.proxy_url}/")

    with pytest.raises(Startup, match=r"the proxy ended \(exit code 7\)"):
        serve(chosen, ask_again)


def test_a_killed_side_is_named_with_its_signal(behave: Behave) -> None:
    async def kill_one() -> None:
        os.kill(sides()[0], signal.SIGKILL)

    with pytest.raises(Startup, match="SIGKILL"):
        serve(behave(), kill_one)


def test_a_side_that_cannot_start_and_says_why_is_not_talked_over(
    behave: Behave, capfd: pytest.CaptureFixture[str]
) -> None:
    assert asyncio.run(serve_both(behave(api="refuses"), nothing)) == 1
    assert capfd.readouterr().err == "error: no database\n"


def test_where_its_words_went_to_a_file_the_file_is_named(behave: Behave, tmp_path: Path) -> None:
    log_file = tmp_path / "log"
    with pytest.raises(Startup, match="the API ended") as ended:
        asyncio.run(serve_both(behave(api="refuses"), nothing, log_file=log_file))
    assert str(log_file) in ended.value.hint
    assert log_file.read_text() == "error: no database\n"


def test_it_is_not_ready_before_the_status_answers_200(behave: Behave) -> None:
    with pytest.raises(Startup, match="not ready within"):
        serve(behave(proxy="mute"), nothing, ready_seconds=1.0)


def test_a_signal_before_it_is_ready_ends_it_too(behave: Behave) -> None:
    async def run() -> None:
        asyncio.get_running_loop().call_later(1.0, os.kill, os.getpid(), signal.SIGTERM)
        await serve_both(behave(proxy="mute"), nothing)

    asyncio.run(run())


def test_what_is_done_once_ready_may_fail_and_ends_both(behave: Behave) -> None:
    async def fail() -> None:
        raise ApiFailed("the demo went wrong")

    with pytest.raises(ApiFailed, match="the demo went wrong"):
        serve(behave(), fail)


def test_secrets_reach_the_sides_by_environment_and_not_by_argument(behave: Behave) -> None:
    plain = behave()
    secret = "postgresql://u:hunter2@db/x"
    chosen = replace(plain, settings=replace(plain.settings, database_url=secret))

    def look() -> None:
        for pid in sides():
            assert b"hunter2" not in Path(f"/proc/{pid}/cmdline").read_bytes()
            assert secret.encode() in Path(f"/proc/{pid}/environ").read_bytes()

    async def look_and_stop() -> None:
        look()
        await stop()

    serve(chosen, look_and_stop)


def test_the_passphrase_of_the_keyrings_reaches_the_proxy_and_not_the_api(
    behave: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERS_KEYRING_PASSPHRASE", "hunter2")
    monkeypatch.setenv("ERS_KEYRING_PASSPHRASE_FILE", "/run/hunter3")
    knows: dict[str, bool] = {}

    def look() -> None:
        for pid in sides():
            side = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[2].decode()
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert (b"hunter2" in environment) == (b"hunter3" in environment)
            knows[side] = b"hunter2" in environment

    async def look_and_stop() -> None:
        look()
        await stop()

    serve(behave(), look_and_stop)

    assert knows == {"api": False, "proxy": True}
