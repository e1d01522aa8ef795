"""What happens on a page while somebody it needs is away: it is said there, and nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.census import Census
from tests.browser.conftest import visiting
from tests.browser.visitor import Visitor
from tests.support.front import Asked, Front, Reply, nothing, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Service, call


def api_is_down(_asked: Asked) -> Reply:
    return Reply(503, {"Content-Type": "text/plain"}, b"away")


@pytest.fixture(scope="module")
def elsewhere(
    chromium: Browser, site: Service, census: Census, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Front, Visitor]]:
    """Somebody at a proxy whose API a test can take away."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with (
        running_front(site.base_url) as front,
        running_proxy(front.url, folder) as proxy,
        visiting(chromium, replace(site, proxy_url=proxy.url), quiet=False) as visitor,
    ):
        visitor.log_in(census.account)
        yield front, visitor
        front.invent = nothing


def test_an_api_that_is_down_is_said_in_place_and_what_was_typed_stays(
    elsewhere: tuple[Front, Visitor], census: Census
) -> None:
    front, visitor = elsewhere
    page = visitor.page
    visitor.go(f"/datasets/{census.dataset}/new-schema/")
    visitor.type("Name", "Patients")
    front.invent = api_is_down

    # Who somebody is, is asked again after some seconds.
    for _ in range(20):
        visitor.press("Check and estimate")
        expect(page.locator(".htmx-request")).to_have_count(0)
        if page.locator("#editor > .problem.said-here").count():
            break
        page.wait_for_timeout(1000)
    box = page.locator("#editor > .problem")
    expect(box).to_have_count(1)
    expect(box).to_contain_text("API")
    expect(page.get_by_label("Name", exact=True)).to_have_value("Patients")
    expect(page.locator(".status")).to_contain_text("API does not answer")

    front.invent = nothing
    visitor.press("Check and estimate")
    expect(page.locator("#editor > .problem.said-here")).to_have_count(0)
    expect(page.get_by_label("Name", exact=True)).to_have_value("Patients")


def test_a_proxy_that_does_not_answer_is_said_on_top_until_it_does(
    chromium: Browser, site: Service, census: Census
) -> None:
    with visiting(chromium, site, quiet=False) as visitor:
        page = visitor.page
        visitor.log_in(census.account, f"/datasets/{census.dataset}/new-schema/")
        visitor.type("Name", "Patients")
        gone: list[Route] = []

        def break_off(route: Route) -> None:
            gone.append(route)
            route.abort("connectionrefused")

        page.route("**/*", break_off)
        visitor.press("Add a field")
        bar = page.locator(".away")
        expect(bar).to_have_text(
            re.compile(r"^The proxy does not answer\. Trying again in \d s\.$")
        )
        expect(page.locator(".status")).to_contain_text("Proxy does not answer")
        tried = len(gone)
        expect(bar).to_contain_text("Trying again in 1 s")
        expect(bar).to_contain_text("Trying again in 4 s")
        assert len(gone) > tried

        # What may be asked twice is asked again by itself.
        page.unroute("**/*")
        expect(page.locator("#field-1")).to_be_visible()
        expect(page.get_by_label("Name", exact=True)).to_have_value("Patients")
        expect(bar).to_have_count(0)

        # What makes something is not.
        page.locator("#field-0").fill("n")
        page.route("**/*", break_off)
        visitor.press("Create the schema")
        expect(bar).to_contain_text("Trying again in")
        page.unroute("**/*")
        expect(bar).to_contain_text("The proxy answers again")
        visitor.expect_heading("New schema")
        visitor.press("Create the schema")
        visitor.expect_heading("Patients")


