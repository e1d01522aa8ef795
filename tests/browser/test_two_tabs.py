"""Two tabs of one browser, keys that are pressed twice, Back, and a session that ends meanwhile: no
tab loses what was typed, does a thing twice, or does another thing than its page says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, Request, Route, expect

from tests.browser.census import Census
from tests.browser.conftest import visiting
from tests.browser.test_never_blank import end_session
from tests.browser.visitor import Visitor, wait_until
from tests.support.service import Service, call

BOX = "SELECT statement"


@pytest.fixture(scope="module")
def editor(chromium: Browser, site: Service, census: Census) -> Iterator[Visitor]:
    """Somebody who changes the records, with a browser for all tests of this file."""
    with visiting(chromium, site, quiet=False) as visitor:
        visitor.log_in(census.account)
        visitor.be_let_in(census.account)
        yield visitor


@pytest.fixture
def other_tab(editor: Visitor) -> Iterator[Visitor]:
    page = editor.page.context.new_page()
    yield Visitor(editor.site, page, [], editor.at)
    page.close()


def log_in_in_place(page: Page, census: Census) -> None:
    box = page.get_by_role("dialog", name="Your session has ended")
    box.get_by_label("E-mail address").fill(census.account.email)
    box.get_by_label("Password").fill(census.account.password)
    box.get_by_role("button", name="Log in").click()
    expect(box).to_have_count(0)


def type_into_first_cell(page: Page, text: str) -> None:
    page.locator("table.records tbody tr").first.locator("td").nth(1).dblclick()
    page.locator(".cell-form input").first.fill(text)


def delete_record(visitor: Visitor, address: str) -> None:
    visitor.page.goto(address)
    visitor.press("Delete…")
    visitor.press("Delete permanently")
    visitor.page.wait_for_url("**/search/**")


def addresses(page: Page) -> list[str]:
    """The addresses of the records in the table."""
    found: list[str] = page.locator(
        "table.records tbody th a, table.records tbody td a"
    ).evaluate_all("links => links.map((link) => link.href)")
    return found


# --- a session that has ended ---------------------------------------------------------------------


def test_ticked_records_are_still_ticked_after_a_login_in_place(
    editor: Visitor, census: Census
) -> None:
    page = editor.page
    editor.go(census.page("search"))
    page.get_by_label("Tick 1", exact=True).check()
    page.get_by_label("Tick 2", exact=True).check()
    end_session(editor)

    page.get_by_role("button", name="Edit a field…").click()
    log_in_in_place(page, census)
    editor.expect_heading("Edit a field of 2 records")


def test_ticked_records_are_downloaded_after_a_login_in_another_tab(
    editor: Visitor, other_tab: Visitor, census: Census
) -> None:
    page = editor.page
    editor.go(census.page("search"))
    page.get_by_label("Tick 1", exact=True).check()
    end_session(editor)
    other_tab.log_in(census.account)

    with page.expect_download() as download:
        page.get_by_role("button", name="Export as CSV").click()
    assert len(Path(download.value.path()).read_text().splitlines()) == 2


def test_a_value_typed_into_a_cell_is_stored_after_a_login_in_place(
    editor: Visitor, census: Census
) -> None:
    editor.go(census.page("search"))
    type_into_first_cell(editor.page, "61")
    end_session(editor)

    editor.page.keyboard.press("Enter")
    log_in_in_place(editor.page, census)
    expect(editor.page.locator(".toast")).to_contain_text("Saved.")
    row = editor.page.locator("table.records tbody tr").first
    expect(row.locator("td").nth(1)).to_have_text("61")


def test_an_edit_is_undone_after_a_login_in_place(editor: Visitor, census: Census) -> None:
    editor.go(census.page("search"))
    cell = editor.page.locator("table.records tbody tr").first.locator("td").nth(1)
    before = cell.inner_text()
    type_into_first_cell(editor.page, "62")
    editor.page.keyboard.press("Enter")
    expect(cell).to_have_text("62")
    end_session(editor)
    editor.page.keyboard.press("z")
    log_in_in_place(editor.page, census)
    expect(editor.page.locator(".toast")).to_have_text("As it was before.")
    expect(cell).to_have_text(before)


def test_find_opens_after_a_login_in_place(editor: Visitor, census: Census) -> None:
    editor.go(census.page("search"))
    end_session(editor)
    editor.page.keyboard.press("Control+k")
    log_in_in_place(editor.page, census)
    box = editor.page.get_by_role("dialog", name="Find")
    box.get_by_role("textbox").fill("add peo")
    expect(box.get_by_role("link", name="Add a record to People")).to_be_visible()
    assert editor.page.url.endswith(census.page("search"))


def test_find_stays_on_the_page_while_the_proxy_does_not_answer(
    editor: Visitor, census: Census
) -> None:
    # Before the page, as Chromium may miss a request right after its route is made.
    editor.page.route("**/datasets/", lambda route: route.abort("connectionrefused"))
    editor.go(census.page("search"))
    editor.page.locator("#line").fill("age > 30")
    editor.page.keyboard.press("Control+k")
    expect(editor.page.locator(".toast")).to_have_text("The proxy does not answer.")
    editor.page.unroute_all()
    expect(editor.page.locator("#line")).to_have_value("age > 30")


def test_what_was_typed_before_a_login_in_place_is_still_guarded(
    editor: Visitor, census: Census
) -> None:
    page = editor.page
    editor.go(census.page("add"))
    page.locator("#value-0").press_sequentially("7")
    end_session(editor)
    editor.press("Store the record")
    log_in_in_place(page, census)
    # Shown again: other fields are missing.
    expect(page.locator("[aria-invalid=true]").first).to_be_visible()
    assert asked_on_leaving(page, lambda: editor.go("/datasets/")) == ["beforeunload"]


def test_what_was_typed_stays_where_the_browser_is_not_registered_any_more(
    editor: Visitor, census: Census
) -> None:
    page = editor.page
    editor.go(f"/datasets/{census.dataset}/settings/")
    page.get_by_label("Description", exact=True).press_sequentially("Written by hand")

    def lead_aside(route: Route) -> None:
        route.fulfill(status=204, headers={"HX-Redirect": editor.below("/device/?next=/")})

    page.route("**/settings/", lead_aside, times=1)
    editor.press("Save")
    box = page.locator("main .problem")
    expect(box).to_contain_text("This browser is not registered")
    expect(box.get_by_role("link")).to_have_attribute("target", "_blank")
    expect(page.get_by_label("Description", exact=True)).to_have_value("Written by hand")
    editor.press("Save")
    page.wait_for_url(f"**/datasets/{census.dataset}/")


# --- twice ----------------------------------------------------------------------------------------


def test_a_form_is_not_sent_again_while_the_page_it_leads_to_is_loading(
    editor: Visitor, census: Census
) -> None:
    page = editor.page
    editor.go("/datasets/new/")
    held: list[Route] = []
    sent: list[Request] = []

    def hold(route: Route) -> None:
        if route.request.is_navigation_request():
            held.append(route)
        else:
            sent.append(route.request)
            route.continue_()

    page.route("**/datasets/**", hold)
    page.get_by_label("Name", exact=True).fill("Made once")
    page.keyboard.press("Enter")
    wait_until(page, lambda: bool(held))
    page.keyboard.press("Enter")
    held[0].continue_()
    editor.expect_heading("Made once")
    page.unroute_all()
    assert [request.method for request in sent if request.method == "POST"] == ["POST"]
    url = f"{editor.site.proxy_url}/api/datasets/"
    listed = call("GET", url, auth=census.account.auth).json()["results"]
    assert [dataset["name"] for dataset in listed].count("Made once") == 1


# --- leaving --------------------------------------------------------------------------------------


def asked_on_leaving(page: Page, leave: Callable[[], None]) -> list[str]:
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", answer)
    leave()
    page.remove_listener("dialog", answer)
    return asked


def test_a_draft_of_a_schema_is_not_left_without_a_question(
    editor: Visitor, census: Census
) -> None:
    page = editor.page
    editor.go(f"/datasets/{census.dataset}/new-schema/")
    page.locator("#field-0").press_sequentially("name")
    # Also after it was answered by itself.
    editor.press("Add a field")
    expect(page.locator("#field-1")).to_be_visible()
    assert asked_on_leaving(page, lambda: editor.go(census.page("fields"))) == ["beforeunload"]

    editor.press("Add a field")
    page.locator("[id^=field-]").last.press_sequentially("name")
    assert asked_on_leaving(page, lambda: editor.go("/datasets/")) == ["beforeunload"]


def test_a_schema_that_was_created_is_left_without_a_question(
    editor: Visitor, census: Census
) -> None:
    page = editor.page
    editor.go(f"/datasets/{census.dataset}/new-schema/")
    page.get_by_label("Name", exact=True).press_sequentially("Guarded")
    page.locator("#field-0").press_sequentially("name")

    def create() -> None:
        editor.press("Create the schema")
        page.wait_for_url("**/upload/")

    assert asked_on_leaving(page, create) == []


# --- SQL ------------------------------------------------------------------------------------------


def run(visitor: Visitor, statement: str) -> None:
    visitor.type(BOX, statement)
    visitor.press("Run")
    expect(visitor.page.locator("#result tbody td")).to_have_text(statement.rpartition(" ")[2])


def test_back_shows_the_statement_that_was_run(editor: Visitor, census: Census) -> None:
    editor.go(census.page("sql"))
    run(editor, "SELECT 41")
    editor.go("/datasets/")
    editor.page.go_back()
    expect(editor.page.get_by_label(BOX)).to_have_value("SELECT 41")


def test_a_statement_that_was_not_run_is_neither_left_nor_replaced_unasked(
    editor: Visitor, census: Census
) -> None:
    page = editor.page
    editor.go(census.page("sql"))
    run(editor, "SELECT 42")
    page.get_by_label(BOX).fill("SELECT 43 AS unfinished")
    assert asked_on_leaving(page, lambda: editor.go("/sql/")) == ["beforeunload"]

    page.get_by_label(BOX).fill("SELECT 44 AS unfinished")
    page.locator("summary", has_text="of this session").click()
    editor.press("SELECT 42")
    expect(page.get_by_label(BOX)).to_have_value("SELECT 42")
    page.locator("summary", has_text="of this session").click()
    editor.press("SELECT 44 AS unfinished")
    expect(page.get_by_label(BOX)).to_have_value("SELECT 44 AS unfinished")


def test_a_statement_that_is_clicked_is_the_one_that_comes(
    editor: Visitor, other_tab: Visitor
) -> None:
    editor.go("/sql/")
    run(editor, "SELECT 51")
    run(editor, "SELECT 52")
    other_tab.go("/sql/")
    run(other_tab, "SELECT 53")

    editor.page.locator("summary", has_text="of this session").click()
    editor.press("SELECT 51")
    expect(editor.page.get_by_label(BOX)).to_have_value("SELECT 51")


# --- records --------------------------------------------------------------------------------------


def test_each_tab_stores_again_what_it_has_deleted(
    editor: Visitor, other_tab: Visitor, census: Census
) -> None:
    editor.go(census.page("search"))
    first, second = addresses(editor.page)[:2]
    editor.page.goto(first)
    values = editor.page.locator("dd.value").all_inner_texts()
    delete_record(editor, first)
    delete_record(other_tab, second)

    editor.press("Store it again as a new record")
    expect(editor.page.locator(".notice.good")).to_have_text("The record is stored again.")
    assert editor.page.locator("dd.value").all_inner_texts() == values
    other_tab.press("Store it again as a new record")
    expect(other_tab.page.locator(".notice.good")).to_have_text("The record is stored again.")


def test_an_undo_after_another_edit_says_what_is_in_its_way(
    editor: Visitor, other_tab: Visitor, census: Census
) -> None:
    editor.go(census.page("search"))
    address = addresses(editor.page)[0]
    for visitor, age in ((editor, "71"), (other_tab, "72")):
        visitor.page.goto(address)
        visitor.press("Edit")
        visitor.page.locator("#value-0").fill(age)
        visitor.press("Save")
        expect(visitor.page.locator(".notice.good")).to_contain_text("The record is saved.")
    editor.press("Undo")
    expect(editor.page.locator("main .problem")).to_contain_text("nothing was undone")


def test_a_record_that_was_deleted_meanwhile_is_said_to_be(
    editor: Visitor, other_tab: Visitor, census: Census
) -> None:
    page = editor.page
    editor.go(census.page("search"))
    first, second = addresses(page)[:2]
    delete_record(other_tab, second)
    # Beside the table, where nothing else would lead away from it.
    page.get_by_role("link", name="Record 2", exact=True).click()
    panel = page.locator("#panel")
    expect(panel.locator(".problem")).to_contain_text("may have been deleted")
    panel.get_by_role("button", name="Close").click()
    expect(panel.locator(".problem")).to_have_count(0)

    page.goto(first)
    editor.press("Edit")
    page.locator("#value-0").fill("73")
    delete_record(other_tab, first)
    editor.press("Save")
    expect(page.locator("main .problem")).to_contain_text("may have been deleted")
    expect(page.locator("#value-0")).to_have_value("73")
