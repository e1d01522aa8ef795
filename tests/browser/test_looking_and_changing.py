"""Sorting, looking, exporting and changing, as somebody does it at the pages."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import Dialog, expect

from tests.browser.census import Census, stored_census
from tests.browser.visitor import Visitor
from tests.support.service import Service


def test_a_column_sorts_by_a_click_both_ways(visitor: Visitor, census: Census) -> None:
    visitor.log_in(census.account, census.page("search"))
    ages = sorted(row["age"] for row in census.rows)

    visitor.press("age")
    expect(visitor.page.locator("th[aria-sort=ascending]")).to_have_count(1)
    assert visitor.numbers("age") == ages[:50]
    visitor.press("age")
    expect(visitor.page.locator("th[aria-sort=descending]")).to_have_count(1)
    assert visitor.numbers("age") == ages[::-1][:50]


def test_a_bar_of_a_picture_filters_and_the_search_shows_the_same(
    visitor: Visitor, census: Census
) -> None:
    visitor.log_in(census.account, census.page("overview"))
    visitor.picture("look")
    women = sum(row["sex"] == "Female" for row in census.rows)

    visitor.press(f"sex is Female: {women} records")

    expect(visitor.page.locator(".found")).to_contain_text(f"{women} records")
    columns = visitor.page.locator("#field-0 .hits title")
    expect(columns.first).to_be_attached()
    said = [re.search(r": ([\d,]+) records? \(", text) for text in columns.all_text_contents()]
    assert sum(int(one[1]) for one in said if one) == women
    # The other page of the schema asks the same.
    visitor.page.get_by_role("link", name="Records", exact=True).click()
    visitor.page.wait_for_url("**/search/?q=*")
    assert visitor.found().startswith(f"{women} records")


def test_what_is_found_can_be_exported(visitor: Visitor, census: Census) -> None:
    visitor.log_in(census.account, census.page("search"))
    visitor.ask("age >= 50")
    old = [row for row in census.rows if row["age"] >= 50]
    expect(visitor.page.locator(".found")).to_contain_text(f"{len(old)} records")

    visitor.press("Export…")
    with visitor.page.expect_download() as download:
        visitor.press("JSON, one object per line")
    lines = Path(download.value.path()).read_text().splitlines()
    assert [json.loads(line)["data"] for line in lines] == old
    with visitor.page.expect_download() as download:
        visitor.press("CSV")
    assert len(Path(download.value.path()).read_text().splitlines()) == len(old) + 1
    visitor.page.get_by_label("CSV for a spreadsheet").check()
    with visitor.page.expect_download() as download:
        visitor.press("CSV")
    safe = Path(download.value.path()).read_text().splitlines()
    assert safe[0].startswith('"')
    assert len(safe) == len(old) + 1


def test_a_record_is_changed_by_one_and_refused_to_the_other(
    visitor: Visitor, site: Service
) -> None:
    census = stored_census(site, 3)
    visitor.log_in(census.account, census.page("search"))
    visitor.open_record(2)
    visitor.press("Edit")
    panel = visitor.page.locator("#panel")
    panel.locator("form[data-guard]").wait_for()
    identifier = visitor.page.url.rpartition("record=")[2]
    record = visitor.site.proxy_url + visitor.below(f"/records/{identifier}/")
    other = Visitor(site, visitor.page.context.new_page(), [])
    other.page.goto(f"{record}edit/")

    panel.locator("#value-0").fill("64")
    workclass = panel.locator("#value-1")
    if workclass.evaluate("field => field.localName") == "select":
        workclass.select_option("")
    else:
        workclass.fill("")
    visitor.press("Save")
    expect(panel).to_contain_text("The record is saved.")
    shown = visitor.page.locator("dl.facts").inner_text()
    other.type("age", "12")
    other.press("Save")

    assert re.search(r"age\s+64\b", shown)
    assert re.search(r"workclass\s+missing", shown)
    expect(other.page.get_by_role("alert")).to_contain_text("Somebody else has changed")
    # Both versions of what both have changed; what only the other has changed stays changed.
    first = census.rows[1]
    versions = other.page.locator("#value-0 ~ .versions dd").all_inner_texts()
    assert versions == [str(first["age"]), "64", "12"]
    expect(other.page.get_by_label("age", exact=True)).to_have_value("12")
    expect(other.page.get_by_label("workclass", exact=True)).to_have_value("")
    assert other.serious_flaws() == []
    other.press("Save mine over it")
    other.page.wait_for_url(record)
    shown_now = other.page.locator("dl.facts").inner_text()
    assert re.search(r"age\s+12\b", shown_now)
    assert re.search(r"workclass\s+missing", shown_now)

    # Beside the table both versions are shown as well, and what was typed is not left unasked.
    panel.locator("[data-edit]").click()
    panel.locator("form[data-guard]").wait_for()
    other.page.goto(f"{record}edit/")
    other.type("age", "13")
    other.press("Save")
    other.page.wait_for_url(record)
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    visitor.page.on("dialog", stay)
    panel.locator("#value-0").fill("14")
    visitor.page.keyboard.press("Escape")
    assert asked == ["Leave what you typed into this record?"]
    visitor.press("Save")
    expect(panel.get_by_role("alert")).to_contain_text("Somebody else has changed")
    said = panel.locator("#value-0 ~ .versions dd").all_inner_texts()
    assert said == ["12", "13", "14"]
    visitor.page.remove_listener("dialog", stay)
    visitor.page.on("dialog", lambda dialog: dialog.accept())
    visitor.press("Keep what is stored")
    expect(panel.locator("dd.value").first).to_have_text("13")

    visitor.press("Delete…")
    expect(visitor.page.locator("main")).not_to_contain_text("nothing in this record")
    expect(visitor.page.locator("dl.facts")).to_contain_text(str(first["education"]))
    visitor.press("Delete permanently")
    assert visitor.found().startswith("2 records")
