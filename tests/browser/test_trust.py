"""The page that says who has what: its bytes are those of the database, its numbers are live."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from encrypted_records.client.messages import Note
from encrypted_records.proxy.pages.trust import describe_seen
from tests.browser.census import stored_census
from tests.browser.conftest import visiting
from tests.browser.visitor import Visitor
from tests.support.front import Asked, Reply, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Service, call


def test_the_bytes_beside_a_record_are_those_of_the_database(
    visitor: Visitor, site: Service
) -> None:
    census = stored_census(site, 3)
    visitor.log_in(census.account, census.page("trust"))
    page = visitor.page
    rows = page.get_by_role("region", name="One record on both sides").locator("tbody tr")
    expect(rows).to_have_count(15)
    shown = {
        row.locator("th").inner_text(): (
            row.locator("td").nth(0).inner_text(),
            row.locator("td").nth(1).inner_text().rstrip("…"),
        )
        for row in rows.all()
    }
    assert shown["age"][0] == str(census.rows[0]["age"])
    assert shown["education"][0] == census.rows[0]["education"]
    database = b"".join(_blobs(site.data_dir / "api"))
    for name, (plaintext, start) in shown.items():
        assert bytes.fromhex(start) in database, name
        assert len(plaintext) < 5 or plaintext.encode() not in bytes.fromhex(start)
    expect(page.locator(".path")).to_contain_text("3 encrypted records")
    asked = page.locator(".two-sides")
    expect(asked).to_contain_text(f"age is {census.rows[0]['age']}")
    expect(asked).to_contain_text(re.compile(r"in \d+ requests?\s*for \d+ encrypted pages?"))
    visitor.picture("trust")


def _blobs(folder: Path) -> list[bytes]:
    """Everything that the API's database holds as bytes."""
    (file,) = folder.glob("*.sqlite3")
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        named = database.execute("select name from sqlite_master where type='table'")
        tables = [row[0] for row in named]
        found = [
            value
            for table in tables
            for row in database.execute(f'select * from "{table}"')
            for value in row
            if isinstance(value, bytes)
        ]
    database.close()
    return found


def test_an_account_without_records_is_told_who_will_have_what(
    visitor: Visitor, site: Service
) -> None:
    visitor.log_in(site.new_account(), "/trust/")
    visitor.expect_heading("Trust")
    expect(visitor.page.locator(".path-stop")).to_have_count(4)
    assert visitor.serious_flaws() == []


def test_bytes_that_do_not_open_are_not_shown_and_no_id_is_asked_for(
    chromium: Browser, site: Service, tmp_path: Path
) -> None:
    """An API that hands out other bytes is found out; one that is honest is not told which record
    is shown."""

    def lie(asked: Asked, reply: Reply) -> Reply:
        changed = asked.path.partition("?")[0].endswith("/rows/")
        return reply.with_body(_with_last_byte_changed(reply.body)) if changed else reply

    with (
        running_front(site.base_url) as front,
        running_proxy(front.url, tmp_path / "proxy") as proxy,
        visiting(chromium, replace(site, proxy_url=proxy.url), quiet=False) as visitor,
    ):
        own = stored_census(replace(site, proxy_url=proxy.url), 2)
        visitor.log_in(own.account)
        with front.telling(lie):
            visitor.go(own.page("trust"))
            expect(visitor.page.get_by_role("alert")).to_be_visible()
            expect(visitor.page.locator(".both-sides")).to_have_count(0)
        front.forget()
        visitor.go(own.page("trust"))
        expect(visitor.page.locator(".both-sides")).to_have_count(1)
        assert not [one for one in front.asked if one.path.startswith("/api/records/")]


