"""The page of the keyring without a script: a locked keyring is opened there, and only by its
passphrase; below a secret path, whose cookie counts nowhere else."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest

from encrypted_records.model import credentials
from encrypted_records.proxy import services
from encrypted_records.proxy.process import LOCKING
from tests.support.page_visits import Browser, logged_in
from tests.support.proxies import running_proxy
from tests.support.service import Service, call
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}
PASSPHRASE = "seven wet kettles 1815"


def test_a_locked_keyring_is_unlocked_on_its_page(service: Service) -> None:
    store: Store = new_store(service, DEFINITION)
    store.ingest([{"name": "before"}])
    assert store.proxy("POST", "/api/keyring/passphrase/", {"new": PASSPHRASE}).status == 200
    assert store.proxy("POST", "/api/keyring/lock/").status == 200
    assert store.ask().json()["code"] == "keyring_locked"
    browser = logged_in(service, store.account)

    # A browser that the keyring does not know is let in by the passphrase, and that opens it.
    page = browser.visit("/keyring/")
    assert b"Register this browser" in page.body
    wrong = browser.visit("/device/", shown="another")
    assert b"cannot be unlocked with this passphrase" in wrong.body
    # After a wrong one it may be too early for a second.
    while (opened := browser.visit("/device/", shown=PASSPHRASE)).status == 429:
        assert PASSPHRASE.encode() not in opened.body
    assert opened.status == 200
    assert b"Add a version" in browser.visit("/keyring/").body
    # The other device has not typed it since.
    assert store.ask().json()["code"] == "keyring_locked"

    assert store.proxy("POST", "/api/keyring/unlock/", {"passphrase": PASSPHRASE}).status == 200
    assert [one["data"] for one in store.everything()] == [{"name": "before"}]
    # Whoever locks it locks it on every device; this one is known by now.
    assert store.proxy("POST", "/api/keyring/lock/").status == 200
    locked = browser.visit("/keyring/")
    assert b"Add a version" not in locked.body
    assert b"Unlock" in locked.body
    unlocked = browser.visit("/keyring/", do="unlock", passphrase=PASSPHRASE)
    assert b"Add a version" in unlocked.body


def test_a_keyring_that_nobody_uses_locks_by_itself_after_the_minutes_that_are_set(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "MOST_LOCK_SECONDS", 0.1)  # between two looks
    with running_proxy(service.base_url, tmp_path, lock_after=5) as proxy:
        own = replace(service, proxy_url=proxy.url)
        store = new_store(own, DEFINITION)
        store.ingest([{"name": "before"}])
        assert store.proxy("POST", "/api/keyring/passphrase/", {"new": PASSPHRASE}).status == 200
        browser = logged_in(own, store.account)
        assert browser.visit("/device/", shown=PASSPHRASE).status == 200
        assert b"automatically after 5 minutes without use" in browser.visit("/keyring/").body
        keyrings = proxy.services.keyrings
        (user,) = keyrings._core.unlocked.users()
        assert keyrings.is_open(user)
        # Five minutes pass.
        keyrings._core.unlocked.seconds = 0.0
        proxy.settle(LOCKING)
        assert not keyrings.is_open(user)
        assert store.ask().json()["code"] == "keyring_locked"


def test_a_backup_that_lacks_a_key_is_told_from_a_file_that_does_not_open(service: Service) -> None:
    store: Store = new_store(service, DEFINITION)
    store.ingest([{"name": "before"}])
    file = store.proxy("POST", "/api/keyring/backup/file/", {"passphrase": PASSPHRASE}).body
    assert store.proxy("POST", "/api/keyring/rotate/").status == 201
    browser = logged_in(service, store.account)
    form = {"do": "try-file", "content": b64encode(file).decode(), "passphrase": PASSPHRASE}
    lacking = browser.visit("/keyring/", **form)
    assert lacking.status == 400
    assert b"it lacks version 2 of the keyring" in lacking.body
    wrong = browser.visit("/keyring/", **{**form, "passphrase": "another one"})
    assert b"not a backup of a keyring, or the passphrase is wrong" in wrong.body
    assert b"<dt>Restore tried</dt><dd>never" in wrong.body


def test_a_page_cookie_counts_below_its_own_path_alone(service: Service) -> None:
    store: Store = new_store(service, DEFINITION)
    store.ingest([{"name": "before"}])
    browser = logged_in(service, store.account)
    assert b"Log out" in browser.visit("/datasets/").body

    elsewhere = f"/~{credentials.generate_device_secret().page}"
    for at in ("", elsewhere, browser.at.upper(), browser.at[:-1]):
        other = Browser(service, at, browser.cookie)
        assert b"Log out" not in other.visit("/datasets/").body, at
        refused = call(
            "GET", f"{service.proxy_url}{at}/api/keyring/", headers={"Cookie": other.cookie}
        )
        assert refused.status in (401, 404), at
    # One that another port planted for our path is not of that path.
    planted = browser.cookie.replace(".", "x.", 1)
    assert b"Log out" not in Browser(service, browser.at, planted).visit("/datasets/").body
    both = f"{planted}; {browser.cookie}"
    assert b"Log out" in Browser(service, browser.at, both).visit("/datasets/").body


def test_the_secret_path_and_the_device_are_in_no_log(service: Service) -> None:
    store: Store = new_store(service, DEFINITION)
    browser = logged_in(service, store.account)
    browser.visit("/datasets/")
    browser.visit("/nothing-here/")
    assert browser.at not in service.log
    assert browser.cookie.partition("=")[2].partition(".")[0] not in service.log
