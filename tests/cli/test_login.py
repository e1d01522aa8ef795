"""Who a command runs as: variables, a login that is kept, or a question; never an argument."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import keyring
import pytest

from encrypted_records.cli import main
from encrypted_records.cli.command_group import CommandLimits
from encrypted_records.cli.login.keychain import KeptLogin, Logins
from encrypted_records.client.limits import PROXY_TIMING, ClientLimits
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.errors import InvalidSetting, NotAuthenticated
from encrypted_records.model import credentials
from encrypted_records.model.resources import Tokens
from tests.cli.command import Ers
from tests.cli.keychain import FileKeychain
from tests.support import forked
from tests.support.service import ERS, Account, Service, call, clean_environment

ADDRESS = "http://127.0.0.1:1"


@pytest.fixture
def nobody(ers: Ers) -> Ers:
    """The command where no variable says who asks."""
    ers.unset("ERS_EMAIL", "ERS_PASSWORD")
    return ers


def log_in(ers: Ers, account: Account) -> str:
    """Log in with the password in the environment, and out of the environment again."""
    ers.set(ERS_PASSWORD=account.password)
    said = ers.done("login", "--email", account.email)
    ers.unset("ERS_PASSWORD")
    return said.out


def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "encrypted-records" / "logins.json"


def test_a_login_serves_the_commands_that_follow_until_logout(
    nobody: Ers, account: Account, tmp_path: Path
) -> None:
    assert nobody("user", "get").code == 4
    said = log_in(nobody, account)
    assert str(state(tmp_path)) in said
    assert account.password not in said

    assert nobody.done("user", "get").one["email"] == account.email
    token = nobody.done("token", "create").out
    assert nobody.done("token", "verify", typed=token).out == "The token is valid.\n"

    nobody.done("logout")
    assert not state(tmp_path).exists()
    assert nobody("user", "get").code == 4
    assert nobody("logout").code == 3


def test_the_file_is_for_its_owner_alone_and_holds_no_password(
    nobody: Ers, account: Account, tmp_path: Path
) -> None:
    log_in(nobody, account)

    assert stat.S_IMODE(state(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(state(tmp_path).parent.stat().st_mode) == 0o700
    text = state(tmp_path).read_text()
    assert account.password not in text
    assert account.email in text


def test_a_wrong_password_keeps_no_login(nobody: Ers, account: Account, tmp_path: Path) -> None:
    nobody.set(ERS_PASSWORD="wrong-horse-battery")
    said = nobody("login", "--email", account.email)
    assert said.code == 4
    assert not state(tmp_path).exists()
    assert "wrong-horse" not in said.err


def test_variables_go_before_the_login_that_is_kept(
    nobody: Ers, account: Account, running: Service
) -> None:
    log_in(nobody, account)
    other = running.new_account()
    nobody.set(ERS_EMAIL=other.email, ERS_PASSWORD=other.password)
    assert nobody.done("user", "get").one["email"] == other.email


def test_a_login_that_the_service_has_ended_is_forgotten_and_says_so(
    nobody: Ers, running: Service, tmp_path: Path
) -> None:
    account = running.new_account()
    log_in(nobody, account)
    text = state(tmp_path).read_text()
    change = {
        "old_password": account.password,
        "password": "another-violet-harbour",
        "password_confirm": "another-violet-harbour",
    }
    url = f"{running.base_url}/api/accounts/change-password/"
    assert call("POST", url, change, auth=account.auth).status == 200
    state(tmp_path).write_text(text.replace('"access":"', '"access":"expired.'))

    said = nobody("user", "get")

    assert said.code == 4
    assert "has ended" in said.err
    assert "hint: run: ers login" in said.err
    assert not state(tmp_path).exists()


def test_a_password_is_changed_without_a_terminal(nobody: Ers, running: Service) -> None:
    account = running.new_account()
    nobody.set(ERS_EMAIL=account.email, ERS_PASSWORD=account.password)
    assert nobody("user", "password", typed="").code == 2
    token = nobody.done("token", "create", "report").out.strip()
    said = nobody.done("user", "password", typed="another-violet-harbour\n")
    assert "all logins and API tokens have ended" in said.out
    assert "webhooks ers webhook resume --renew" in said.out
    assert nobody("user", "get").code == 4
    nobody.set(ERS_PASSWORD="another-violet-harbour")
    assert nobody.done("token", "list").lines == []
    nobody.set(ERS_TOKEN=token)
    assert nobody("user", "get").code == 4, "a token that has ended is not replaced by a password"
    nobody.set(ERS_TOKEN="")
    assert nobody.done("user", "get").one["email"] == account.email


def test_an_account_is_opened_without_a_terminal(nobody: Ers, running: Service) -> None:
    assert nobody("register", "--email", "grace@example.org").code == 2
    nobody.set(ERS_PASSWORD="violet-harbour-49-lantern")
    said = nobody.done(
        "register", "--email", "grace@example.org", "--organization", "Harvard Mark I"
    )
    assert "ers login" in said.out
    assert running.link_for("grace@example.org").user_id


class Trader:
    """Trades tokens as the service does: each refresh token once."""

    def __init__(self) -> None:
        self.traded: list[str] = []
        self.lock = threading.Lock()

    async def __call__(self, refresh: str) -> Tokens:
        with self.lock:
            if refresh in self.traded:
                raise NotAuthenticated("used up")
            self.traded.append(refresh)
            number = len(self.traded)
        await asyncio.sleep(0.05)  # time for others to do the wrong thing
        return Tokens(_token(10**10), f"refresh-{number}")


def _token(expires: float, **more: float) -> str:
    from base64 import urlsafe_b64encode

    claims = urlsafe_b64encode(json.dumps({"exp": expires, **more}).encode()).decode().rstrip("=")
    return f"e30.{claims}.c2ln"


def kept(folder: Path, *, expires: float) -> Logins:
    logins = Logins(folder)
    login = KeptLogin("ada@example.org", Tokens(_token(expires), "refresh-0"))
    asyncio.run(logins.keep(ADDRESS, login))
    return logins


def test_commands_side_by_side_trade_a_refresh_token_once(nobody: Ers, tmp_path: Path) -> None:
    kept(tmp_path, expires=0)
    trader = Trader()
    found: list[str] = []

    def command() -> None:
        # Two requests in each of several processes; a lock file is held alike by threads.
        async def both() -> list[str]:
            logins = Logins(tmp_path)
            return list(
                await asyncio.gather(*(logins.authorization(ADDRESS, trader) for _ in range(2)))
            )

        found.extend(asyncio.run(both()))

    threads = [threading.Thread(target=command) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert trader.traded == ["refresh-0"]
    assert found == [f"Bearer {_token(10**10)}"] * 8


def test_a_token_that_is_still_good_is_not_traded(nobody: Ers, tmp_path: Path) -> None:
    logins, trader = kept(tmp_path, expires=10**10), Trader()
    asyncio.run(logins.authorization(ADDRESS, trader))
    assert trader.traded == []


@pytest.mark.parametrize("off", [-90_000.0, 0.0, 90_000.0])
def test_how_old_a_token_is_needs_no_clock_that_is_right(
    nobody: Ers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    """Only one that runs: a token of a quarter of an hour is traded when it has been here for
    that."""
    issued, logins, trader = time.time(), Logins(tmp_path), Trader()
    here = issued + off
    monkeypatch.setattr(time, "time", lambda: here)
    token = _token(issued + 900, iat=issued)
    asyncio.run(
        logins.keep(ADDRESS, KeptLogin("ada@example.org", Tokens(token, "refresh-0"), here))
    )

    here = issued + off + 800
    assert asyncio.run(logins.authorization(ADDRESS, trader)) == f"Bearer {token}"
    assert trader.traded == []
    here = issued + off + 850
    asyncio.run(logins.authorization(ADDRESS, trader))
    assert trader.traded == ["refresh-0"]


def test_a_login_lies_in_the_keychain_where_there_is_one(
    nobody: Ers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keychain = tmp_path / "keychain"
    keychain.write_text("{}")
    monkeypatch.setenv("ERS_TEST_KEYCHAIN", str(keychain))
    monkeypatch.setattr(keyring, "get_keyring", FileKeychain)

    logins = Logins(tmp_path)
    login = KeptLogin("ada@example.org", Tokens("access", "refresh"))
    assert asyncio.run(logins.keep(ADDRESS, login)) == "the keychain"
    assert not logins.file.path.exists()
    assert Logins(tmp_path).find(ADDRESS) == login

    asyncio.run(logins.forget(ADDRESS))
    assert json.loads(keychain.read_text()) == {}
    assert logins.find(ADDRESS) is None


def test_a_locked_keychain_leaves_the_file(
    nobody: Ers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERS_TEST_KEYCHAIN", str(tmp_path / "nowhere"))
    monkeypatch.setattr(keyring, "get_keyring", FileKeychain)

    logins = Logins(tmp_path)
    login = KeptLogin("ada@example.org", Tokens("access", "refresh"))
    assert asyncio.run(logins.keep(ADDRESS, login)) == str(logins.file.path)
    assert logins.find(ADDRESS) == login
    assert logins.find("http://elsewhere") is None


def test_a_damaged_file_is_named_with_the_way_out(nobody: Ers, tmp_path: Path) -> None:
    logins = kept(tmp_path, expires=0)
    logins.file.path.write_text("{")
    with pytest.raises(InvalidSetting) as refused:
        logins.find(ADDRESS)
    assert str(logins.file.path) in refused.value.message
    assert "delete it" in refused.value.hint


def test_tokens_do_not_print() -> None:
    assert "secret" not in repr(KeptLogin("ada@example.org", Tokens("secret-a", "secret-b")))


def test_real_tokens_say_when_they_expire(running: Service, account: Account) -> None:
    async def tokens() -> Tokens:
        async with ProxyClient(running.proxy_url) as client:
            return await client.tokens(email=account.email, password=account.password)

    import time

    left = credentials.token_expiry(asyncio.run(tokens()).access) - time.time()
    assert 0 < left <= 15 * 60 + 5


def test_an_inline_proxy_serves_one_command_and_is_gone(
    running: Service, account: Account, tmp_path: Path
) -> None:
    told = clean_environment(
        ERS_BASE_URL=running.base_url,
        ERS_DATA_DIR=str(tmp_path / "inline"),
        ERS_EMAIL=account.email,
        ERS_PASSWORD=account.password,
    )
    status = [*ERS, "status", "--inline"]
    done = forked.run(status, told)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["behind_proxy"] is True
    assert done.stderr == ""

    # The folder of a service that runs is taken: an inline proxy beside it would be a second one.
    told["ERS_DATA_DIR"] = str(running.data_dir)
    refused = forked.run(status, told)
    assert refused.returncode == 1
    assert refused.stderr.startswith(
        "error: the inline proxy did not start: another ers proxy (process "
    )
    assert "hint: " in refused.stderr


def test_without_a_proxy_the_way_to_one_is_named(ers: Ers) -> None:
    said = ers("status", "--proxy-url", ADDRESS)
    assert said.code == 5
    assert said.err.startswith(f"error: no connection to {ADDRESS}")
    assert "--inline" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(("is_terminal", "times"), [(True, 1), (False, 0)])
def test_a_command_that_waits_for_a_stopped_proxy_says_so_once_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_terminal: bool,
    times: int,
) -> None:
    monkeypatch.setenv("ERS_EMAIL", "ada@example.org")
    monkeypatch.setenv("ERS_PASSWORD", "violet-harbour-49-lantern")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    impatient = ClientLimits(timing=replace(PROXY_TIMING, pauses=(0.0, 0.01, 0.0)))
    command = ["record", "list", "--schema", "people", "--proxy-url", ADDRESS]
    code = main.run(command, CommandLimits(silent_seconds=0.01, client=impatient))
    said = capsys.readouterr().err
    assert code == 5
    assert said.count(f"waiting for {ADDRESS}, which does not answer: trying again") == times
    assert f"error: no connection to {ADDRESS}" in said


def test_a_refused_login_or_token_is_answered_with_a_command_and_no_path(
    nobody: Ers, account: Account, tmp_path: Path
) -> None:
    log_in(nobody, account)
    kept = json.loads(state(tmp_path).read_text())
    for login in kept.values():  # as after a restore: it lasts by its claims, and is unknown
        login["tokens"]["access"] = login["tokens"]["access"][:-8] + "AAAAAAAA"
    state(tmp_path).write_text(json.dumps(kept))
    said = nobody("schema", "list")
    assert (said.code, "hint: run: ers login" in said.err) == (4, True)

    nobody.set(ERS_TOKEN="no token")
    said = nobody("schema", "list")
    assert (said.code, "hint: set ERS_TOKEN" in said.err, "/api/" in said.err) == (4, True, False)


def test_without_a_terminal_only_the_missing_settings_are_named(
    nobody: Ers, account: Account
) -> None:
    said = nobody("login", "--email", account.email)
    assert "no terminal to ask for the password" in said.err
    assert ("ERS_PASSWORD" in said.err, "ERS_EMAIL" in said.err) == (True, False)
    said = nobody("register", "--email", "grace@example.org", "--organization", "Mark I")
    assert said.err.startswith("error: missing: ERS_PASSWORD;")
