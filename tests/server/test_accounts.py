"""Accounts: from registration to the first login, without telling who has one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.server.api import PASSWORD, Account, Api, basic, running_api, signed_values, text_of
from tests.server.sessions import NEW_PASSWORD


def test_a_new_account_can_log_in_only_after_its_message_was_used(api: Api) -> None:
    address = api.new_address()
    assert api.register(address).status == 201
    assert api.token_pair(address, PASSWORD).status == 401
    assert api.call("GET", "/api/users/self/", headers=basic(address, PASSWORD)).status == 401
    signed = api.signed(address)
    assert api.call("POST", "/api/accounts/verify-registration/", signed).status == 200
    assert api.token_pair(address, PASSWORD).status == 200
    me = api.call("GET", "/api/users/self/", headers=basic(address, PASSWORD)).json()
    (organization,) = me["organizations"]
    shown = api.call("GET", organization, headers=basic(address, PASSWORD)).json()
    assert (me["email"], shown["name"]) == (address, "Acme")


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
    before = len(api.messages_to(ada.email, 0))
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
    assert [result["name"] for result in organizations.json()["results"]] == ["Mine"]


@pytest.mark.both_databases
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


@pytest.mark.both_databases
def test_the_case_of_an_address_does_not_matter(api: Api, ada: Account) -> None:
    assert api.token_pair(ada.email.upper(), PASSWORD).status == 200


def test_registration_lists_everything_that_is_wrong(api: Api) -> None:
    refused = api.call("POST", "/api/accounts/register/", {"email": "nobody"})
    assert refused.status == 400
    assert refused.flaws() == {
        "/email": "invalid",
        "/password": "required",
        "/password_confirm": "required",
        "/organization_name": "required",
    }


def test_self_shows_the_user_and_its_organizations(api: Api, ada: Account) -> None:
    me = ada.call("GET", "/api/users/self/").json()
    assert set(me) == {
        *("id", "url", "email", "first_name", "last_name", "organizations", "date_joined")
    }
    assert me["email"] == ada.email
    assert me["url"] == f"/api/users/{me['id']}/"
    assert ada.call("GET", me["url"]).json() == me
    organization = ada.call("GET", me["organizations"][0]).json()
    assert organization["url"] == ada.organization


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
        assert {(answer.status, answer.body) for answer in answers} == {(401, answers[0].body)}
        assert {tuple(sorted(answer.headers)) for answer in answers} == {
            tuple(sorted(answers[0].headers))
        }
    answers = [api.call("GET", "/api/users/self/", headers=basic(*pair)) for pair in pairs]
    assert {(answer.status, answer.body) for answer in answers} == {(401, answers[0].body)}


def test_wrong_unknown_and_unverified_take_the_same_work(tmp_path: Path) -> None:
    """Else the answer for an unknown address comes ten times sooner. By hashes as the product
    makes them: those of other tests cost nothing."""
    with running_api(tmp_path, environment={"ERS_PASSWORD_HASHING": "standard"}) as api:
        waiting = api.new_address()
        api.register(waiting)
        # Fewer than the failures that lock an address.
        addresses = [api.new_account().email, api.new_address(), waiting]
        durations: dict[str, list[float]] = {address: [] for address in addresses}
        for _ in range(4):
            for email, taken in durations.items():
                began = api.busy_seconds
                answer = api.call("POST", "/api/token/", {"email": email, "password": "wrong"})
                taken.append(api.busy_seconds - began)
                assert answer.status == 401
    fastest = [min(taken) for taken in durations.values()]
    assert max(fastest) < 4 * min(fastest)


def test_users_see_only_themselves(ada: Account, bob: Account) -> None:
    me = ada.call("GET", "/api/users/self/").json()
    assert bob.call("GET", me["url"]).status == 404


@pytest.mark.parametrize("path", ["profile", "register-email", "verify-email"])
def test_account_endpoints_outside_the_contract_are_absent(ada: Account, path: str) -> None:
    assert ada.call("POST", f"/api/accounts/{path}/", {}).status == 404
