"""``ers up`` with the real API and the real proxy."""

from __future__ import annotations

import os
import signal
import stat
import threading
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.service import call, gone, running_service


def test_it_says_where_everything_is_and_answers_there(tmp_path: Path) -> None:
    with running_service(tmp_path / "data") as service:
        eventually(lambda: "stop " in service.log, "it says how to stop it")
        for place in (service.base_url, service.proxy_url, str(service.data_dir)):
            assert place in service.log
        direct = call("GET", f"{service.base_url}/api/status/").json()
        through = call("GET", f"{service.proxy_url}/api/status/").json()
        assert (direct["status"], direct["behind_proxy"]) == ("ok", False)
        assert (through["status"], through["behind_proxy"]) == ("ok", True)


def test_nothing_in_the_data_folder_is_open_to_others(tmp_path: Path) -> None:
    with running_service(tmp_path / "data") as service:
        service.new_account()
        paths = [service.data_dir, *service.data_dir.rglob("*")]
        assert [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_of_it_within_ten_seconds(tmp_path: Path, number: int) -> None:
    with running_service(tmp_path / "data") as service:
        started = service.children()
        assert len(started) >= 2
        service.process.send_signal(number)
        assert service.process.wait(10) == 0
        assert gone(started, within=10)


def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    with running_service(tmp_path / "data") as service:
        account = service.new_account()
    with running_service(tmp_path / "data") as service:
        user = call("GET", f"{service.proxy_url}/api/users/self/", auth=account.auth)
        assert user.json()["email"] == account.email


@pytest.mark.parametrize("which", [0, 1], ids=["api", "proxy"])
def test_if_one_side_is_killed_the_other_does_not_linger(tmp_path: Path, which: int) -> None:
    with running_service(tmp_path / "data") as service:
        started = service.children()
        sides = [pid for pid in started if os.getpgid(pid) == pid]
        os.kill(sides[which], signal.SIGKILL)
        assert service.process.wait(10) == 1
        assert gone(started, within=10)
        assert "ended (signal SIGKILL), so both are stopped" in service.log


def test_killing_it_outright_leaves_nothing_running(tmp_path: Path) -> None:
    with running_service(tmp_path / "data") as service:
        started = service.children()
        service.process.kill()
        assert gone(started, within=10)


def test_a_start_waits_for_the_end_of_what_a_killed_one_has_left(tmp_path: Path) -> None:
    with running_service(tmp_path / "data") as old:
        sides = [pid for pid in old.children() if os.getpgid(pid) == pid]
        ports = [int(url.rpartition(":")[2]) for url in (old.base_url, old.proxy_url)]
        os.kill(sides[1], signal.SIGSTOP)
        old.process.kill()

        def go_on() -> None:
            eventually(lambda: "Waiting up to 10 seconds for another ers proxy" in old.log)
            os.kill(sides[1], signal.SIGCONT)

        going_on = threading.Thread(target=go_on)
        going_on.start()
        try:
            with running_service(tmp_path / "data", ports=ports) as new:
                assert "Waiting up to 10 seconds for another ers proxy" in new.log
        finally:
            going_on.join()
            if not gone(sides, within=10):
                os.kill(sides[1], signal.SIGKILL)
