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


def let_pass(api: Api, account: Account, seconds: int) -> None:
    """Have the account's tokens be refreshed so many seconds earlier than they were."""
    moved = {
        True: f"datetime(refreshed, '-{seconds} seconds')",
        False: f"refreshed - interval '{seconds} seconds'",
    }[api.database_url is None]
    owner = f"(SELECT id FROM accounts_user WHERE email = '{account.email}')"
    api.execute(f"UPDATE accounts_login SET refreshed = {moved} WHERE user_id IN {owner}")


def test_a_refresh_whose_answer_was_lost_is_repeated(api: Api, ada: Account) -> None:
    first = api.token_pair(ada.email, PASSWORD).json()
    lost = refresh(api, first["refresh"]).json()

    again = refresh(api, first["refresh"])

    assert again.status == 200
    assert again.json()["refresh"] == lost["refresh"] != first["refresh"]
    for token in (first["access"], lost["access"], again.json()["access"]):
        assert self_status(api, bearer(token)) == 200
    following = refresh(api, again.json()["refresh"])
    assert following.status == 200
    assert following.json()["refresh"] not in (first["refresh"], lost["refresh"])


@pytest.mark.parametrize("late", ["after a while", "after the next one was used"])
def test_a_refresh_token_used_twice_ends_all_that_came_of_it(
    api: Api, ada: Account, late: str
) -> None:
    """Whoever copied it, or its owner, has the newer one: nobody can tell which."""
    first = api.token_pair(ada.email, PASSWORD).json()
    second = refresh(api, first["refresh"]).json()
    other = api.token_pair(ada.email, PASSWORD).json()
    assert self_status(api, bearer(second["access"])) == 200
    if late == "after a while":
        let_pass(api, ada, 32)
    else:
        assert refresh(api, second["refresh"]).status == 200

    again = refresh(api, first["refresh"])

    assert (again.status, again.code) == (401, "bad_token")
    assert refresh(api, second["refresh"]).status == 401
    for token in (first["access"], second["access"]):
        assert self_status(api, bearer(token)) == 401
    assert self_status(api, bearer(other["access"])) == 200
    assert refresh(api, other["refresh"]).status == 200


def test_a_thief_who_repeats_a_refresh_at_once_is_noticed_at_the_next(
    api: Api, ada: Account
) -> None:
    """Both have the same token then, and the second of them to use it ends the login."""
    stolen = api.token_pair(ada.email, PASSWORD).json()["refresh"]
    theirs, mine = refresh(api, stolen).json(), refresh(api, stolen).json()
    used = refresh(api, mine["refresh"]).json()
    let_pass(api, ada, 32)
    assert refresh(api, theirs["refresh"]).status == 401
    assert refresh(api, used["refresh"]).status == 401
    assert self_status(api, bearer(theirs["access"])) == 401


def test_refreshes_at_once_all_get_the_same_token(api: Api, ada: Account) -> None:
    token = api.token_pair(ada.email, PASSWORD).json()["refresh"]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: refresh(api, token), range(2)))
    assert [answer.status for answer in answers] == [200, 200]
    assert len({answer.json()["refresh"] for answer in answers}) == 1
    assert refresh(api, answers[0].json()["refresh"]).status == 200


def test_a_refresh_after_a_logout_or_a_new_password_is_no_repetition(
    api: Api, ada: Account
) -> None:
    first = api.token_pair(ada.email, PASSWORD).json()
    second = refresh(api, first["refresh"]).json()
    ended = api.call("POST", "/api/accounts/logout/", headers=bearer(second["access"]))
    assert ended.status == 200
    for token in (first, second):
        assert refresh(api, token["refresh"]).status == 401


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
        body = api.signed(account.email) | {"password": NEW_PASSWORD}
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
