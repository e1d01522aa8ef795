"""Credentials: Basic, a token or a session, and what each is refused for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.api import PASSWORD, Account, Api, basic, running_api
from tests.server.sessions import session_of, set_cookies


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
    # The second one is answered by middleware.
    for path in ("/api/datasets/", "/api/schemas/x/manifest/"):
        refused = api.call("GET", path, headers=credentials)
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


def test_a_refresh_token_is_bad_once_its_successor_was_used(api: Api, ada: Account) -> None:
    first = api.token_pair(ada.email, PASSWORD).json()
    second = api.call("POST", "/api/token/refresh/", {"refresh": first["refresh"]})
    assert second.status == 200
    assert set(second.json()) == {"access", "refresh"}
    third = api.call("POST", "/api/token/refresh/", {"refresh": second.json()["refresh"]})
    assert third.status == 200
    again = api.call("POST", "/api/token/refresh/", {"refresh": first["refresh"]})
    assert (again.status, again.code) == (401, "bad_token")
    revoked = api.call("POST", "/api/token/verify/", {"token": first["refresh"]})
    assert revoked.status == 401


def test_an_access_token_is_no_refresh_token(api: Api, ada: Account) -> None:
    refused = api.call("POST", "/api/token/refresh/", {"refresh": ada.token})
    assert refused.status == 401


def test_a_verified_basic_credential_is_not_hashed_the_second_time(tmp_path: Path) -> None:
    """By processor time, of hashes as the product makes them: those of other tests cost nothing."""
    with running_api(tmp_path, environment={"ERS_PASSWORD_HASHING": "standard"}) as api:
        email = api.new_account().email

        def seconds(password: str, status: int) -> float:
            began = api.busy_seconds
            headers = basic(email, password)
            assert api.call("GET", "/api/users/self/", headers=headers).status == status
            return api.busy_seconds - began

        seconds(PASSWORD, 200)
        known = min(seconds(PASSWORD, 200) for _ in range(10))
        hashed = min(seconds(f"wrong {number}", 401) for number in range(4))
    assert 2 * known < hashed


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
