"""Forms, filters and pictures know the types of fields, and lead back to where one came from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, expect

from tests.browser.conftest import visiting
from tests.browser.visitor import Visitor
from tests.support.service import Account, Service, call

#: Pixels of a dataset's line where somebody is invited.
LINE_OF_RIGHTS = 80
GROUND = "(e) => getComputedStyle(e).backgroundColor"
WARDS = ("north", "south")
DEFINITION: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "properties": {
        "name": {"type": "string"},
        "born": {"type": "string", "format": "date"},
        "admitted": {"type": "string", "format": "date-time"},
        "ward": {"type": "string", "enum": list(WARDS)},
        "insured": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
        "cost": {"type": "number", "minimum": 0, "maximum": 1000, "precision": 2},
        "what was written down when the patient came in for the first time": {"type": "string"},
    },
    "required": ["ward"],
}


@dataclass(frozen=True)
class Clinic:
    visitor: Visitor
    schema: str
    account: Account

    def go(self, page: str) -> None:
        self.visitor.go(f"/schemas/{self.schema}/{page}/")


@pytest.fixture(scope="module")
def clinic(chromium: Browser, site: Service) -> Iterator[Clinic]:
    account = site.new_account()

    def post(path: str, body: Any) -> Any:
        answer = call("POST", site.proxy_url + path, body, auth=account.auth)
        assert answer.status == 201, answer
        return answer.json()

    dataset = post("/api/datasets/", {"name": "Clinic", "organization": account.organization})
    body = {"name": "Visits", "dataset": dataset["url"], "schema": DEFINITION}
    schema = post("/api/schemas/", body)
    rows = [
        {"name": f"Patient {n}", "ward": "south" if n % 3 else "north", "born": f"19{30 + n}-05-05"}
        for n in range(60)
    ]
    post("/api/records/ingest/", [{"schema": schema["url"], "data": row} for row in rows])
    with visiting(chromium, site) as visitor:
        visitor.log_in(account)
        visitor.be_let_in(account)
        yield Clinic(visitor, schema["id"], account)


def test_each_field_has_the_control_of_its_type_and_stores_what_it_says(clinic: Clinic) -> None:
    visitor, page = clinic.visitor, clinic.visitor.page
    clinic.go("add")
    kinds = [page.locator(f"#value-{n}").get_attribute("type") for n in (0, 1, 2, 5)]
    assert kinds == ["text", "date", "datetime-local", "number"]
    assert visitor.serious_flaws() == []

    visitor.press("Store the record")
    expect(page.locator("#value-3")).to_be_focused()
    expect(page.locator("main .problem")).not_to_contain_text("row 1")
    page.locator("#value-1").fill("1980-12-31")
    page.locator("#value-2").fill("2026-01-31T08:30")
    page.get_by_label("admitted, offset from UTC").fill("+02:00")
    page.locator("#value-3").select_option("south")
    page.get_by_label("no", exact=True).check()
    page.locator("#value-5").fill("12.5")
    visitor.press("Store the record")
    visitor.expect_heading("Record of Visits")
    expect(page.locator(".notice.good")).to_have_text("The record is stored.")
    said = page.locator("dd.value").all_inner_texts()
    expected = ["missing", "1980-12-31", "2026-01-31T08:30:00+02:00", "south", "false", "12.50"]
    assert said == [*expected, "missing"]

    # What is not touched is not changed.
    visitor.press("Edit")
    page.locator("#value-0").fill("Somebody")
    with page.expect_request(lambda request: request.method == "POST"):
        visitor.press("Save")
    expect(page.locator(".notice.good")).to_contain_text("The record is saved.")
    assert page.locator("dd.value").all_inner_texts() == ["Somebody", *expected[1:], "missing"]


def test_a_value_is_chosen_in_its_cell_where_clicks_give_no_focus(
    chromium: Browser, clinic: Clinic
) -> None:
    with visiting(chromium, clinic.visitor.site) as visitor:
        visitor.focus_nothing_by_clicks()
        visitor.log_in(clinic.account)
        visitor.be_let_in(clinic.account)
        visitor.go(f"/schemas/{clinic.schema}/search/")
        cell = visitor.page.locator("table.records tbody tr:nth-child(2) td:nth-child(6)")
        cell.dblclick()
        cell.get_by_label("yes", exact=True).click()
        expect(cell.get_by_label("yes", exact=True)).to_be_focused()
        visitor.page.keyboard.press("Enter")
        expect(cell).to_have_text("true")
        # The button keeps the focus when the answer is there, and not the line that searches.
        visitor.press("Dense")
        expect(visitor.page.locator("#dense[aria-pressed=true]")).to_be_focused()


def test_each_column_has_the_form_of_its_type(clinic: Clinic) -> None:
    visitor, page = clinic.visitor, clinic.visitor.page
    schema = f"/api/schemas/{clinic.schema}/"
    data = {"ward": "north", "name": "Of all types", "insured": True, "cost": 908.02}
    data |= {"admitted": "2026-01-31T08:30:00+02:00", "born": "1980-12-31"}
    url = f"{visitor.site.proxy_url}/api/records/ingest/"
    stored = call("POST", url, [{"schema": schema, "data": data}], auth=clinic.account.auth)
    assert stored.status == 201, stored.body
    clinic.go("search")
    visitor.ask("name = 'Of all types'")
    expect(page.locator(".found")).to_have_text(re.compile("^1 record,"))

    def aligned(column: str) -> str:
        head = page.locator("table.records thead th").filter(has_text=column)
        number = head.evaluate("(e) => e.cellIndex + 1")
        cell = page.locator(f"table.records tbody td:nth-child({number})")
        ways = {one.evaluate("(e) => getComputedStyle(e).textAlign") for one in (head, cell)}
        assert len(ways) == 1
        return str(ways.pop())

    ways = {name: aligned(name) for name in ("born", "admitted", "insured", "cost")}
    assert ways == {"born": "left", "admitted": "left", "insured": "left", "cost": "right"}
    sign = page.locator("td > .yes")
    expect(sign).to_have_text("true")
    drawn = sign.evaluate("(e) => getComputedStyle(e, '::before').content")
    assert drawn.startswith('"✓')
    chip = page.locator("table.records tbody td > b:not([class])")
    expect(chip).to_have_text(["north"])  # of a list; the name is any text
    assert chip.evaluate(GROUND) != page.locator("table.records tbody td").nth(2).evaluate(GROUND)
    visitor.open_record(1)
    expect(page.locator("#panel dd .yes")).to_have_text("true")
    expect(page.locator("#panel dd > b:not([class])")).to_have_text(["north"])
    page.locator("#panel").get_by_role("link", name="Delete").click()
    visitor.press("Delete permanently")
    expect(page.locator(".notice.good")).to_contain_text("The record was deleted.")


def test_after_an_edit_and_a_deletion_the_filters_are_still_there(clinic: Clinic) -> None:
    visitor, page = clinic.visitor, clinic.visitor.page
    clinic.go("search")
    visitor.ask("ward = 'north'")
    expect(page.locator(".found")).to_contain_text("20 records")
    visitor.open_record(3)
    # A value is changed where it stands, beside the table, which shows it then.
    page.locator("#panel dd.value").nth(5).click()
    expect(page.locator("#panel #value-5")).to_be_focused()
    page.locator("#value-0").fill("Somebody else")
    page.keyboard.press("Enter")
    expect(page.locator("#panel")).to_contain_text("The record is saved.")
    expect(page.locator("#panel")).to_contain_text("3 of 20 on this page")
    expect(page.locator("tbody tr").nth(2)).to_contain_text("Somebody else")
    expect(page.locator("tr.current")).to_contain_text("Somebody else")
    # A reload, and Back, find the page as it was.
    page.reload()
    expect(page.locator("#panel dd.value").first).to_have_text("Somebody else")
    expect(page.locator(".found")).to_contain_text("20 records")
    page.go_back()
    expect(page.locator("#panel #record")).to_have_count(0)
    expect(page.locator(".found")).to_contain_text("20 records")

    visitor.open_record(3)
    name = page.locator("#panel dd.value").first.inner_text()
    page.locator("#panel").get_by_role("link", name="Delete").click()
    visitor.press("Delete permanently")
    expect(page.locator(".notice.good")).to_contain_text("The record was deleted.")
    expect(page.locator(".found")).to_contain_text("19 records")

    visitor.press("Store it again as a new record")
    expect(page.locator(".notice.good")).to_have_text("The record is stored again.")
    expect(page.locator("dd.value").first).to_have_text(name)
    visitor.press("Back to the results")
    expect(page.locator(".found")).to_contain_text("20 records")
    expect(page.get_by_text("was deleted")).to_have_count(0)


def test_an_edit_is_undone_unless_the_record_was_changed_since(clinic: Clinic) -> None:
    visitor, page = clinic.visitor, clinic.visitor.page
    clinic.go("search")
    visitor.open_record(5)

    def edit(name: str) -> None:
        page.get_by_role("link", name="Edit", exact=True).click()
        page.locator("#value-0").fill(name)
        visitor.press("Save")
        expect(page.locator(".notice.good")).to_contain_text("The record is saved.")

    before = page.locator("#panel dd.value").all_inner_texts()
    edit("Written by mistake")
    assert visitor.serious_flaws() == []
    visitor.press("Undo")
    expect(page.locator(".notice.good")).to_have_text("The record is as it was before.")
    assert page.locator("dd.value").all_inner_texts() == before

    edit("Written by mistake")
    identifier = page.url.rpartition("record=")[2]
    changed = call(
        "PATCH",
        f"{visitor.site.proxy_url}/api/records/{identifier}/",
        {"data": {"name": "By somebody else"}},
        auth=clinic.account.auth,
    )
    assert changed.status == 200, changed.body
    visitor.press("Undo")
    expect(page.locator("main .problem")).to_contain_text("nothing was undone")
    page.reload()
    expect(page.locator("dd.value").first).to_have_text("By somebody else")


def test_a_form_with_something_typed_is_not_left_without_a_question(clinic: Clinic) -> None:
    page = clinic.visitor.page
    clinic.go("add")
    page.locator("#value-0").press_sequentially("Somebody")
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", answer)
    page.get_by_role("link", name="Datasets", exact=True).first.click()
    clinic.visitor.expect_heading("Datasets")
    assert asked == ["beforeunload"]

    # Also after it was shown again with what is wrong.
    clinic.go("add")
    page.locator("#value-0").press_sequentially("Somebody")
    clinic.visitor.press("Store the record")
    expect(page.locator("#value-3")).to_be_focused()
    page.get_by_role("link", name="Datasets", exact=True).first.click()
    clinic.visitor.expect_heading("Datasets")
    assert asked == ["beforeunload"] * 2


def test_a_record_stands_beside_the_table_and_covers_nothing(clinic: Clinic) -> None:
    visitor, page = clinic.visitor, clinic.visitor.page
    page.set_viewport_size({"width": 1440, "height": 900})
    clinic.go("search")
    visitor.open_record(2)
    panel = page.locator("#panel").bounding_box()
    table = page.locator("#grid").bounding_box()
    tools = page.locator(".tools:not(.ticked)").bounding_box()
    assert panel and table and tools
    assert table["x"] + table["width"] <= panel["x"]
    assert tools["x"] + tools["width"] <= panel["x"]
    # A field with a long name leaves its value room.
    widths = page.locator("#panel dd.value").evaluate_all("all => all.map(e => e.offsetWidth)")
    assert min(widths) > 200
    page.set_viewport_size({"width": 1100, "height": 800})


def test_dates_are_drawn_year_by_year_and_chosen_in_a_calendar(clinic: Clinic) -> None:
    page = clinic.visitor.page
    clinic.go("search")
    page.locator("#facet-1").scroll_into_view_if_needed()
    years = page.locator("#facet-1 .hits title")
    expect(years.first).to_have_text(re.compile("^1930: 1 record "))
    assert years.count() == 60
    first, last = (page.locator(f"#{end}-1") for end in ("from", "to"))
    expect(first).to_have_attribute("type", "date")
    first.fill("1940-01-01")
    last.fill("1949-12-31")
    page.locator("#range-1").click()
    expect(page.locator(".found")).to_contain_text("10 records")
    expect(page.locator("#pill-0")).to_have_text("born between 1940-01-01 and 1949-12-31")
    # The line takes years, months and days, and says so.
    page.locator("#line").press_sequentially("born < ")
    expect(page.locator("#line-hint")).to_contain_text("a month, 2026-01; or a year")
    clinic.visitor.ask("born >= 1948")
    expect(page.locator(".found")).to_contain_text("2 records")


def test_a_picked_value_stays_among_the_others_of_its_picture(clinic: Clinic) -> None:
    page = clinic.visitor.page
    clinic.go("search")
    wards = page.locator("#facet-3 .bars button")

    def pick(ward: str) -> None:
        page.locator("#facet-3").scroll_into_view_if_needed()
        wards.filter(has_text=ward).click()

    page.locator("#facet-3").scroll_into_view_if_needed()
    expect(wards).to_have_count(2)
    many = {ward: int(wards.filter(has_text=ward).inner_text().split()[-1]) for ward in WARDS}
    pick("north")
    expect(page.locator(".found")).to_contain_text(f"{many['north']} records")
    page.locator("#facet-3").scroll_into_view_if_needed()
    expect(wards).to_have_count(2)
    expect(wards.filter(has_text="north")).to_have_attribute("aria-pressed", "true")
    expect(wards.filter(has_text="south")).to_contain_text(str(many["south"]))
    assert clinic.visitor.serious_flaws() == []
    pick("south")
    expect(page.locator(".pill")).to_have_text('ward in ("north", "south")')
    expect(page.locator(".found")).to_contain_text(f"{sum(many.values())} records")
    pick("north")
    expect(page.locator(".found")).to_contain_text(f"{many['south']} records")
    pick("south")
    expect(page.locator(".pill")).to_have_count(0)


def test_a_text_is_looked_for_anywhere_and_an_exact_one_that_fails_leads_on(
    clinic: Clinic,
) -> None:
    visitor, page = clinic.visitor, clinic.visitor.page
    clinic.go("search")
    visitor.ask("PATIENT 59")
    # The 61 records before it contain "1 record", too.
    expect(page.locator(".found")).to_have_text(re.compile("^1 record,"))

    page.locator("#pill-0").click()
    expect(page.locator("#line")).to_have_value("PATIENT 59")
    visitor.ask("name = 'tient 59'")
    expect(page.locator(".found")).to_have_text(re.compile("^0 records"))
    visitor.press("anywhere in it, ignoring case and accents")
    expect(page.locator(".found")).to_have_text(re.compile("^1 record,"))


def test_a_browser_that_was_not_let_in_is_asked_for_a_code_where_it_needs_one(
    clinic: Clinic, visitor: Visitor
) -> None:
    page = visitor.page
    visitor.log_in(clinic.account)
    organization = clinic.account.organization.removeprefix("/api")
    visitor.go(f"{organization}invite/")
    expect(page.get_by_label("E-mail address")).to_have_count(0)
    visitor.go("/keyring/")
    expect(page.get_by_role("button", name="Show the words to write down")).to_have_count(0)
    assert visitor.serious_flaws() == []
    visitor.type("A code, or the 24 words of your keyring", visitor.site.code_for(clinic.account))
    visitor.press("Register this browser")
    visitor.expect_heading("Keyring")
    visitor.prove("show", clinic.account)
    visitor.press("Show the words to write down")
    expect(page.locator(".phrase li")).to_have_count(24)


def test_on_a_phone_a_long_text_is_some_lines_of_its_card(clinic: Clinic) -> None:
    page = clinic.visitor.page
    schema = f"/api/schemas/{clinic.schema}/"
    long = {"schema": schema, "data": {"name": "word " * 600, "ward": "north"}}
    stored = call(
        "POST",
        f"{clinic.visitor.site.proxy_url}/api/records/ingest/",
        [long],
        auth=clinic.account.auth,
    )
    assert stored.status == 201, stored.body
    page.set_viewport_size({"width": 390, "height": 844})
    clinic.go("search")
    clinic.visitor.press("Next page")
    card = page.locator("tbody tr").filter(has_text="word word")
    expect(card).to_be_visible()
    height = card.evaluate("element => element.offsetHeight")
    assert height < 250
    expect(page.locator(".pager")).to_be_visible()
    page.set_viewport_size({"width": 1100, "height": 800})


def test_with_many_datasets_the_sidebar_keeps_its_ends_and_each_is_a_line_to_invite_for(
    clinic: Clinic, visitor: Visitor
) -> None:
    account = clinic.visitor.site.new_account()
    for number in range(20):
        body = {"name": f"Dataset {number}", "organization": account.organization}
        made = call("POST", f"{visitor.site.proxy_url}/api/datasets/", body, auth=account.auth)
        assert made.status == 201, made.body
    visitor.log_in(account, "/")
    side = visitor.page.get_by_role("navigation", name="Main")
    expect(side.locator(".side-head")).to_be_in_viewport()
    expect(side.get_by_role("button", name="Log out")).to_be_in_viewport()
    expect(side.get_by_role("link", name="Dataset 19")).not_to_be_in_viewport()

    # To invite somebody, each is a line.
    visitor.go(f"{account.organization.removeprefix('/api')}invite/")
    lines = visitor.page.locator(".field.right")
    expect(lines).to_have_count(20)
    assert all(line.evaluate("(e) => e.offsetHeight") <= LINE_OF_RIGHTS for line in lines.all())


def test_an_export_says_that_its_file_comes_and_leaves_the_page_as_it_is(clinic: Clinic) -> None:
    page = clinic.visitor.page
    clinic.go("search")
    clinic.visitor.press("Export…")
    with page.expect_download():
        page.get_by_role("button", name="CSV", exact=True).click()
    expect(page.locator("[data-download-said]")).to_contain_text("The download is starting")
    expect(page.locator("main")).not_to_have_attribute("aria-busy", "true")
    assert not page.locator(".busy.shown").count()
