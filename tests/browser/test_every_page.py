"""What holds of every page: it can be used by all, is light, and ends with the session."""

from __future__ import annotations

import re
from collections.abc import Iterator

from playwright.sync_api import Browser, Response, expect

from encrypted_records.proxy.pages.manual import list_images, list_pages
from tests.browser.census import Census
from tests.browser.conftest import visiting
from tests.browser.visitor import Visitor
from tests.support.service import Service, call

PUBLIC = ("/login/", "/register/", "/forgot-password/", "/reset-password/", "/no/such/page/")
MAX_BYTES = 120_000


def own_pages(census: Census) -> list[str]:
    return [
        "/",
        "/account/",
        "/account/email/",
        "/account/delete/",
        "/account/tokens/",
        "/account/second-factor/",
        "/keyring/",
        "/audit-log/",
        "/organizations/",
        *(
            f"{census.organization}{name}/"
            for name in ("invite", "new-service", "recover", "rights")
        ),
        "/jobs/",
        "/import/",
        "/datasets/",
        "/datasets/new/",
        f"/datasets/{census.dataset}/",
        f"/datasets/{census.dataset}/search/",
        f"/datasets/{census.dataset}/settings/",
        f"/datasets/{census.dataset}/keys/",
        f"/datasets/{census.dataset}/people/",
        f"/datasets/{census.dataset}/delete/",
        f"/datasets/{census.dataset}/new-schema/",
        census.page("questions"),
        *(
            census.page(name)
            for name in (
                *("fields", "reseal", "settings", "people", "delete"),
                *("search", "overview", "add", "trust", "jobs"),
            )
        ),
        "/help/",
        "/help/web-ui/",
    ]


def every_state(visitor: Visitor, census: Census) -> Iterator[None]:
    """The states of pages that no address shows; each is looked at before the next."""
    visitor.go(PUBLIC[-1])
    yield
    visitor.log_in(census.account)
    visitor.be_let_in(census.account)
    visitor.go(census.page("search"))
    visitor.ask(f"age = {census.rare_age}")
    expect(visitor.page.locator(".found")).to_have_text("1 record, 1 to 1 shown")
    visitor.open_record(1)
    yield
    visitor.press("Edit")
    visitor.page.locator("#panel form[data-guard]").wait_for()
    yield
    organization = census.account.organization
    members = call(
        "GET", f"{visitor.site.proxy_url}{organization}members/", auth=census.account.auth
    ).json()["results"]
    own = members[0]["url"].split("/")[-2]
    visitor.go(f"{organization.removeprefix('/api')}remove/{own}/")
    yield
    visitor.go("/keyring/")
    visitor.prove("show", census.account)
    visitor.press("Show the words to write down")
    yield
    visitor.go(census.page("fields"))
    visitor.press("Check and estimate")
    visitor.page.locator("#estimate").wait_for()
    yield
    visitor.go(census.page("search"))
    visitor.ask("age > 200")
    expect(visitor.page.locator(".found")).to_have_text("0 records")
    yield
    visitor.ask("age >")
    expect(visitor.page.get_by_role("alert")).to_be_visible()
    yield


def flaws_of(visitor: Visitor) -> list[str]:
    """What axe finds at a desk and on a phone."""
    found = visitor.serious_flaws()
    visitor.page.set_viewport_size({"width": 390, "height": 844})
    found += visitor.serious_flaws(dark=False)
    visitor.page.set_viewport_size({"width": 1100, "height": 800})
    return found


def test_axe_finds_nothing_in_states_of_pages(
    chromium: Browser, site: Service, census: Census
) -> None:
    """Of the pages themselves, test_widths.py has axe look at each."""
    with visiting(chromium, site, quiet=False) as visitor:
        assert [flaw for _ in every_state(visitor, census) for flaw in flaws_of(visitor)] == []


def test_every_page_is_light_and_comes_from_this_proxy_alone(
    visitor: Visitor, census: Census
) -> None:
    """As transferred to a browser that has nothing yet: pages and records uncompressed, scripts and
    style sheets compressed, with all that scripts load afterwards."""
    loaded: list[Response] = []

    def heard(response: Response) -> None:
        loaded.append(response)

    visitor.log_in(census.account, census.page("search"))
    visitor.press("What the server sees")
    expect(visitor.page.locator("td > i").first).to_be_attached()
    sealed = visitor.page.url.removeprefix(visitor.site.proxy_url + visitor.at)
    longest = longest_document(visitor)
    fresh = visitor.page.context.new_page()
    fresh.on("response", heard)
    session = fresh.context.new_cdp_session(fresh)
    for path in (*own_pages(census), longest, census.page("upload"), sealed):
        loaded.clear()
        session.send("Network.clearBrowserCache")
        fresh.goto(visitor.site.proxy_url + visitor.below(path), wait_until="networkidle")
        sizes = {one.url: one.request.sizes()["responseBodySize"] for one in loaded}
        assert all(url.startswith(visitor.site.proxy_url) for url in sizes)
        assert len(sizes) > 1
        # Pictures of the documents are loaded as one scrolls to them.
        pictures = {url for url in sizes if "/help/images/" in url}
        whole = sum(size for url, size in sizes.items() if url not in pictures)
        assert whole < MAX_BYTES, (path, sizes)
    fresh.close()


