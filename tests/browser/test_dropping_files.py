"""A file that is dropped on any page begins an import, into what the page shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.census import Census, stored_census
from tests.browser.conftest import visiting
from tests.browser.visitor import Visitor
from tests.support.service import Service

ROWS = "name,age\nAda,36\nGrace,85\n"


@pytest.fixture(scope="module")
def census(site: Service) -> Census:
    return stored_census(site, 5)


@pytest.fixture(scope="module")
def owner(chromium: Browser, site: Service, census: Census) -> Iterator[Visitor]:
    with visiting(chromium, site) as visitor:
        visitor.log_in(census.account)
        yield visitor


def drop(visitor: Visitor, *files: tuple[str, str], on: str = "h1") -> None:
    """Drag files over an element of the page, and let them go there."""
    carried = visitor.page.evaluate_handle(
        "(files) => { const carried = new DataTransfer();"
        " for (const [name, text] of files) carried.items.add(new File([text], name));"
        " return carried; }",
        [list(file) for file in files],
    )
    place = visitor.page.locator(on).first
    for kind in ("dragenter", "dragover", "drop"):
        place.dispatch_event(kind, {"dataTransfer": carried})


def test_a_file_dropped_on_the_overview_is_looked_at_as_a_new_schema(owner: Visitor) -> None:
    page = owner.page
    owner.go("/")
    drop(owner, ("some people.csv", ROWS))
    expect(page.locator(".preview tbody tr")).to_have_count(2)
    owner.expect_heading("Import a file")
    expect(page.get_by_label("Name of the schema")).to_have_value("Some people")
    assert page.url.endswith("/import/")
    # The address is a step of its own, and the page does all that it does otherwise.
    page.locator("#maximum-1").fill("50")
    owner.press("Check again")
    expect(page.locator(".preview td.unfit")).to_contain_text("85")
    page.go_back()
    expect(page.locator("h1")).not_to_have_text("Import a file")


def test_a_file_dropped_on_a_page_of_a_schema_is_for_that_schema(
    owner: Visitor, census: Census
) -> None:
    page = owner.page
    owner.go(census.page("search"))
    row = ",".join(str(census.rows[0].get(name, "")) for name in census.rows[0])
    file = "\n".join([",".join(census.rows[0]), row])
    drop(owner, ("more.csv", file), on="table.records")
    page.wait_for_url("**/upload/")
    expect(page.locator(".file-name")).to_contain_text("more.csv")
    expect(page.locator(".preview tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Upload 1 file").click()
    expect(page.locator(".file")).to_contain_text("completed, 1 of 1 record")


def test_files_go_to_the_form_of_a_page_wherever_they_are_dropped_on_it(owner: Visitor) -> None:
    page = owner.page
    owner.go("/import/")
    drop(owner, ("first.csv", ROWS), ("second.csv", ROWS), on="footer")
    expect(page.locator(".toast")).to_have_text("One file at a time is taken here: first.csv.")
    expect(page.locator(".file-name")).to_have_count(1)
    expect(page.get_by_label("Name of the schema")).to_have_value("First")


def test_a_folder_is_not_taken_for_a_file(owner: Visitor, tmp_path: Path) -> None:
    """Chromium's own drag: a script can make no folder."""
    page = owner.page
    owner.go("/")
    (tmp_path / "people.csv").write_text(ROWS)
    heading = page.locator("h1").bounding_box()
    assert heading is not None
    session = page.context.new_cdp_session(page)

    def drag(path: Path) -> None:
        data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            place = {"x": heading["x"] + 5, "y": heading["y"] + 5}
            session.send("Input.dispatchDragEvent", {"type": kind, **place, "data": data})

    drag(tmp_path)
    expect(page.locator(".toast")).to_have_text(
        "No file was dropped. A folder is not taken: drop its files."
    )
    owner.expect_heading("Overview")
    drag(tmp_path / "people.csv")
    owner.expect_heading("Import a file")
    expect(page.locator(".preview tbody tr")).to_have_count(2)


def test_what_was_typed_is_not_left_for_a_file_without_a_question(
    owner: Visitor, census: Census
) -> None:
    page = owner.page
    owner.go(census.page("add"))
    page.locator("#value-0").fill("44")
    page.once("dialog", lambda dialog: dialog.dismiss())
    drop(owner, ("some people.csv", ROWS))
    expect(page.locator("#value-0")).to_have_value("44")
    page.once("dialog", lambda dialog: dialog.accept())
    drop(owner, ("some people.csv", ROWS))
    page.wait_for_url("**/upload/")
    expect(page.locator(".file-name")).to_contain_text("some people.csv")


def test_a_picture_of_the_page_itself_is_no_file_to_import(owner: Visitor) -> None:
    page = owner.page
    owner.go("/jobs/")
    page.locator(".brand").dispatch_event("dragstart")
    drop(owner, ("icon.svg", "<svg/>"))
    page.locator(".brand").dispatch_event("dragend")
    owner.expect_heading("Jobs")
    expect(page.locator("main.over")).to_have_count(0)
