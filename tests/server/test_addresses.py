"""Changes of an account's e-mail address: proved by its mailbox, told to the former one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.server.api import PASSWORD, PUBLIC_URL, Account, Answer, Api, basic, running_api, text_of
from tests.server.sessions import NEW_PASSWORD, session_of
from tests.server.test_second_factor import add

ASK, CONFIRM = "/api/accounts/change-email/", "/api/accounts/confirm-email/"


@pytest.fixture
def account(api: Api) -> Account:
    return api.new_account()


def ask(account: Account, address: str, **members: str) -> Answer:
    return account.call("POST", ASK, {"email": address, "password": PASSWORD} | members)


def link_to(account: Account, address: str, count: int = 1) -> dict[str, Any]:
    """The signed values of the message to a new address, which is asked for."""
    assert ask(account, address).status == 200
    return account.api.signed(address, count)


def confirm(api: Api, signed: dict[str, Any]) -> Answer:
    return api.call("POST", CONFIRM, signed)


def test_an_account_has_its_new_address_once_the_link_was_used(api: Api, account: Account) -> None:
    address = api.new_address()
    signed = link_to(account, address)
    [message] = api.messages_to(address, 1)
    assert f"{PUBLIC_URL}/confirm-email/?user_id={signed['user_id']}" in text_of(message)
    assert api.token_pair(account.email, PASSWORD).status == 200
    assert api.token_pair(address, PASSWORD).status == 401

    assert confirm(api, signed).status == 200

    assert api.token_pair(account.email, PASSWORD).status == 401
    pair = api.token_pair(address, PASSWORD).json()
    bearer = {"Authorization": f"Bearer {pair['access']}"}
    me = api.call("GET", "/api/users/self/", headers=bearer).json()
    assert (me["email"], me["organizations"]) == (address, [account.organization])
    assert (confirm(api, signed).status, confirm(api, signed).code) == (400, "invalid_link")


def test_the_former_address_is_told_before_and_after(api: Api, account: Account) -> None:
    before = len(api.messages_to(account.email, 0))
    signed = link_to(account, api.new_address())
    asked = api.messages_to(account.email, before + 1)[-1]
    assert asked["Subject"] == "The address of your account is to change"
    assert "/forgot-password/" in text_of(asked)
    confirm(api, signed)
    told = api.messages_to(account.email, before + 2)[-1]
    assert told["Subject"] == "The address of your account was changed"


def test_a_taken_address_is_answered_alike_and_its_holder_is_told(
    api: Api, account: Account, bob: Account
) -> None:
    free, taken = ask(account, api.new_address()), len(api.messages_to(bob.email, 0))
    answer = ask(account, bob.email.upper())
    assert (answer.status, answer.body) == (free.status, free.body)
    message = api.messages_to(bob.email, taken + 1)[-1]
    assert message["Subject"] == "You already have an account"
    assert "user_id" not in text_of(message)


def test_it_takes_the_password_and_the_code_of_a_second_factor(api: Api, account: Account) -> None:
    address = api.new_address()
    assert account.call("POST", ASK, {"email": address}).flaws() == {"/password": "required"}
    assert ask(account, address, password="wrong").flaws() == {"/password": "wrong_password"}
    assert ask(account, "nobody").flaws() == {"/email": "invalid"}
    app, _ = add(account)
    assert ask(account, address).flaws() == {"/code": "second_factor_required"}
    assert ask(account, address, code=app.stale()).flaws() == {"/code": "wrong_code"}
    assert ask(account, address, code=app.code()).status == 200
    assert confirm(api, api.signed(address)).status == 200
    body = {"email": address, "password": PASSWORD, "code": app.code()}
    assert api.call("POST", "/api/token/", body).status == 200


def test_logins_by_the_former_address_end_at_once_and_api_tokens_stay(
    api: Api, account: Account
) -> None:
    made = account.post("/api/tokens/", {"name": "report", "password": PASSWORD})["token"]
    former = [basic(account.email, PASSWORD), session_of(api, account.email)]
    former.append({"Authorization": f"Bearer {account.token}"})
    for headers in former:
        assert api.call("GET", "/api/users/self/", headers=headers).status == 200
    token = {"Authorization": f"Bearer {made}"}
    assert api.call("POST", ASK, {}, headers=token).status == 403
    confirm(api, link_to(account, api.new_address()))
    for headers in former:
        assert api.call("GET", "/api/users/self/", headers=headers).status == 401
    assert api.call("GET", "/api/users/self/", headers=token).status == 200


def test_a_new_password_ends_the_link(api: Api, account: Account) -> None:
    address, sent = api.new_address(), len(api.messages_to(account.email, 0))
    signed = link_to(account, address)
    path = "/api/accounts/send-reset-password-link/"
    assert api.call("POST", path, {"email": account.email}).status == 200
    reset = api.signed(account.email, sent + 2) | {"password": NEW_PASSWORD}
    assert api.call("POST", "/api/accounts/reset-password/", reset).status == 200
    assert confirm(api, signed).code == "invalid_link"
    assert api.token_pair(account.email, NEW_PASSWORD).status == 200


def test_links_in_the_former_mailbox_end_with_the_change(api: Api, account: Account) -> None:
    sent = len(api.messages_to(account.email, 0))
    api.call("POST", "/api/accounts/send-reset-password-link/", {"email": account.email})
    reset = api.signed(account.email, sent + 1) | {"password": NEW_PASSWORD}
    other = link_to(account, api.new_address())
    confirm(api, link_to(account, api.new_address()))
    assert api.call("POST", "/api/accounts/reset-password/", reset).code == "invalid_link"
    assert confirm(api, other).code == "invalid_link"


def test_a_link_of_one_kind_is_none_of_another(api: Api, account: Account) -> None:
    signed = link_to(account, api.new_address())
    for path, more in (("verify-registration", {}), ("reset-password", {"password": NEW_PASSWORD})):
        refused = api.call("POST", f"/api/accounts/{path}/", signed | more)
        assert refused.code == "invalid_link"
    assert confirm(api, signed | {"user_id": "2" * 22}).code == "invalid_link"
    assert confirm(api, signed).status == 200


def test_who_registers_the_former_address_is_somebody_else(api: Api, account: Account) -> None:
    confirm(api, link_to(account, api.new_address()))
    sent = len(api.messages_to(account.email, 2))
    api.register(account.email, NEW_PASSWORD, organization_name="Other")
    signed = api.signed(account.email, sent + 1)
    assert api.call("POST", "/api/accounts/verify-registration/", signed).status == 200
    new = basic(account.email, NEW_PASSWORD)
    me = api.call("GET", "/api/users/self/", headers=new).json()
    assert account.organization not in me["organizations"]
    assert api.call("GET", account.organization, headers=new).status == 404


def test_registrations_of_the_new_address_end_with_the_change(api: Api, account: Account) -> None:
    address = api.new_address()
    api.register(address, NEW_PASSWORD)
    waiting = api.signed(address)
    confirm(api, link_to(account, address, count=2))
    refused = api.call("POST", "/api/accounts/verify-registration/", waiting)
    assert refused.code == "invalid_link"
    assert api.token_pair(address, PASSWORD).status == 200


def test_of_an_account_and_a_registration_at_once_one_gets_the_address(api: Api) -> None:
    for _ in range(4):
        account, address = api.new_account(), api.new_address()
        api.register(address, NEW_PASSWORD)
        waiting = api.signed(address)
        signed = link_to(account, address, count=2)
        sent = [("/api/accounts/verify-registration/", waiting), (CONFIRM, signed)]
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda asked: api.call("POST", *asked), sent))
        assert sorted(answer.status for answer in answers) == [200, 400]
        got = [api.token_pair(address, one).status for one in (NEW_PASSWORD, PASSWORD)]
        assert got == [200 if answer.status == 200 else 401 for answer in answers]
        kept = api.token_pair(account.email, PASSWORD).status
        assert kept == (200 if answers[1].status == 400 else 401)


def test_the_audit_log_tells_of_it_without_an_address(api: Api, account: Account) -> None:
    confirm(api, link_to(account, address := api.new_address()))
    bearer = {"Authorization": f"Bearer {api.token_pair(address, PASSWORD).json()['access']}"}
    path = f"{account.organization}audit-log/?action=email.changed"
    [entry] = api.call("GET", path, headers=bearer).json()["results"]
    assert entry["subject"].startswith("/api/users/")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    environment = {"ERS_RATE_LIMITS": "addresses=2/hour,messages=2/hour"}
    with running_api(tmp_path_factory.mktemp("strict"), environment=environment) as running:
        yield running


def test_an_account_asks_a_few_times_an_hour_and_the_notices_always_come(strict: Api) -> None:
    account = strict.new_account()
    path = "/api/accounts/send-reset-password-link/"
    strict.call("POST", path, {"email": account.email})  # no further message may be sent there
    for _ in range(2):
        assert ask(account, strict.new_address()).status == 200
    refused = ask(account, strict.new_address())
    assert (refused.status, refused.code) == (429, "throttled")
    subjects = [message["Subject"] for message in strict.messages_to(account.email, 4)]
    assert subjects.count("The address of your account is to change") == 2


def test_the_log_has_neither_address_nor_link(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        account, address = api.new_account(), api.new_address()
        signed = link_to(account, address)
        confirm(api, signed)
        api.messages_to(account.email, 3)
        log = api.log.read_text()
        assert [one for one in (address, account.email, signed["signature"]) if one in log] == []
