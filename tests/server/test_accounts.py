"""Accounts: from registration to a changed password."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.server.api import (
    PASSWORD,
    Account,
    Answer,
    Api,
    basic,
    running_api,
    signed_values,
    text_of,
)

NEW_PASSWORD = "staple battery horse"


def session_of(api: Api, address: str, password: str = PASSWORD) -> dict[str, str]:
    """Cookie and CSRF headers of a browser that has logged in."""
    answer = api.call("POST", "/api/accounts/login/", {"email": address, "password": password})
    assert answer.status == 200, answer.body
    assert all("HttpOnly" in line for line in set_cookies(answer) if "sessionid" in line)
    csrf = api.call("GET", "/api/csrf/")
    pairs = [line.partition(";")[0] for line in set_cookies(answer) if "sessionid" in line]
    pairs += [line.partition(";")[0] for line in set_cookies(csrf)]
    return {"Cookie": "; ".join(pairs), "X-CSRFToken": csrf.json()["csrfToken"]}


def set_cookies(answer: Answer) -> list[str]:
    return answer.headers.get_all("Set-Cookie") or []


def test_a_new_account_can_log_in_only_after_its_message_was_used(api: Api) -> None:
    address = api.new_address()
    assert api.register(address).status == 201
    assert api.token_pair(address, PASSWORD).status == 401
    assert api.call("GET", "/api/users/self/", headers=basic(address, PASSWORD)).status == 401
    signed = api.signed(address)
    assert api.call("POST", "/api/accounts/verify-registration/", signed).status == 200
    assert api.token_pair(address, PASSWORD).status == 200
    assert api.call("GET", "/api/users/self/", headers=basic(address, PASSWORD)).status == 200


def test_the_message_has_a_link_in_text_and_html(api: Api) -> None:
    address = api.new_address()
    api.register(address)
    [message] = api.messages_to(address, 1)
    values = signed_values(message)
    link = (
        f"http://proxy.example:8080/verify-registration/?user_id={values['user_id']}"
        f"&timestamp={values['timestamp']}&signature={values['signature']}"
    )
    assert link in text_of(message)
    assert link.replace("&", "&amp;") in text_of(message, "html")
    assert link in api.log.read_text()


def test_a_verification_link_works_once(api: Api) -> None:
    address = api.new_address()
    api.register(address)
    signed = api.signed(address)
    assert api.call("POST", "/api/accounts/verify-registration/", signed).status == 200
    again = api.call("POST", "/api/accounts/verify-registration/", signed)
    assert (again.status, again.code) == (400, "invalid_link")


@pytest.mark.parametrize(
    "change",
    [{"signature": "x"}, {"timestamp": 1}, {"user_id": "x"}, {"user_id": "2" * 22}],
    ids=str,
)
def test_a_changed_link_is_refused(api: Api, change: dict[str, object]) -> None:
    address = api.new_address()
    api.register(address)
    signed = api.signed(address) | change
    refused = api.call("POST", "/api/accounts/verify-registration/", signed)
    assert (refused.status, refused.code) == (400, "invalid_link")


def test_registering_an_address_again_is_answered_alike_and_tells_its_holder(
    api: Api, ada: Account
) -> None:
    fresh = api.register(api.new_address())
    before = len(api.messages_to(ada.email, 1))
    taken = api.register(ada.email.upper(), NEW_PASSWORD)
    assert (taken.status, taken.body) == (fresh.status, fresh.body)
    message = api.messages_to(ada.email, before + 1)[-1]
    assert message["Subject"] == "You already have an account"
    assert api.token_pair(ada.email, PASSWORD).status == 200
    assert api.token_pair(ada.email, NEW_PASSWORD).status == 401


def test_of_several_registrations_the_one_whose_link_is_used_becomes_the_account(
    api: Api,
) -> None:
    """Else whoever registers somebody's address first would own the account they confirm."""
    address = api.new_address()
    api.register(address, PASSWORD, organization_name="Not mine")
    first = api.signed(address)
    api.register(address, NEW_PASSWORD, organization_name="Mine")
    second = api.signed(address, count=2)

    assert api.call("POST", "/api/accounts/verify-registration/", second).status == 200
    assert api.call("POST", "/api/accounts/verify-registration/", first).code == "invalid_link"

    assert api.token_pair(address, NEW_PASSWORD).status == 200
    assert api.token_pair(address, PASSWORD).status == 401
    organizations = api.call("GET", "/api/organizations/", headers=basic(address, NEW_PASSWORD))
    assert [one["name"] for one in organizations.json()["results"]] == ["Mine"]