def longest_document(visitor: Visitor) -> str:
    """The one with the most bytes, as all of them load the same beside their pictures, none of
    which is heavy."""
    lengths: dict[str, int] = {}
    for name in list_pages():
        if not name.startswith("decisions"):
            path = f"/help/{name}/"
            found = visitor.page.request.get(visitor.site.proxy_url + visitor.below(path))
            assert found.ok
            lengths[path] = len(found.body())
    heavy = {name for name, path in list_images().items() if path.stat().st_size >= MAX_BYTES}
    assert heavy == set()
    return max(lengths, key=lambda path: lengths[path])


def test_who_logs_out_in_one_tab_is_logged_out_in_the_other(
    visitor: Visitor, census: Census
) -> None:
    visitor.log_in(census.account, census.page("search"))
    other = visitor.page.context.new_page()
    other.goto(visitor.below("/keyring/"))
    other.get_by_role("button", name="Log out").click()
    expect(other.locator("h1")).to_have_text("Log in")

    # By the script, which covers the page, and by a link.
    visitor.press("Dense")
    expect(visitor.page.get_by_role("dialog")).to_contain_text("Your session has ended")
    visitor.go(census.page("search"))
    expect(visitor.page.locator("h1")).to_have_text("Log in")
    # After logging in again it goes on where it was, with nothing of the old session.
    visitor.type("E-mail address", census.account.email)
    visitor.type("Password", census.account.password)
    visitor.press("Log in")
    visitor.page.wait_for_url("**" + census.page("search"))
    expect(visitor.page.locator(".pill")).to_have_count(0)


def test_the_keyboard_alone_leads_from_log_in_to_a_record(visitor: Visitor, census: Census) -> None:
    page = visitor.page
    keys = page.keyboard

    def reach(name: str) -> None:
        """Tab until the element of this name has the focus, and it can be seen that it has."""
        for _ in range(120):
            keys.press("Tab")
            found = page.evaluate(
                "(e => [e.ariaLabel || e.labels?.[0]?.innerText || e.innerText,"
                " getComputedStyle(e).outlineStyle])(document.activeElement)"
            )
            if found[0].strip() == name:
                assert found[1] != "none"
                return
        raise AssertionError(f"the keyboard does not reach {name}")

    page.goto("/login/")
    # The browser moves the focus when it first draws the page, which may be after it has loaded.
    expect(page.get_by_label("E-mail address")).to_be_focused()
    keys.type(census.account.email)
    reach("Password")
    keys.type(census.account.password)
    keys.press("Enter")
    page.wait_for_url(re.compile(r"/~[a-z2-7]{16}/$"))
    reach("Datasets")
    keys.press("Enter")
    page.wait_for_url("**/datasets/")
    reach("People")
    keys.press("Enter")
    page.wait_for_url("**/search/")
    reach("Search")
    keys.type("ag")
    expect(page.locator("#line-list")).to_be_visible()
    keys.press("ArrowDown")
    expect(page.get_by_role("option", name="age")).to_have_attribute("aria-selected", "true")
    keys.press("Enter")
    expect(page.locator("#line")).to_have_value("age ")
    keys.type(f"= {census.rare_age}")
    keys.press("Enter")
    expect(page.locator(".found")).to_have_text("1 record, 1 to 1 shown")
    reach("Record 1")
    keys.press("Enter")
    expect(page.locator("#panel")).to_be_focused()
    reach("Edit")
    keys.press("Escape")
    expect(page.get_by_role("link", name="Record 1", exact=True)).to_be_focused()


def test_without_scripts_the_same_forms_do_the_same(visitor: Visitor, census: Census) -> None:
    context = visitor.page.context.browser
    assert context is not None
    plain = context.new_context(base_url=visitor.site.proxy_url, java_script_enabled=False)
    page = plain.new_page()
    without = Visitor(visitor.site, page, [])
    without.log_in(census.account, census.page("search"))
    without.ask(f"age = {census.rare_age}")
    page.locator("#pill-0").click()
    expect(page.locator("#line")).to_have_value(f"age = {census.rare_age}")
    page.locator("#line").fill("age = old")
    without.press("Search")
    expect(page.get_by_role("alert")).to_contain_text("Expected a value.")
    expect(page.locator("#line")).to_have_value("age = old")
    without.ask(f"age = {census.rare_age}")

    assert without.found() == "1 record, 1 to 1 shown"
    address = visitor.site.proxy_url + without.below(census.page("search"))
    assert page.url.partition("?")[0] == address
    page.get_by_role("link", name="Record 1", exact=True).click()
    without.expect_heading("Record of People")
    plain.close()
