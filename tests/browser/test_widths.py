"""Every page, full and empty, at every width: nothing is wider than the window, nothing touches
what it should not, every form is answered there, and axe finds nothing.

With ``EVERY_PAGE=<folder>`` each is also photographed there: light, dark and as on a phone; with
``EVERY_PAGE_RECORDS=300000`` over so many records.
"""

from __future__ import annotations

import os
import re
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.census import Census, stored_census
from tests.browser.test_every_page import PUBLIC, flaws_of, own_pages
from tests.browser.visitor import CENSUS, SETTLED, Visitor
from tests.support.eventually import eventually
from tests.support.service import Service, call

WIDTHS = (320, 390, 768, 1280, 1920, 2560)
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1440, "height": 900}
FOLDER = os.environ.get("EVERY_PAGE", "")
RECORDS = int(os.environ.get("EVERY_PAGE_RECORDS", "0"))
#: Pictures of documents are loaded when they come into view, and may be wide.
LOAD_IMAGES = """() => Promise.all([...document.images].map((one) => {
  one.loading = "eager";
  return one.decode();
}))"""
EMPTY = ("/", "/datasets/", "/jobs/", "/keyring/", "/trust/", "/import/", "/audit-log/")


#: Labels that touch their controls, below or beside them, and controls that touch a box above.
TOUCHING = """() => {
  const seen = (one) => one && one.checkVisibility() && one.getBoundingClientRect().height > 0;
  const box = (one) => one.getBoundingClientRect();
  const found = [];
  for (const label of document.querySelectorAll("main .field > label")) {
    const control = document.getElementById(label.htmlFor);
    if (!seen(label) || !seen(control)) continue;
    const middle = (box(label).top + box(label).bottom) / 2;
    const isBeside = box(control).top < middle && middle < box(control).bottom;
    const across = box(control).left - box(label).right;
    const down = box(control).top - box(label).bottom;
    if ((isBeside ? across : down) < 3) found.push("label: " + label.innerText);
  }
  const boxes = "main :is(.scroll, .card, .notice, .problem, pre, dl, form, table)";
  for (const one of document.querySelectorAll(boxes)) {
    const next = one.nextElementSibling;
    if (!seen(one) || !seen(next)) continue;
    if (!next.matches("button, .button, details, form, p, h2, h3, .row, ul, dl")) continue;
    const apart = box(next).top - box(one).bottom;
    const beside = box(next).left >= box(one).right - 1 || box(next).right <= box(one).left + 1;
    if (apart < 4 && !beside) found.push(apart + ": " + one.outerHTML.slice(0, 60) + " / "
      + next.outerHTML.slice(0, 60));
  }
  return found;
}"""


#: What was typed is lost with a page that a browser leaves: only files and downloads go so.
LEAVING = "main form[method=post]:not([hx-post], [data-uploads], [data-download])"


def faults_of(visitor: Visitor, path: str) -> list[str]:
    page = visitor.page
    band: dict[str, Any] = page.evaluate(
        "() => { const band = document.querySelector('header.band').getBoundingClientRect();"
        " return {left: band.left, right: document.documentElement.clientWidth - band.right,"
        " gutter: getComputedStyle(document.documentElement).scrollbarGutter}; }"
    )
    found = [] if band == {"left": 0, "right": 0, "gutter": "auto"} else [str(band)]
    left = page.locator(LEAVING).evaluate_all("all => all.map((one) => one.action)")
    return [f"{path}: {one}" for one in (*found, *left, *page.evaluate(TOUCHING))]


def filled(site: Service) -> Census:
    """An account with so many records as were asked for, by a job."""
    made = stored_census(site, 1)
    header, *rows = CENSUS.read_bytes().splitlines()
    repeated = islice(cycle(rows), RECORDS - 1)
    body = b"\n".join([header, *repeated])
    url = f"{site.proxy_url}/api/jobs/upload/?schema={made.schema}"
    sent = {"Content-Type": "text/csv"}
    answer = call("POST", url, body, auth=made.account.auth, headers=sent)
    status = f"{site.proxy_url}/api/jobs/{answer.json()['job_id']}/"

    def stored() -> bool:
        told = call("GET", status, auth=made.account.auth).json()
        return bool(told["status"] == "completed")

    eventually(stored, "the records are stored", within=300, pause=0.5)
    return made