def test_whose_session_has_ended_logs_in_in_place_and_goes_on(
    visitor: Visitor, census: Census
) -> None:
    page = visitor.page
    visitor.log_in(census.account)
    visitor.be_let_in(census.account)
    visitor.go(f"/datasets/{census.dataset}/new-schema/")
    visitor.type("Name", "Patients")
    end_session(visitor)

    visitor.press("Add a field")
    box = page.get_by_role("dialog")
    expect(box).to_contain_text("Your session has ended")
    assert visitor.serious_flaws() == []
    box.get_by_label("E-mail address").fill(census.account.email)
    box.get_by_label("Password").fill("no, another one")
    box.get_by_role("button", name="Log in").click()
    expect(box.get_by_role("alert")).to_be_visible()
    box.get_by_label("Password").fill(census.account.password)
    box.get_by_role("button", name="Log in").click()

    # What the button asked for has happened, with what was typed, and the next one works too.
    expect(page.locator("#field-1")).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_have_value("Patients")
    expect(box).to_have_count(0)
    visitor.press("Add a field")
    expect(page.locator("#field-2")).to_be_visible()
    visitor.complaints.clear()  # the wrong password was answered with 401


def test_without_scripts_an_ended_session_leads_back_to_the_page(
    visitor: Visitor, census: Census
) -> None:
    browser = visitor.page.context.browser
    assert browser is not None
    context = browser.new_context(base_url=visitor.site.proxy_url, java_script_enabled=False)
    plain = Visitor(visitor.site, context.new_page(), [])
    plain.log_in(census.account, census.page("search"))
    end_session(plain)

    plain.press("Dense")
    expect(plain.page.locator("main")).to_contain_text("your session has ended")
    plain.type("E-mail address", census.account.email)
    plain.type("Password", census.account.password)
    plain.press("Log in")
    assert plain.page.url.endswith(census.page("search"))
    context.close()


@pytest.mark.parametrize(
    "answer",
    [
        "[]",
        "{}",
        '{"results": 7, "next": null, "count": 1}',
        '{"results": [{"id": 7, "name": null}], "next": null, "count": "x"}',
        '{"results": [{"id": "../logout/", "name": "<script>alert(1)</script>"}], "next": null,'
        ' "previous": null, "count": 1}',
        '{"results": [{"name": "%s"}], "next": null, "previous": null, "count": 0}'
        % ("x" * 1_000_000),
    ],
)
def test_a_page_is_shown_whatever_the_api_says_of_what_surrounds_it(
    elsewhere: tuple[Front, Visitor], answer: str
) -> None:
    front, visitor = elsewhere
    kinds = ("/api/datasets/?limit=40", "/api/schemas/?limit=200", "/api/organizations/?limit=20")

    def lie(asked: Asked, reply: Reply) -> Reply:
        return reply.with_body(answer.encode()) if asked.path in kinds else reply

    visitor.go("/datasets/")
    visitor.press("Find")  # after a form it is asked for again
    visitor.page.wait_for_load_state()
    with front.telling(lie):
        visitor.go("/account/")
        visitor.expect_heading("Account")
        expect(visitor.page.get_by_role("navigation", name="Main")).to_contain_text("Log out")
        assert "<script>alert" not in visitor.page.content()
        assert len(visitor.page.content()) < 100_000


def test_a_page_that_is_not_there_keeps_what_surrounds_it(visitor: Visitor, census: Census) -> None:
    visitor.log_in(census.account, "/")
    for path in ("/no/such/page/", "/schemas/not-an-id/search/"):
        visitor.go(path)
        visitor.expect_heading("Something went wrong")
        page = visitor.page
        expect(page.get_by_role("navigation", name="Main")).to_contain_text("People")
        expect(page.get_by_role("link", name="Log in")).to_have_count(0)
    visitor.complaints.clear()  # both were answered with 404


def end_session(visitor: Visitor) -> None:
    """As if its time was over: ended from elsewhere, and the page has not noticed."""
    # A picture that is asked for afterwards would show the login before the test does anything.
    visitor.page.wait_for_load_state("networkidle")
    (cookie,) = (
        cooky
        for cooky in visitor.page.context.cookies()
        if str(cooky.get("name")).startswith("ers_")
    )
    value, csrf = str(cookie["value"]), str(cookie["value"]).rpartition(".")[2]
    answer = call(
        "POST",
        f"{visitor.site.proxy_url}{visitor.below('')}/api/accounts/logout/",
        {},
        headers={
            "Cookie": f"{cookie['name']}={value}",
            "X-CSRFToken": csrf,
            "Origin": visitor.site.proxy_url,
        },
    )
    assert answer.status == 200, answer.body
