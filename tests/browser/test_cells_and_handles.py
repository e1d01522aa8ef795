"""Values that are edited in their cells, histograms with handles, and a table that stays fresh."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Request, expect

from tests.browser.census import Census, stored_census
from tests.browser.visitor import Visitor
from tests.support.service import Service, call


@pytest.fixture(scope="module")
def census(site: Service) -> Census:
    return stored_census(site, 20)


def age_of(reader: Visitor, row: int) -> Locator:
    """The cell of a row's age."""
    return reader.page.locator(f"table.records tbody tr:nth-child({row}) td:nth-child(2)")


def opened(cell: Locator) -> Locator:
    """The control that a double click puts into a cell."""
    cell.dblclick()
    field = cell.locator(".cell-form input[type=number]")
    expect(field).to_be_focused()
    return field


def test_a_double_click_edits_a_value_in_its_cell_and_a_toast_undoes_it(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    cell = age_of(reader, 2)
    before = cell.inner_text()
    field = opened(cell)
    assert reader.serious_flaws() == []
    field.press("Escape")
    expect(cell).to_have_text(before)

    # The record stays in its place, though it is stored last by now, and text in the line that was
    # not asked yet stays there.
    page.locator("#line").fill("age > ")
    page.locator("#grid").focus()  # and its completions go
    opened(cell).fill("77")
    field.press("Enter")
    expect(page.locator(".toast")).to_contain_text("Saved.")
    page.locator(".toast").hover()  # it stays as long
    expect(cell).to_have_text("77")
    expect(page.locator("#line")).to_have_value("age > ")
    expect(page.get_by_role("link", name="Record 2", exact=True)).to_be_focused()
    page.keyboard.press("z")
    expect(page.locator(".toast")).to_have_text("As it was before.")
    expect(cell).to_have_text(before)


def test_a_value_that_is_refused_in_its_cell_is_corrected_beside_the_table(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    cell = age_of(reader, 3)
    before = cell.inner_text()
    field = opened(cell)
    field.fill("900")
    field.press("Enter")
    expect(page.locator("#panel #value-0")).to_have_value("900")
    expect(page.locator("#panel .failed").first).to_be_visible()
    expect(cell).to_have_text(before)


def test_a_cell_keeps_its_text_where_no_answer_comes_and_is_sent_once_by_two_keys(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    cell = age_of(reader, 5)
    before = cell.inner_text()
    field = opened(cell)
    field.fill("61")
    page.route("**/edit/**", lambda route: route.abort())
    field.press("Enter")
    expect(page.locator(".toast")).to_contain_text("Your text is still here")
    expect(field).to_have_value("61")
    page.unroute("**/edit/**")
    reader.complaints.clear()  # of the request that was broken off

    sent: list[str] = []

    def heard(asked: Request) -> None:
        if "/edit/" in asked.url:
            sent.append(asked.method)

    page.on("request", heard)
    field.evaluate(
        "field => ['Enter', 'Enter'].forEach((key) => field.dispatchEvent("
        "new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true })))"
    )
    expect(page.locator(".toast")).to_contain_text("Saved.")
    page.locator(".toast").hover()
    expect(cell).to_have_text("61")
    assert sent == ["POST"]
    page.get_by_role("button", name="Undo").click()
    expect(cell).to_have_text(before)


def test_enter_that_ends_the_choice_of_a_word_does_not_store_the_cell(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    cell = age_of(reader, 6)
    before = cell.inner_text()
    field = opened(cell)
    field.fill("62")
    sent: list[str] = []
    page.on("request", lambda asked: sent.append(f"{asked.method} {asked.url}"))
    # As Safari sends it, behind the end of the composition.
    field.evaluate(
        "field => field.dispatchEvent(new KeyboardEvent('keydown',"
        " { key: 'Enter', keyCode: 229, bubbles: true, cancelable: true }))"
    )
    expect(field).to_have_value("62")
    field.press("Escape")
    expect(cell).to_have_text(before)
    assert [one for one in sent if "/edit/" in one] == []


def test_a_cell_has_no_control_of_a_record_s_form_beside_the_table(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    reader.open_record(1)
    reader.press("Edit")
    expect(page.locator("#panel #value-0")).to_be_visible()
    cell = age_of(reader, 3)
    field = opened(cell)
    expect(page.locator("[id=value-0]")).to_have_count(1)
    described = field.get_attribute("aria-describedby")
    expect(cell.locator(f"[id={described}]")).to_have_count(1)


def test_what_somebody_else_has_stored_is_not_overwritten_by_a_cell(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    row = page.locator("table.records tbody tr:nth-child(4)")
    field = opened(age_of(reader, 4))
    record = (row.locator("a").get_attribute("href") or "").split("/records/")[1].split("/")[0]
    url = f"{reader.site.proxy_url}/api/records/{record}/"
    auth = census.account.auth
    assert call("PATCH", url, {"data": {"age": 33}}, auth=auth).status == 200
    field.fill("44")
    field.press("Enter")
    expect(page.locator("#panel .versions")).to_contain_text("33")
    assert call("GET", url, auth=auth).json()["data"]["age"] == 33


def test_ticked_records_are_copied_exported_deleted_and_stored_again(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    ticks = page.locator("tbody input[form=ticked]")
    total = ticks.count()
    said = page.locator("[data-ticked]")
    expect(said).to_be_hidden()
    everything = page.get_by_label("Tick all records of this page")
    everything.check()
    expect(said).to_have_text(f"{total} ticked")
    assert reader.serious_flaws() == []
    page.get_by_role("button", name="Untick").click()
    expect(ticks.locator("visible=true").first).not_to_be_checked()
    ticks.nth(1).check()
    ticks.nth(3).click(modifiers=["Shift"])
    expect(said).to_have_text("3 ticked")
    assert everything.evaluate("box => box.indeterminate")
    expect(page.locator("#panel #record")).to_have_count(0)
    rows = [row.locator("td").all_inner_texts()[1:] for row in page.locator("tbody tr").all()[1:4]]

    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy", exact=True).locator("visible=true").click()
    expect(page.locator(".toast")).to_have_text("3 records copied, as a table.")
    header, *lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    names = page.locator("table.records thead bdi").all_inner_texts()
    assert header.split("\t") == names
    missing = "\N{EN DASH}"
    assert [line.split("\t") for line in lines] == [
        [text.replace(missing, "") for text in row] for row in rows
    ]
    for kind, most in (("CSV", 4), ("JSON", 3)):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Export as {kind}").click()
        assert len(Path(download.value.path()).read_text().splitlines()) == most

    page.get_by_role("button", name="Delete…").click()
    reader.press("Delete the ticked records")
    expect(page.locator(".notice.good")).to_contain_text("3 records were deleted.")
    expect(page.locator(".found")).to_contain_text(f"{total - 3} records")
    reader.press("Store them again as new records")
    expect(page.locator(".notice.good")).to_have_text("3 records were stored again.")
    expect(page.locator(".found")).to_contain_text(f"{total} records")
    last = [row.locator("td").all_inner_texts()[1:] for row in page.locator("tbody tr").all()[-3:]]
    assert sorted(last) == sorted(rows)


def test_handles_below_a_histogram_choose_a_stretch_by_arrow_keys(
    reader: Visitor, census: Census
) -> None:
    page = reader.page
    reader.go(census.page("search"))
    # Heard after the page's own listener: the question is asked soon, and clears the field.
    page.evaluate(
        "addEventListener('input', ({ target }) => (window.told = "
        "[document.getElementById('from-0').value, target.getAttribute('aria-valuetext')]))"
    )
    page.get_by_label("age: least", exact=True).press("ArrowRight")
    expect(page.locator(".pill")).to_have_count(1)
    typed, spoken = page.evaluate("window.told")
    assert typed == spoken
    lowest = float(typed)
    ages = sorted(row["age"] for row in census.rows)
    left = [age for age in ages if age >= lowest]
    assert 0 < len(left) < len(ages)
    expect(page.locator("table.records tbody tr")).to_have_count(len(left))

    # They stand at the ends that are asked for, and change these.
    expect(page.get_by_label("age: least", exact=True)).to_have_value("1")
    expect(page.get_by_label("age: least", exact=True)).to_have_attribute("aria-valuetext", typed)
    before = page.locator(".pill").inner_text()
    page.get_by_label("age: greatest", exact=True).press("ArrowLeft")
    expect(page.locator(".pill")).not_to_have_text(before)
    expect(page.locator(".pill")).to_contain_text(f"age between {typed} and ")
    highest = float(page.locator(".pill").inner_text().rpartition(" ")[2])
    left = [age for age in left if age <= highest]
    expect(page.locator("table.records tbody tr")).to_have_count(len(left))
    expect(page.get_by_label("age: greatest", exact=True)).to_have_attribute(
        "aria-valuetext", f"{highest:g}"
    )
    assert len(left) < len(ages)
    expect(page.locator(".pill")).to_have_count(1)
