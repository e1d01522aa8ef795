"""``ers up`` with the real API and the real proxy."""

from __future__ import annotations

import os
import signal
import stat
import threading
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.service import Service, call, gone, running_service


def sides_of(service: Service) -> list[int]:
    """The processes of the API and of the proxy."""
    return [pid for pid in service.children() if os.getpgid(pid) == pid]


def ends_by(service: Service, number: int) -> bool:
    """Whether a signal ends all of it, in ten seconds and without an error."""
    started = service.children()
    assert len(started) >= 2
    service.process.send_signal(number)
    return service.process.wait(10) == 0 and gone(started, within=10)


def test_it_says_where_it_answers_and_after_a_signal_and_a_restart_all_is_there(
    tmp_path: Path,
) -> None:
    with running_service(tmp_path / "data") as service:
        eventually(lambda: "stop " in service.log, "it says how to stop it")
        for place in (service.base_url, service.proxy_url, str(service.data_dir)):
            assert place in service.log
        direct = call("GET", f"{service.base_url}/api/status/").json()
        through = call("GET", f"{service.proxy_url}/api/status/").json()
        assert (direct["status"], direct["behind_proxy"]) == ("ok", False)
        assert (through["status"], through["behind_proxy"]) == ("ok", True)
        account = service.new_account()
        # Nothing of the folder is open to others.
        paths = [service.data_dir, *service.data_dir.rglob("*")]
        assert [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
        assert ends_by(service, signal.SIGTERM)
    with running_service(tmp_path / "data") as service:
        user = call("GET", f"{service.proxy_url}/api/users/self/", auth=account.auth)
        assert user.json()["email"] == account.email
        assert ends_by(service, signal.SIGINT)


@pytest.mark.parametrize("which", [0, 1], ids=["api", "proxy"])
def test_if_one_side_is_killed_the_other_does_not_linger(tmp_path: Path, which: int) -> None:
    with running_service(tmp_path / "data") as service:
        started = service.children()
        os.kill(sides_of(service)[which], signal.SIGKILL)
        assert service.process.wait(10) == 1
        assert gone(started, within=10)
        assert "ended (signal SIGKILL), so both are stopped" in service.log


def test_killing_it_outright_leaves_nothing_for_which_the_next_start_does_not_wait(
    tmp_path: Path,
) -> None:
    with running_service(tmp_path / "data") as old:
        sides = sides_of(old)
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
                started = new.children()
                new.process.kill()
                assert gone(started, within=10)
        finally:
            going_on.join()
            if not gone(sides, within=10):
                os.kill(sides[1], signal.SIGKILL)
