"""Names stay within their own direction, on every page."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.census import Census
from tests.browser.test_every_page import own_pages
from tests.browser.visitor import Visitor
from tests.support.service import Account, Service, call

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
