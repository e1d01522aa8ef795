"""The table of records: what stands in it, beside it and below it, with a mouse and without."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.census import Census
from tests.browser.test_widths import wide_at
from tests.browser.visitor import Visitor, wait_until
from tests.support.service import Account, Service, call


@pytest.fixture
def searching(visitor: Visitor, census: Census) -> Visitor:
    visitor.page.set_viewport_size({"width": 1440, "height": 900})
    visitor.log_in(census.account, census.page("search"))
    return visitor


def width(bar: Locator) -> float:
    box = bar.bounding_box()
    assert box
    return box["width"]


def stored(site: Service, account: Account, rows: list[dict[str, Any]], names: list[str]) -> str:
    """A schema of text fields with these rows in it; its identifier."""

    def post(path: str, body: Any) -> Any:
        answer = call("POST", site.proxy_url + path, body, auth=account.auth)
        assert answer.status == 201, answer
        return answer.json()

    dataset = post("/api/datasets/", {"name": "D", "organization": account.organization})
    properties = {name: {"type": "string"} for name in names}
    definition = {"type": "object", "properties": properties}
    schema = post("/api/schemas/", {"name": "S", "dataset": dataset["url"], "schema": definition})
    for start in range(0, len(rows), 100):
        some = rows[start : start + 100]
        post("/api/records/ingest/", [{"schema": schema["url"], "data": row} for row in some])
    return str(schema["id"])


def test_bars_are_as_long_as_their_counts_say(visitor: Visitor, site: Service) -> None:
    """Counts of different widths once took the room of their bars."""
    account = site.new_account()
    counts = {"a long value, longer than its column is": 99, "b": 100, "c": 5, "d": 50}
    rows = [{"state": name} for name, count in counts.items() for _ in range(count)]
    schema = stored(site, account, rows, ["state"])
    visitor.log_in(account)
    visitor.page.set_viewport_size({"width": 1440, "height": 900})
    for page in ("overview", "search"):
        visitor.go(f"/schemas/{schema}/{page}/")
        visitor.page.locator(".bars .drawn").first.wait_for()
        bars = {
            int(item.locator(".number").inner_text()): width(item.locator(".drawn"))
            for item in visitor.page.locator(".bars li").all()
        }
        assert set(bars) == set(counts.values())
        for count, length in bars.items():
            assert length == pytest.approx(bars[100] * count / 100, abs=1)


def test_what_the_server_sees_are_its_bytes(searching: Visitor, census: Census) -> None:
    page = searching.page
    searching.press("What the server sees")
    cells = page.locator("table.records tbody tr").first.locator("td > i")
    expect(cells).to_have_count(len(census.rows[0]) + missing_of(census, 0))
    shown = cells.all_text_contents()
    searching.picture("sealed")
    # A missing value is sealed as well, so that there is one of each field.
    names = page.locator("table.records thead th bdi").all_inner_texts()
    searching.open_record(1)
    record = page.locator("#record code").inner_text()
    in_panel = page.locator("#record dd.sealed").all_inner_texts()
    url = f"{searching.site.base_url}/api/records/{record}/"
    sealed = call("GET", url, auth=census.account.auth).json()["fields"]
    assert [text.split("…")[0] for text in shown] == [hex_of(sealed[name]) for name in names]
    assert [text.split("…")[0] for text in in_panel] == [hex_of(sealed[name]) for name in names]
    assert shown[0].endswith(f" {len(base64.b64decode(sealed[names[0]]))}")
    unit = cells.first.evaluate("(e) => getComputedStyle(e, '::after').content")
    assert unit == '" B"'
    # The lens shows one of both, as far as its handle has passed.
    lens = page.get_by_role("slider", name="Lens")
    lens.focus()
    lens.press("Home")
    expect(cells.first).to_be_hidden()
    lens.press("ArrowRight")
    expect(cells.first).to_be_visible()
    expect(cells.nth(1)).to_be_hidden()
    expect(lens).to_have_attribute(
        "aria-valuetext", f"1 of {len(names)} columns as the server has them"
    )
    row = page.locator("table.records tbody tr").first
    heights = [row.bounding_box()]
    lens.press("End")
    expect(cells.last).to_be_attached()
    assert heights == [row.bounding_box()]
    assert searching.serious_flaws() == []
    lens.press("Home")
    # The plain value stands beside it.
    expect(page.locator("table.records tbody tr").first).to_contain_text(census.rows[0]["sex"])


def missing_of(census: Census, row: int) -> int:
    definition = census.rows
    names = {name for one in definition for name in one}
    return len(names - census.rows[row].keys())


def hex_of(text: str) -> str:
    return base64.b64decode(text)[:4].hex()


def test_a_panel_walks_through_the_records_and_gives_the_focus_back(
    searching: Visitor, census: Census
) -> None:
    page = searching.page
    searching.open_record(2)
    shown = page.locator("#panel dl.facts")
    expect(page.locator("#panel")).to_be_focused()
    expect(shown).to_contain_text(str(census.rows[1]["fnlwgt"]))
    page.keyboard.press("ArrowRight")
    expect(shown).to_contain_text(str(census.rows[2]["fnlwgt"]))
    expect(page.locator("tr.current")).to_have_count(1)
    searching.press("Previous")
    expect(shown).to_contain_text(str(census.rows[1]["fnlwgt"]))
    expect(page.locator("#panel")).to_contain_text("2 of 50 on this page")
    page.keyboard.press("Escape")
    expect(shown).to_have_count(0)
    expect(page.get_by_role("link", name="Record 2", exact=True)).to_be_focused()
    # Anywhere in a row does.
    page.locator("table.records tbody tr").nth(4).locator("td").nth(2).click()
    expect(shown).to_contain_text(str(census.rows[4]["fnlwgt"]))


def test_the_menu_of_a_column_sorts_filters_and_hides(searching: Visitor, census: Census) -> None:
    page = searching.page

    def choose(name: str) -> None:
        page.get_by_role("button", name="Menu of age").click()
        page.locator("#menu-0").get_by_role("button", name=name).click()

    choose("Sort descending")
    expect(page.locator("th[aria-sort=descending]")).to_have_count(1)
    assert searching.numbers("age")[0] == max(row["age"] for row in census.rows)
    choose("Filter by this")
    expect(page.locator("#line")).to_have_value("age ")
    expect(page.locator("#line")).to_be_focused()
    page.locator("#line").fill("")
    page.keyboard.press("Escape")  # what may come next covers the heads of columns

    # By keys, in the menu, and by the mouse, at its edge; the next page keeps the width.
    head = page.locator("th").nth(1)
    before = width(head)
    page.get_by_role("button", name="Menu of age").press("Enter")
    page.get_by_role("button", name="Wider").press("Enter")
    assert width(head) == pytest.approx(before + 24, abs=1)
    assert searching.serious_flaws() == []
    page.keyboard.press("Escape")
    box = head.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] + 97, box["y"] + 10, steps=3)
    page.mouse.up()
    assert width(head) == pytest.approx(before + 124, abs=1)
    expect(page.locator("th[aria-sort=descending]")).to_have_count(1)
    searching.go(census.page("search"))
    assert width(head) == pytest.approx(before + 124, abs=1)
    choose("Hide")
    expect(page.get_by_role("button", name="Menu of age")).to_have_count(0)
    # What is hidden here is hidden in a window that is opened later.
    searching.go(census.page("search"))
    expect(page.get_by_role("button", name="Menu of age")).to_have_count(0)
    expect(page.locator(".pill")).to_have_count(0)
    searching.press("Show 1 hidden column")
    expect(page.get_by_role("button", name="Menu of age")).to_have_count(1)


def test_the_line_offers_what_may_come_next_and_says_where_it_makes_no_sense(
    searching: Visitor, census: Census
) -> None:
    page = searching.page
    line, options = page.locator("#line"), page.locator("#line-list [role=option]")
    line.press_sequentially("race ")
    expect(options.first).to_have_text("= is")
    line.press_sequentially("= 'W")
    expect(options).to_have_count(1)
    expect(line).to_have_attribute("aria-expanded", "true")
    assert searching.serious_flaws() == []
    line.press("ArrowUp")
    expect(line).to_have_attribute("aria-activedescendant", "line-option-0")
    line.press("Tab")
    expect(line).to_have_value('race = "White" ')
    expect(options.first).to_contain_text("and")
    line.press("Escape")
    expect(options).to_have_count(0)
    line.press_sequentially("and age >")
    line.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Expected a value after >.")
    expect(line).to_have_attribute("aria-invalid", "true")
    assert line.evaluate("field => field.selectionStart") == len('race = "White" and age >')
    assert searching.found().startswith("200 records")
    # A record that opens meanwhile has the focus.
    page.locator("table.records tbody a").first.click()
    expect(page.locator("#panel")).to_be_focused()
    page.keyboard.press("Escape")
    line.press("End")
    page.keyboard.type(" 40")
    page.keyboard.press("Enter")
    found = [row for row in census.rows if row["race"] == "White" and row["age"] > 40]
    expect(page.locator(".found")).to_contain_text(f"{len(found)} records")
    assert page.locator(".pill").all_inner_texts() == ['race = "White"', "age > 40"]
    expect(line).to_have_value("")

    # Words are looked for in every text, as text; what is not a word of the language stays one.
    hostile = "</ul><img src=x onerror=alert(1)>"
    searching.ask(f"race = '{hostile}'")
    expect(page.locator("#pill-2")).to_have_text(f'race = "{hostile}"')
    expect(page.locator(".found")).to_contain_text("0 records")
    page.locator("#clear").click()
    expect(page.locator(".pill")).to_have_count(0)
    searching.ask("BACHEL")
    learned = sum(row["education"] == "Bachelors" for row in census.rows)
    expect(page.locator(".found")).to_contain_text(f"{learned} records")
    expect(page.locator("#pill-0")).to_have_text('any text contains "BACHEL"')
    searching.ask(f"race = '{'x' * 65_536}'")
    expect(page.locator(".found")).to_contain_text("0 records")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_the_page_says_what_was_asked_of_the_server_for_it(
    searching: Visitor, census: Census
) -> None:
    page = searching.page
    strip = page.locator("#strip")
    expect(page.locator("#facet-0 .part")).to_be_visible()

    def said() -> list[int]:
        return [int(one) for one in (strip.get_attribute("data-asked") or "").split()]

    searching.ask("age > 40")
    expect(page.locator(".pill")).to_have_count(1)
    expect(strip).to_contain_text("none of your search terms left this machine")
    assert said()[3] >= 50, "the rows that are shown"
    # Later parts are counted on, by the answers themselves.
    expect(page.locator("#facet-0 .part")).to_be_visible()
    before = said()
    lane = page.locator("#lane")
    told = lane.get_attribute("title") or ""
    assert re.fullmatch(
        r"The last answer took \d+ requests? to the server and back, .* in all\.", told
    )
    # A dot runs from the proxy to the server and back.
    page.evaluate(
        "() => { const dot = document.querySelector('#lane i');"
        " const animate = dot.animate.bind(dot); window.ran = 0;"
        " dot.animate = (...all) => { window.ran += 1; return animate(...all); }; }"
    )
    searching.open_record(1)
    wait_until(page, lambda: said() != before)
    assert page.evaluate("window.ran") > 0
    assert all(now >= old for now, old in zip(said(), before, strict=True))
    assert strip.locator("b").first.inner_text() == (
        "1 request" if said()[0] == 1 else f"{said()[0]} requests"
    )


def test_columns_of_a_picture_are_chosen_with_the_mouse_or_by_typing(
    searching: Visitor, census: Census
) -> None:
    page = searching.page
    columns = page.locator("#facet-0 .hits rect")
    expect(columns.first).to_be_attached()
    first, last = columns.nth(3), columns.nth(6)
    count = columns.count()
    low, high = first.get_attribute("data-low"), last.get_attribute("data-high")
    assert low
    assert high
    first.hover()
    page.mouse.down()
    last.hover()
    page.mouse.up()
    chosen = [row for row in census.rows if int(low) <= row["age"] <= int(high)]
    expect(page.locator(".found")).to_contain_text(f"{len(chosen)} records")
    expect(page.locator("#pill-0")).to_have_text(f"age between {low} and {high}")
    # The whole schema stands behind it.
    behind = page.locator("#facet-0 .behind")
    expect(behind).to_have_count(1)
    assert (behind.get_attribute("d") or "").count("M") == count

    page.get_by_label("fnlwgt from", exact=True).fill("200000")
    page.get_by_role("button", name="Filter by fnlwgt").click()
    more = [row for row in chosen if row["fnlwgt"] >= 200_000]
    expect(page.locator(".found")).to_contain_text(f"{len(more)} records")
    expect(page.locator("#pill-1")).to_have_text("fnlwgt >= 200000")


def test_pictures_tell_their_figures(searching: Visitor, census: Census) -> None:
    searching.go(census.page("overview"))
    ages = sorted(row["age"] for row in census.rows)
    figures = searching.page.locator("#field-0 .figures div")
    expect(figures).to_have_count(4)
    shown = dict(text.split("\n") for text in figures.all_inner_texts())
    assert shown["median"] == str(ages[len(ages) // 2 - 1])
    assert shown["lower quartile"] == str(ages[len(ages) // 4 - 1])
    assert float(shown["mean"]) == pytest.approx(sum(ages) / len(ages), abs=0.006)
    titles = searching.page.locator("#field-0 .hits title").all_text_contents()
    assert all(
        re.search(r"^\d+(\u2013\d+)?: \d+ records? \([\d.]+ %\)$", title) for title in titles
    )
    # No text of a scale is cut off.
    cut = searching.page.locator("#field-0 svg.histogram").first.evaluate(
        "svg => { const all = svg.getBoundingClientRect();"
        " return [...svg.querySelectorAll('text')].map(one => one.getBoundingClientRect())"
        ".filter(one => one.top < all.top || one.bottom > all.bottom).length; }"
    )
    assert cut == 0
    # Missing values are never 0.0 %, and what is unique is said to be.
    assert "0.0 %" not in searching.page.locator("main").inner_text()


def test_focus_stays_where_the_work_is(searching: Visitor) -> None:
    page = searching.page
    page.keyboard.press("/")
    expect(page.locator("#line")).to_be_focused()
    searching.ask("age >= 1")
    expect(page.locator("#pill-0")).to_have_text("age >= 1")
    expect(page.locator("#line")).to_be_focused()
    searching.press("Remove age >= 1")
    expect(page.locator(".pill")).to_have_count(0)
    expect(page.locator("#line")).to_be_focused()
    searching.press("age")
    expect(page.locator("th[aria-sort]")).to_have_count(1)
    expect(page.locator("#sort-0")).to_be_focused()
    page.locator("#grid").evaluate("grid => grid.scrollTo(200, 400)")
    page.locator("#next").press("Enter")
    expect(page.locator(".found")).to_contain_text("51 to 100")
    expect(page.locator("#next")).to_be_focused()
    # The new page begins at its top, and at the columns that were in view.
    assert page.locator("#grid").evaluate("grid => [grid.scrollTop, grid.scrollLeft]") == [0, 200]
    page.locator("#bar-1-0").press("Enter")
    expect(page.locator(".pill")).to_have_count(1)


def test_texts_show_what_hides_in_them_and_begin_on_their_own_side(
    visitor: Visitor, site: Service
) -> None:
    account = site.new_account()
    name = "na\u202eme"
    texts = ["abc\u202edcba", "مرحبا, world", *["first line\nsecond line\nlast\x07"] * 2]
    schema = stored(site, account, [{name: text} for text in texts], [name])
    visitor.log_in(account, f"/schemas/{schema}/search/")
    cells = visitor.page.locator("table.records td:nth-child(2)")
    shown = ["abcU+202Edcba", texts[1], *["first line\u23cesecond line\u23celastU+0007"] * 2]
    assert cells.all_inner_texts() == shown
    ways = [cell.evaluate("c => getComputedStyle(c).direction") for cell in cells.all()]
    assert ways == ["ltr", "rtl", "ltr", "ltr"]
    expect(visitor.page.locator("#bar-0-0")).to_contain_text(shown[2])
    assert visitor.page.locator("thead bdi").inner_text() == "naU+202Eme"
    assert visitor.serious_flaws() == []
    visitor.open_record(1)
    expect(visitor.page.locator("#record dd").first).to_have_text("abcU+202Edcba")


def test_nothing_is_wider_than_the_window(searching: Visitor, census: Census) -> None:
    page = searching.page
    searching.ask("education = 'Bachelors'")
    expect(page.locator(".pill")).to_have_count(1)
    searching.press("What the server sees")
    expect(page.locator("td > i").first).to_be_attached()
    searching.open_record(1)
    assert wide_at(searching) == []
    searching.go(census.page("overview"))
    page.locator(".hits rect").first.wait_for()
    assert wide_at(searching) == []
