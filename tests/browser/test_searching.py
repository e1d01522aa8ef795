"""Filters, columns, pages and records, as somebody uses them; and what they leave behind."""

from __future__ import annotations

import json
import re

from playwright.sync_api import Route, expect

from tests.browser.census import Census
from tests.browser.visitor import Visitor


def test_filters_find_what_the_rows_say_and_leave_no_trace(
    visitor: Visitor, census: Census
) -> None:
    visitor.log_in(census.account, census.page("search"))
    assert visitor.found().startswith("200 records, 1 to 50")
    page = visitor.page

    visitor.ask("age >= 50")
    old = [row for row in census.rows if row["age"] >= 50]
    expect(page.locator(".found")).to_contain_text(f"{len(old)} records")
    visitor.ask("education in ('Bachelors', 'Masters')")
    learned = [row for row in old if row["education"] in ("Bachelors", "Masters")]
    expect(page.locator(".found")).to_contain_text(f"{len(learned)} records")
    visitor.picture("search")

    visitor.press("Clear")
    expect(page.locator(".pill")).to_have_count(0)
    visitor.ask("age >= 50 or education in ('Bachelors', 'Masters')")
    either = [
        row
        for row in census.rows
        if row["age"] >= 50 or row["education"] in ("Bachelors", "Masters")
    ]
    expect(page.locator(".found")).to_contain_text(f"{len(either)} records")

    # A reload asks the same again, from memory: no address says what was searched for.
    page.reload()
    expect(page.locator(".found")).to_contain_text(f"{len(either)} records")
    address, _, name = page.url.partition("?")
    assert address == visitor.site.proxy_url + visitor.below(census.page("search"))
    assert re.fullmatch(r"q=[A-Za-z0-9_-]{16}", name)
    kept = page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, history.state])"
    )
    assert "Bachelors" not in kept
    assert "Bachelors" not in visitor.site.log


def test_texts_are_found_by_patterns_letters_off_and_in_any_spelling(
    visitor: Visitor, census: Census
) -> None:
    visitor.log_in(census.account, census.page("search"))
    page = visitor.page
    learned = sum(row["education"] == "Bachelors" for row in census.rows)
    for test, count in (
        ("like '%chel%'", learned),
        ("near 'Bachelro' within 2", learned),
        ("starts with 'B\u00c1CHEL'", 0),
        ("starts with 'B\u00c1CHEL' folded", learned),
    ):
        visitor.ask(f"education {test}")
        # From its beginning: what is cleared says "300 records", which ends with "0 records".
        expect(page.locator(".found")).to_contain_text(re.compile(rf"^\s*{count:,} record"))
        page.reload()
        expect(page.locator(".found")).to_contain_text(re.compile(rf"^\s*{count:,} record"))
        visitor.press("Clear")
        expect(page.locator(".pill")).to_have_count(0)


def test_pages_of_results_go_forth_and_back(visitor: Visitor, census: Census) -> None:
    visitor.log_in(census.account, census.page("search"))
    first = visitor.numbers("fnlwgt")

    visitor.press("Next page")
    expect(visitor.page.locator(".found")).to_contain_text("51 to 100 shown")
    second = visitor.numbers("fnlwgt")
    visitor.press("Previous page")
    expect(visitor.page.locator(".found")).to_contain_text("1 to 50 shown")

    assert first + second == [row["fnlwgt"] for row in census.rows[:100]]
    assert visitor.numbers("fnlwgt") == first


def test_a_record_is_shown_in_full(visitor: Visitor, census: Census) -> None:
    visitor.log_in(census.account, census.page("search"))

    visitor.open_record(2)

    terms = visitor.page.locator("dl.facts dt").all_inner_texts()
    values = visitor.page.locator("dl.facts dd").all_inner_texts()
    shown = {term: text for term, text in zip(terms, values, strict=True) if text != "missing"}
    assert shown == {name: str(value) for name, value in census.rows[1].items()}


def test_long_numbers_show_their_groups_and_are_copied_without_them(
    visitor: Visitor, census: Census
) -> None:
    visitor.log_in(census.account, f"{census.page('search')}")
    most = visitor.page.locator("table.records td", has=visitor.page.locator("span")).first
    assert most.inner_text() == str(census.rows[0]["fnlwgt"])
    gaps = most.locator("span").evaluate_all(
        "all => all.map(one => parseFloat(getComputedStyle(one).marginLeft))"
    )
    assert len(gaps) == 1
    assert min(gaps) > 1


def test_what_others_have_typed_is_shown_as_text(visitor: Visitor, census: Census) -> None:
    visitor.log_in(census.account)
    hostile = "<img src=x onerror=alert(1)>"
    visitor.make_dataset(hostile)
    visitor.expect_heading(hostile)
    visitor.press("Define a schema")
    definition = {"type": "object", "properties": {hostile: {"type": "string"}}}
    visitor.page.get_by_text("The same as JSON").click()
    visitor.type("Definition", json.dumps(definition))
    visitor.type("Name", hostile)
    visitor.press("Create the schema")
    visitor.page.wait_for_url(re.compile(r"/schemas/[^/]+/upload/$"))
    visitor.press("Add a record")
    visitor.type(hostile, hostile)
    visitor.press("Store the record")
    visitor.press("Records")

    expect(visitor.page.locator("table.records td").nth(1)).to_have_text(hostile)
    expect(visitor.page.locator("main img")).to_have_count(0)


def test_what_is_typed_while_an_answer_is_on_its_way_stays(
    visitor: Visitor, census: Census
) -> None:
    visitor.log_in(census.account, census.page("search"))
    page = visitor.page
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/search/", hold)
    line = page.locator("#line")
    with page.expect_request("**/search/"):
        visitor.ask("age > 40")
    line.fill("")
    line.press_sequentially("age > 5")
    old = line.element_handle()
    with page.expect_response("**/search/"):
        held.pop().continue_()
        page.unroute("**/search/")
    old.wait_for_element_state("hidden")  # the answer has taken its place
    expect(line).to_have_value("age > 5")
    expect(line).to_be_focused()
    line.press_sequentially("0")
    line.press("Enter")

    expected = len([row for row in census.rows if row["age"] > 50])
    expect(page.locator(".found")).to_contain_text(f"{expected} records")
    expect(line).to_have_value("")
