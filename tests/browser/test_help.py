"""Help without a network: the documents as pages, and what an error's code leads to."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from encrypted_records.http.problem import type_of
from encrypted_records.proxy.pages import manual
from tests.browser.test_every_page import MAX_BYTES
from tests.browser.visitor import ROOT, Visitor
from tests.support.service import Service, call

CODES = re.findall(r"^## ([a-z_]+)$", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE)


def test_whoever_was_sent_a_link_is_told_what_this_is(visitor: Visitor) -> None:
    visitor.go("/")
    page = visitor.page
    expect(page.locator("h1")).to_have_text("Log in")
    expect(page.locator("main")).to_contain_text("Records that their own server cannot read")
    visitor.press("How it works, and what it does not protect")
    visitor.expect_heading("Help")
    visitor.type("Find in the documents", "forged log")
    visitor.press("Search")
    assert page.url.endswith("/help/")  # what was looked for is not in the address
    expect(page.locator("main").get_by_role("status")).to_contain_text("these words")
    assert visitor.serious_flaws() == []
    page.locator("summary").first.click()
    visitor.press("Who learns what")
    visitor.expect_heading("Who learns what")


def test_an_errors_code_leads_to_its_paragraph(visitor: Visitor) -> None:
    visitor.go("/no/such/page/")
    visitor.complaints.clear()  # it was answered with 404
    visitor.press("not_found")
    page = visitor.page
    expect(page.locator("#not_found")).to_be_in_viewport()
    visitor.expect_heading("Errors")


@pytest.mark.parametrize("name", manual.list_files())
def test_links_between_documents_lead_to_pages_and_their_places(name: str) -> None:
    for page, _ in manual.load_outline(name).parts:
        html = manual.load_document(page).html
        assert "<script" not in html
        assert " style=" not in html
        for target in re.findall(r'href="([^"]+)"', html):
            if target.startswith(("http://", "https://")):
                continue
            path, _, anchor = target.partition("#")
            other = path.removeprefix("../").rstrip("/") if path else page
            assert other in manual.list_pages(), target
            assert not anchor or f'id="{anchor}"' in manual.load_document(other).html, target


def test_every_code_of_an_error_has_its_place() -> None:
    addresses = {code: manual.find_address("errors", code) for code in CODES}
    assert len(CODES) > 50
    assert [code for code, address in addresses.items() if address is None] == []


@pytest.mark.parametrize("code", [CODES[0], CODES[-1]])
def test_the_end_of_an_errors_type_leads_to_its_paragraph(visitor: Visitor, code: str) -> None:
    visitor.go(type_of(code))
    expect(visitor.page.locator(f"#{code}")).to_be_in_viewport()
    answer = visitor.page.goto(visitor.below("/help/errors/no_such_code/"))
    assert answer is not None
    assert answer.status == 404
    visitor.complaints.clear()


def test_no_page_of_a_document_is_long(site: Service) -> None:
    for name in manual.list_pages():
        answer = call("GET", f"{site.proxy_url}/help/{name}/")
        assert answer.status == 200, name
        assert len(answer.body) < MAX_BYTES, name


def test_every_section_of_a_long_document_is_on_one_of_its_pages() -> None:
    outline = manual.load_outline("http-api")
    assert len(outline.parts) > 1
    tokens = [token for _, part in outline.parts for token in part]
    whole = manual.PARSER.parse(manual.list_files()["http-api"].read_text())
    assert [token.content for token in tokens if token.type == "inline"][1:] == [
        token.content for token in whole if token.type == "inline"
    ][1:]
    assert set(outline.places.values()) == {page for page, _ in outline.parts}


def test_pictures_of_the_documents_are_there_without_a_network(visitor: Visitor) -> None:
    visitor.go("/help/web-ui/")
    pictures = visitor.page.locator("article img")
    pictures.first.scroll_into_view_if_needed()
    expect(pictures.first).to_have_js_property("complete", value=True)
    assert pictures.first.evaluate("picture => picture.naturalWidth") > 100
    answer = visitor.page.request.get(visitor.site.proxy_url + "/help/images/..%2fcli.md")
    assert answer.status == 404


def test_what_is_found_is_marked_and_escaped() -> None:
    assert manual.mark_words("a <b> & sealed", "sealed <b>") == (
        "a <mark>&lt;b&gt;</mark> &amp; <mark>sealed</mark>"
    )
    assert manual.find_sections("   ") == []
    assert next(one.anchor for one in manual.find_sections("keyring_locked")) == "keyring_locked"
    assert len(manual.find_sections("the")) <= 30


def test_a_document_that_is_not_there_is_no_page(visitor: Visitor) -> None:
    for path in ("/help/nothing/", "/help/..%2f..%2fpyproject/", "/help/%00/"):
        answer = visitor.page.goto(visitor.below(path))
        assert answer is not None
        assert answer.status == 404
    visitor.complaints.clear()
