"""Two fields against each other, counted by hand from the same rows."""

from __future__ import annotations

from collections import Counter

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.census import Census
from tests.browser.visitor import SETTLED, Visitor
from tests.support.service import Service


def table(page: Page) -> dict[tuple[str, str], int]:
    """Counts by the names of row and column."""
    heat = page.locator("table.heat")
    heat.wait_for()
    columns = heat.locator("thead th").all_inner_texts()
    found: dict[tuple[str, str], int] = {}
    for row in heat.locator("tbody tr").all():
        name = row.locator("th").inner_text()
        cells = [int(text.replace(",", "")) for text in row.locator("td").all_inner_texts()]
        found |= {(name, column): n for column, n in zip(columns, cells, strict=True)}
    return found


def ends(label: str) -> tuple[int, int]:
    low, _, high = label.replace(",", "").partition("\N{EN DASH}")
    return int(low), int(high or low)


def choose(page: Page, down: str, across: str) -> None:
    page.locator("#down").select_option(label=down)
    page.locator("#across").select_option(label=across)
    page.locator("#draw-pair").click()
    expect(page.locator("table.heat caption")).to_contain_text(
        f"by {down}, downwards, and {across}, across"
    )


def test_two_fields_are_counted_against_each_other(visitor: Visitor, census: Census) -> None:
    page = visitor.page
    visitor.log_in(census.account, census.page("overview"))

    choose(page, "sex", "income")
    both = Counter((row["sex"], row["income"]) for row in census.rows)
    assert table(page) == dict(both)

    choose(page, "sex", "age")
    shown = table(page)
    assert sum(shown.values()) == len(census.rows)
    for (sex, ages), count in shown.items():
        low, high = ends(ages)
        assert count == sum(r["sex"] == sex and low <= r["age"] <= high for r in census.rows)

    choose(page, "age", "hours_per_week")
    shown = table(page)
    assert sum(shown.values()) == len(census.rows)
    for (ages, hours), count in shown.items():
        (low, high), (least, most) = ends(ages), ends(hours)
        assert count == sum(
            low <= r["age"] <= high and least <= r["hours_per_week"] <= most for r in census.rows
        )
    # The most has the darkest shade, and none has none.
    darkest = page.locator("table.heat .heat-8")
    assert int(darkest.first.inner_text()) == max(shown.values())
    assert set(page.locator("table.heat .heat-0").all_inner_texts()) <= {"0"}
    assert visitor.serious_flaws() == []


@pytest.mark.parametrize("scripts", [True, False])
def test_filters_count_and_a_field_against_itself_is_refused(
    chromium: Browser, site: Service, census: Census, scripts: bool
) -> None:
    context = chromium.new_context(base_url=site.proxy_url, java_script_enabled=scripts)
    visitor = Visitor(site, context.new_page(), [])
    page = visitor.page
    visitor.log_in(census.account, census.page("overview"))
    visitor.ask("age >= 50")
    old = [row for row in census.rows if row["age"] >= 50]
    expect(page.locator(".found")).to_have_text(f"{len(old)} records")
    choose(page, "sex", "income")
    assert table(page) == dict(Counter((row["sex"], row["income"]) for row in old))
    if not scripts:
        visitor.press("Back to all charts")
        expect(page.locator(".found")).to_have_text(f"{len(old)} records")
    page.locator("#across").select_option(label="sex")
    page.locator("#down").select_option(label="sex")
    page.locator("#draw-pair").click()
    expect(page.get_by_role("alert")).to_contain_text("These are the same field")
    context.close()


def expect_counts(page: Page, census: Census, down: str, across: str) -> None:
    expect(page.locator("table.heat caption")).to_contain_text(
        f"by {down}, downwards, and {across}, across"
    )
    counts = {pair: count for pair, count in table(page).items() if count}
    assert counts == dict(Counter((row[down], row[across]) for row in census.rows))


def test_a_picture_dragged_onto_another_counts_their_fields_against_each_other(
    visitor: Visitor, census: Census
) -> None:
    page = visitor.page
    page.set_viewport_size({"width": 1440, "height": 900})
    visitor.log_in(census.account, census.page("overview"))

    def head(name: str) -> Locator:
        return page.get_by_role("heading", name=name, exact=True)

    page.wait_for_function(SETTLED)
    head("income").scroll_into_view_if_needed()
    head("income").drag_to(page.locator(".card", has=head("sex")))
    expect_counts(page, census, "income", "sex")
    expect(page.locator("table.heat")).to_be_in_viewport()
    expect(page.locator(".over")).to_have_count(0)

    # Beside records the table opens over the page.
    visitor.go(census.page("search"))
    places = page.locator(".facets section")
    expect(places.first.locator(".part")).to_be_visible()
    head("sex").scroll_into_view_if_needed()
    page.wait_for_function(SETTLED)
    head("race").scroll_into_view_if_needed()
    page.wait_for_function(SETTLED)
    head("sex").drag_to(head("race"))
    expect_counts(page, census, "sex", "race")
    assert visitor.serious_flaws() == []
    page.keyboard.press("Escape")
    expect(page.locator("table.heat")).to_be_hidden()

    # A picture on itself, and a file or text from elsewhere, are nothing to count.
    head("sex").drag_to(head("sex"))
    expect(page.locator("table.heat")).to_be_hidden()


def test_two_fields_beside_records_are_chosen_by_keys(visitor: Visitor, census: Census) -> None:
    page = visitor.page
    page.set_viewport_size({"width": 1440, "height": 900})
    visitor.log_in(census.account, census.page("search"))
    button = page.get_by_role("button", name="Two fields…")
    button.focus()
    button.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator("#down")).to_be_focused()
    page.keyboard.type("sex")
    page.keyboard.press("Tab")
    page.keyboard.type("income")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect_counts(page, census, "sex", "income")
    page.keyboard.press("Escape")
    expect(button).to_be_focused()