def _with_last_byte_changed(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


def test_the_lane_in_the_band_opens_the_last_requests_and_what_the_api_sees_in_them(
    visitor: Visitor, site: Service
) -> None:
    census = stored_census(site, 2)
    visitor.log_in(census.account, census.page("search"))
    page = visitor.page
    visitor.ask("education = Bachelors")
    expect(page.locator(".found")).to_contain_text("record")
    lane = page.get_by_role("link", name="The last requests to the server")
    lane.focus()
    lane.press("Enter")
    box = page.get_by_role("dialog", name="The last requests to the server")
    rows = box.locator("tbody tr")
    expect(rows.first).to_be_visible()
    assert 1 <= rows.count() <= 20
    seen = {
        row.locator("th").inner_text(): row.locator("td").last.inner_text() for row in rows.all()
    }
    assert seen[f"POST /api/schemas/{census.schema}/rows/"] == "numbers of rows, and no value"
    assert all(len(text) > 10 for text in seen.values())
    said = box.inner_text()
    assert "Bachelors" not in said
    assert "education" not in said
    assert visitor.serious_flaws() == []
    page.keyboard.press("Escape")
    expect(box).to_have_count(0)
    expect(lane).to_be_focused()


def test_without_scripts_the_last_requests_are_a_page(chromium: Browser, site: Service) -> None:
    context = chromium.new_context(base_url=site.proxy_url, java_script_enabled=False)
    without = Visitor(site, context.new_page(), [])
    without.log_in(site.new_account(), "/")
    without.page.get_by_role("link", name="The last requests to the server").click(force=True)
    without.expect_heading("The last requests to the server")
    expect(without.page.locator("tbody tr").first).to_contain_text("/api/")
    context.close()


def test_it_is_said_of_each_endpoint_of_the_api_what_a_request_shows_it(site: Service) -> None:
    document = call("GET", f"{site.base_url}/api/openapi.json").json()
    noted = [
        Note(method.upper(), path, 0, 0, 200, 0.0)
        for path, methods in document["paths"].items()
        for method in methods
        if method in ("get", "post", "put", "patch", "delete")
    ]
    assert len(noted) > 40
    unsaid = [f"{one.method} {one.path}" for one in noted if "path alone" in describe_seen(one)]
    assert unsaid == []


@pytest.mark.parametrize(
    ("request_", "seen"),
    [
        ("GET /api/schemas/x/erasure/", "that it is asked which rows are erased"),
        ("POST /api/schemas/x/erasure/", "that ended rows are to be erased at once"),
        ("PUT /api/schemas/x/holds/", "which versions of the log are read for long"),
        ("DELETE /api/schemas/x/", "which of them is deleted"),
        ("DELETE /api/organizations/x/members/y/", "members, invitations and signed entries"),
        ("PUT /api/organizations/x/requests/", "requests for access"),
        ("DELETE /api/organizations/x/requests/y/z/", "requests for access"),
        ("GET /api/organizations/x/dataset/y/", "which names, fields and rights are read"),
    ],
)
def test_a_request_that_changes_something_is_told_from_one_that_reads(
    request_: str, seen: str
) -> None:
    method, path = request_.split()
    assert seen in describe_seen(Note(method, path, 0, 0, 200, 0.0))


def test_the_requests_that_are_shown_are_those_that_left(
    chromium: Browser, site: Service, tmp_path: Path
) -> None:
    with (
        running_front(site.base_url) as front,
        running_proxy(front.url, tmp_path / "proxy") as proxy,
        visiting(chromium, replace(site, proxy_url=proxy.url)) as visitor,
    ):
        own = stored_census(replace(site, proxy_url=proxy.url), 2)
        visitor.log_in(own.account, own.page("search"))
        visitor.go(own.page("trust"))
        left = [
            (f"{one.method} {one.path.partition('?')[0]}", len(one.body)) for one in front.asked
        ]
        table = visitor.page.get_by_role("region", name="Requests that have left")
        shown = [
            (row.locator("th").inner_text(), row.locator("td").nth(1).inner_text())
            for row in table.locator("tbody tr").all()
        ]
        # Of a slow browser, the proxy asks again who it is, and shows that too.
        assert any(request.endswith("/rows/") for request, _ in shown)
        for request, size in shown:
            assert any(request == one and size.startswith(f"{sent} ") for one, sent in left), (
                request
            )
        # Nobody else's requests, and nothing of a request but these.
        said = visitor.page.locator("main").inner_text()
        assert own.account.password not in said
        assert "Basic " not in said
        other = stored_census(replace(site, proxy_url=proxy.url), 1)
        visitor.log_out()
        visitor.log_in(other.account, other.page("trust"))
        expect(visitor.page.locator("main")).to_contain_text("What has left this machine")
        assert own.schema not in visitor.page.locator("main").inner_text()
