"""The keyboard alone: it stops where docs/web-ui.md says, in that order, and that is enough."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.census import stored_census
from tests.browser.test_importing import chosen
from tests.browser.visitor import CENSUS, ROOT, Visitor
from tests.support.service import Service

#: What has the focus, as a screen reader names it, and whether one sees that it has.
_FOCUSED = """() => {
  const e = document.activeElement;
  const inside = document.querySelector("main").contains(e);
  const named = e.ariaLabel || e.labels?.[0]?.innerText || e.innerText || e.name || e.tagName;
  return [inside, named.trim().split("\\n")[0], getComputedStyle(e).outlineStyle !== "none"];
}"""


def documented(page: str) -> list[str]:
    """The stops that the document lists for a page."""
    text = (ROOT / "docs" / "web-ui.md").read_text().partition("## Tab stops")[2]
    text = text.partition("\n## ")[0]
    listed = re.search(rf"^- `{re.escape(page)}`[^:]*:\s(.*?)(?=^- |\Z)", text, re.S | re.M)
    assert listed, page
    return re.split(r";\s", re.sub(r"\s+", " ", listed[1]).strip().removesuffix("."))


def stops(page: Page) -> list[str]:
    """Those of the page's own part, from its begin."""
    page.evaluate("document.querySelector('main').focus()")
    found: list[str] = []
    for _ in range(150):
        page.keyboard.press("Tab")
        inside, name, seen = page.evaluate(_FOCUSED)
        if not inside:
            return found
        assert seen, name
        found.append(name)
    raise AssertionError("the keyboard does not leave the page")


def test_the_import_can_be_done_by_the_keyboard_alone(
    visitor: Visitor, site: Service, tmp_path: Path
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("name,age\nAda,36\nGrace,85\n")
    visitor.log_in(stored_census(site, 1).account, "/import/")
    page = visitor.page
    assert stops(page) == documented("/import/")[:1]
    chosen(visitor, file)
    assert stops(page) == documented("/import/")
    keys = page.keyboard
    page.locator("#out-0").focus()
    keys.press("Space")
    expect(page.locator(".preview thead th")).to_have_count(2)
    expect(page.locator("#out-0")).to_be_focused()
    page.locator("#make").focus()
    keys.press("Enter")
    expect(page.locator(".file")).to_contain_text("completed, 2 of 2 records", timeout=60_000)


def test_jobs_can_be_used_by_the_keyboard_alone(visitor: Visitor, site: Service) -> None:
    census = stored_census(site, 1)
    visitor.log_in(census.account, census.page("upload"))
    visitor.upload(CENSUS)
    visitor.newest_job("completed")
    visitor.go("/jobs/")
    page = visitor.page
    assert stops(page) == documented("/jobs/")
    page.locator("main .job-title a").focus()
    page.keyboard.press("Enter")
    visitor.expect_heading("census.csv")
    assert stops(page) == documented("/jobs/<job>/")
    page.get_by_role("link", name="Undo: delete what it stored…").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/undo/")
    assert stops(page) == documented("/jobs/<job>/undo/")
    page.locator("main form input[name=count]").focus()
    page.keyboard.type("1,000")
    page.keyboard.press("Enter")
    expect(page.locator(".job-line")).to_contain_text("undone")


def test_the_keyring_can_be_used_by_the_keyboard_alone(visitor: Visitor, site: Service) -> None:
    census = stored_census(site, 1)
    visitor.log_in(census.account)
    visitor.be_let_in(census.account)
    visitor.go("/keyring/")
    page = visitor.page
    assert stops(page) == documented("/keyring/")
    page.locator("#show-proof").focus()
    page.keyboard.type(census.account.password)
    page.keyboard.press("Enter")
    page.locator(".phrase").wait_for(state="attached")
    assert stops(page) == documented("/keyring/ with words")
