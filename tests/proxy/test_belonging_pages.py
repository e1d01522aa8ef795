"""Pages for people who were invited, who belong to no organization, or who were removed."""

from __future__ import annotations

import re
import secrets
from html import unescape

from tests.support.page_visits import Browser, logged_in
from tests.support.service import Account, Answer, Service, call

PASSWORD = "violet harbour 49 lantern"


def said(answer: Answer) -> str:
    return unescape(re.sub(r"\s+", " ", answer.body.decode()))


def registered(service: Service, address: str = "") -> Account:
    """Somebody who has registered on the page without a name for an organization."""
    address = address or f"{secrets.token_hex(6)}@example.org"
    form = {"email": address, "organization_name": ""}
    form |= {"password": PASSWORD, "password_confirm": PASSWORD}
    anybody = Browser(service, "", "")
    assert "empty if you were invited" in said(anybody.visit("/register/")).lower()
    assert "Check your mail" in said(anybody.visit("/register/", **form))
    signed = service.link_for(address)
    body = {
        "user_id": signed.user_id,
        "timestamp": signed.timestamp,
        "signature": signed.signature,
    }
    url = f"{service.proxy_url}/api/accounts/verify-registration/"
    assert call("POST", url, body).status == 200
    return Account(address, PASSWORD, "")


def invite(service: Service, owner: Account, email: str) -> None:
    url = f"{service.proxy_url}{owner.organization}invitations/"
    assert call("POST", url, {"email": email}, auth=owner.auth).status == 201


def test_the_invited_need_no_organization_of_their_own(service: Service) -> None:
    owner = service.new_account()
    address = f"{secrets.token_hex(6)}@example.org"
    invite(service, owner, address)
    guest = registered(service, address)
    browser = logged_in(service, guest)
    first = said(browser.visit("/"))
    assert "You belong to no organization" in first
    assert "Accept the invitation above" in first
    assert "Load the example" not in first
    (accept,) = re.findall(r'value="(accept:[^"]+)"', first)
    assert browser.visit("/organizations/", do=accept).status == 200
    mine = call("GET", f"{service.proxy_url}/api/organizations/", auth=guest.auth).json()
    assert [one["url"] for one in mine["results"]] == [owner.organization]
    assert "You belong to no organization" not in said(browser.visit("/"))


def test_whoever_belongs_to_none_makes_one_and_no_second(service: Service) -> None:
    account = registered(service)
    browser = logged_in(service, account)
    long = "y" * 300
    refused = browser.visit("/organizations/", do="make", name=long)
    assert refused.status == 400
    assert f'value="{long}"' in refused.body.decode()  # to be shortened, not typed again
    name = "<b>Labs</b>"
    assert (
        "&lt;b&gt;Labs&lt;/b&gt;"
        in browser.visit("/organizations/", do="make", name=name).body.decode()
    )
    assert "Load the example" in said(browser.visit("/"))
    url = f"{service.proxy_url}/api/organizations/"
    second = call("POST", url, {"name": "Another"}, auth=account.auth)
    assert (second.status, second.json()["code"]) == (409, "already_member")
    assert len(call("GET", url, auth=account.auth).json()["results"]) == 1


def test_no_page_fails_for_somebody_who_belongs_to_no_organization(service: Service) -> None:
    browser = logged_in(service, registered(service))
    for page in ("", "account/", "account/tokens/", "keyring/", "audit-log/", "organizations/"):
        assert browser.visit(f"/{page}").status == 200, page
    for page in ("jobs/", "datasets/", "trust/", "help/"):
        assert browser.visit(f"/{page}").status == 200, page
    # Nothing is asked for that would be refused in the end.
    for page in ("datasets/new/", "import/"):
        answer = browser.visit(f"/{page}")
        assert answer.status == 404, page
        assert "You belong to no organization" in said(answer)


def test_the_removed_are_told_so_in_the_tab_that_is_open(service: Service) -> None:
    owner = service.new_account()
    guest = registered(service)
    invite(service, owner, guest.email)
    body = {"name": "Medical", "organization": owner.organization}
    dataset = call("POST", f"{service.proxy_url}/api/datasets/", body, auth=owner.auth).json()
    browser = logged_in(service, guest)
    (accept,) = re.findall(r'value="(accept:[^"]+)"', said(browser.visit("/")))
    browser.visit("/organizations/", do=accept)
    page = f"/datasets/{dataset['id']}/"
    assert browser.visit(page).status == 200
    members = f"{service.proxy_url}{owner.organization}members/"
    (member,) = [
        one["url"]
        for one in call("GET", members, auth=owner.auth).json()["results"]
        if one["email"] == guest.email
    ]
    assert call("DELETE", service.proxy_url + member, auth=owner.auth).status == 204

    gone = browser.visit(page)
    assert gone.status == 404
    name = call("GET", f"{service.proxy_url}{owner.organization}", auth=owner.auth).json()["name"]
    for answer in (gone, browser.visit("/"), browser.visit("/organizations/")):
        assert f"You are no longer in <bdi>{name}</bdi>" in said(answer)
        assert f"<bdi>{owner.email}</bdi> removed you." in said(answer)
    assert "ask one of its owners to invite" in said(browser.visit("/"))

    # Somebody who is invited again, and accepts, is told nothing of it any more.
    invite(service, owner, guest.email)
    (accept,) = re.findall(r'value="(accept:[^"]+)"', said(browser.visit("/")))
    browser.visit("/organizations/", do=accept)
    assert "You are no longer in" not in said(browser.visit("/"))
