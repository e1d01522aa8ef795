"""Parts of pages stand where readers expect them: aligned, whole, and beside each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, FloatRect, Locator, expect

from tests.browser.census import Census
from tests.browser.conftest import visiting
from tests.browser.visitor import CENSUS, SETTLED, Visitor
from tests.support.service import Service


@pytest.fixture(scope="module")
def reader(chromium: Browser, site: Service, census: Census) -> Iterator[Visitor]:
    """An owner of records, with a browser for all tests of this file."""
    with visiting(chromium, site) as visitor:
        visitor.log_in(census.account)
        visitor.be_let_in(census.account)
        yield visitor


@pytest.fixture(autouse=True)
def desk(reader: Visitor) -> None:
    reader.page.set_viewport_size({"width": 1440, "height": 900})


def box_of(place: Locator) -> FloatRect:
    box = place.bounding_box()
    assert box
    return box


def right_of(place: Locator) -> float:
    box = box_of(place)
    return box["x"] + box["width"]


def test_numbers_of_first_steps_stand_beside_their_titles(visitor: Visitor, site: Service) -> None:
    visitor.log_in(site.new_account())
    steps = visitor.page.locator(".steps > li")
    expect(steps).to_have_count(4)
    for step in steps.all():
        end = step.evaluate(
            "(e) => { const sign = getComputedStyle(e, '::before');"
            " return parseFloat(sign.left) + parseFloat(sign.width); }"
        )
        assert box_of(step)["x"] + end <= box_of(step.locator("h2"))["x"]


def test_the_box_about_safety_is_as_wide_as_the_boxes_below(reader: Visitor) -> None:
    reader.go("/")
    page = reader.page
    assert right_of(page.locator(".vault")) == pytest.approx(
        right_of(page.locator(".tiles")), abs=1
    )


def test_long_lists_of_readable_values_are_folded(reader: Visitor, census: Census) -> None:
    reader.go(census.page("trust"))
    page = reader.page
    assert box_of(page.locator(".path"))["height"] < 700
    api = page.locator(".path-stop").nth(2)
    expect(api).to_contain_text("the values that the definition names for 9 fields")
    expect(api.get_by_text("Bachelors")).to_be_hidden()
    api.get_by_text("education, 16 values").click()
    expect(api.get_by_text("Bachelors")).to_be_visible()


def test_requests_are_listed_with_the_browsers_time(reader: Visitor, census: Census) -> None:
    reader.go(census.page("search"))
    reader.go(census.page("trust"))
    time = reader.page.get_by_role("region", name="Requests that have left").locator("time").first
    expect(time).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
    expect(time).to_have_attribute("title", re.compile(r"^\d\d:\d\d:\d\d UTC$"))


def test_a_record_opens_below_the_head_of_the_page_which_stays(
    reader: Visitor, census: Census
) -> None:
    reader.go(census.page("search"))
    page = reader.page
    head = page.locator(".page-head")
    before = box_of(head)
    reader.open_record(3)
    assert box_of(head) == before
    panel = page.locator("#panel")
    assert box_of(panel)["y"] >= before["y"] + before["height"]
    for line in (".record-head nav", ".record-head + .row"):
        tops = {round(box_of(one)["y"]) for one in panel.locator(f"{line} .button").all()}
        assert len(tops) == 1


def test_the_tick_of_all_records_is_above_those_of_each(reader: Visitor, census: Census) -> None:
    reader.go(census.page("search"))
    page = reader.page
    every, first = page.locator("[data-tick-all]"), page.locator("[name=t0]")
    assert box_of(every)["x"] == pytest.approx(box_of(first)["x"], abs=1)


def test_proposed_bounds_are_readable_whole(reader: Visitor) -> None:
    page = reader.page
    reader.go("/import/")
    page.locator("[data-uploads] input[type=file]").set_input_files(CENSUS)
    expect(page.get_by_label("Least value of age")).to_be_visible()
    cut = page.locator(".fields td > .narrow").evaluate_all(
        "all => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.value)"
    )
    assert cut == []


def test_a_rule_of_retention_is_one_line(reader: Visitor, census: Census) -> None:
    reader.go(census.page("settings"))
    page = reader.page
    days, field = page.locator("#days"), page.locator("#rule #field")
    assert box_of(days)["y"] == pytest.approx(box_of(field)["y"], abs=4)


def test_a_phone_shows_log_entries_whole(reader: Visitor, census: Census) -> None:
    page = reader.page
    page.set_viewport_size({"width": 390, "height": 844})
    for path in ("/", "/audit-log/"):
        reader.go(path)
        page.wait_for_function(SETTLED)
        entries = page.locator(".entries")
        expect(entries.locator("td").first).to_be_visible()
        assert right_of(entries) <= 390


def test_the_login_page_has_no_empty_head(visitor: Visitor) -> None:
    visitor.go("/login/")
    visitor.expect_heading("Log in")
    expect(visitor.page.locator(".page-head")).to_be_hidden()
