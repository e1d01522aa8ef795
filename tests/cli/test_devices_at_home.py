"""One person on one machine: the door answers for them, and nothing new is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from encrypted_records.cli.commands.doctor import access_of
from encrypted_records.client.proxy.keyring import Devices, KnownKeyring
from tests.cli.command import Ers
from tests.cli.people import store
from tests.cli.terminals import at_terminal
from tests.support.service import (
    Account,
    Service,
    call,
    clean_environment,
    free_ports,
    running_service,
)
from tests.support.shared_proxy import Machine


@pytest.fixture
def account(running: Service) -> Account:
    return running.new_account()


@pytest.fixture
def ada(ers: Ers, account: Account) -> Ers:
    """The command, as somebody who has logged in."""
    ers.done("login", "--email", account.email)
    ers.unset("ERS_EMAIL", "ERS_PASSWORD")
    return ers


def test_the_first_records_take_in_the_machine_that_logged_in_before(ada: Ers) -> None:
    assert ada.done("device", "list").one["keyring"] is None

    ada.done("keyring", "backup", "--force")

    found = ada.done("device", "list").one
    assert (found["level"], found["enrolled"]) == ("api", True)
    assert [(device["way"], device["this"]) for device in found["devices"]] == [("made", True)]


def test_a_login_takes_the_machine_in_for_a_keyring_that_is_there_and_asks_nothing(
    ers: Ers, running: Service, account: Account
) -> None:
    """One that curl made, with nothing but what the contract has."""
    url = f"{running.proxy_url}/api/devices/"
    body = {"name": "curl", "create": True}  # makes the keyring as well
    assert call("POST", url, body, auth=account.auth, headers=running.door).status == 201

    said = ers.done("login", "--email", account.email)
    again = ers.done("login", "--email", account.email)

    found = ers.done("device", "list").one
    assert sorted(device["way"] for device in found["devices"]) == ["door", "made"]
    assert found["enrolled"]
    assert said.err + again.err == ""


def test_scripts_with_a_password_alone_keep_no_device_and_need_none(
    ers: Ers, tmp_path: Path
) -> None:
    ers.done("keyring", "backup", "--force")
    ers.done("keyring", "rotate", "--yes")
    assert ers.done("device", "list").one["count"] == 0
    assert not list((tmp_path / "state").rglob("devices.json"))


def test_giving_the_keyring_a_passphrase_takes_the_machine_in_so_that_it_stays_usable(
    ers: Ers,
) -> None:
    ers.done("keyring", "backup", "--force")
    ers.done("keyring", "passphrase", typed="paper scissors\n")

    found = ers.done("device", "list").one
    assert (found["level"], found["enrolled"]) == ("device", True)
    assert ers.done("keyring", "get").one["wrapping"] == "passphrase"


def test_a_data_folder_that_was_made_anew_stays_usable_by_the_same_commands(tmp_path: Path) -> None:
    """The old device is known to nobody there, but the door shows whose proxy it is."""
    ports, state = free_ports(2), tmp_path / "state"
    told = {"XDG_STATE_HOME": str(state)}
    kept = []
    for number in range(2):
        data = tmp_path / f"data-{number}"
        with running_service(data, ports=ports, environment=told) as service:
            account = service.new_account("ada@example.org")
            machine = Machine(service.proxy_url, account, state)
            said = machine.log_in()
            store(machine)
            assert machine.done("device", "list").one["enrolled"]
            assert said.err == ""
            kept.append((state / "encrypted-records" / "devices.json").read_text())
    assert kept[0] == kept[1]


def test_an_inline_proxy_knows_the_machine_by_its_data_folder(
    running: Service, account: Account, tmp_path: Path
) -> None:
    told = {"ERS_BASE_URL": running.base_url, "ERS_INLINE": "1"}
    machine = Machine("http://127.0.0.1:1", account, tmp_path / "state", told)
    one, other = ({"ERS_DATA_DIR": str(tmp_path / name)} for name in ("one", "other"))
    machine.done("login", "--email", account.email, ERS_PASSWORD=account.password, **one)

    words = machine.done("keyring", "backup", "--force", **one).out
    mine = machine.done("device", "list", **one, ERS_ACCESS="device").one
    elsewhere = machine.done("device", "list", **other).one

    assert len(words.split()) == 48
    assert (mine["level"], mine["enrolled"]) == ("device", True)
    assert (elsewhere["level"], elsewhere["keyring"]) == ("api", None)
    assert not list((tmp_path / "state" / "encrypted-records").glob("door-*"))


def test_at_level_device_a_login_shows_the_keyring_on_the_terminal_and_asks(
    tmp_path: Path,
) -> None:
    with running_service(tmp_path / "data", environment={"ERS_ACCESS": "device"}) as service:
        account = service.new_account()
        first = Machine(service.proxy_url, account, tmp_path / "first")
        first.log_in()
        store(first)
        fingerprint = first.done("keyring", "get").one["fingerprint"]
        here = Machine(service.proxy_url, account, service.state_dir)
        told = clean_environment(
            ERS_PROXY_URL=here.url,
            XDG_STATE_HOME=str(here.state),
            ERS_EMAIL=account.email,
            ERS_PASSWORD=account.password,
        )
        with at_terminal(told, "login") as terminal:
            terminal.answer("[y/N]", "y")
            assert terminal.end() == 0, terminal.shown
        assert fingerprint in terminal.shown
        assert terminal.shown.count("[y/N]") == 1
        assert here.done("device", "list").one["enrolled"]


KEYRING = KnownKeyring(1_700_000_000, "0123456789abcdef", passphrase=False)


@pytest.mark.parametrize(
    ("level", "url", "exposed", "state"),
    [
        ("api", "http://127.0.0.1:8080", False, "ok"),
        ("api", "http://[::1]:8080", False, "ok"),
        ("api", "http://127.0.0.1:8080", True, "warning"),
        ("api", "https://records.example.org", False, "warning"),
        ("api", "http://192.168.1.7:8080", False, "warning"),
        ("device", "https://records.example.org", False, "failed"),
    ],
)
def test_doctor_warns_of_level_api_at_a_proxy_that_others_reach(
    level: str, url: str, exposed: bool, state: str
) -> None:
    devices = Devices(
        user="user", level=level, enrolled=False, keyring=KEYRING, count=1, exposed=exposed
    )
    finding = access_of(devices, url, shows_device=True)
    assert finding.state == state
    assert ("--access device" in finding.hint) == (state == "warning")


def test_doctor_says_the_level_here_also_before_there_is_a_keyring(ers: Ers) -> None:
    found = {line["check"]: line for line in ers.done("doctor").lines}
    assert found["access"]["state"] == "ok"
    assert found["access"]["found"].startswith("level api: ")
