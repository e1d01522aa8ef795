"""What holds of every page: it can be used by all, is light, and ends with the session."""

from __future__ import annotations

import gzip

from playwright.sync_api import Response, expect

from tests.browser.census import Census
from tests.browser.visitor import Visitor

PUBLIC = ("/login/", "/register/", "/forgot-password/", "/reset-password/", "/no/such/page/")
MAX_BYTES = 150_000
#: The uploader's own files do not count.
UPPY = ("upload.js", "upload.css")


def own_pages(census: Census) -> list[str]:
    return [
        "/",
        "/account/",
        "/keyring/",
        "/audit-log/",
        "/organizations/",
        "/jobs/",
        "/datasets/",
        "/datasets/new/",
        f"/datasets/{census.dataset}/",
        f"/datasets/{census.dataset}/edit/",
        f"/datasets/{census.dataset}/delete/",
        f"/datasets/{census.dataset}/new-schema/",
        f"/schemas/{census.schema}/",
        *(census.page(name) for name in ("edit", "delete", "search", "look", "add")),
    ]


def test_axe_finds_nothing_serious(visitor: Visitor, census: Census) -> None:
    flaws: list[str] = []
    for path in PUBLIC[:-1]:
        visitor.go(path)
        flaws += visitor.serious_flaws()
    visitor.log_in(census.account)
    # A short list of results: axe looks at every cell.
    visitor.go(census.page("search"))
    visitor.press("Add a filter")
    visitor.type("From", census.rare_age)
    visitor.type("To", census.rare_age)
    visitor.press("Search")
    expect(visitor.page.locator(".found")).to_have_text("1 record, 1 to 1 shown")
    for path in (*own_pages(census), census.page("upload")):
        visitor.go(path)
        flaws += visitor.serious_flaws()
    visitor.go(census.page("search"))
    visitor.page.get_by_role("link", name="Open record 1", exact=True).click()
    flaws += visitor.serious_flaws()
    visitor.press("Edit")
    flaws += visitor.serious_flaws()
    visitor.go("/keyring/")
    for summary in visitor.page.locator("summary").all():
        summary.click()
    flaws += visitor.serious_flaws()
    visitor.go("/organizations/")
    visitor.press(f"Remove {census.account.email}")
    flaws += visitor.serious_flaws()
    visitor.go("/keyring/")
    visitor.press("Show the words to write down")
    flaws += visitor.serious_flaws()
    visitor.go(census.page("edit"))
    visitor.press("Check and estimate")
    visitor.page.locator("#estimate").wait_for()
    flaws += visitor.serious_flaws()

    assert flaws == []


def test_every_page_is_light_and_comes_from_this_proxy_alone(
    visitor: Visitor, census: Census
) -> None:
    loaded: dict[str, bytes] = {}

    def heard(response: Response) -> None:
        loaded[response.url] = response.body() if response.status == 200 else b""

    visitor.log_in(census.account)
    visitor.page.on("response", heard)
    for path in (*own_pages(census), census.page("upload")):
        loaded.clear()
        visitor.page.goto(path, wait_until="networkidle")
        sizes = {
            url: len(gzip.compress(body)) for url, body in loaded.items() if not url.endswith(UPPY)
        }
        assert all(url.startswith(visitor.site.proxy_url) for url in loaded)
        assert len(sizes) > 1
        assert sum(sizes.values()) < MAX_BYTES, (path, sizes)


def test_no_page_is_wider_than_a_phone(visitor: Visitor, census: Census) -> None:
    visitor.page.set_viewport_size({"width": 360, "height": 740})
    visitor.log_in(census.account)
    for path in own_pages(census):
        visitor.go(path)
        wide = visitor.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, path


def test_who_logs_out_in_one_tab_is_logged_out_in_the_other(
    visitor: Visitor, census: Census
) -> None:
    visitor.log_in(census.account)
    visitor.go(census.page("search"))
    other = visitor.page.context.new_page()
    other.goto("/keyring/")
    other.get_by_role("button", name="Log out").click()
    expect(other.locator("h1")).to_have_text("Log in")

    # By the script, which is answered 204, and by a link.
    visitor.press("Add a filter")
    expect(visitor.page.locator("h1")).to_have_text("Log in")
    visitor.go(census.page("search"))
    expect(visitor.page.locator("h1")).to_have_text("Log in")
    # After logging in again it goes on where it was, with nothing of the old session.
    visitor.type("E-mail address", census.account.email)
    visitor.type("Password", census.account.password)
    visitor.press("Log in")
    visitor.page.wait_for_url("**" + census.page("search"))
    assert visitor.page.locator(".filter").count() == 0


def test_the_keyboard_alone_leads_from_log_in_to_a_record(visitor: Visitor, census: Census) -> None:
    page = visitor.page
    keys = page.keyboard

    def reach(name: str) -> None:
        """Tab until the element of this name has the focus, and it can be seen that it has."""
        for _ in range(60):
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
    keys.type(census.account.email)
    reach("Password")
    keys.type(census.account.password)
    keys.press("Enter")
    page.wait_for_url("/")
    reach("Datasets")
    keys.press("Enter")
    page.wait_for_url("**/datasets/")
    reach("People")
    keys.press("Enter")
    page.wait_for_url("**/schemas/*/")
    reach("Search")
    keys.press("Enter")
    page.wait_for_url("**/search/")
    reach("Add a filter")
    keys.press("Enter")
    page.locator("#field-0").wait_for()
    reach("From")
    keys.type(census.rare_age)
    reach("To")
    keys.type(census.rare_age)
    keys.press("Enter")
    expect(page.locator(".found")).to_have_text("1 record, 1 to 1 shown")
    reach("Open record 1")
    keys.press("Enter")
    expect(page.locator("h1")).to_have_text("Record of People")


def test_without_scripts_the_same_forms_do_the_same(visitor: Visitor, census: Census) -> None:
    context = visitor.page.context.browser
    assert context is not None
    plain = context.new_context(base_url=visitor.site.proxy_url, java_script_enabled=False)
    page = plain.new_page()
    without = Visitor(visitor.site, page, [])
    without.log_in(census.account)
    without.go(census.page("search"))
    without.press("Add a filter")
    page.locator("#value-0").fill(census.rare_age)
    page.locator("#second-0").fill(census.rare_age)
    without.press("Search")

    assert without.found() == "1 record, 1 to 1 shown"
    assert page.url == visitor.site.proxy_url + census.page("search")
    plain.close()
