"""A second factor: no way in by the password alone, codes that count once, and ways back."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from encrypted_records.errors import TIME
from tests.server.api import PASSWORD, Account, Answer, Api, basic, running_api
from tests.server.sessions import session_of
from tests.support.authenticator import Authenticator

PATH = "/api/accounts/second-factor/"


@pytest.fixture
def account(api: Api) -> Account:
    return api.new_account()


def add(account: Account) -> tuple[Authenticator, list[str]]:
    """Set a second factor up; the app, and the recovery codes."""
    made = account.call("POST", PATH, {"password": PASSWORD})
    assert made.status == 201
    app = Authenticator(made.json()["key"])
    confirmed = account.call("POST", f"{PATH}confirm/", {"code": app.code()})
    assert confirmed.status == 200
    return app, confirmed.json()["recovery_codes"]


def log_in(api: Api, account: Account, code: str | None = None, way: str = "token") -> Answer:
    path = {"token": "/api/token/", "login": "/api/accounts/login/"}[way]
    body = {"email": account.email, "password": PASSWORD} | ({"code": code} if code else {})
    return api.call("POST", path, body)


def test_no_login_by_the_password_alone_gets_in(api: Api, account: Account) -> None:
    app, _ = add(account)
    for way in ("token", "login"):
        refused = log_in(api, account, way=way)
        assert (refused.status, refused.code) == (401, "second_factor_required")
        assert log_in(api, account, app.code(), way).status == 200
    refused = api.call("GET", "/api/users/self/", headers=basic(account.email, PASSWORD))
    assert (refused.status, refused.code) == (401, "second_factor_required")


def test_the_code_is_asked_for_only_once_the_password_was_right(api: Api, account: Account) -> None:
    add(account)
    body = {"email": account.email, "password": "wrong"}
    refused = api.call("POST", "/api/token/", body)
    assert (refused.status, refused.code) == (401, "bad_credentials")


def test_a_basic_credential_that_was_right_before_is_refused_at_once(
    api: Api, account: Account
) -> None:
    headers = basic(account.email, PASSWORD)
    assert api.call("GET", "/api/users/self/", headers=headers).status == 200
    add(account)
    assert api.call("GET", "/api/users/self/", headers=headers).status == 401


def test_a_key_counts_only_once_a_code_of_it_was_shown(api: Api, account: Account) -> None:
    key = account.call("POST", PATH, {"password": PASSWORD}).json()["key"]
    assert log_in(api, account).status == 200
    app = Authenticator(key)
    refused = account.call("POST", f"{PATH}confirm/", {"code": app.stale()})
    assert (refused.status, refused.flaws()) == (400, {"/code": "wrong_code"})
    assert account.call("GET", PATH).json() == {"enabled": False, "recovery_codes": 0}
    # One that was begun anew replaces it.
    account.call("POST", PATH, {"password": PASSWORD})
    assert account.call("POST", f"{PATH}confirm/", {"code": app.code()}).status == 400


def test_a_code_counts_once(api: Api, account: Account) -> None:
    app, _ = add(account)
    code = app.code()
    assert log_in(api, account, code).status == 200
    again = log_in(api, account, code)
    assert (again.status, again.code) == (401, "wrong_code")
    # The hint has the API's time: one of the two clocks may be wrong.
    assert TIME.search(again.json()["hint"])


def test_a_code_that_was_used_while_a_clock_was_ahead_refuses_no_later_one(
    api: Api, account: Account
) -> None:
    app, _ = add(account)
    api.execute("UPDATE second_factor SET step = step + 100000")
    code = app.code()
    assert log_in(api, account, code).status == 200
    assert log_in(api, account, code).code == "wrong_code"


def test_a_recovery_code_stands_in_for_the_app_once(api: Api, account: Account) -> None:
    _, codes = add(account)
    assert len(set(codes)) == 10
    assert account.call("GET", PATH).json() == {"enabled": True, "recovery_codes": 10}
    assert log_in(api, account, codes[0].upper().replace("-", " ")).status == 200
    assert log_in(api, account, codes[0]).code == "wrong_code"
    assert account.call("GET", PATH).json()["recovery_codes"] == 9
    owner = {"password": PASSWORD, "code": codes[1]}
    renewed = account.call("POST", f"{PATH}recovery-codes/", owner).json()["recovery_codes"]
    assert set(renewed).isdisjoint(codes)
    assert log_in(api, account, codes[2]).code == "wrong_code"
    assert log_in(api, account, renewed[0]).status == 200


@pytest.mark.parametrize("way", ["recovery-codes", "remove"])
def test_neither_a_session_nor_the_password_changes_it_without_a_code(
    api: Api, account: Account, way: str
) -> None:
    app, _ = add(account)
    path = f"{PATH}{way}/"
    assert account.call("POST", path, {"code": app.code()}).flaws() == {"/password": "required"}
    refused = account.call("POST", path, {"password": PASSWORD})
    assert refused.flaws() == {"/code": "second_factor_required"}
    refused = account.call("POST", path, {"password": PASSWORD, "code": app.stale()})
    assert refused.flaws() == {"/code": "wrong_code"}
    refused = account.call("POST", path, {"password": "wrong", "code": app.stale()})
    assert refused.flaws() == {"/password": "wrong_password"}
    assert account.call("GET", PATH).json()["enabled"]


def test_a_code_alone_yields_no_further_recovery_codes(api: Api, account: Account) -> None:
    app, codes = add(account)
    refused = account.call("POST", f"{PATH}confirm/", {"code": app.code()})
    assert (refused.status, refused.code) == (409, "second_factor_exists")
    assert log_in(api, account, codes[0]).status == 200


def test_what_the_password_changes_takes_a_code_too(api: Api, account: Account) -> None:
    app, _ = add(account)
    token = {"name": "report", "password": PASSWORD}
    refused = account.call("POST", "/api/tokens/", token)
    assert refused.flaws() == {"/code": "second_factor_required"}
    assert account.call("POST", "/api/tokens/", token | {"code": app.code()}).status == 201
    change = {"old_password": PASSWORD, "password": "another good one", "password_confirm": ""}
    change["password_confirm"] = change["password"]
    refused = account.call("POST", "/api/accounts/change-password/", change)
    assert refused.flaws() == {"/code": "second_factor_required"}
    changed = account.call("POST", "/api/accounts/change-password/", change | {"code": app.code()})
    assert changed.status == 200


def test_sessions_and_api_tokens_that_there_were_go_on(api: Api, account: Account) -> None:
    session = session_of(api, account.email)
    made = account.call("POST", "/api/tokens/", {"name": "report", "password": PASSWORD})
    add(account)
    assert api.call("GET", "/api/users/self/", headers=session).status == 200
    bearer = {"Authorization": f"Bearer {made.json()['token']}"}
    assert api.call("GET", "/api/users/self/", headers=bearer).status == 200
    # A token of a program neither sees it nor changes it.
    assert api.call("GET", PATH, headers=bearer).status == 403


def test_it_is_removed_with_a_code_and_set_up_anew(api: Api, account: Account) -> None:
    _, codes = add(account)
    again = account.call("POST", PATH, {"password": PASSWORD, "code": codes[0]})
    assert (again.status, again.code) == (409, "second_factor_exists")
    removed = account.call("POST", f"{PATH}remove/", {"password": PASSWORD, "code": codes[1]})
    assert removed.status == 200
    assert log_in(api, account).status == 200
    owner = {"password": PASSWORD}
    for path, body in (("confirm", {"code": "1"}), ("remove", owner), ("recovery-codes", owner)):
        refused = account.call("POST", f"{PATH}{path}/", body)
        assert (refused.status, refused.code) == (409, "no_second_factor")
    app, _ = add(account)
    assert log_in(api, account, app.code()).status == 200


def test_the_databases_files_have_neither_keys_nor_codes(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        account = api.new_account()
        made = account.call("POST", PATH, {"password": PASSWORD}).json()
        code = Authenticator(made["key"]).code()
        codes = account.call("POST", f"{PATH}confirm/", {"code": code}).json()["recovery_codes"]
        held = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        assert account.email.encode() in held
        secrets = [made["key"], base64.b32decode(made["key"]).decode("latin-1")]
        secrets += [*codes, *(code.replace("-", "") for code in codes)]
        assert [secret for secret in secrets if secret.encode("latin-1") in held] == []


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An API that believes its peer, and takes three wrong codes an hour."""
    environment = {
        "ERS_TRUSTED_PROXIES": "127.0.0.1",
        "ERS_RATE_LIMITS": "passwords=1000/minute,codes=3/hour",
    }
    with running_api(tmp_path_factory.mktemp("strict"), environment=environment) as running:
        yield running


def test_wrong_codes_close_an_account_wherever_they_come_from(strict: Api) -> None:
    account = strict.new_account()
    app, codes = add(account)
    body = {"email": account.email, "password": PASSWORD, "code": app.stale()}
    for at in range(3):
        headers = {"X-Forwarded-For": f"198.51.100.{at}"}
        assert strict.call("POST", "/api/token/", body, headers=headers).code == "wrong_code"
    for code in (app.code(), codes[0]):
        refused = strict.call("POST", "/api/token/", body | {"code": code})
        assert (refused.status, refused.code) == (429, "too_many_failures")
    # Who has a login already goes on; and nobody else waits.
    assert account.call("GET", "/api/users/self/").status == 200
    assert log_in(strict, strict.new_account()).status == 200


def test_another_secret_key_leaves_recovery_codes_alone(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        account = api.new_account()
        app, codes = add(account)
    (api.data_dir / "api" / "secret.key").unlink()
    with running_api(tmp_path) as api:
        assert log_in(api, account, app.code()).code == "wrong_code"
        assert log_in(api, account, codes[0]).status == 200
