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
    visitor.log_in(site.new_account(), "/")
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
    expect(page.get_by_label("Minimum of age", exact=True)).to_be_visible()
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


def test_a_long_line_that_is_wrong_stays_in_its_box(reader: Visitor, census: Census) -> None:
    page = reader.page
    reader.go(census.page("search"))
    reader.ask("age > " * 60)
    expect(page.locator("#line-wrong")).to_be_visible()
    assert right_of(page.locator("#line-wrong")) <= right_of(page.locator(".ask-line"))
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_counts_beside_long_texts_are_in_view(reader: Visitor, census: Census) -> None:
    page = reader.page
    reader.go(census.page("search"))
    place = page.locator("#facet-13")  # names of countries
    place.scroll_into_view_if_needed()
    expect(place.locator(".number").first).to_be_visible()
    assert right_of(place.locator(".number").first) <= right_of(page.locator(".facets"))
    assert page.locator(".facets").evaluate("(e) => e.scrollWidth - e.clientWidth") <= 0


def test_the_overview_of_a_schema_moves_little_while_it_loads(
    reader: Visitor, census: Census
) -> None:
    page = reader.page.context.new_page()
    page.add_init_script(
        "window.moved = 0; new PerformanceObserver((list) => { for (const one of list.getEntries())"
        " if (!one.hadRecentInput) window.moved += one.value; })"
        ".observe({type: 'layout-shift', buffered: true});"
    )
    page.goto(reader.below(census.page("overview")))
    page.wait_for_function(SETTLED)
    assert page.evaluate("window.moved") < 0.1
    page.close()


def test_arrow_keys_go_through_the_menu_of_a_column(reader: Visitor, census: Census) -> None:
    page = reader.page
    reader.go(census.page("search"))
    page.get_by_role("button", name="Menu of age", exact=True).press("Enter")
    menu = page.get_by_role("group", name="age", exact=True)
    for key, name in (
        ("ArrowDown", "Sort ascending"),
        ("ArrowDown", "Sort descending"),
        ("ArrowUp", "Sort ascending"),
    ):
        page.keyboard.press(key)
        expect(menu.get_by_role("button", name=name)).to_be_focused()


def test_lists_of_datasets_and_schemas_say_how_many_records_there_are(
    reader: Visitor, census: Census
) -> None:
    reader.go("/datasets/")
    expect(reader.page.locator("main")).to_contain_text("200 records")
    reader.go(f"/datasets/{census.dataset}/")
    expect(reader.page.locator("main")).to_contain_text("15 fields, 200 records")


def test_the_first_import_shows_its_dataset_beside_the_page(
    visitor: Visitor, site: Service
) -> None:
    page = visitor.page
    visitor.log_in(site.new_account(), "/")
    visitor.press("Load the example")
    side = page.get_by_role("navigation", name="Main")
    expect(side.locator(".tree a").first).to_be_visible()
    expect(page.locator("#status")).to_contain_text("Keyring open")


def test_the_button_above_the_pictures_is_no_larger_than_others(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    page.set_viewport_size({"width": 1100, "height": 800})
    reader.go(census.page("search"))
    button = page.get_by_role("button", name="Two fields…")
    button.scroll_into_view_if_needed()
    expect(page.locator("#facet-0 .part")).to_be_visible()
    assert box_of(button)["height"] < 50


def test_the_choices_of_how_a_file_is_read_stand_in_one_line(reader: Visitor) -> None:
    reader.go("/import/")
    reader.page.locator("[data-uploads] input[type=file]").set_input_files(CENSUS)
    labels = reader.page.locator(".reading label.read")
    expect(labels).to_have_count(4)
    boxes = [box_of(label) for label in labels.all()]
    assert max(box["y"] for box in boxes) < min(box["y"] + box["height"] for box in boxes)


def test_a_tick_keeps_its_size_beside_a_long_text(reader: Visitor, census: Census) -> None:
    reader.page.set_viewport_size({"width": 390, "height": 844})
    reader.go(f"{census.organization}invite/")
    box = box_of(reader.page.locator("input[name=new]"))
    assert box["width"] == box["height"]


def test_the_example_of_the_login_page_is_whole_on_a_phone(visitor: Visitor) -> None:
    visitor.page.set_viewport_size({"width": 390, "height": 844})
    visitor.go("/login/")
    values = visitor.page.locator(".side-here dd")
    expect(values).to_have_text(["Ada", "36", "London"])
    assert all(value.evaluate("(e) => e.scrollWidth <= e.clientWidth") for value in values.all())
