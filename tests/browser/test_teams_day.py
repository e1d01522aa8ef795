"""A team's day by pages: two people, two proxies on two data folders, one API.

The owner has scripts; the colleague has none, so that every page of theirs works without.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect

from tests.browser.conftest import visiting
from tests.browser.test_widths import photograph
from tests.browser.visitor import PATIENCE, Visitor
from tests.support.proxies import running_proxy
from tests.support.service import Account, Service, call

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
}


@contextmanager
def colleague(chromium: Browser, site: Service, folder: Path) -> Iterator[Visitor]:
    """Somebody with a proxy of their own for the same API, and a browser without scripts."""
    with running_proxy(site.base_url, folder) as proxy:
        own = Service(site.process, site.base_url, proxy.url, folder, site.log_file)
        context = chromium.new_context(
            base_url=proxy.url, java_script_enabled=False, locale="en-GB"
        )
        context.set_default_timeout(PATIENCE)
        try:
            yield Visitor(own, context.new_page(), [])
        finally:
            context.close()


def made(site: Service, account: Account, path: str, body: Any) -> Any:
    answer = call("POST", site.proxy_url + path, body, auth=account.auth)
    assert answer.status == 201, answer.body
    return answer.json()


def reach(visitor: Visitor, name: str) -> None:
    """Tab until what has this name in the page's own part has the focus, and one sees that."""
    for _ in range(80):
        visitor.page.keyboard.press("Tab")
        found, outline, inside = visitor.page.evaluate(
            "(e => [e.ariaLabel || e.labels?.[0]?.innerText || e.innerText,"
            " getComputedStyle(e).outlineStyle, !!e.closest('main')])(document.activeElement)"
        )
        if inside and found.strip() == name:
            assert outline != "none"
            return
    raise AssertionError(f"the keyboard does not reach {name}")


def kept_by(visitor: Visitor) -> str:
    """All that the browser keeps of the page's origin, and its address."""
    stored = visitor.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    return json.dumps([visitor.page.url, stored, visitor.page.context.cookies()])


def tells(text: str, words: list[str]) -> bool:
    """Whether three of the words stand there one after another, however they are separated: one
    alone may stand in any text."""
    shown = re.sub("<[^>]*>", "", text)
    letters = [re.sub("[^a-z]", "", one.lower()) for one in (text, shown)]
    runs = ["".join(words[at : at + 3]) for at in range(len(words) - 2)]
    return any(run in letter for run in runs for letter in letters)


def test_a_colleague_is_invited_reads_writes_and_is_removed(
    chromium: Browser, site: Service, tmp_path: Path
) -> None:
    ada, grace = site.new_account(), site.new_account()
    dataset = made(
        site, ada, "/api/datasets/", {"name": "Medical", "organization": ada.organization}
    )
    schema = made(
        site,
        ada,
        "/api/schemas/",
        {"name": "Patients", "dataset": dataset["url"], "schema": DEFINITION},
    )
    records = f"/schemas/{schema['id']}"
    people = ada.organization.removeprefix("/api")

    def store(name: str) -> None:
        made(site, ada, "/api/records/ingest/", [{"schema": schema["url"], "data": {"name": name}}])

    with visiting(chromium, site) as owner, colleague(chromium, site, tmp_path) as other:
        page = owner.page
        owner.log_in(ada, people)
        # By the keyboard alone, and what was typed is there again after a mistake.
        reach(owner, "Invite a person")
        page.keyboard.press("Enter")
        owner.expect_heading("Invite a person")
        reach(owner, "E-mail address")
        page.keyboard.type(grace.email)
        reach(owner, "Your account's password, once more")
        page.keyboard.type(ada.password)
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("Nothing is shared.")
        expect(page.get_by_label("E-mail address")).to_have_value(grace.email)
        expect(page.locator("#invite-proof")).to_have_value("")
        reach(owner, "Medical")
        page.keyboard.type("reads it")
        reach(owner, "Your account's password, once more")
        page.keyboard.type(ada.password)
        page.keyboard.press("Enter")
        owner.expect_heading("Twelve words")
        words = page.locator(".phrase li").all_inner_texts()
        assert len(words) == 12
        assert tells(page.content(), words)
        assert owner.serious_flaws() == []
        assert not tells(kept_by(owner), words)
        owner.picture("twelve-words")
        photograph(owner, "people-words")
        owner.press("I have passed on the words, or printed this page")
        row = page.get_by_role("region", name="Invitations").get_by_role("row", name=grace.email)
        expect(row).to_contain_text("waiting for the words")
        expect(row).to_contain_text("Medical: reads")
        assert not tells(page.content(), words)

        # The colleague: wrong words are told, and not shown again.
        other.log_in(grace, "/")
        other.press("Accept")
        other.expect_heading("Enter the twelve words")
        photograph(other, "people-answer")
        field = other.page.get_by_label("The twelve words")
        field.fill(" ".join(reversed(words)))
        other.press("Join")
        expect(other.page.get_by_role("alert")).to_be_visible()
        expect(field).to_have_value("")
        field.fill(" ".join(f"{at}. {word}" for at, word in enumerate(words, 1)))
        other.press("Join")
        other.expect_heading("The words were correct")
        photograph(other, "people-admitted")

        owner.go(people)
        expect(page.get_by_role("status").first).to_contain_text(f"{grace.email} was admitted.")
        row = page.get_by_role("region", name="People").get_by_role("row", name=grace.email)
        expect(row).to_contain_text("Medical: reads")
        expect(row).to_contain_text(f"{ada.email}, by twelve words")
        assert owner.serious_flaws() == []
        owner.picture("people")

        store("Ada")
        other.go(f"{records}/search/")
        expect(other.page.locator(".found")).to_have_text("1 record, 1 to 1 shown")

        def add(name: str) -> None:
            other.go(f"{records}/add/")
            other.page.get_by_label("name", exact=True).fill(name)
            other.page.locator("main form button.first").click()

        add("Eve")
        expect(other.page.get_by_role("alert")).to_be_visible()
        other.go(f"{records}/search/")
        expect(other.page.locator(".found")).to_have_text("1 record, 1 to 1 shown")

        owner.press(f"Change {grace.email}")
        owner.expect_heading(grace.email)
        assert owner.serious_flaws() == []
        page.get_by_label("Medical").select_option("writer")
        owner.prove("share", ada)
        owner.press("Save")
        expect(row).to_contain_text("Medical: reads and writes")
        add("Grace")
        other.expect_heading("Record of Patients")
        owner.go(f"{records}/search/")
        expect(page.locator(".found")).to_have_text("2 records, 1 to 2 shown")

        owner.go(people)
        owner.press(f"Change {grace.email}")
        owner.press("Remove…")
        expect(page.locator("main")).to_contain_text("Limit:")
        owner.press("Remove")
        expect(page.get_by_role("status").first).to_contain_text("Medical has a new key")
        expect(row).to_have_count(0)
        store("Kathleen")
        other.go(f"{records}/search/")
        expect(other.page.get_by_role("alert")).to_be_visible()
        expect(other.page.locator(".found")).to_have_count(0)
        assert "Kathleen" not in other.page.content()
        assert not tells(site.log, words)