def test_of_two_links_used_at_once_one_works(api: Api) -> None:
    address = api.new_address()
    links = []
    for number, password in enumerate((PASSWORD, NEW_PASSWORD), 1):
        api.register(address, password)
        links.append(api.signed(address, count=number))

    with ThreadPoolExecutor(2) as pool:
        answers = list(
            pool.map(
                lambda signed: api.call("POST", "/api/accounts/verify-registration/", signed), links
            )
        )

    assert sorted(answer.status for answer in answers) == [200, 400]
    tokens = [api.token_pair(address, password).status for password in (PASSWORD, NEW_PASSWORD)]
    assert sorted(tokens) == [200, 401]


def test_the_case_of_an_address_does_not_matter(api: Api, ada: Account) -> None:
    assert api.token_pair(ada.email.upper(), PASSWORD).status == 200


@pytest.mark.parametrize(
    ("password", "code"),
    [
        ("elevenchars", "password_too_short"),
        ("918273645546372819", "password_entirely_numeric"),
        ("1qaz2wsx3edc", "password_too_common"),
        ("somebody@example.org", "password_too_similar"),
    ],
)
def test_weak_passwords_are_refused(api: Api, password: str, code: str) -> None:
    refused = api.register("somebody@example.org", password)
    assert refused.status == 400
    assert refused.flaws() == {"/password": code}
    assert password.encode() not in refused.body


def test_registration_lists_everything_that_is_wrong(api: Api) -> None:
    refused = api.call("POST", "/api/accounts/register/", {"email": "nobody"})
    assert refused.status == 400
    assert refused.flaws() == {
        "/email": "invalid",
        "/password": "required",
        "/password_confirm": "required",
        "/organization_name": "required",
    }


def test_spaces_around_a_password_are_part_of_it(api: Api) -> None:
    address, spaced = api.new_address(), f"  {PASSWORD} "
    api.register(address, spaced)
    api.call("POST", "/api/accounts/verify-registration/", api.signed(address))
    assert api.call("GET", "/api/users/self/", headers=basic(address, spaced)).status == 200
    assert api.token_pair(address, spaced).status == 200
    assert api.token_pair(address, PASSWORD).status == 401
    session_of(api, address, spaced)


def test_self_shows_the_user_and_its_organizations(api: Api, ada: Account) -> None:
    me = ada.call("GET", "/api/users/self/").json()
    assert set(me) == {
        *("id", "url", "email", "first_name", "last_name", "organizations", "date_joined")
    }
    assert me["email"] == ada.email
    assert me["url"] == f"/api/users/{me['id']}/"
    assert ada.call("GET", me["url"]).json() == me
    organization = ada.call("GET", me["organizations"][0]).json()
    assert organization["name"] == "Acme"


def test_one_password_works_by_all_three_methods(api: Api, ada: Account) -> None:
    assert ada.call("GET", "/api/datasets/").status == 200
    assert api.call("GET", "/api/datasets/", headers=basic(ada.email, PASSWORD)).status == 200
    session = session_of(api, ada.email)
    assert api.call("GET", "/api/datasets/", headers=session).status == 200


def test_a_change_by_session_needs_the_csrf_token(api: Api, ada: Account) -> None:
    session = session_of(api, ada.email)
    body = {"name": "by session", "organization": ada.organization}
    without = {"Cookie": session["Cookie"]}
    refused = api.call("POST", "/api/datasets/", body, headers=without)
    assert (refused.status, refused.code) == (403, "csrf_failed")
    assert api.call("POST", "/api/datasets/", body, headers=session).status == 201


def test_logging_out_ends_the_session(api: Api, ada: Account) -> None:
    session = session_of(api, ada.email)
    assert api.call("POST", "/api/accounts/logout/", headers=session).status == 200
    assert api.call("GET", "/api/datasets/", headers=session).status == 401


@pytest.mark.parametrize(
    "credentials",
    [
        {},
        {"Authorization": "Basic !!!"},
        {"Authorization": "Bearer nonsense"},
        basic("nobody@example.org", PASSWORD),
        basic("null\0@example.org", PASSWORD),
        {"Cookie": "sessionid=nonsense"},
    ],
    ids=["none", "garbled Basic", "garbled Bearer", "unknown", "null byte", "unknown session"],
)
def test_bad_credentials_get_401_and_both_challenges(api: Api, credentials: dict[str, str]) -> None:
    refused = api.call("GET", "/api/datasets/", headers=credentials)
    assert refused.status == 401
    assert refused.code in {"not_authenticated", "bad_credentials", "bad_token"}
    challenges = refused.headers["WWW-Authenticate"]
    assert "Basic realm=" in challenges
    assert "Bearer realm=" in challenges


