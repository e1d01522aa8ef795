"""What a window asks stays its own, whatever else is asked, typed or refused meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.census import Census, stored_census
from tests.browser.conftest import visiting
from tests.browser.visitor import Visitor
from tests.support.front import Asked, Front, Reply, nothing, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Service


def of_sex(census: Census, sex: str) -> list[int]:
    return [row["fnlwgt"] for row in census.rows if row["sex"] == sex]


def ask_for(visitor: Visitor, sex: str) -> None:
    visitor.ask(f"sex = '{sex}'")


def exported(page: Page) -> list[int]:
    page.locator("#export-button").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="JSON, one object per line").click()
    lines = Path(download.value.path()).read_text().splitlines()
    return [json.loads(line)["data"]["fnlwgt"] for line in lines]


def test_two_windows_have_questions_of_their_own_and_export_says_its_own(
    visitor: Visitor, census: Census
) -> None:
    women, men = of_sex(census, "Female"), of_sex(census, "Male")
    visitor.log_in(census.account, census.page("search"))
    ask_for(visitor, "Female")
    expect(visitor.page.locator(".found")).to_contain_text(f"{len(women)} records")
    # Who has to unlock the keyring now comes back to this question.
    address = visitor.page.url.removeprefix(visitor.site.proxy_url + visitor.below(""))
    assert "?q=" in address
    expect(visitor.page.locator("#unlock input[name=next]")).to_have_value(address)
    # A copy of the window begins with the same question, and goes another way.
    other = Visitor(visitor.site, visitor.page.context.new_page(), [])
    other.page.goto(visitor.page.url)
    expect(other.page.locator(".found")).to_contain_text(f"{len(women)} records")
    other.page.locator("#pill-0").click()
    expect(other.page.locator("#line")).to_have_value('sex = "Female"')
    expect(other.page.locator("#line")).to_be_focused()
    ask_for(other, "Male")
    expect(other.page.locator(".found")).to_contain_text(f"{len(men)} records")

    visitor.press("fnlwgt")
    expect(visitor.page.locator("th[aria-sort]")).to_have_count(1)
    assert visitor.numbers("fnlwgt") == sorted(women)[:50]
    visitor.press("Next page")
    expect(visitor.page.locator(".found")).to_contain_text("51 to")
    assert visitor.numbers("fnlwgt") == sorted(women)[50:100]
    title = visitor.page.locator("#export-title")
    expect(title).to_have_text(f'Export {len(women)} records where sex = "Female"')
    assert exported(visitor.page) == sorted(women)
    assert exported(other.page) == men
    # Each finds its own again.
    for window, found in ((visitor, women), (other, men)):
        window.page.reload()
        expect(window.page.locator(".found")).to_contain_text(f"{len(found)} records")


def test_what_is_typed_and_not_sent_counts_when_a_column_is_sorted_or_a_page_turned(
    visitor: Visitor, census: Census
) -> None:
    visitor.log_in(census.account, census.page("search"))
    page = visitor.page
    page.locator("#line").fill("age >= 30")
    visitor.press("age")
    expect(page.locator("th[aria-sort]")).to_have_count(1)
    ages = sorted(row["age"] for row in census.rows if row["age"] >= 30)
    assert visitor.numbers("age") == ages[:50]

    page.locator("#line").fill("age >= 40")
    # The next page of another question would leave out its first records.
    visitor.press("Next page")
    old = [age for age in ages if age >= 40]
    expect(page.locator(".found")).to_contain_text(f"{len(old)} records, 1 to 50")
    assert visitor.numbers("age") == old[:50]
    assert page.locator(".pill").all_inner_texts() == ["age >= 30", "age >= 40"]


def test_what_is_picked_narrows_filters_that_are_alternatives(
    visitor: Visitor, census: Census
) -> None:
    visitor.log_in(census.account, census.page("search"))
    page = visitor.page
    visitor.ask("age >= 60 or education = 'Masters'")
    either = [row for row in census.rows if row["age"] >= 60 or row["education"] == "Masters"]
    expect(page.locator(".found")).to_contain_text(f"{len(either)} records")
    page.get_by_label("Schema", exact=True).get_by_role("link", name="Overview").click()
    expect(page.locator(".found")).to_have_text(f"{len(either)} records")
    women = [row for row in either if row["sex"] == "Female"]
    visitor.press(f"sex is Female: {len(women)} records")

    expect(page.locator(".found")).to_have_text(f"{len(women)} records")
    said = ['age >= 60 or education = "Masters"', 'sex = "Female"']
    assert page.locator(".pill").all_inner_texts() == said


@pytest.mark.parametrize("scripts", [True, False])
def test_nothing_found_says_why(
    chromium: Browser, site: Service, census: Census, scripts: bool
) -> None:
    context = chromium.new_context(base_url=site.proxy_url, java_script_enabled=scripts)
    visitor = Visitor(site, context.new_page(), [])
    visitor.log_in(census.account, census.page("search"))
    page = visitor.page
    visitor.ask("age between 30 and 20")
    reasons = page.locator(".reasons li")
    expect(reasons).to_have_text("age: 30 is above 20; swap the two.")

    visitor.press("Clear")
    expect(page.locator(".found")).to_contain_text("200 records")
    visitor.press("education" if not scripts else "age")
    expect(page.locator("th[aria-sort]")).to_have_count(1)
    page.locator("#more-3").click()
    page.locator("#menu-3").get_by_role("button", name="Filter by this").click()
    expect(page.locator("#line")).to_have_value("education ")
    visitor.ask("education = 'bachelors'")
    many = sum(row["education"] == "Bachelors" for row in census.rows)
    expect(reasons.first).to_have_text(f"bachelors: none; Bachelors: {many}.")
    # Each is a way on.
    reasons.first.get_by_role("button").click()
    expect(page.locator(".found")).to_contain_text(f"{many} records")
    context.close()


# --- the API is down, the keyring is locked ----------------------------------------------------


def is_down(_asked: Asked) -> Reply:
    return Reply(503, {"Content-Type": "text/plain"}, b"away")


def is_down_for_queries(asked: Asked) -> Reply | None:
    """Who somebody is can still be asked, so that the page itself comes to the point."""
    return None if "/token" in asked.path or "/users/" in asked.path else is_down(asked)


@pytest.fixture(scope="module")
def away(
    chromium: Browser, site: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Front, Visitor, Census]]:
    """Somebody at a proxy whose API a test can take away."""
    with (
        running_front(site.base_url) as front,
        running_proxy(front.url, tmp_path_factory.mktemp("away")) as proxy,
        visiting(chromium, replace(site, proxy_url=proxy.url), quiet=False) as visitor,
    ):
        census = stored_census(visitor.site, 60)
        visitor.log_in(census.account)
        yield front, visitor, census


@pytest.fixture
def down(away: tuple[Front, Visitor, Census]) -> Iterator[tuple[Front, Visitor, Census]]:
    front, visitor, census = away
    visitor.go(census.page("search"))
    visitor.ask("age >= 30")
    expect(visitor.page.locator(".found")).not_to_contain_text("60 records")
    yield away
    front.invent = nothing


def test_filters_and_table_stay_while_the_api_is_down(
    down: tuple[Front, Visitor, Census],
) -> None:
    front, visitor, _census = down
    page = visitor.page
    rows = page.locator("table.records tbody tr")
    before = rows.count()
    front.invent = is_down_for_queries

    visitor.ask("age >= 40")

    expect(page.get_by_role("alert")).to_contain_text("API")
    expect(page.locator("#pill-1")).to_have_text("age >= 40")
    assert rows.count() == before
    front.invent = nothing
    visitor.press("Search")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(rows).not_to_have_count(before)


def test_an_export_that_is_refused_leads_back_to_the_page_which_says_so(
    down: tuple[Front, Visitor, Census],
) -> None:
    front, visitor, _census = down
    page = visitor.page
    front.invent = is_down_for_queries
    page.locator("#export-button").click()
    page.get_by_role("button", name="CSV", exact=True).click()

    expect(page.get_by_role("alert")).to_contain_text("API")
    assert "/search/?q=" in page.url
    expect(page.locator("#pill-0")).to_have_text("age >= 30")
    front.invent = nothing
    page.reload()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator("table.records")).to_be_visible()


def test_without_scripts_the_filters_stay_as_well(
    away: tuple[Front, Visitor, Census], chromium: Browser
) -> None:
    front, visitor, census = away
    context = chromium.new_context(base_url=visitor.site.proxy_url, java_script_enabled=False)
    plain = Visitor(visitor.site, context.new_page(), [])
    plain.log_in(census.account, census.page("search"))
    front.invent = is_down_for_queries
    plain.ask("age >= 30")
    expect(plain.page.get_by_role("alert")).to_contain_text("API")
    expect(plain.page.locator("#pill-0")).to_have_text("age >= 30")
    front.invent = nothing
    context.close()


def test_a_refusal_of_the_endpoint_itself_is_said_on_the_page(
    visitor: Visitor, census: Census
) -> None:
    """What only the endpoint knows: here that a field is gone since the page was loaded."""
    visitor.log_in(census.account, census.page("search"))
    page = visitor.page
    visitor.ask("age >= 30")
    expect(page.locator("#pill-0")).to_have_text("age >= 30")
    page.evaluate("document.querySelector('#export [name=part-0]').value = 'gone = 1'")
    page.locator("#export-button").click()
    page.get_by_role("button", name="CSV", exact=True).click()

    expect(page.get_by_role("alert")).to_be_visible()
    assert "/search/?q=" in page.url
