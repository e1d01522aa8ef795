"""What somebody did on a page outlives a new login, a slow API, Back, and a copied address."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect

from tests.browser.census import Census
from tests.browser.conftest import visiting
from tests.browser.test_never_blank import end_session
from tests.browser.visitor import Visitor, wait_until
from tests.support.service import Service


@pytest.fixture(scope="module")
def reader(chromium: Browser, site: Service, census: Census) -> Iterator[Visitor]:
    """Somebody who may read the records, with a browser for all tests of this file."""
    with visiting(chromium, site, quiet=False) as visitor:
        visitor.log_in(census.account)
        visitor.be_let_in(census.account)
        yield visitor


def log_in_again_elsewhere(visitor: Visitor, census: Census) -> None:
    """In another tab of the same browser."""
    other = Visitor(visitor.site, visitor.page.context.new_page(), [])
    other.go(visitor.below("/"))
    other.log_out()
    other.log_in(census.account)
    other.page.close()


def pick_first_bar(page: Page, position: int) -> None:
    """Of a picture beside the records; wait until they are narrowed by it."""
    pills = page.locator(".pill")
    before = pills.count()
    page.locator(f"#facet-{position}").scroll_into_view_if_needed()
    page.locator(f"#bar-{position}-0").click()
    expect(pills).to_have_count(before + 1)


def test_a_tab_goes_on_after_a_new_login_in_another_one(reader: Visitor, census: Census) -> None:
    page = reader.page
    reader.go(census.page("search"))
    reader.open_record(1)
    reader.page.locator("#panel").get_by_role("link", name="Edit").click()
    page.locator("#value-0").fill("41")
    log_in_again_elsewhere(reader, census)

    reader.press("Save")
    expect(page.locator("dd.value").first).to_have_text("41")


def test_pictures_of_a_tab_come_after_a_new_login_in_another_one(
    reader: Visitor, census: Census
) -> None:
    reader.go(census.page("overview"))
    page = reader.page
    expect(page.locator("[data-facet] .part").first).to_be_visible()
    log_in_again_elsewhere(reader, census)
    page.evaluate("document.querySelector('#field-1 [data-facet]').replaceChildren()")
    reader.ask("age > 1")
    expect(page.locator("#field-1 [data-facet] .part")).to_be_visible()


def test_completions_of_a_tab_come_after_a_new_login_in_another_one(
    reader: Visitor, census: Census
) -> None:
    reader.go(census.page("search"))
    log_in_again_elsewhere(reader, census)
    reader.page.locator("#line").press_sequentially("ag")
    expect(reader.page.get_by_role("option", name="age")).to_be_visible()


def test_pictures_that_were_refused_at_once_all_come(reader: Visitor, census: Census) -> None:
    page = reader.page
    reader.go(census.page("search"))
    expect(page.locator("#facet-0 .part")).to_be_visible()
    log_in_again_elsewhere(reader, census)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/account/", hold)
    places = page.locator(".facets [data-facet]")
    places.last.scroll_into_view_if_needed()
    wait_until(page, lambda: len(held) == 2)
    for route in held:
        route.continue_()
    page.unroute("**/account/")
    for place in places.all():
        place.scroll_into_view_if_needed()
        expect(place.locator(".part")).to_be_visible()


def test_a_form_of_one_user_is_not_sent_again_for_another(
    visitor: Visitor, site: Service, census: Census
) -> None:
    page = visitor.page
    visitor.log_in(census.account, "/datasets/new/")
    visitor.type("Name", "Of the first user")
    first = str(page.locator("meta[name=user]").get_attribute("content"))
    end_session(visitor)
    sent: list[str] = []
    page.on("request", lambda one: sent.append(one.url) if one.method == "POST" else None)
    visitor.press("Create the dataset")
    second, box = site.new_account(), page.get_by_role("dialog")
    box.get_by_label("E-mail address").fill(second.email)
    box.get_by_label("Password").fill(second.password)
    box.get_by_role("button", name="Log in").click()

    expect(page.get_by_label("Name", exact=True)).to_have_value("")
    expect(page.locator("meta[name=user]")).not_to_have_attribute("content", first)
    assert [url.partition("/~")[2][16:] for url in sent] == ["/datasets/new/", "/login/"]
    visitor.complaints.clear()  # the ended session was answered with 401


@pytest.mark.parametrize(
    ("path", "label", "button"),
    [
        ("/datasets/new/", "Name", "Create the dataset"),
        ("/account/", "New password", "Change the password"),
    ],
)
def test_what_was_typed_stays_where_no_answer_comes(
    reader: Visitor, path: str, label: str, button: str
) -> None:
    page = reader.page
    reader.go(path)
    for field in page.locator("main input[required]").all():
        field.fill("what was typed")
    field = page.locator("main").get_by_label(label, exact=True)

    def break_off(route: Route) -> None:
        route.abort("connectionrefused")

    page.route("**/*", break_off)
    try:
        reader.press(button)
        expect(page.locator(".away")).to_contain_text("The proxy does not answer")
        expect(field).to_have_value("what was typed")
    finally:
        page.unroute("**/*")
    expect(page.locator(".away")).to_contain_text("The proxy answers again")
    expect(field).to_have_value("what was typed")


def test_a_request_that_takes_long_is_said_until_its_answer_comes(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    expect(page.locator("#found")).to_be_visible()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/search/", hold)
    page.route("**/state/", hold)
    reader.ask("age > 1")
    expect(page.locator(".busy.slow")).to_have_text("Still waiting for the answer…")
    expect(page.locator("main")).to_have_attribute("aria-busy", "true")
    # Bars stand for the values of the table until then.
    cell = page.locator("table.records td").nth(2)
    expect(cell).to_have_css("color", "rgba(0, 0, 0, 0)")
    expect(page.locator("#status")).to_contain_text("API is slow")
    wait_until(page, lambda: len(held) == 2)
    for route in held:
        route.continue_()
    page.unroute("**/search/")
    page.unroute("**/state/")
    expect(page.locator(".pill")).to_have_count(1)
    expect(page.locator(".busy")).to_have_text("")
    expect(page.locator("main")).not_to_have_attribute("aria-busy", "true")
    expect(cell).not_to_have_css("color", "rgba(0, 0, 0, 0)")
    fast = page.locator("#status [data-part=api]")
    expect(fast).to_have_attribute("title", re.compile(r"answers in \d+ ms"))


def test_each_filter_is_a_step_that_the_browser_goes_back(reader: Visitor, census: Census) -> None:
    page = reader.page
    reader.go("/datasets/")
    reader.go(census.page("search"))
    all_of_them = reader.found()
    pick_first_bar(page, 1)
    one = reader.found()
    pick_first_bar(page, 3)
    two = reader.found()
    assert len({all_of_them, one, two}) == 3

    page.go_back()
    expect(page.locator(".found")).to_have_text(one)
    page.go_back()
    expect(page.locator(".found")).to_have_text(all_of_them)
    page.go_forward()
    expect(page.locator(".found")).to_have_text(one)
    # A line that is not understood is no step of its own.
    reader.ask("age >")
    expect(page.get_by_role("alert")).to_be_visible()
    page.go_back()
    expect(page.locator(".found")).to_have_text(all_of_them)


def test_a_page_that_is_left_before_its_scripts_came_shows_what_the_address_says(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    all_of_them = reader.found()
    pick_first_bar(page, 1)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/built/pages.*.js", hold)
    page.evaluate("location.reload()")
    wait_until(page, lambda: bool(held))
    # As Firefox does where somebody goes back while a page is loading.
    page.evaluate("history.replaceState(null, '', location.pathname)")
    page.unroute("**/built/pages.*.js")  # and what is held goes on
    expect(page.locator(".found")).to_have_text(all_of_them)


def test_a_question_that_is_not_known_is_said_instead_of_all_records(
    reader: Visitor, census: Census
) -> None:
    for name in ("search", "overview"):
        reader.go(f"{census.page(name)}?q=abcdefghijklmnop")
        main = reader.page.locator("main")
        expect(main.get_by_role("alert")).to_contain_text("is no longer known here")
        expect(main.locator("table, [data-facet]")).to_have_count(0)
        reader.press("Show all records")
        expect(reader.page.locator(".found")).to_contain_text("records")


def test_an_address_of_another_browser_leads_below_ones_own(
    reader: Visitor, census: Census, chromium: Browser
) -> None:
    with visiting(chromium, reader.site, quiet=False) as colleague:
        colleague.log_in(census.account)
        colleague.be_let_in(census.account)
        colleague.go("/")
        own = colleague.below("")
        for at in (reader.below(""), ""):
            colleague.page.goto(f"{at}{census.page('overview')}")
            colleague.page.wait_for_url(f"**{own}{census.page('overview')}")
            colleague.expect_heading("People")
        # And it stays the browser's own for the next time.
        colleague.page.goto("/")
        colleague.page.wait_for_url(f"**{own}/")


def test_a_question_survives_a_session_that_ends_by_itself(
    visitor: Visitor, census: Census
) -> None:
    page = visitor.page
    visitor.log_in(census.account)
    visitor.be_let_in(census.account)
    visitor.go(census.page("search"))
    pick_first_bar(page, 1)
    found = visitor.found()
    end_session(visitor)
    page.reload()
    visitor.type("E-mail address", census.account.email)
    visitor.type("Password", census.account.password)
    visitor.press("Log in")
    expect(page.locator(".found")).to_have_text(found)
    visitor.complaints.clear()  # the ended session was answered with 401


def made_link(reader: Visitor) -> str:
    """To what the page of records shows."""
    page = reader.page
    reader.press("Link…")
    reader.press("Create a link")
    address = page.get_by_label("Address of this question").input_value()
    page.keyboard.press("Escape")
    return address


def test_a_link_opens_the_question_in_another_browser(
    reader: Visitor, census: Census, chromium: Browser, site: Service
) -> None:
    reader.go(census.page("search"))
    pick_first_bar(reader.page, 1)
    found = reader.found()
    address = made_link(reader)
    assert re.search(r"/go/[^/]+/[^/]+/#k=[A-Za-z0-9_-]{43}$", address)
    assert not reader.serious_flaws()
    secret = address.rpartition("#k=")[2]
    with visiting(chromium, site, quiet=False) as colleague:
        colleague.log_in(census.account)
        colleague.be_let_in(census.account)
        colleague.go("/")
        asked: list[Request] = []
        colleague.page.on("request", lambda one: asked.append(one))  # noqa: PLW0108 # takes no builtin
        colleague.page.goto(address)
        expect(colleague.page.locator(".found")).to_have_text(found)
        assert secret not in colleague.page.url

        # Logging in first leads there, too.
        colleague.log_out()
        colleague.page.goto(address)
        colleague.type("E-mail address", census.account.email)
        colleague.type("Password", census.account.password)
        colleague.press("Log in")
        expect(colleague.page.locator(".found")).to_have_text(found)
        assert [one for one in asked if secret in said_by(one)] == []


def said_by(request: Request) -> str:
    """The address and headers of a request, as it was sent."""
    return f"{request.url.partition('#')[0]} {request.all_headers()}"


def test_a_link_that_is_not_whole_or_for_somebody_else_opens_nothing(
    reader: Visitor, visitor: Visitor, census: Census, site: Service
) -> None:
    reader.go(census.page("search"))
    address = made_link(reader)
    reader.page.goto(address[:-1])
    reader.expect_heading("A link to records of People")
    reader.type("The link", address[:-1])
    reader.press("Open the question")
    expect(reader.page.locator("main .problem")).to_contain_text("This is not the complete link")
    reader.type("The link", address)
    reader.press("Open the question")
    reader.expect_heading("People")

    visitor.log_in(site.new_account(), "/")
    visitor.page.goto(address)
    expect(visitor.page.locator("main .problem")).to_contain_text("or you cannot reach it")
    visitor.complaints.clear()  # it was answered with 404