def test_a_stale_credential_does_not_keep_anybody_from_logging_in(api: Api, ada: Account) -> None:
    stale = {"Authorization": "Bearer stale", "Cookie": "sessionid=stale"}
    body = {"email": ada.email, "password": PASSWORD}
    assert api.call("GET", "/api/status/", headers=stale).status == 200
    assert api.call("POST", "/api/token/", body, headers=stale).status == 200
    assert api.call("POST", "/api/accounts/login/", body, headers=stale).status == 200


def test_wrong_passwords_are_401_at_login_and_token(api: Api, ada: Account) -> None:
    body = {"email": ada.email, "password": "wrong"}
    for path in ("/api/accounts/login/", "/api/token/"):
        refused = api.call("POST", path, body)
        assert (refused.status, refused.code) == (401, "bad_credentials")


def test_verify_tells_good_tokens_from_bad_ones(api: Api, ada: Account) -> None:
    pair = api.token_pair(ada.email, PASSWORD).json()
    for token in pair.values():
        assert api.call("POST", "/api/token/verify/", {"token": token}).status == 200
    bad = api.call("POST", "/api/token/verify/", {"token": pair["access"][:-4] + "AAAA"})
    assert (bad.status, bad.code) == (401, "bad_token")


def test_a_refresh_token_works_once(api: Api, ada: Account) -> None:
    first = api.token_pair(ada.email, PASSWORD).json()
    second = api.call("POST", "/api/token/refresh/", {"refresh": first["refresh"]})
    assert second.status == 200
    assert set(second.json()) == {"access", "refresh"}
    again = api.call("POST", "/api/token/refresh/", {"refresh": first["refresh"]})
    assert (again.status, again.code) == (401, "bad_token")
    revoked = api.call("POST", "/api/token/verify/", {"token": first["refresh"]})
    assert revoked.status == 401


def test_an_access_token_is_no_refresh_token(api: Api, ada: Account) -> None:
    refused = api.call("POST", "/api/token/refresh/", {"refresh": ada.token})
    assert refused.status == 401


def test_changing_the_password_ends_everything_but_the_session_that_asked(api: Api) -> None:
    account = api.new_account()
    pair = api.token_pair(account.email, PASSWORD).json()
    mine, other = session_of(api, account.email), session_of(api, account.email)
    old = basic(account.email, PASSWORD)
    assert api.call("GET", "/api/users/self/", headers=old).status == 200
    body = {
        "old_password": PASSWORD,
        "password": NEW_PASSWORD,
        "password_confirm": NEW_PASSWORD,
    }
    changed = api.call("POST", "/api/accounts/change-password/", body, headers=mine)
    assert changed.status == 200
    [renewed] = [line for line in set_cookies(changed) if "sessionid" in line]
    mine = {"Cookie": renewed.partition(";")[0]}
    assert api.call("GET", "/api/users/self/", headers=mine).status == 200
    assert api.call("GET", "/api/users/self/", headers=other).status == 401
    assert api.call("GET", "/api/users/self/", headers=old).status == 401
    bearer = {"Authorization": f"Bearer {pair['access']}"}
    assert api.call("GET", "/api/users/self/", headers=bearer).status == 401
    for path, token in (("refresh", "refresh"), ("verify", "access"), ("verify", "refresh")):
        member = "refresh" if path == "refresh" else "token"
        refused = api.call("POST", f"/api/token/{path}/", {member: pair[token]})
        assert (refused.status, refused.code) == (401, "bad_token")
    assert api.token_pair(account.email, NEW_PASSWORD).status == 200


def test_changing_the_password_needs_the_old_one_and_a_sound_new_one(ada: Account) -> None:
    body = {
        "old_password": "wrong",
        "password": NEW_PASSWORD,
        "password_confirm": NEW_PASSWORD,
    }
    refused = ada.call("POST", "/api/accounts/change-password/", body)
    assert refused.flaws() == {"/old_password": "wrong_password"}
    body = {"old_password": PASSWORD, "password": "short", "password_confirm": "short"}
    refused = ada.call("POST", "/api/accounts/change-password/", body)
    assert refused.flaws() == {"/password": "password_too_short"}
    body = {"old_password": PASSWORD, "password": NEW_PASSWORD, "password_confirm": "else"}
    refused = ada.call("POST", "/api/accounts/change-password/", body)
    assert refused.flaws() == {"/password_confirm": "password_mismatch"}


