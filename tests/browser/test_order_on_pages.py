"""Nothing touches what it should not, and names stay within their own direction, on every page."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.census import Census
from tests.browser.test_every_page import PUBLIC, own_pages
from tests.browser.visitor import Visitor
from tests.support.service import Account, Service, call

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


def faults_of(visitor: Visitor, path: str) -> list[str]:
    page = visitor.page
    band: dict[str, Any] = page.evaluate(
        "() => { const band = document.querySelector('header.band').getBoundingClientRect();"
        " return {left: band.left, right: document.documentElement.clientWidth - band.right,"
        " gutter: getComputedStyle(document.documentElement).scrollbarGutter}; }"
    )
    found = [] if band == {"left": 0, "right": 0, "gutter": "auto"} else [str(band)]
    return [f"{path}: {one}" for one in (*found, *page.evaluate(TOUCHING))]


def test_nothing_touches_and_the_band_reaches_both_edges(visitor: Visitor, census: Census) -> None:
    faults: list[str] = []
    for path in PUBLIC[:-1]:
        visitor.go(path)
        faults += faults_of(visitor, path)
    visitor.log_in(census.account)
    visitor.be_let_in(census.account)
    for path in (*own_pages(census), census.page("upload")):
        visitor.go(path)
        for summary in visitor.page.locator("main summary:visible").all():
            summary.evaluate("one => one.parentElement.open = true")
        faults += faults_of(visitor, path)
    visitor.go("/keyring/")
    visitor.prove("show", census.account)
    visitor.press("Show the words to write down")
    visitor.page.locator("main .words, main ol").first.wait_for()
    faults += faults_of(visitor, "/keyring/ with words")
    assert faults == []


#: Begins on the right side, so that it turns what stands around it unless it is kept apart.
NAME = "\u05e9\u05dd {} (1)"
TURNING = """(mark) => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walk.nextNode()) {
    const {parentElement, data} = walk.currentNode;
    if (!data.includes(mark)) continue;
    if (parentElement.closest("bdi, [dir], option, textarea, script, title, noscript")) continue;
    found.push(parentElement.outerHTML.slice(0, 120));
  }
  return found;
}"""


@pytest.fixture(scope="module")
def turning(site: Service) -> Census:
    """Whose dataset, schema, fields and values are all written from the right to the left."""
    account: Account = site.new_account()

    def post(path: str, body: Any) -> Any:
        answer = call("POST", site.proxy_url + path, body, auth=account.auth)
        assert answer.status == 201, answer
        return answer.json()

    name = NAME.format("d")
    dataset = post("/api/datasets/", {"name": name, "organization": account.organization})
    number = {"type": "integer", "minimum": 0, "maximum": 9}
    fields = {NAME.format("t"): {"type": "string"}, NAME.format("n"): number}
    definition = {"type": "object", "properties": fields}
    body = {"name": NAME.format("s"), "dataset": dataset["url"], "schema": definition}
    schema = post("/api/schemas/", body)
    rows = [{NAME.format("t"): NAME.format(n % 2), NAME.format("n"): n} for n in range(6)]
    post("/api/records/ingest/", [{"schema": schema["url"], "data": row} for row in rows])
    return Census(account, dataset["id"], schema["id"], rows)


def test_names_and_values_turn_nothing_around_them(visitor: Visitor, turning: Census) -> None:
    page = visitor.page
    visitor.log_in(turning.account)
    found: list[str] = []

    def look(path: str) -> None:
        found.extend(f"{path}: {one}" for one in page.evaluate(TURNING, "\u05e9\u05dd"))

    for path in (*own_pages(turning), turning.page("upload")):
        visitor.go(path)
        look(path)
    visitor.go(turning.page("overview"))
    expect(page.locator("[data-facet] .part")).to_have_count(2)
    look("look, with its pictures")
    page.locator("#draw-pair").click()
    page.locator("table.heat").wait_for()
    look("two fields")
    visitor.go(turning.page("search"))
    visitor.ask(NAME.format(1))
    expect(page.locator(".found")).to_contain_text("3 records")
    look("search with a filter")
    page.locator("#save-button").click()
    page.locator("#question-name").fill(NAME.format("q"))
    visitor.press("Save the question")
    visitor.expect_heading(f"Saved questions of {NAME.format('s')}")
    page.locator("ul.saved a").wait_for()
    look("saved questions")
    assert visitor.serious_flaws() == []
    page.locator("ul.saved a").click()
    expect(page.locator(".found")).to_contain_text("3 records")
    visitor.open_record(1)
    look("a record")
    assert found == []
