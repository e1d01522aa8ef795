"""Records on a phone, and going to a row by its number."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.census import Census
from tests.browser.visitor import Visitor
from tests.support.service import Service


@pytest.fixture
def searching(visitor: Visitor, census: Census) -> Visitor:
    visitor.log_in(census.account, census.page("search"))
    return visitor


def test_on_a_phone_each_record_is_a_card_of_four_fields(
    searching: Visitor, census: Census
) -> None:
    page = searching.page
    page.set_viewport_size({"width": 390, "height": 844})
    card = page.locator("table.records tbody tr").first
    names = page.locator("table.records thead bdi").all_text_contents()[:4]
    cells = [cell for cell in card.locator("td").all() if cell.is_visible()]
    assert [cell.get_attribute("data-f") for cell in cells] == [None, *names]
    first = census.rows[0]
    said = [cell.inner_text().strip() for cell in cells[1:]]
    assert said == [str(first.get(name, "\N{EN DASH}")) for name in names]
    label = cells[1].evaluate("cell => getComputedStyle(cell, '::before').content")
    assert label == f'"{names[0]}"'
    widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1]
    # Sorting and menus are above the cards, and a card opens the whole record.
    searching.press("age")
    expect(page.locator("th[aria-sort=ascending]")).to_have_count(1)
    page.locator("table.records tbody tr").nth(1).locator("td").nth(2).click()
    expect(page.locator("#panel dl.facts dt")).to_have_count(15)
    # Every tab is on the screen, in as many lines as they take.
    ends = page.locator(".tabs a").evaluate_all(
        "all => all.map(link => link.getBoundingClientRect().right)"
    )
    assert len(ends) == 8
    assert max(ends) <= 390
    # Where there is room, all fields stand beside each other.
    page.set_viewport_size({"width": 1100, "height": 800})
    expect(card.locator("td").nth(8)).to_be_visible()


def test_a_row_is_gone_to_by_its_number(searching: Visitor, census: Census) -> None:
    page = searching.page
    row = page.get_by_label("Row", exact=True)
    row.fill("120")
    row.press("Enter")
    expect(page.locator(".found")).to_contain_text("120 to 169 shown")
    assert searching.numbers("fnlwgt") == [row["fnlwgt"] for row in census.rows[119:169]]
    expect(page.locator("#row")).to_be_focused()
    searching.press("Next page")
    expect(page.locator(".found")).to_contain_text("170 to 200 shown")
    assert searching.numbers("fnlwgt") == [row["fnlwgt"] for row in census.rows[169:]]
    for shown in ("120 to 169", "70 to 119", "20 to 69", "1 to 50"):
        searching.press("Previous page")
        expect(page.locator(".found")).to_contain_text(f"{shown} shown")
    expect(page.locator("#previous")).to_be_disabled()
    # Beyond the last there are the last; what is no number leads nowhere.
    row.fill("9 999")
    searching.press("Go")
    expect(page.locator(".found")).to_contain_text("151 to 200 shown")
    expect(page.locator("#not-there")).to_have_text(
        "There is no row 9,999: these are the last rows."
    )
    row.fill("nowhere")
    searching.press("Go")
    expect(page.locator("#not-there")).to_have_count(0)
    expect(page.locator(".found")).to_contain_text("151 to 200 shown")
    # Another question begins at its beginning.
    searching.press("age")
    expect(page.locator(".found")).to_contain_text("1 to 50 shown")
    row.fill("101")
    searching.press("Go")
    expect(page.locator(".found")).to_contain_text("101 to 150 shown")
    assert searching.numbers("age") == sorted(row["age"] for row in census.rows)[100:150]


def test_a_row_is_gone_to_without_scripts(chromium: Browser, site: Service, census: Census) -> None:
    context = chromium.new_context(base_url=site.proxy_url, java_script_enabled=False)
    plain = Visitor(site, context.new_page(), [])
    plain.log_in(census.account, census.page("search"))
    plain.page.locator("#row").fill("60")
    plain.press("Go")
    expect(plain.page.locator(".found")).to_contain_text("60 to 109 shown")
    assert plain.numbers("fnlwgt") == [row["fnlwgt"] for row in census.rows[59:109]]
    context.close()
