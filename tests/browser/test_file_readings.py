"""Files as people have them, in the import: how one is read is shown, can be changed, and is kept
to by the upload."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from encrypted_records.ingest.reading.recipe import COMPACT_TIME, KNOWN_FORMATS
from encrypted_records.ingest.reading.text_table import CHARSETS
from encrypted_records.proxy.pages import imports
from tests.browser.conftest import visiting
from tests.browser.visitor import Visitor, expect_after_reloads
from tests.support.service import Service

FILES = Path(__file__).parents[1] / "ingest" / "files"


@pytest.fixture
def importer(chromium: Browser, site: Service) -> Iterator[Visitor]:
    with visiting(chromium, site) as one:
        one.log_in(site.new_account(), "/import/")
        yield one


def choose(visitor: Visitor, file: Path) -> None:
    visitor.page.locator("[data-uploads] input[type=file]").set_input_files(file)
    visitor.page.locator("#plan section").first.wait_for()


def written(folder: Path, content: str, name: str = "people.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode())
    return path


def cell(visitor: Visitor, row: int, column: int) -> Locator:
    return visitor.page.locator(f".preview tbody tr:nth-child({row}) td").nth(column)


def store(visitor: Visitor) -> None:
    visitor.page.locator("#make").click()
    expect(visitor.page.locator(".file")).to_contain_text("completed,")


def records(visitor: Visitor) -> str:
    visitor.page.locator("#plan").get_by_role("link", name=re.compile("^Search ")).click()
    visitor.page.wait_for_url("**/search/")
    return visitor.page.locator("main table").last.inner_text()


def test_what_the_page_offers_is_what_the_reader_knows() -> None:
    assert set(imports.CHARSETS) == set(CHARSETS)
    assert set(imports.DATE_FORMATS) == {*KNOWN_FORMATS, COMPACT_TIME}


def test_a_file_of_a_spreadsheet_is_shown_and_stored_as_it_was_shown(
    importer: Visitor, site: Service
) -> None:
    page = importer.page
    choose(importer, FILES / "excel-de-cp1252.csv")
    expect(page.locator("#delimiter")).to_have_value("semicolon")
    expect(page.locator("#encoding")).to_have_value("cp1252")
    expect(page.locator(".doubtful").first).to_contain_text("Müller")
    expect(cell(importer, 2, 2)).to_contain_text("1234.62")
    expect(cell(importer, 2, 2)).to_contain_text("1.234,62")
    expect(page.locator("#rows")).to_contain_text("24 records")
    assert importer.serious_flaws() == []
    importer.picture("import-reading")
    store(importer)
    shown = records(importer)
    assert "1234.62" in shown or "1,234.62" in shown
    assert "Weiß" in shown
    # No list of values was asked for, so no value is in the API's database.
    kept = b"".join(one.read_bytes() for one in (site.data_dir / "api").glob("db.sqlite3*"))
    assert b"Umsatz" in kept
    assert not any(word.encode() in kept for word in ("Weiß", "Müller, Jörg", "see mail"))


def test_what_nobody_can_know_is_asked_in_place_and_a_choice_shows_what_it_does(
    importer: Visitor, tmp_path: Path
) -> None:
    page = importer.page
    choose(importer, written(tmp_path, "name,born\nAda,03/04/2021\nKurt,05/06/2021\n"))
    expect(page.locator(".read-as .doubtful")).to_have_text("Please choose:")
    expect(page.locator("#type-1")).to_have_value("string")
    # By the keyboard alone; the focus stays where it was.
    page.locator("#format-1").focus()
    page.keyboard.type("mm/dd/yyyy")
    expect(cell(importer, 1, 1)).to_contain_text("2021-03-04")
    expect(page.locator("#format-1")).to_be_focused()
    expect(page.locator("#type-1")).to_have_value("date")
    page.locator("#format-1").select_option("dd/mm/yyyy")
    expect(cell(importer, 1, 1)).to_contain_text("2021-04-03")
    page.locator("#type-1").select_option("string")
    expect(cell(importer, 1, 1)).to_have_text("03/04/2021")


def test_columns_are_renamed_left_out_and_made_numbers_that_can_be_stored(
    importer: Visitor, tmp_path: Path
) -> None:
    page = importer.page
    # A doubled name, an amount that a word makes a text, and an index without a name.
    text = ";Note;Amount;Note\n" + "".join(f"{n};a{n};{n}.000,50;b\n" for n in range(1, 60))
    choose(importer, written(tmp_path, f"{text}60;a60;pending;b\n"))
    expect(page.locator("#field-0")).to_have_value("column_1")
    expect(page.locator("#field-3")).to_have_value("Note_2")
    page.locator("#field-3").fill("Kind")
    page.locator("#out-0").check()
    expect(page.locator(".preview thead")).not_to_contain_text("column_1")
    expect(page.locator(".preview thead")).to_contain_text("Kind")
    # One odd cell is noted: only its row is not valid.
    page.locator("#type-2").select_option("number")
    expect(page.locator("#plan")).to_contain_text("not a number are not valid: 'pending'")
    # Refused at the field, in the page's words, and nothing else has changed.
    page.locator("#type-1").select_option("number")
    expect(page.locator("#error-type-1")).to_contain_text("cannot be read as number")
    expect(page.locator("#type-1")).to_have_value("string")
    expect(page.locator("#field-3")).to_have_value("Kind")
    assert "--" not in page.locator("#plan [role=alert]").first.inner_text()
    page.locator("#null-2").fill("pending")
    page.locator("#null-2").press("Tab")
    expect(page.locator("#plan")).not_to_contain_text("not a number are not valid")
    expect(page.locator("#type-2")).to_have_value("number")
    expect(cell(importer, 1, 1)).to_contain_text("1000.5")
    expect(page.locator("#precision-2")).to_have_value("2")
    store(importer)
    shown = records(importer)
    assert "Kind" in shown
    assert "column_1" not in shown


def test_delimiter_and_header_can_be_said_instead(importer: Visitor, tmp_path: Path) -> None:
    page = importer.page
    choose(
        importer, written(tmp_path, "Report of May\n\nid\tname\n1\tAda, first\n2\tKurt\n", "x.tsv")
    )
    expect(page.locator("#header_row")).to_have_value("3")
    expect(page.locator(".reading")).to_contain_text("Report of May")
    expect(page.locator("#field-1")).to_have_value("name")
    # No table by commas: that is said, and what was there stays.
    page.locator("#delimiter").select_option("comma")
    expect(page.locator("#plan [role=alert]").first).to_contain_text("more cells than")
    expect(page.locator("#delimiter")).to_have_value("tab")
    page.locator("#header_row").fill("0")
    page.locator("#header_row").press("Tab")
    expect(page.locator("#field-1")).to_have_value("column_2")
    page.locator("#header_row").fill("3")
    page.locator("#header_row").press("Tab")
    expect(page.locator("#field-1")).to_have_value("name")
    expect(cell(importer, 1, 1)).to_have_text("Ada, first")


def test_a_document_of_json_is_read_whole_by_the_list_that_has_its_records(
    importer: Visitor, tmp_path: Path
) -> None:
    rows = [{"id": f"{n:05}", "of": {"city": "Ulm"}, "note": "x" * 600} for n in range(1_200)]
    choose(importer, written(tmp_path, json.dumps({"next": None, "rows": rows}), "page.json"))
    page = importer.page
    expect(page.locator("#rows")).to_contain_text("1,200 records")
    expect(page.locator("#sheet")).to_have_value("rows")
    expect(page.locator("#delimiter")).to_have_count(0)
    expect(page.locator("#field-1")).to_have_value("of.city")
    expect(page.locator("#plan")).to_contain_text("Left out beside rows: next")
    page.locator("#field-1").fill("city")
    store(importer)
    assert "00001" in records(importer)


def test_two_tabs_and_going_back_mix_nothing(importer: Visitor, tmp_path: Path) -> None:
    page = importer.page
    choose(importer, written(tmp_path, "a;b\n1,5;ja\n2,5;nein\n", "first.csv"))
    other = Visitor(importer.site, page.context.new_page(), importer.complaints)
    other.go("/import/")
    choose(other, written(tmp_path, "c,d\n1.5,x\n", "second.csv"))
    expect(other.page.locator("#field-0")).to_have_value("c")
    page.locator("#decimal-0").select_option(".")
    expect(page.locator("#plan [role=alert]").first).to_contain_text("cannot be read as number")
    expect(page.locator("#field-0")).to_have_value("a")
    expect(cell(importer, 1, 0)).to_contain_text("1.5")
    # A reload in the middle begins again, and has made nothing.
    page.reload()
    expect(page.locator("#plan section")).to_have_count(0)
    choose(importer, tmp_path / "first.csv")
    store(importer)
    importer.go("/datasets/")
    page.go_back()
    expect(page.get_by_role("heading", name="Import a file")).to_be_visible()
    importer.go("/datasets/")
    main = page.locator("main")
    expect(main.get_by_role("link", name="First", exact=True).first).to_be_visible()
    expect(main.get_by_role("link", name="Second", exact=True)).to_have_count(0)


def test_without_scripts_the_next_page_reads_the_file_in_the_same_way(
    chromium: Browser, site: Service, tmp_path: Path
) -> None:
    context = chromium.new_context(base_url=site.proxy_url, java_script_enabled=False)
    page = context.new_page()
    without = Visitor(site, page, [])
    without.log_in(site.new_account(), "/import/")
    chooser = page.get_by_label("Choose a file, or drop it here")
    chooser.set_input_files(written(tmp_path, "who;sum\nBob;none\n", "other.csv"))
    without.press("Preview the rows")
    page.locator("#null-1").fill("none")
    without.press("Check again")
    expect(page.locator("[name=said]")).to_have_value(re.compile("none"))
    # Nothing that was said of one file is meant for another.
    file = written(tmp_path, "name;sum\nAda;1.234,50\nKurt;2,00\n")
    chooser.set_input_files(file)
    without.press("Preview the rows")
    expect(page.locator("[name=said]")).to_have_value("{}")
    expect(page.locator("#name")).to_have_value("People")
    expect(page.locator(".preview tbody tr")).to_have_count(2)
    page.locator("#field-1").fill("total")
    without.press("Check again")
    expect(page.locator(".preview thead")).to_contain_text("total")
    page.locator("#make").click()
    page.wait_for_url("**/upload/")
    page.get_by_label("Choose files, or drop them here").set_input_files(file)
    without.press("Upload the file")
    page.wait_for_url(re.compile("/jobs/[0-9a-f-]{36}/"))
    expect_after_reloads(page.locator("main"), "completed")
    without.press("People")
    expect(page.locator("main")).to_contain_text("total")
    context.close()