def wide_at(visitor: Visitor) -> list[int]:
    """The widths at which the page is wider than its window."""
    found = []
    for width in WIDTHS:
        visitor.page.set_viewport_size({"width": width, "height": 800})
        if visitor.page.evaluate("document.documentElement.scrollWidth - innerWidth") > 0:
            found.append(width)
    return found


def photograph(visitor: Visitor, name: str) -> None:
    if not FOLDER:
        return
    page = visitor.page
    before = page.viewport_size
    assert before
    for kind, size, scheme in (
        ("light", DESK, "light"),
        ("dark", DESK, "dark"),
        ("phone", PHONE, "light"),
    ):
        page.set_viewport_size(size)  # type: ignore[arg-type] # a mapping of its two members
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.wait_for_function(SETTLED)
        folder = Path(FOLDER) / kind
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / f"{name}.png", full_page=True, caret="initial")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(before)


def look_at(visitor: Visitor, path: str, name: str = "") -> list[str]:
    visitor.go(path)
    visitor.page.wait_for_function(SETTLED)
    visitor.page.evaluate(LOAD_IMAGES)
    photograph(visitor, name or re.sub(r"[0-9A-Za-z]{22}/", "", path).strip("/").replace("/", "-"))
    found = [f"{path} at {width}" for width in wide_at(visitor)]
    visitor.page.set_viewport_size({"width": 1100, "height": 800})
    for summary in visitor.page.locator("main summary:visible").all():
        summary.evaluate("one => one.parentElement.open = true")
    return found + faults_of(visitor, path)


def test_no_page_is_wider_than_its_window_nothing_touches_and_axe_finds_nothing(
    visitor: Visitor, site: Service, census: Census
) -> None:
    wide = [one for path in PUBLIC[:-1] for one in look_at(visitor, path) + flaws_of(visitor)]
    shown = filled(site) if RECORDS else census
    visitor.log_in(shown.account)
    visitor.be_let_in(shown.account)
    for path in (*own_pages(shown), shown.page("upload")):
        wide += look_at(visitor, path, "overview" if path == "/" else "") + flaws_of(visitor)
    visitor.go(shown.page("search"))
    visitor.open_record(1)
    photograph(visitor, "panel")
    wide += [f"panel at {width}" for width in wide_at(visitor)]
    address = visitor.page.get_by_role("link", name="Edit", exact=True).get_attribute("href") or ""
    record = "/" + address.split("/", 2)[2].partition("edit/")[0]
    for path in ("", "edit/", "delete/", "?sealed=yes"):
        wide += look_at(visitor, record + path, f"record-{path.strip('/?').partition('=')[0]}")
    visitor.go("/keyring/")
    visitor.prove("show", shown.account)
    visitor.press("Show the words to write down")
    visitor.page.locator("main .words, main ol").first.wait_for()
    wide += faults_of(visitor, "/keyring/ with words")
    assert wide == []


def test_no_page_of_an_empty_account_is_wider_than_its_window(
    visitor: Visitor, site: Service
) -> None:
    visitor.log_in(site.new_account())
    wide = []
    for path in EMPTY:
        wide += look_at(visitor, path, f"empty-{path.strip('/') or 'overview'}")
    assert wide == []


@pytest.mark.parametrize("page", ["import", "upload"])
def test_the_rows_of_a_file_scroll_in_a_box_of_their_own(
    visitor: Visitor, census: Census, page: str
) -> None:
    visitor.log_in(census.account, "/import/" if page == "import" else census.page("upload"))
    visitor.page.locator("[data-uploads] input[type=file]").set_input_files(CENSUS)
    expect(visitor.page.locator(".preview tbody tr")).to_have_count(20)
    photograph(visitor, f"{page}-chosen")
    assert wide_at(visitor) == []
