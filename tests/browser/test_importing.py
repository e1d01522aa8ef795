"""The import: from a file to records in one page, with nothing stored before the last step; and the
schema editor, which says what is wrong where it is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from tests.browser.census import Census
from tests.browser.conftest import visiting
from tests.browser.visitor import CENSUS, Visitor
from tests.support.service import Service


@pytest.fixture
def importer(visitor: Visitor, census: Census) -> Visitor:
    visitor.log_in(census.account, "/import/")
    return visitor


@pytest.fixture
def newcomer(chromium: Browser, site: Service) -> Iterator[Visitor]:
    """Logged in to an account with nothing in it."""
    with visiting(chromium, site) as one:
        one.log_in(site.new_account(), "/import/")
        yield one


def chosen(visitor: Visitor, file: Path) -> None:
    visitor.page.locator("[data-uploads] input[type=file]").set_input_files(file)
    visitor.page.locator("#plan section").first.wait_for()


def head(page: Page, name: str) -> str:
    found = page.locator(".preview thead th").filter(has_text=re.compile(f"^{name}"))
    return re.sub(r"\s+", " ", found.inner_text())


def marked(page: Page) -> list[str]:
    """The ids of inputs that are marked as wrong."""
    ids: list[str] = page.locator("[aria-invalid=true]").evaluate_all(
        "all => all.map((one) => one.id)"
    )
    return ids


def test_a_file_becomes_dataset_schema_and_records_in_one_page(newcomer: Visitor) -> None:
    page = newcomer.page
    sent: list[str] = []
    page.on("request", lambda one: sent.append(f"{one.method} {one.url}"))
    chosen(newcomer, CENSUS)

    expect(page.locator(".preview tbody tr")).to_have_count(20)
    expect(page.locator(".preview .unfit")).to_have_count(0)
    assert head(page, "age") == "age integer seen 17 to 90"
    expect(page.locator("#rows")).to_have_text(re.compile("^1,000 records, "))
    expect(page.locator("#estimate")).to_contain_text("1,000 records")
    expect(page.get_by_text("The server never sees")).to_be_visible()
    # The name comes from the file's; nothing is stored so far.
    expect(page.get_by_label("Name of the schema")).to_have_value("Census")
    newcomer.picture("import")
    assert not [one for one in sent if "/api/" in one]

    newcomer.type("Name of the schema", "People")
    newcomer.press("Encrypt and store")
    expect(page.locator("#made")).to_have_text("People was created")
    expect(page.locator(".file")).to_contain_text("completed, 1,000 of 1,000 records")
    # What surrounds the page knows of it.
    side = page.get_by_role("navigation", name="Main")
    expect(side.get_by_role("link", name="People", exact=True)).to_be_visible()
    expect(page.locator("#status")).to_contain_text("Keyring open")
    assert newcomer.serious_flaws() == []
    newcomer.press("Search People")
    page.wait_for_url("**/search/")
    assert newcomer.found().startswith("1,000 records")
    newcomer.go("/datasets/")
    expect(page.locator("main").get_by_role("link", name="Census", exact=True)).to_be_visible()


def test_cells_that_will_not_fit_are_marked_while_bounds_are_typed(importer: Visitor) -> None:
    page = importer.page
    chosen(importer, CENSUS)

    page.locator("#maximum-0").fill("40")
    importer.press("Check again")
    cell = page.locator(".preview td.unfit").first
    expect(cell).to_contain_text("above the maximum of 40")
    expect(page.locator("#plan")).to_contain_text(re.compile("[1-9][0-9]+ rows do not fit"))
    assert importer.serious_flaws() == []
    page.locator("#type-0").select_option("string")
    expect(page.locator(".preview .unfit")).to_have_count(0)
    assert head(page, "age").startswith("age string")


def test_of_a_long_file_only_the_head_is_read(importer: Visitor, tmp_path: Path) -> None:
    file = tmp_path / "long_list.csv"
    row = '"Ada, ""the first""\nof her name",36\n'
    with file.open("w") as out:
        out.write("name,age\n")
        for _ in range(150):
            out.write(row * 1000)
    sizes: list[int] = []

    def heard(request: Request) -> None:
        sizes.append(len(request.post_data_buffer or b""))

    importer.page.on("request", heard)
    chosen(importer, file)

    # Form encoding takes up to three times the 512 KiB that are read.
    assert file.stat().st_size > 5_000_000
    assert max(sizes) < 3 << 19
    # Rows of two lines were not cut in the middle, and are not counted twice over.
    expect(importer.page.locator(".preview .unfit")).to_have_count(0)
    said = importer.page.locator("#rows").inner_text()
    match = re.match(r"About ([\d,]+) records", said)
    assert match
    assert 140_000 <= int(match[1].replace(",", "")) <= 160_000, said
    expect(importer.page.get_by_label("Name of the schema")).to_have_value("Long list")


def test_what_is_no_table_is_told_in_place(importer: Visitor, tmp_path: Path) -> None:
    alert = importer.page.locator("#plan").get_by_role("alert")
    for name, content, said in (
        ("odd.csv", b'a,b\n1,"2\n', "row 2: a quote is not closed"),
        ("report.csv", b"%PDF-1.7 ...", "the file is a PDF document. Export the data as CSV."),
        (
            "people.csv",
            b"<!doctype html><title>Log in</title>",
            "web page or XML. Was the download",
        ),
        ("book.csv", b"PK\x03\x04 ...", "the file is an archive"),
        ("empty.csv", b"", "There are no rows to preview"),
    ):
        file = tmp_path / name
        file.write_bytes(content)
        importer.page.locator("[data-uploads] input[type=file]").set_input_files(file)
        expect(alert).to_contain_text(re.compile(re.escape(said), re.IGNORECASE))
        expect(importer.page.locator(".file")).to_have_count(1)
        expect(importer.page.locator("#make")).to_have_count(0)
        assert "--" not in alert.inner_text()


def test_a_file_of_column_names_alone_is_said_to_have_no_rows(
    importer: Visitor, tmp_path: Path
) -> None:
    names = tmp_path / "names.csv"
    names.write_text("name,age\n")
    importer.go("/import/")
    importer.page.get_by_label("Choose a file").set_input_files(names)
    plan = importer.page.locator("#plan")
    expect(plan.locator("#rows")).to_contain_text("0 records")
    expect(plan).to_contain_text("The file has column names and no rows.")


def test_without_scripts_the_same_steps_are_plain_forms(
    chromium: Browser, site: Service, census: Census, tmp_path: Path
) -> None:
    context = chromium.new_context(base_url=site.proxy_url, java_script_enabled=False)
    page = context.new_page()
    without = Visitor(site, page, [])
    without.log_in(census.account, "/import/")
    file = tmp_path / "some people.csv"
    file.write_text("name,age\nAda,36\nGrace,85\n")
    page.get_by_label("Choose a file, or drop it here").set_input_files(file)
    without.press("Preview the rows")

    expect(page.locator(".preview tbody tr")).to_have_count(2)
    page.locator("#maximum-1").fill("50")
    without.press("Check again")
    expect(page.locator(".preview td.unfit")).to_contain_text("85")
    page.locator("#maximum-1").fill("120")
    without.press("Encrypt and store")
    page.wait_for_url("**/upload/")
    without.expect_heading("Some people")
    page.get_by_label("Choose files, or drop them here").set_input_files(file)
    without.press("Upload the file")
    page.wait_for_url(re.compile("/jobs/[0-9a-f-]{36}/"))
    without.expect_heading("some people.csv")
    context.close()


def test_rows_that_do_not_fit_are_shown_before_a_file_is_uploaded(
    visitor: Visitor, census: Census, tmp_path: Path
) -> None:
    rows = CENSUS.read_text().splitlines()[:30]
    rows[4] = "old" + rows[4][2:]
    file = tmp_path / "people.csv"
    file.write_text("\n".join(rows))
    visitor.log_in(census.account, census.page("upload"))
    visitor.page.locator("[data-uploads] input[type=file]").set_input_files(file)

    expect(visitor.page.locator("#preview")).to_contain_text("1 row does not fit")
    expect(visitor.page.locator(".preview td.unfit")).to_contain_text("old")
    visitor.page.get_by_role("button", name="Remove people.csv", exact=True).click()
    expect(visitor.page.locator(".preview")).to_have_count(0)
    assert visitor.page.evaluate("document.activeElement.type") == "file"


def test_an_editor_says_each_error_at_its_field(visitor: Visitor, census: Census) -> None:
    page = visitor.page
    visitor.log_in(census.account, f"/datasets/{census.dataset}/new-schema/")
    page.get_by_label("Choose a file").set_input_files(CENSUS)
    page.get_by_text("Proposed from").wait_for()
    # Below numbers, the values that were seen; beside texts, how their lengths are hidden.
    assert "None" not in page.locator("main").inner_text()
    expect(page.locator("tr.about")).to_have_count(6)
    expect(page.get_by_text("padded to")).to_have_count(9)

    page.locator("#minimum-0").fill("")
    page.locator("#maximum-2").fill("abc")
    visitor.press("Check and estimate")
    page.locator("#error-minimum-0").wait_for()
    assert marked(page) == ["minimum-0", "maximum-2"]
    assert page.locator("#error-minimum-0").inner_text() == "Numbers need a minimum."
    assert page.locator("#error-maximum-2").inner_text() == "This is not a number."
    assert page.evaluate("document.activeElement.id") == "minimum-0"
    assert page.locator("#minimum-0").get_attribute("aria-describedby") == "error-minimum-0"
    assert visitor.serious_flaws() == []

    page.locator("#minimum-0").fill("300")
    page.locator("#maximum-0").fill("200")
    page.locator("#maximum-2").fill("9")
    visitor.press("Create the schema")
    expect(page.locator("#error-minimum-0")).to_have_text("The minimum is above the maximum.")
    assert "minimum:" not in page.locator("main").inner_text()
    page.locator("#minimum-0").fill("0")
    visitor.press("Create the schema")
    expect(page.locator("#name-error")).to_be_visible()
    assert marked(page) == ["name"]


def test_no_part_of_an_editors_row_is_cut_off(visitor: Visitor, census: Census) -> None:
    visitor.log_in(census.account, f"/datasets/{census.dataset}/new-schema/")
    visitor.press("Add a field")
    visitor.page.locator("#remove-1").wait_for()
    _require_whole_row(visitor)
    visitor.go(census.page("fields"))
    _require_whole_row(visitor)


def _require_whole_row(visitor: Visitor) -> None:
    page = visitor.page
    for width in (320, 1100, 1440, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        for name in ("field", "type", "required", "remove"):
            box = page.locator(f"#{name}-1").bounding_box()
            scroll = page.locator(".scroll").first.bounding_box()
            assert box
            assert scroll
            assert box["x"] + box["width"] <= scroll["x"] + scroll["width"] + 0.5, (name, width)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width
