"""The start of an account with records, of an empty one, and of somebody who was invited."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import msgspec
from playwright.sync_api import Browser, expect

from encrypted_records.model.resources import AuditEntryResource
from encrypted_records.proxy.pages import home
from encrypted_records.proxy.pages.formatting import size
from encrypted_records.proxy.pages.organizations import ACTIONS, lines_of
from tests.browser.census import stored_census
from tests.browser.conftest import visiting
from tests.browser.visitor import CENSUS, ROOT, Visitor, expect_after_reloads
from tests.support.service import Service, call


def test_the_overview_says_how_everything_stands(visitor: Visitor, site: Service) -> None:
    census = stored_census(site, 3)
    visitor.log_in(census.account, "/")
    page = visitor.page
    visitor.expect_heading("Overview")
    expect(page.locator(".cards .card")).to_contain_text("3 records")
    stored = re.compile("^3 records stored in the last 30 days, [0-3] today$")
    expect(page.locator(".cards .card").get_by_role("img")).to_have_accessible_name(stored)
    expect(page.locator(".cards .card").get_by_role("link", name="People")).to_have_attribute(
        "href", re.compile(re.escape(census.page("search")) + "$")
    )
    safe = page.get_by_role("region", name="Are your records safe?")
    expect(safe).to_contain_text("3 records. Nobody but you can read them.")
    expect(safe.get_by_role("img", name="0 of 4 done")).to_be_visible()
    expect(safe).to_contain_text("Your keyring is not backed up.")
    expect(safe.get_by_role("link", name="Make another member an owner")).to_be_visible()
    latest = page.get_by_role("region", name="Latest entries of the audit log")
    expect(latest).to_contain_text("stored records in People")
    expect(latest.get_by_role("link", name="People").first).to_be_visible()
    visitor.go(f"/datasets/{census.dataset}/")
    expect(page.locator(".cards .card").get_by_role("img")).to_have_accessible_name(stored)
    # Also after logging in again: the first steps were for an empty account.
    visitor.log_out()
    visitor.log_in(census.account, "/")
    visitor.expect_heading("Overview")


def test_the_overview_says_how_much_is_stored_when_and_how_the_keys_stand(
    visitor: Visitor, site: Service
) -> None:
    census = stored_census(site, 5)
    visitor.log_in(census.account, "/")
    page = visitor.page

    def asked(path: str) -> Any:
        return call("GET", site.proxy_url + path, auth=census.account.auth).json()

    url = f"/api/records/status/?schema={census.schema}"
    least = asked(url)["activity"]["bytes"]
    tiles = page.locator(".tiles .tile")
    expect(tiles.nth(1)).to_contain_text(f"{size(least)} stored, at least")
    expect(tiles.nth(2)).to_contain_text("under 1 min since the last change")
    days = page.get_by_role("region", name="Stored in the last 30 days")
    expect(days).to_contain_text("5 records in all")
    # All of them today, or some before midnight.
    assert 1 <= days.locator("rect").count() <= 2
    expect(days.get_by_role("img")).to_have_accessible_name(re.compile("^5 records stored"))
    searches = page.get_by_role("region", name="Your searches in the last hour")
    expect(searches).to_contain_text("None yet.")
    for _ in range(2):
        visitor.go(census.page("search"))
        expect(page.locator(".found")).to_contain_text("5 records")
    visitor.go("/")
    expect(searches).to_contain_text("2 searches of this session.")
    name = "2 searches of this session in the last hour"
    expect(searches.get_by_role("img")).to_have_accessible_name(name)
    assert 1 <= searches.locator("rect").count() <= 2
    keys = page.get_by_role("region", name="Your keys")
    expect(keys).to_contain_text(asked("/api/keyring/")["fingerprint"])
    expect(keys.locator("dd").first).to_have_text("none")
    # A running job, with its bar; and when it has ended it is there no more.
    begun = call(
        "POST",
        f"{site.proxy_url}/api/files/",
        auth=census.account.auth,
        headers={"Tus-Resumable": "1.0.0", "Upload-Length": "1000"},
    )
    visitor.go("/")
    running = page.locator("#running")
    expect(running.locator(".state")).to_have_text("uploading")
    expect(running.locator(".phases progress")).to_have_count(3)
    assert visitor.serious_flaws() == []
    job = f"{site.proxy_url}/api/jobs/{begun.headers['X-Job-Id']}/"
    assert call("DELETE", job, auth=census.account.auth).status < 300
    expect(running.locator(".card")).to_have_count(0)
    expect(page.locator(".problem")).to_have_count(0)


def test_an_empty_account_loads_the_example_by_one_button(visitor: Visitor, site: Service) -> None:
    visitor.log_in(site.new_account(), "/")
    visitor.expect_heading("First steps")
    visitor.press("Load the example")
    visitor.page.wait_for_url("**/jobs/**")
    visitor.go("/")
    expect_after_reloads(visitor.page.locator("h1"), "Overview")
    expect(visitor.page.locator(".cards .card")).to_contain_text("1,000 records")
    # Open is not yet safe.
    expect(visitor.page.locator("[data-part=keyring]")).to_contain_text("no backup")
    expect(visitor.page.locator("[data-part=keyring] .dot")).to_have_class("dot warn")
    visitor.picture("overview")


def test_the_example_is_the_one_of_the_examples_folder() -> None:
    assert home.example_rows() == CENSUS.read_bytes()
    assert home.example_definition() == json.loads(
        (ROOT / "examples/census.schema.json").read_text()
    )


def test_an_invitation_is_found_on_the_first_page(
    visitor: Visitor, chromium: Browser, site: Service
) -> None:
    owner, guest = site.new_account(), site.new_account()
    name = call("GET", site.proxy_url + owner.organization, auth=owner.auth).json()["name"]
    answer = call(
        "POST",
        f"{site.proxy_url}{owner.organization}invitations/",
        {"email": guest.email},
        auth=owner.auth,
    )
    assert answer.status == 201
    visitor.log_in(guest, "/")
    page = visitor.page
    expect(page.get_by_text(f"{owner.email} invites you to {name}")).to_be_visible()
    expect(page.get_by_role("link", name="1 invitation")).to_be_visible()
    visitor.press("Accept")
    page.wait_for_url("**/organizations/")
    expect(page.locator("main")).to_contain_text(name)
    expect(page.get_by_role("link", name="1 invitation")).to_have_count(0)
    visitor.go("/")
    expect(page.get_by_text("invites you")).to_have_count(0)


def test_the_audit_log_speaks_of_names_and_can_be_filtered(visitor: Visitor, site: Service) -> None:
    visitor.log_in(stored_census(site, 1).account, "/audit-log/")
    page = visitor.page
    table = page.get_by_role("region", name="Entries")
    expect(table).to_contain_text("created the schema People")
    expect(table).not_to_contain_text("/api/")
    page.get_by_label("Show").select_option("dataset.created")
    visitor.press("Filter")
    expect(table).to_contain_text("created the dataset Census")
    expect(table).not_to_contain_text("schema")

    visitor.press("Show everything")
    expect(table).to_contain_text("logged in")
    census = page.get_by_label("of", exact=True).locator("option").nth(1).inner_text()
    page.get_by_label("of", exact=True).select_option(census)
    page.get_by_label("hide reading").check()
    visitor.press("Filter")
    page.wait_for_url("**without=records.read**")
    expect(table).to_contain_text("created the schema People")
    expect(table).not_to_contain_text("read records")
    expect(page.get_by_label("hide reading")).to_be_checked()
    page.get_by_label("until", exact=True).fill("2020-01-31")
    visitor.press("Filter")
    expect(page.get_by_text("There are no entries yet.")).to_be_visible()


def entry(minute: int, **changed: str) -> AuditEntryResource:
    entry = AuditEntryResource(
        id="2JZrJDyoRq79GsVSz23bp7",
        created=datetime(2026, 11, 20, 10, minute, tzinfo=UTC),
        user=None,
        email="ada@example.org",
        action="records.read",
        subject="/api/schemas/2JZrJDyoRq79GsVSz23bp6/",
        source="192.0.2.7",
        request_id="",
    )
    return msgspec.structs.replace(entry, **changed)


def test_equal_entries_are_one_line_and_names_stand_for_paths() -> None:
    schema = entry(0).subject
    entries = [
        entry(9),
        entry(8),
        entry(7, email="grace@example.org"),
        entry(6, subject="/api/schemas/gone/"),
        entry(5, action="login", subject=""),
        entry(4, action="something.new", subject="javascript:alert(1)"),
    ]
    lines = lines_of(entries, {schema: "People"})
    assert [(line.count, line.did, line.name, line.path) for line in lines] == [
        (2, "read records of", "People", "/schemas/2JZrJDyoRq79GsVSz23bp6/"),
        (1, "read records of", "People", "/schemas/2JZrJDyoRq79GsVSz23bp6/"),
        (1, "read records of", "", ""),
        (1, "logged in", "", ""),
        (1, "something new", "", ""),
    ]
    assert (lines[0].since.minute, lines[0].until.minute) == (8, 9)


def test_every_action_of_the_audit_log_has_words() -> None:
    text = (ROOT / "docs" / "http-api.md").read_text().partition("| `action` |")[2]
    named = set()
    for line in text.partition("\n\n")[0].splitlines():
        named |= set(
            re.findall(r"`([a-z]+(?:\.[a-z]+)?)`", line.split("|")[1] if "|" in line else "")
        )
    assert set(ACTIONS) == named


def test_nobody_sees_anothers_frame(visitor: Visitor, chromium: Browser, site: Service) -> None:
    census = stored_census(site, 1)
    visitor.log_in(census.account, "/")
    expect(visitor.page.get_by_role("navigation", name="Main")).to_contain_text("People")
    with visiting(chromium, site) as other:
        other.log_in(site.new_account(), "/")
        side = other.page.get_by_role("navigation", name="Main")
        expect(side).to_contain_text("Overview")
        expect(side.get_by_role("link", name="People", exact=True)).to_have_count(0)
        # The path of the first browser leads to this one's own.
        own = other.below("/")
        other.page.goto(visitor.below("/login/"))
        other.page.wait_for_url(f"**{own}")
        expect(side.get_by_role("link", name="People", exact=True)).to_have_count(0)
