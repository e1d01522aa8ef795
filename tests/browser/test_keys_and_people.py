"""The keyring as a file and under a passphrase; an organization and those who belong to it."""

from __future__ import annotations

import secrets
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.conftest import visiting
from tests.browser.visitor import Visitor
from tests.support.service import Service
from tests.support.store import new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


def open_up(visitor: Visitor, summary: str) -> None:
    visitor.page.locator("summary").filter(has_text=summary).click()


def choose(visitor: Visitor, label: str, file: Path, passphrase: str) -> None:
    """The form with a file, filled in."""
    form = visitor.page.locator("form[data-file]").filter(has=visitor.page.get_by_label(label))
    form.get_by_label(label).set_input_files(file)
    form.locator("input[type=password]").fill(passphrase)
    form.locator("button").click()


def test_a_keyring_is_backed_up_into_a_file_and_brought_to_another_account_by_it(
    visitor: Visitor, site: Service, tmp_path: Path
) -> None:
    store = new_store(site, DEFINITION)
    store.ingest([{"name": "Ada"}])
    page = visitor.page
    visitor.log_in(store.account)
    visitor.go("/keyring/")
    fingerprint = page.locator("dd code").inner_text()
    open_up(visitor, "Back it up into a file")

    visitor.type("Passphrase of the file", "paper, scissors, stone")
    visitor.type("Passphrase of the file, again", "paper, scissors")
    visitor.press("Download the file")
    expect(page.get_by_role("alert")).to_contain_text("The two passphrases differ")
    visitor.type("Passphrase of the file", "paper, scissors, stone")
    visitor.type("Passphrase of the file, again", "paper, scissors, stone")
    with page.expect_download() as started:
        visitor.press("Download the file")
    file = tmp_path / started.value.suggested_filename
    started.value.save_as(file)
    assert file.name == "keyring.backup"
    assert page.get_by_text("Not backed up").count() == 1  # it may have gone anywhere

    choose(visitor, "The file that was downloaded", file, "stone")
    expect(page.get_by_role("alert")).to_be_visible()
    choose(visitor, "The file that was downloaded", file, "paper, scissors, stone")
    expect(page.get_by_text("Backed up:")).to_be_visible()

    page.get_by_role("button", name="Log out").click()
    visitor.log_in(site.new_account())
    visitor.go("/keyring/")
    open_up(visitor, "Bring a keyring here from a backup file")
    choose(visitor, "A file that was downloaded here", file, "paper, scissors, stone")
    expect(page.locator("dd code")).to_have_text(fingerprint)


def test_a_keyring_is_given_a_passphrase_and_another_one(visitor: Visitor, site: Service) -> None:
    store = new_store(site, DEFINITION)
    store.ingest([{"name": "Ada"}])
    page = visitor.page
    visitor.log_in(store.account)
    visitor.go("/keyring/")

    open_up(visitor, "Protect it with a passphrase")
    visitor.type("New passphrase", "first of them")
    visitor.type("New passphrase, again", "first of them")
    visitor.press("Set the passphrase")
    expect(page.get_by_text("a passphrase", exact=True)).to_be_visible()
    open_up(visitor, "Change its passphrase")
    visitor.type("Present passphrase", "first of them")
    visitor.type("New passphrase", "second of them")
    visitor.type("New passphrase, again", "second of them")
    visitor.press("Set the passphrase")
    open_up(visitor, "Lock it")
    visitor.press("Lock the keyring")
    visitor.type("Its passphrase", "second of them")
    visitor.press("Unlock")

    expect(page.get_by_role("heading", name="This keyring")).to_be_visible()
    assert len(store.found()) == 1


def test_an_organization_is_renamed_and_people_are_invited_and_removed(
    visitor: Visitor, chromium: Browser, site: Service
) -> None:
    owner, guest = site.new_account(), site.new_account()
    page = visitor.page
    visitor.log_in(owner)
    page.get_by_role("link", name="Organization", exact=True).click()
    name = f"Engines {secrets.token_hex(3)}"
    visitor.type("Name", name)
    visitor.press("Rename")
    expect(page.locator("h1")).to_have_text(name)

    for address in (guest.email, "nobody@example.org"):
        visitor.type("E-mail address", address)
        visitor.press("Invite")
        expect(page.get_by_label(f"Withdraw the invitation of {address}")).to_be_visible()
    page.get_by_label("Withdraw the invitation of nobody@example.org").click()
    expect(page.get_by_label("Withdraw the invitation of nobody@example.org")).to_have_count(0)

    with visiting(chromium, site) as other:
        other.log_in(guest)
        other.go("/organizations/")
        expect(other.page.get_by_text(f"{owner.email} invites you to {name}")).to_be_visible()
        other.press("Accept")
        other.press(name)
        expect(other.page.locator("tbody tr")).to_have_count(2)
        assert other.page.get_by_role("button", name="Invite").count() == 0

    page.reload()
    visitor.press(f"Make owner: {guest.email}")
    expect(page.get_by_label(f"Make member: {guest.email}")).to_be_visible()
    visitor.press(f"Remove {guest.email}")
    visitor.press("Remove")
    expect(page.locator("tbody tr")).to_have_count(1)
    # One owner has to stay.
    visitor.press(f"Remove {owner.email}")
    visitor.press("Leave")
    expect(page.get_by_role("alert")).to_be_visible()
