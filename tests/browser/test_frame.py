"""What surrounds the pages: keys, Find, states, and every width."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Route, expect

from encrypted_records.proxy.pages.datasets import Destination, find_matching
from tests.browser.census import Census
from tests.browser.visitor import Visitor

#: What the keyboard passes on the overview before the page's own part, in this order.
TAB_STOPS = [
    "Skip to the content",
    "Encrypted Records",
    "Find",
    "?",
    "The last requests to the server",
    "Keyring open, no backup",
    "Overview",
    "Datasets",
    "SQL",
    "Census",
    "People",
    "Jobs",
    "People and services",
    "Audit log",
    "Keyring",
    "What the server sees",
    "Account",
    "Help",
    "Log out",
]


def test_the_keyboard_passes_the_frame_in_the_order_in_which_it_is_read(
    visitor: Visitor, census: Census
) -> None:
    visitor.log_in(census.account, "/")
    page = visitor.page
    stops = []
    for _ in TAB_STOPS:
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "(e => [(e.innerText.trim() || e.ariaLabel).split('\\n')[0],"
            " getComputedStyle(e).outlineStyle])"
            "(document.activeElement)"
        )
        stops.append(name.removesuffix("Ctrl K").strip())
        assert outline != "none", name
    assert stops == TAB_STOPS
    # And the first of them leads past all others.
    page.reload()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_find_opens_over_the_page_and_leads_by_the_keyboard(
    visitor: Visitor, census: Census
) -> None:
    visitor.log_in(census.account, "/")
    page = visitor.page
    held: list[Route] = []
    passes = [True]

    def hold(route: Route) -> None:
        if passes:
            route.continue_()
        else:
            held.append(route)

    # From the beginning: a request right after its route is made may pass Chromium unseen.
    page.route("**/datasets/", hold)
    page.keyboard.press("Control+k")
    box = page.get_by_role("dialog", name="Find")
    expect(box).to_be_visible()
    page.keyboard.type("add peo")
    expect(box.locator(".results li")).to_have_count(1)
    assert visitor.serious_flaws() == []
    page.keyboard.press("ArrowDown")
    expect(box.get_by_role("link", name="Add a record to People")).to_be_focused()
    page.keyboard.press("Escape")
    expect(box).to_have_count(0)
    # Keys that are typed at once are not lost, and no shortcut takes them.
    passes.clear()
    with page.expect_request("**/datasets/"):
        page.keyboard.press("Control+k")
    page.keyboard.type("people")
    passes.append(True)
    held[0].continue_()
    expect(box.locator(".results li").first).to_contain_text("People")
    page.keyboard.press("Enter")
    page.wait_for_url("**" + census.page("search"))
    # What was typed is in no address.
    assert "people" not in page.url.lower()


def test_find_is_on_the_page_of_datasets_without_scripts(visitor: Visitor, census: Census) -> None:
    browser = visitor.page.context.browser
    assert browser is not None
    context = browser.new_context(base_url=visitor.site.proxy_url, java_script_enabled=False)
    plain = Visitor(visitor.site, context.new_page(), [])
    plain.log_in(census.account, "/")
    plain.page.get_by_role("link", name="Find").click()
    plain.type("A dataset, a schema, or what to do", "cens")
    plain.press("Find")
    expect(plain.page.locator(".results a")).to_have_count(1)
    plain.press("Census dataset")
    plain.expect_heading("Census")
    context.close()


def test_keys_lead_to_pages_and_can_be_switched_off(visitor: Visitor, census: Census) -> None:
    visitor.log_in(census.account, "/")
    page = visitor.page
    page.keyboard.type("gj")
    page.wait_for_url("**/jobs/")
    page.keyboard.press("?")
    box = page.get_by_role("dialog", name="Keys")
    expect(box).to_contain_text("find a dataset, a schema or a page")
    assert visitor.serious_flaws() == []
    box.get_by_label("Keys without Ctrl are on").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.type("gk")
    page.wait_for_timeout(200)
    assert page.url.endswith("/jobs/")
    # In a field they are letters.
    visitor.go("/datasets/new/")
    page.get_by_label("Name", exact=True).press_sequentially("gk?/")
    expect(page.get_by_label("Name", exact=True)).to_have_value("gk?/")


@pytest.mark.parametrize("width", [320, 768, 2560])
def test_the_frame_fits_every_width_and_its_menu_opens_without_a_script(
    visitor: Visitor, census: Census, width: int
) -> None:
    visitor.page.set_viewport_size({"width": width, "height": 700})
    visitor.log_in(census.account)
    page = visitor.page
    for path in ("/", "/keyring/", "/trust/", "/help/errors/", "/audit-log/", "/datasets/"):
        visitor.go(path)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
    side = page.get_by_role("navigation", name="Main")
    if width > 900:
        expect(side).to_be_visible()
        return
    expect(side).to_be_hidden()
    page.get_by_role("link", name="Menu", exact=True).click()
    expect(side).to_be_visible()
    page.get_by_role("link", name="Close the menu").click()
    expect(side).to_be_hidden()


def test_what_is_wrong_with_a_field_stands_at_the_field(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/register/")
    visitor.type("E-mail address", "ada@example.org")
    visitor.type("Name of your organization", "Engines")
    visitor.type("Password", "123456789012")
    visitor.type("Password again", "123456789012")
    visitor.press("Register")
    wrong = page.get_by_label("Password", exact=True)
    expect(wrong).to_have_attribute("aria-invalid", "true")
    expect(wrong).to_be_focused()
    described = (wrong.get_attribute("aria-describedby") or "").split()
    said = " ".join(page.locator(f"#{one}").inner_text() for one in described)
    assert re.search("common|digits|numeric", said)
    # What was typed is there, passwords excepted.
    expect(page.get_by_label("Name of your organization")).to_have_value("Engines")
    expect(wrong).to_have_value("")
    assert visitor.serious_flaws() == []


def test_a_link_that_was_used_before_says_what_to_do(visitor: Visitor) -> None:
    visitor.go("/verify-registration/?user_id=x&timestamp=1&signature=y")
    visitor.press("Confirm my address")
    expect(visitor.page.get_by_role("alert")).to_be_visible()
    visitor.press("Register again")
    visitor.expect_heading("Register")
    visitor.go("/reset-password/?user_id=x&timestamp=1&signature=y")
    visitor.type("New password", "violet harbour 49 lantern")
    visitor.press("Set the password")
    visitor.press("Ask for a new message")
    visitor.expect_heading("Forgotten password")


def test_names_that_begin_with_what_was_typed_come_first() -> None:
    targets = [Destination("/a/", label, "page") for label in ("New dataset", "Datasets", "Jobs")]
    assert [one.label for one in find_matching(targets, "DATA")] == ["Datasets", "New dataset"]
    assert [one.label for one in find_matching(targets, "set new")] == ["New dataset"]
    assert find_matching(targets, "none of these") == []
    assert len(find_matching(targets, "  ")) == 3
