"""The keyring as a file and under a passphrase; an organization and those who belong to it."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import numpy as np
import zxingcpp
from playwright.sync_api import Browser, expect

from encrypted_records.proxy import pages
from tests.browser.conftest import visiting
from tests.browser.test_widths import photograph, wide_at
from tests.browser.visitor import Visitor
from tests.support.older import older_store
from tests.support.service import Service, call
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}
#: Which asks for the words.
_PAGE = Path(pages.__file__).parent / "templates" / "keyring_words.html"


def at_keyring(visitor: Visitor, site: Service) -> Store:
    """Somebody with a record on the page of the keyring, whose browser is registered."""
    store = new_store(site, DEFINITION)
    store.ingest([{"name": "Ada"}])
    visitor.log_in(store.account)
    visitor.be_let_in(store.account)
    visitor.go("/keyring/")
    return store


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
    store = at_keyring(visitor, site)
    page = visitor.page
    fingerprint = page.locator("dd code").first.inner_text()
    open_up(visitor, "Back it up to a file")

    visitor.type("Passphrase of the file", "paper, scissors, stone")
    visitor.type("Passphrase of the file, again", "paper, scissors")
    visitor.prove("file", store.account)
    visitor.press("Download the file")
    expect(page.get_by_role("alert")).to_contain_text("The two passphrases differ")
    visitor.type("Passphrase of the file", "paper, scissors, stone")
    visitor.type("Passphrase of the file, again", "paper, scissors, stone")
    visitor.prove("file", store.account)
    with page.expect_download() as started:
        visitor.press("Download the file")
    file = tmp_path / started.value.suggested_filename
    started.value.save_as(file)
    assert file.name == "keyring.backup"
    expect(page.get_by_text("Not backed up")).to_have_count(1)  # it may have gone anywhere

    choose(visitor, "The file that was downloaded", file, "stone")
    # By its words: the alert of the two passphrases is on the page until this one replaces it.
    expect(page.get_by_role("alert")).to_contain_text("This is not a backup of a keyring")
    choose(visitor, "The file that was downloaded", file, "paper, scissors, stone")
    expect(page.get_by_text("Backed up:")).to_be_visible()

    visitor.log_out()
    visitor.log_in(site.new_account(), "/keyring/")
    open_up(visitor, "Restore a keyring from a backup file")
    choose(visitor, "A file downloaded from this page", file, "paper, scissors, stone")
    expect(page.locator("dd code")).to_have_text(fingerprint)


def test_the_overview_asks_to_try_the_backup_until_all_words_were_typed(
    visitor: Visitor, site: Service
) -> None:
    store = at_keyring(visitor, site)
    page = visitor.page
    visitor.prove("show", store.account)
    visitor.press("Show the words to write down")
    words = visitor.shown_words()
    visitor.go("/")
    safe = page.get_by_role("region", name="Are your records safe?")
    expect(safe).to_contain_text("You never tried your keyring's backup.")
    safe.get_by_role("link", name="Try to restore it").click()
    field = page.get_by_label("The words on your paper")
    expect(field).to_be_visible()  # the address opens what it is in
    field.fill(" ".join(words[:23]))
    visitor.press("Try the words")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(field).to_have_value(" ".join(words[:23]))
    assert visitor.serious_flaws() == []
    field.fill("\n".join(f"{number}. {word}" for number, word in enumerate(words, start=1)))
    visitor.press("Try the words")
    expect(page.locator(".vault dd").filter(has_text="try it")).not_to_contain_text("never")
    expect(page.get_by_text("Backed up:")).to_be_visible()
    open_up(visitor, "What happened to the keyring")
    expect(page.get_by_text("a restore was tried")).to_be_visible()
    visitor.go("/")
    expect(safe).to_contain_text("Your keyring's backup was last tried under 1 min ago.")
    expect(safe.get_by_role("img", name="2 of 4 done")).to_be_visible()


def test_four_of_the_words_are_asked_for_and_a_wrong_one_is_named_by_its_number(
    visitor: Visitor, site: Service
) -> None:
    store = at_keyring(visitor, site)
    page = visitor.page
    # Not without the password.
    page.locator("#show-proof").fill("not the password")
    visitor.press("Show the words to write down")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.locator(".phrase")).to_have_count(0)
    visitor.complaints.clear()  # it was answered with 403
    visitor.go("/keyring/")
    deadline = 10
    while page.locator(".phrase").count() == 0 and deadline:
        deadline -= 1  # after a wrong one it may be too early for a second
        page.wait_for_timeout(500)
        visitor.prove("show", store.account)
        visitor.press("Show the words to write down")
    visitor.complaints.clear()  # that with 429
    words = visitor.shown_words()
    assert len(words) == 24
    visitor.press("I have written them down")
    expect(page.locator(".phrase")).to_have_count(0)
    shown = page.locator("main").inner_text().split()
    # Of the page's own words some may be those of a phrase.
    own = _PAGE.read_text().split()
    assert not [word for word in words if len(word) > 4 and word in shown and word not in own]

    assert visitor.type_words(words, wrong=1) == 4
    wrong = page.locator("main input[aria-invalid=true]")
    expect(wrong).to_have_count(1)
    expect(wrong).to_be_focused()
    place = (wrong.get_attribute("id") or "").removeprefix("word-")
    expect(page.get_by_role("alert")).to_contain_text(f"Word {place} is not what was shown")
    right = page.locator("main input[id^=word-]:not([aria-invalid])")
    expect(right).to_have_count(3)
    assert set(right.evaluate_all("fields => fields.map(f => f.value)")) <= set(words)
    assert visitor.serious_flaws() == []
    wrong.fill(words[int(place) - 1])
    visitor.press("Confirm")
    expect(page.get_by_text("Backed up:")).to_be_visible()
    visitor.picture("keyring")

    # Bringing it elsewhere, numbered as on the paper: one mistyped word is named, the rest stays.
    visitor.log_out()
    visitor.log_in(site.new_account(), "/keyring/")
    open_up(visitor, "Restore a keyring from its words")
    numbered = [f"{at}. {word}" for at, word in enumerate(words, 1)]
    typed = " ".join([*numbered[:6], "7. kettel", *numbered[7:]])
    visitor.type("Its words", typed)
    visitor.press("Restore it")
    expect(page.get_by_role("alert")).to_contain_text("word 7")
    expect(page.get_by_label("Its words")).to_have_value(typed)
    visitor.type("Its words", "\n".join(numbered))
    visitor.press("Restore it")
    expect(page.get_by_role("heading", name="This keyring")).to_be_visible()


def test_words_are_hidden_until_somebody_holds_the_button_and_are_on_paper(
    visitor: Visitor, site: Service
) -> None:
    store = at_keyring(visitor, site)
    page = visitor.page
    visitor.prove("show", store.account)
    visitor.press("Show the words to write down")
    first = page.locator(".phrase li").first
    first.wait_for(state="attached")
    expect(first).to_be_hidden()
    button = page.get_by_role("button", name="Hold to see the words")
    button.hover()
    page.mouse.down()
    expect(first).to_be_visible()
    page.mouse.up()
    expect(first).to_be_hidden()
    # By the keyboard as well.
    button.focus()
    page.keyboard.down("Space")
    expect(first).to_be_visible()
    page.keyboard.up("Space")
    expect(first).to_be_hidden()
    page.emulate_media(media="print")
    expect(first).to_be_visible()
    expect(button).to_be_hidden()
    page.emulate_media(media="screen")
    assert len(visitor.shown_words()) == 24


#: The pixels of the only code on the page, as the browser draws it: black is 0, white is 255.
DRAWN = """async (size) => {
  const image = new Image();
  const text = new XMLSerializer().serializeToString(document.querySelector(".code-modules"));
  image.src = "data:image/svg+xml," + encodeURIComponent(text);
  await image.decode();
  const canvas = new OffscreenCanvas(size, size);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0, size, size);
  const pixels = context.getImageData(0, 0, size, size).data;
  return Array.from({ length: size * size }, (_, at) => pixels[4 * at]);
}"""


def test_the_sheet_has_a_code_that_a_reader_of_codes_reads_as_the_words(
    visitor: Visitor, site: Service
) -> None:
    store = at_keyring(visitor, site)
    page = visitor.page
    code = page.locator(".code-modules")
    expect(code).to_have_count(0)  # not before the password
    fingerprint = page.locator("dd code").first.inner_text()
    visitor.prove("show", store.account)
    visitor.press("Show the words to write down")
    code.wait_for(state="attached")
    expect(code).to_be_hidden()

    words = visitor.shown_words()
    expect(code).to_be_visible()
    name = "QR code with the words of version 1"
    expect(page.get_by_role("img", name=name)).to_be_visible()
    expect(page.locator(".sheet")).to_contain_text(
        "Anybody who photographs this sheet has the key."
    )
    assert visitor.serious_flaws() == []
    size = 520
    pixels = np.array(page.evaluate(DRAWN, size), np.uint8).reshape(size, size)
    # Among so many squares a reader finds a number of another code, one time in many.
    square = zxingcpp.BarcodeFormat.QRCode
    found = [barcode.text for barcode in zxingcpp.read_barcodes(pixels) if barcode.format == square]
    assert found == [" ".join(words)]
    photograph(visitor, "recovery-sheet")
    assert wide_at(visitor) == []

    page.get_by_label("Keep them shown").uncheck()
    expect(code).to_be_hidden()
    page.emulate_media(media="print")
    expect(code).to_be_visible()
    expect(page.locator(".sheet")).to_contain_text(f"Version 1, fingerprint {fingerprint}")
    for control in page.locator("main button, main input").all():
        expect(control).to_be_hidden()
    page.emulate_media(media="screen")


def test_a_keyring_is_given_a_passphrase_and_another_one(visitor: Visitor, site: Service) -> None:
    store = at_keyring(visitor, site)
    page = visitor.page

    open_up(visitor, "Protect it with a passphrase")
    visitor.type("New passphrase", "first of them")
    visitor.type("New passphrase, again", "first of them")
    visitor.prove("passphrase", store.account)
    visitor.press("Set the passphrase")
    expect(page.get_by_text("a passphrase", exact=True)).to_be_visible()
    expect(page.get_by_text("automatically after 12 hours without use")).to_be_visible()
    open_up(visitor, "Change its passphrase")
    visitor.type("Current passphrase", "first of them")
    visitor.type("New passphrase", "second of them")
    visitor.type("New passphrase, again", "second of them")
    visitor.press("Set the passphrase")
    visitor.press("Lock the keyring")
    visitor.type("Passphrase of the keyring", "second of them")
    visitor.press("Unlock")

    expect(page.get_by_role("heading", name="This keyring")).to_be_visible()
    # Or in the message that needs it, which goes on where it was.
    visitor.press("Lock the keyring")
    expect(page.locator(".status")).to_contain_text("Keyring locked")
    visitor.go(f"/schemas/{store.schema_id}/search/")
    visitor.complaints.clear()  # it was answered with 422
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The keyring is locked.")
    assert "ers " not in alert.inner_text()
    assert visitor.serious_flaws() == []
    visitor.type("Passphrase of the keyring", "second of them")
    visitor.press("Unlock and continue")
    page.wait_for_url(f"**/schemas/{store.schema_id}/search/")
    expect(page.locator(".status")).to_contain_text("Keyring open")
    expect(page.locator(".found")).to_have_text("1 record, 1 to 1 shown")
    # For whom the API knows, but who has no device of the keyring's, it stays closed.
    answer = call("GET", f"{site.proxy_url}/api/keyring/", auth=store.account.auth)
    assert answer.json()["code"] == "device_needed"


def test_the_chip_of_the_band_leads_to_the_lock_or_to_what_it_needs(
    visitor: Visitor, site: Service, chromium: Browser
) -> None:
    store = at_keyring(visitor, site)
    page = visitor.page
    chip = page.locator(".status [data-part=keyring] a")
    visitor.go(f"/schemas/{store.schema_id}/search/")
    chip.click()
    visitor.expect_heading("Keyring")
    expect(page.get_by_role("button", name="Lock the keyring")).to_have_count(0)
    page.locator("#no-lock").get_by_role("link").click()
    expect(page.locator("#protect")).to_be_in_viewport()
    open_up(visitor, "Protect it with a passphrase")
    visitor.type("New passphrase", "of this keyring")
    visitor.type("New passphrase, again", "of this keyring")
    visitor.prove("passphrase", store.account)
    visitor.press("Set the passphrase")
    expect(page.get_by_text("a passphrase", exact=True)).to_be_visible()

    visitor.go(f"/schemas/{store.schema_id}/search/")
    expect(chip).to_contain_text("Keyring open")
    chip.click()
    expect(page.locator("#no-lock")).to_have_count(0)
    visitor.press("Lock the keyring")
    expect(chip).to_contain_text("Keyring locked")
    visitor.type("Passphrase of the keyring", "of this keyring")
    visitor.press("Unlock")
    expect(chip).to_contain_text("Keyring open")

    # A browser that is not registered has nothing to lock: it is led to what it needs first.
    with visiting(chromium, site, quiet=False) as other:
        other.go("/login/")
        other.type("E-mail address", store.account.email)
        other.type("Password", store.account.password)
        other.press("Log in")
        other.expect_heading("Register this browser")
        chip = other.page.locator(".status [data-part=keyring] a")
        expect(chip).to_contain_text("Browser not registered")
        expect(chip).to_have_attribute("href", re.compile("/device/$"))
        label = "A code, your keyring's passphrase, or its 24 words"
        other.type(label, "of this keyring")
        other.press("Register this browser")
        expect(chip).to_contain_text("Keyring open")


def test_a_colleague_without_the_key_is_led_to_the_keyring(visitor: Visitor, site: Service) -> None:
    store = older_store(site, DEFINITION)
    store.ingest([{"name": "Ada"}])
    guest = site.new_account()
    invitations = f"{site.proxy_url}{store.account.organization}invitations/"
    invited = call("POST", invitations, {"email": guest.email}, auth=store.account.auth)
    path = f"{site.proxy_url}/api/invitations/{invited.json()['id']}/accept/"
    assert call("POST", path, auth=guest.auth).status == 201
    visitor.log_in(guest, f"/schemas/{store.schema_id}/search/")
    visitor.complaints.clear()  # it was answered with 422
    alert = visitor.page.get_by_role("alert")
    expect(alert).to_contain_text("encrypted with a key that is not in your keyring here")
    assert "ers " not in alert.inner_text()
    visitor.press("Go to the keyring")
    visitor.expect_heading("Keyring")
    # What a member would be refused is not offered, and an owner is offered it.
    paths = [f"/schemas/{store.schema_id}/settings/"]
    dataset = call("GET", site.proxy_url + store.schema, auth=store.account.auth).json()["dataset"]
    paths.append(f"{dataset.removeprefix('/api')}settings/")
    for account, offered in ((guest, 0), (store.account, 1)):
        for path in paths:
            visitor.go(path)
            expect(visitor.page.get_by_text("Identifier")).to_be_visible()
            expect(visitor.page.get_by_role("link", name="Delete…")).to_have_count(offered)
        if account is guest:
            visitor.log_out()
            visitor.log_in(store.account)


def test_an_organization_is_renamed_and_people_are_invited_and_removed(
    visitor: Visitor, chromium: Browser, site: Service
) -> None:
    owner, guest = site.new_account(), site.new_account()
    page = visitor.page
    visitor.log_in(owner, "/")
    page.get_by_role("link", name="People and services", exact=True).click()
    name = f"Engines {secrets.token_hex(3)}"
    visitor.type("Name", name)
    visitor.press("Rename")
    expect(page.locator("h1")).to_have_text(name)

    # As the contract has it; the page itself invites by twelve words.
    invitations = f"{site.proxy_url}{owner.organization}invitations/"
    for address in (guest.email, "nobody@example.org"):
        assert call("POST", invitations, {"email": address}, auth=owner.auth).status == 201
    page.reload()
    page.get_by_label("Withdraw the invitation of nobody@example.org").click()
    expect(page.get_by_label("Withdraw the invitation of nobody@example.org")).to_have_count(0)

    with visiting(chromium, site) as other:
        other.log_in(guest, "/organizations/")
        expect(other.page.get_by_text(f"{owner.email} invites you to {name}")).to_be_visible()
        other.press("Accept")
        other.press(name)
        expect(other.page.locator("tbody tr")).to_have_count(2)
        expect(other.page.get_by_role("link", name="Invite a person")).to_have_count(0)

    page.reload()
    visitor.press(f"Make owner: {guest.email}")
    expect(page.get_by_label(f"Make member: {guest.email}")).to_be_visible()
    visitor.press(f"Remove {guest.email}")
    visitor.press("Remove")
    expect(page.locator("tbody tr")).to_have_count(1)
    # One owner has to stay: what would be refused is not offered.
    expect(page.locator("tbody tr")).to_contain_text("the only owner")
    expect(page.locator("tbody").get_by_role("button")).to_have_count(0)
    expect(page.locator("tbody").get_by_role("link")).to_have_count(0)
    # Who has the address all the same is told why.
    member = call("GET", f"{site.proxy_url}{owner.organization}members/", auth=owner.auth).json()
    own = member["results"][0]["url"].split("/")[-2]
    visitor.go(f"{owner.organization.removeprefix('/api')}remove/{own}/")
    visitor.press("Leave")
    expect(page.get_by_role("alert")).to_be_visible()