def test_a_forgotten_password_can_be_replaced_once_per_message(api: Api) -> None:
    account = api.new_account()
    asked = api.call("POST", "/api/accounts/send-reset-password-link/", {"email": account.email})
    assert asked.status == 200
    signed = api.signed(account.email, count=2)
    body = signed | {"password": NEW_PASSWORD}
    assert api.call("POST", "/api/accounts/reset-password/", signed | {"password": "short"}).status
    assert api.call("POST", "/api/accounts/reset-password/", body).status == 200
    assert api.token_pair(account.email, NEW_PASSWORD).status == 200
    assert api.token_pair(account.email, PASSWORD).status == 401
    again = api.call("POST", "/api/accounts/reset-password/", body | {"password": PASSWORD})
    assert (again.status, again.code) == (400, "invalid_link")


def test_asking_for_a_reset_link_is_answered_alike_for_unknown_addresses(
    api: Api, ada: Account
) -> None:
    path = "/api/accounts/send-reset-password-link/"
    known = api.call("POST", path, {"email": ada.email.upper()})
    unknown = api.call("POST", path, {"email": api.new_address()})
    assert (known.status, known.body) == (unknown.status, unknown.body)


def test_wrong_unknown_and_unverified_are_answered_alike_by_every_method(
    api: Api, ada: Account
) -> None:
    waiting = api.new_address()
    api.register(waiting)
    pairs = [(ada.email, "wrong"), (api.new_address(), PASSWORD), (waiting, PASSWORD)]
    for path in ("/api/accounts/login/", "/api/token/"):
        bodies = [{"email": email, "password": password} for email, password in pairs]
        answers = [api.call("POST", path, body) for body in bodies]
        assert {(one.status, one.body) for one in answers} == {(401, answers[0].body)}
        assert {tuple(sorted(one.headers)) for one in answers} == {
            tuple(sorted(answers[0].headers))
        }
    answers = [api.call("GET", "/api/users/self/", headers=basic(*pair)) for pair in pairs]
    assert {(one.status, one.body) for one in answers} == {(401, answers[0].body)}


def test_wrong_unknown_and_unverified_take_the_same_work(api: Api) -> None:
    """Without it, the answer for an unknown address comes ten times sooner."""
    waiting = api.new_address()
    api.register(waiting)
    # Fewer than the failures that lock an address.
    addresses = [api.new_account().email, api.new_address(), waiting]
    durations: dict[str, list[float]] = {address: [] for address in addresses}
    for _ in range(8):
        for email, taken in durations.items():
            began = time.perf_counter()
            answer = api.call("POST", "/api/token/", {"email": email, "password": "wrong"})
            taken.append(time.perf_counter() - began)
            assert answer.status == 401
    fastest = [min(taken) for taken in durations.values()]
    assert max(fastest) < 4 * min(fastest)


def test_a_verified_basic_credential_is_fast_the_second_time(api: Api, ada: Account) -> None:
    headers = basic(ada.email, PASSWORD)
    api.call("GET", "/api/users/self/", headers=headers)
    began = time.perf_counter()
    for _ in range(10):
        assert api.call("GET", "/api/users/self/", headers=headers).status == 200
    assert time.perf_counter() - began < 0.5, "Argon2 alone would take longer"


def test_users_see_only_themselves(ada: Account, bob: Account) -> None:
    me = ada.call("GET", "/api/users/self/").json()
    assert bob.call("GET", me["url"]).status == 404


@pytest.mark.parametrize("path", ["profile", "register-email", "verify-email"])
def test_account_endpoints_outside_the_contract_are_absent(ada: Account, path: str) -> None:
    assert ada.call("POST", f"/api/accounts/{path}/", {}).status == 404


def test_cookies_are_for_https_alone_where_the_service_is(tmp_path: Path) -> None:
    with running_api(tmp_path, public_url="https://records.example") as api:
        account = api.new_account()
        body = {"email": account.email, "password": PASSWORD}
        answer = api.call("POST", "/api/accounts/login/", body)
        lines = [*set_cookies(answer), *set_cookies(api.call("GET", "/api/csrf/"))]
    assert len(lines) >= 3
    assert all("Secure" in line and "SameSite=Lax" in line for line in lines)


def test_cookies_go_over_http_on_one_s_own_machine(api: Api, ada: Account) -> None:
    body = {"email": ada.email, "password": PASSWORD}
    lines = set_cookies(api.call("POST", "/api/accounts/login/", body))
    assert lines
    assert not any("Secure" in line for line in lines)
