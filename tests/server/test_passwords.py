"""Passwords: which are taken, and what ends when one is changed or replaced."""

from __future__ import annotations

import unicodedata

import argon2
import pytest

from encrypted_records.model import ids
from tests.server.api import PASSWORD, Account, Api, basic
from tests.server.overtaking import overtaken
from tests.server.sessions import NEW_PASSWORD, session_of, set_cookies


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


def test_spaces_around_a_password_are_part_of_it(api: Api) -> None:
    address, spaced = api.new_address(), f"  {PASSWORD} "
    api.register(address, spaced)
    api.call("POST", "/api/accounts/verify-registration/", api.signed(address))
    assert api.call("GET", "/api/users/self/", headers=basic(address, spaced)).status == 200
    assert api.token_pair(address, spaced).status == 200
    assert api.token_pair(address, PASSWORD).status == 401
    session_of(api, address, spaced)


COMPOSED, DECOMPOSED = (
    unicodedata.normalize(form, "un caf\u00e9 \u00e0 Gen\u00e8ve") for form in ("NFC", "NFD")
)


def test_a_password_is_right_however_a_keyboard_spells_its_letters(api: Api) -> None:
    """When registering, logging in, by Basic, when it is changed, and when it is reset."""
    assert COMPOSED != DECOMPOSED
    for typed, other in ((COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)):
        address = api.new_address()
        assert api.register(address, typed, password_confirm=other).status == 201
        api.call("POST", "/api/accounts/verify-registration/", api.signed(address))
        for spelled in (typed, other):
            assert api.token_pair(address, spelled).status == 200
            session_of(api, address, spelled)
            headers = basic(address, spelled)
            assert api.call("GET", "/api/users/self/", headers=headers).status == 200
        assert (
            api.token_pair(address, typed.replace("\u00e9", "e").replace("e\u0301", "e")).status
            == 401
        )
        change = {"old_password": other, "password": f"{typed}!", "password_confirm": f"{other}!"}
        changed = api.call(
            "POST", "/api/accounts/change-password/", change, headers=basic(address, typed)
        )
        assert changed.status == 200, changed.body
        assert api.token_pair(address, f"{other}!").status == 200
        api.call("POST", "/api/accounts/send-reset-password-link/", {"email": address})
        link = api.signed(address, 2) | {"password": typed}
        assert api.call("POST", "/api/accounts/reset-password/", link).status == 200
        assert api.token_pair(address, other).status == 200


def test_a_hash_of_before_passwords_were_normalized_is_still_right(api: Api) -> None:
    mixed = f"{COMPOSED[:8]}{DECOMPOSED[8:]} {DECOMPOSED}"
    for kept, typed in (
        (DECOMPOSED, DECOMPOSED),
        (DECOMPOSED, COMPOSED),
        (COMPOSED, DECOMPOSED),
        (mixed, mixed),
    ):
        email = api.new_account().email
        made = argon2.PasswordHasher(1, 19 * 1024, 1).hash(kept)
        api.execute(f"UPDATE accounts_user SET password = 'argon2{made}' WHERE email = '{email}'")
        assert api.token_pair(email, f"{typed}!").status == 401
        assert api.token_pair(email, typed).status == 200
        # It was made again, as new ones are.
        assert api.token_pair(email, unicodedata.normalize("NFC", typed)).status == 200


def test_length_and_likeness_are_judged_of_the_normalized_password(api: Api) -> None:
    refused = api.register(api.new_address(), unicodedata.normalize("NFD", "\u00e9" * 7))
    assert refused.flaws() == {"/password": "password_too_short"}


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


def test_a_password_is_changed_whose_session_ends_meanwhile(api: Api) -> None:
    account = api.new_account()
    mine = session_of(api, account.email)
    uid = ids.from_text(account.call("GET", "/api/users/self/").json()["id"])
    body = {"old_password": PASSWORD, "password": NEW_PASSWORD, "password_confirm": NEW_PASSWORD}
    changed = overtaken(
        api,
        "DELETE FROM accounts_login WHERE user_id = %s",
        uid,
        lambda: api.call("POST", "/api/accounts/change-password/", body, headers=mine),
    )
    assert changed.status == 200
    assert api.call("GET", "/api/users/self/", headers=mine).status == 401
    assert session_of(api, account.email, NEW_PASSWORD)


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
    signed = api.signed(account.email)
    body = signed | {"password": NEW_PASSWORD}
    assert api.call("POST", "/api/accounts/reset-password/", signed | {"password": "short"}).status
    assert api.call("POST", "/api/accounts/reset-password/", body).status == 200
    assert api.token_pair(account.email, NEW_PASSWORD).status == 200
    assert api.token_pair(account.email, PASSWORD).status == 401
    again = api.call("POST", "/api/accounts/reset-password/", body | {"password": PASSWORD})
    assert (again.status, again.code) == (400, "invalid_link")


def test_only_who_has_the_link_learns_what_a_new_password_may_not_be(api: Api) -> None:
    account = api.new_account()
    path = "/api/accounts/reset-password/"
    asked = {"email": account.email}
    assert api.call("POST", "/api/accounts/send-reset-password-link/", asked).status == 200
    signed = api.signed(account.email)
    forged = signed | {"signature": "x" * len(signed["signature"])}
    for password in (account.email, "short", NEW_PASSWORD):
        refused = api.call("POST", path, forged | {"password": password})
        assert (refused.status, refused.code) == (400, "invalid_link")
    # Who has it may try again with another.
    refused = api.call("POST", path, signed | {"password": account.email})
    assert refused.flaws() == {"/password": "password_too_similar"}
    assert api.token_pair(account.email, account.email).status == 401
    assert api.call("POST", path, signed | {"password": NEW_PASSWORD}).status == 200
