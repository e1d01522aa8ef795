"""The pages by which an account gets another address, without a script."""

from __future__ import annotations

from dataclasses import replace

from tests.support.page_visits import logged_in
from tests.support.service import Service

PATH = "/account/email/"


def test_a_visitor_asks_for_another_address_and_confirms_it(service: Service) -> None:
    account = service.new_account()
    browser = logged_in(service, account)
    assert PATH in browser.visit("/account/").body.decode()
    assert account.email in browser.visit(PATH).body.decode()
    new = f"new-{account.email}"

    refused = browser.visit(PATH, email=new, password="something else")
    assert refused.status == 400
    shown = refused.body.decode()
    assert (f'value="{new}"' in shown, "something else" in shown) == (True, False)

    sent = browser.visit(PATH, email=new, password=account.password)
    assert f"A message is on its way to {new}." in sent.body.decode()
    link = service.link_for(new)
    signed = {
        "user_id": link.user_id,
        "timestamp": str(link.timestamp),
        "signature": link.signature,
    }
    done = browser.visit("/confirm-email/", **signed)
    assert "Your address is changed" in done.body.decode()
    again = logged_in(service, replace(account, email=new)).visit("/confirm-email/", **signed)
    assert (again.status, PATH in again.body.decode()) == (400, True)
    # The session of the former address has ended.
    assert "Log in" in browser.visit("/account/").body.decode()
