"""The page of a second factor, and logins that need its codes."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.visitor import Visitor
from tests.support.authenticator import Authenticator
from tests.support.service import Service

CODE = "A code of your authenticator app, or a recovery code"


def test_a_second_factor_is_set_up_asked_for_and_removed(visitor: Visitor, site: Service) -> None:
    account = site.new_account()
    page = visitor.page
    visitor.log_in(account, "/account/")
    page.get_by_role("link", name="Set up a second factor").click()
    visitor.type("Your password", account.password)
    visitor.press("Set up a second factor")
    app = Authenticator(page.get_by_label("Key", exact=True).input_value())
    expect(page.get_by_role("img", name="The key as a QR code")).to_be_visible()
    assert visitor.serious_flaws() == []

    # A wrong code leaves the key where it is.
    visitor.type("Code that the app shows now", app.stale())
    visitor.press("Require codes from now on")
    expect(page.locator(".wrong")).to_contain_text("The code is wrong")
    visitor.type("Code that the app shows now", app.code())
    visitor.press("Require codes from now on")
    codes = page.locator("ul.code li").all_inner_texts()
    assert len(codes) == 10
    assert visitor.serious_flaws() == []
    visitor.go("/account/second-factor/")
    expect(page.get_by_text("10 recovery codes are left")).to_be_visible()
    assert codes[0] not in page.content()

    visitor.page.context.clear_cookies()
    visitor.go("/login/")
    visitor.type("E-mail address", account.email)
    visitor.type("Password", account.password)
    visitor.press("Log in")
    expect(page.get_by_label(CODE)).to_be_visible()
    visitor.type("Password", account.password)
    visitor.type(CODE, app.code())
    visitor.press("Log in")
    page.wait_for_url(re.compile(r"/~[a-z2-7]{16}/$"))
    assert len(visitor.complaints) == 1  # of the browser, about the login that was refused
    visitor.complaints.clear()

    visitor.go("/account/second-factor/")
    visitor.type("Your password", account.password)
    visitor.type(CODE, codes[0])
    visitor.press("Remove the second factor")
    expect(page.get_by_text("Logins need only your password.")).to_be_visible()
