"""Records that are ticked and deleted or edited together, while somebody else changes some."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.census import Census, stored_census
from tests.browser.visitor import Visitor
from tests.support.service import Service, call


@pytest.fixture(scope="module")
def census(site: Service) -> Census:
    return stored_census(site, 20)


def tick(page: Page, *numbers: int) -> list[str]:
    """Tick the records of these rows; their identifiers."""
    found = []
    for number in numbers:
        box = page.get_by_label(f"Tick {number}", exact=True)
        box.check()
        found.append(str(box.get_attribute("value")).partition(".")[0])
    return found


def ask(reader: Visitor, census: Census, method: str, record: str, data: Any = None) -> Any:
    url = f"{reader.site.proxy_url}/api/records/{record}/"
    body = None if data is None else {"data": data}
    return call(method, url, body, auth=census.account.auth)


def ages(reader: Visitor, census: Census, records: list[str]) -> list[int]:
    return [ask(reader, census, "GET", one).json()["data"].get("age") for one in records]


def test_a_record_that_somebody_else_has_changed_is_not_deleted_with_others(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    mine, theirs, gone = tick(page, 1, 2, 3)
    assert ask(reader, census, "PATCH", theirs, {"age": 33}).status == 200
    assert ask(reader, census, "DELETE", gone).status == 204
    page.get_by_role("button", name="Delete…").click()
    reader.press("Delete the ticked records")
    expect(page.locator(".notice.good")).to_contain_text("The record was deleted.")
    left = page.locator(".notice:not(.good)")
    expect(left).to_contain_text("2 records left as they are:")
    expect(left.locator("li")).to_have_text(
        ["record 2, changed since it was shown", "record 3, deleted since it was shown"]
    )
    assert reader.serious_flaws() == []
    assert ask(reader, census, "GET", mine).status == 404
    left.get_by_role("link", name="record 2").click()
    expect(page.locator("[data-record] .value").first).to_have_text("33")
    assert page.locator("[data-record]").get_attribute("data-record") == theirs


def test_a_record_that_was_edited_in_its_cell_is_deleted_as_it_is_shown(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    cell = page.locator("table.records tbody tr:nth-child(2) td:nth-child(2)")
    cell.dblclick()
    field = cell.locator(".cell-form input[type=number]")
    field.fill("71")
    field.press("Enter")
    expect(cell).to_have_text("71")
    (record,) = tick(page, 2)
    page.get_by_role("button", name="Delete…").click()
    reader.press("Delete the ticked records")
    expect(page.locator(".notice.good")).to_contain_text("The record was deleted.")
    assert ask(reader, census, "GET", record).status == 404


def test_one_field_of_all_ticked_records_is_edited_and_the_edit_is_undone(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    records = tick(page, 1, 2, 3, 4)
    before = ages(reader, census, records)
    page.get_by_role("button", name="Edit a field…").click()
    page.get_by_label("Field to edit in all ticked records").select_option(label="age")
    reader.press("Choose its value")
    reader.expect_heading("Edit age of 4 records")
    value = page.get_by_label("New value")
    expect(value).to_be_focused()
    expect(value).to_have_attribute("type", "number")
    assert reader.serious_flaws() == []

    # What no record can have is said at the field, before anything is stored.
    page.locator("form[data-progress]").evaluate("form => (form.noValidate = true)")
    value.fill("900")
    reader.press("Store it in 4 records")
    expect(page.locator("#note-value .failed")).to_be_visible()
    expect(value).to_have_value("900")
    assert ages(reader, census, records) == before

    assert ask(reader, census, "PATCH", records[1], {"age": 34}).status == 200
    value.fill("118")
    value.press("Enter")
    expect(page.locator(".notice.good")).to_contain_text("age was changed in 3 records.")
    expect(page.locator(".notice:not(.good) li")).to_have_text(
        ["record 2, changed since it was shown"]
    )
    assert ages(reader, census, records) == [118, 34, 118, 118]

    assert ask(reader, census, "PATCH", records[2], {"age": 35}).status == 200
    page.keyboard.press("z")
    expect(page.locator(".notice.good")).to_contain_text("age is as it was before in 2 records.")
    expect(page.locator(".notice:not(.good) li")).to_have_text(
        ["record 3, changed since it was edited"]
    )
    assert ages(reader, census, records) == [before[0], 34, 35, before[3]]


def test_a_blank_value_removes_the_field_from_all_ticked_records(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    records = tick(page, 5, 6)
    page.get_by_role("button", name="Edit a field…").click()
    page.get_by_label("Field to edit in all ticked records").select_option(label="workclass")
    reader.press("Choose its value")
    reader.press("Store it in 2 records")
    expect(page.locator(".notice.good")).to_contain_text("workclass was changed in 2 records.")
    for record in records:
        assert "workclass" not in ask(reader, census, "GET", record).json()["data"]


def test_an_edit_says_how_far_it_is_and_goes_on_where_it_stopped_when_its_answer_is_lost(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    records = tick(page, 7, 8)
    page.get_by_role("button", name="Edit a field…").click()
    reader.press("Choose its value")
    page.get_by_label("New value").fill("53")

    held: list[Any] = []

    def hold(route: Any) -> None:
        route.fetch()
        held.append(route)

    page.route("**/ticked/", hold)
    page.get_by_role("button", name="Store it in 2 records").click()
    expect(page.locator("[data-progress-shown]")).to_contain_text("2 of 2")
    expect(page.get_by_label("Records edited")).to_have_attribute("value", "2")
    held[0].abort()
    expect(page.locator(".away.back")).to_contain_text("Your text is still here")
    page.unroute("**/ticked/")
    reader.complaints.clear()  # of the request that was broken off
    assert ages(reader, census, records) == [53, 53]
    page.get_by_role("button", name="Store it in 2 records").click()
    expect(page.locator(".notice.good")).to_contain_text("age was changed in 2 records.")
    etags = [ask(reader, census, "GET", one).headers["ETag"] for one in records]
    assert etags == ['"2"', '"2"']


def test_without_scripts_ticked_records_are_edited_by_plain_forms(
    chromium: Browser, site: Service, census: Census
) -> None:
    context = chromium.new_context(base_url=site.proxy_url, java_script_enabled=False)
    without = Visitor(site, context.new_page(), [])
    page = without.page
    without.log_in(census.account, census.page("search"))
    records = tick(page, 1, 2)
    before = ages(without, census, records)
    page.get_by_role("button", name="Edit a field…").click()
    without.press("Choose its value")
    without.expect_heading("Edit age of 2 records")
    page.get_by_label("New value").fill("55")
    without.press("Store it in 2 records")
    expect(page.locator(".notice.good")).to_contain_text("age was changed in 2 records.")
    assert ages(without, census, records) == [55, 55]
    without.press("Undo")
    expect(page.locator(".notice.good")).to_contain_text("age is as it was before in 2 records.")
    assert ages(without, census, records) == before
    context.close()
