"""SQL on a page: a statement, its rows, its errors, a file, and the statements of before."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.browser.census import Census
from tests.browser.visitor import PATIENCE, Visitor
from tests.support.service import Service

COUNTED = "SELECT sex, count(*) AS people, max(age) AS oldest FROM people GROUP BY sex ORDER BY 1"
BOX = "SELECT statement"


def test_a_statement_is_run_by_its_key_and_its_rows_are_those_of_the_records(
    visitor: Visitor, census: Census
) -> None:
    visitor.log_in(census.account)
    visitor.be_let_in(census.account)
    visitor.go("/")
    visitor.page.get_by_role("navigation", name="Main").get_by_role("link", name="SQL").click()
    visitor.expect_heading("SQL")
    example = "SELECT * FROM census.people LIMIT 10"
    expect(visitor.page.get_by_label(BOX)).to_have_attribute("placeholder", example)
    visitor.type(BOX, COUNTED)
    visitor.page.keyboard.press("Control+Enter")
    result = visitor.page.locator("#result")
    expect(result.get_by_role("status").first).to_have_text("2 rows")
    sexes = sorted({row["sex"] for row in census.rows})
    expected = [
        [
            sex,
            str(sum(row["sex"] == sex for row in census.rows)),
            str(max(int(row["age"]) for row in census.rows if row["sex"] == sex)),
        ]
        for sex in sexes
    ]
    rows = result.locator("tbody tr").all()
    assert [row.locator("td").all_inner_texts() for row in rows] == expected
    assert visitor.serious_flaws() == []
    assert "SELECT" not in visitor.page.url

    visitor.type(BOX, "SELECT agee FROM people")
    visitor.press("Run")
    expect(visitor.page.locator("#statement-wrong")).to_contain_text("agee")
    expect(visitor.page.locator("#statement-wrong")).to_contain_text("42703")
    expect(visitor.page.get_by_label(BOX)).to_have_value("SELECT agee FROM people")
    expect(visitor.page.get_by_label(BOX)).to_be_focused()
    assert visitor.serious_flaws() == []

    visitor.page.locator("summary", has_text="of this session").click()
    visitor.press(COUNTED)
    expect(visitor.page.get_by_label(BOX)).to_have_value(COUNTED)


def test_without_scripts_a_statement_has_its_first_rows_and_all_as_a_file(
    chromium: Browser, site: Service, census: Census
) -> None:
    context = chromium.new_context(base_url=site.proxy_url, java_script_enabled=False)
    context.set_default_timeout(PATIENCE)
    visitor = Visitor(site, context.new_page(), [])
    visitor.log_in(census.account)
    visitor.be_let_in(census.account)
    visitor.go(census.page("sql"))
    expect(visitor.page.get_by_label(BOX)).to_have_value(
        'SELECT *\nFROM "census"."people"\nLIMIT 10'
    )
    visitor.type(BOX, "SELECT age FROM people ORDER BY age")
    visitor.press("Run")
    expect(visitor.page.locator("#result")).to_contain_text(
        "The first 100 rows; the file contains all"
    )
    with visitor.page.expect_download() as begun:
        visitor.press("Download all rows as CSV")
    lines = begun.value.path().read_text().splitlines()
    context.close()
    assert lines == ["age", *map(str, sorted(int(row["age"]) for row in census.rows))]


def test_a_statement_that_takes_too_much_ends_by_name_and_the_page_goes_on(
    visitor: Visitor, census: Census
) -> None:
    visitor.log_in(census.account)
    visitor.be_let_in(census.account)
    visitor.go("/sql/")
    visitor.type(BOX, "SELECT list_sum(range(1000000000))")
    visitor.press("Run")
    expect(visitor.page.locator("#statement-wrong")).to_contain_text("53200")
    visitor.type(BOX, "DROP TABLE people")
    visitor.press("Run")
    expect(visitor.page.locator("#statement-wrong")).to_contain_text("25006")
    visitor.type(BOX, "SELECT count(*) FROM people")
    visitor.press("Run")
    expect(visitor.page.locator("#result td")).to_have_text(str(len(census.rows)))
