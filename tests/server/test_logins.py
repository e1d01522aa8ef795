"""Logins: what ends sessions and tokens, and that it ends all of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from encrypted_records.model import ids
from tests.server.api import PASSWORD, Account, Answer, Api, basic
from tests.server.sessions import NEW_PASSWORD, session_of


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def self_status(api: Api, headers: dict[str, str]) -> int:
    return api.call("GET", "/api/users/self/", headers=headers).status


def refresh(api: Api, token: str) -> Answer:
    return api.call("POST", "/api/token/refresh/", {"refresh": token})


def test_a_refresh_token_used_twice_ends_all_that_came_of_it(api: Api, ada: Account) -> None:
    """Whoever copied it, or its owner, has the newer one: nobody can tell which."""
    first = api.token_pair(ada.email, PASSWORD).json()
    second = refresh(api, first["refresh"]).json()
    other = api.token_pair(ada.email, PASSWORD).json()
    assert self_status(api, bearer(second["access"])) == 200

    again = refresh(api, first["refresh"])

    assert (again.status, again.code) == (401, "bad_token")
    assert refresh(api, second["refresh"]).status == 401
    for token in (first["access"], second["access"]):
        assert self_status(api, bearer(token)) == 401
    assert self_status(api, bearer(other["access"])) == 200
    assert refresh(api, other["refresh"]).status == 200


def test_of_two_refreshes_at_once_at_most_one_works(api: Api, ada: Account) -> None:
    token = api.token_pair(ada.email, PASSWORD).json()["refresh"]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: refresh(api, token), range(2)))
    assert sorted(answer.status for answer in answers) == [200, 401]


def test_logging_out_with_a_token_ends_it_and_its_refresh_token_and_no_other(
    api: Api, ada: Account
) -> None:
    mine, other = (api.token_pair(ada.email, PASSWORD).json() for _ in range(2))
    session = session_of(api, ada.email)
    assert api.call("POST", "/api/accounts/logout/", headers=bearer(mine["access"])).status == 200
    assert self_status(api, bearer(mine["access"])) == 401
    assert refresh(api, mine["refresh"]).status == 401
    assert self_status(api, bearer(other["access"])) == 200
    assert self_status(api, session) == 200


def test_a_session_s_token_ends_with_the_session(api: Api, ada: Account) -> None:
    session = session_of(api, ada.email)
    traded = api.call("POST", "/api/token/session/", headers=session)
    assert traded.status == 200
    assert set(traded.json()) == {"access"}
    token = bearer(traded.json()["access"])
    assert self_status(api, token) == 200
    assert api.call("POST", "/api/accounts/logout/", headers=session).status == 200
    assert self_status(api, token) == 401


def test_only_a_session_with_its_csrf_token_is_traded(api: Api, ada: Account) -> None:
    session = session_of(api, ada.email)
    del session["X-CSRFToken"]
    assert api.call("POST", "/api/token/session/", headers=session).code == "csrf_failed"
    for headers in (bearer(ada.token), basic(ada.email, PASSWORD)):
        assert api.call("POST", "/api/token/session/", headers=headers).status == 401


def test_logging_in_again_ends_the_browser_s_session_before(api: Api, ada: Account) -> None:
    session = session_of(api, ada.email)
    body = {"email": ada.email, "password": PASSWORD}
    again = api.call("POST", "/api/accounts/login/", body, headers=session)
    assert again.status == 200
    assert self_status(api, session) == 401


@pytest.mark.parametrize("way", ["reset", "deactivation"])
def test_a_reset_and_a_shut_account_end_everything(api: Api, way: str) -> None:
    account = api.new_account()
    pair = api.token_pair(account.email, PASSWORD).json()
    ways_in = [session_of(api, account.email), bearer(pair["access"])]
    ways_in.append(basic(account.email, PASSWORD))
    assert [self_status(api, headers) for headers in ways_in] == [200, 200, 200]
    if way == "reset":
        path = "/api/accounts/send-reset-password-link/"
        assert api.call("POST", path, {"email": account.email}).status == 200
        body = api.signed(account.email, count=2) | {"password": NEW_PASSWORD}
        assert api.call("POST", "/api/accounts/reset-password/", body).status == 200
    else:
        api.execute(f"UPDATE accounts_user SET is_active = FALSE WHERE email = '{account.email}'")
    assert [self_status(api, headers) for headers in ways_in] == [401, 401, 401]
    assert refresh(api, pair["refresh"]).status == 401
    for token in pair.values():
        assert api.call("POST", "/api/token/verify/", {"token": token}).status == 401


def test_a_token_whose_login_is_forged_is_refused(api: Api, ada: Account) -> None:
    """The id of a login is no secret: only the signature makes a token."""
    for token in (ids.to_text(ids.new_id()), "", "x", "é", "a.b.c"):
        assert (
            self_status(api, {"Authorization": f"Bearer {token}".encode().decode("latin-1")}) == 401
        )
        refused = api.call("POST", "/api/token/refresh/", {"refresh": token or "x"})
        assert (refused.status, refused.code) == (401, "bad_token")
