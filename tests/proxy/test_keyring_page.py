"""The keyring's page without a script: a locked keyring is opened there, and only by its words."""

from __future__ import annotations

from urllib.parse import urlencode

from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}
PASSPHRASE = "seven wet kettles 1815"


def visit(service: Service, session: dict[str, str], **form: str) -> Answer:
    headers = session | {"Origin": service.proxy_url}
    url = f"{service.proxy_url}/keyring/"
    if not form:
        return call("GET", url, headers=headers)
    headers |= {"Content-Type": "application/x-www-form-urlencoded"}
    return call("POST", url, urlencode(form).encode(), headers=headers)


def test_a_locked_keyring_is_unlocked_on_its_page(service: Service) -> None:
    store: Store = new_store(service, DEFINITION)
    store.ingest([{"name": "before"}])
    assert store.proxy("POST", "/api/keyring/passphrase/", {"new": PASSPHRASE}).status == 200
    assert store.proxy("POST", "/api/keyring/lock/").status == 200
    assert store.ask().json()["code"] == "keyring_locked"
    session = service.session_of(store.account)

    page = visit(service, session)
    assert page.status == 200
    assert b'type="password"' in page.body
    assert b"Add a version" not in page.body
    wrong = visit(service, session, do="unlock", passphrase="another")
    assert b"does not open under this passphrase" in wrong.body
    assert store.ask().json()["code"] == "keyring_locked"

    # After a wrong one it may be too early for a second.
    while (opened := visit(service, session, do="unlock", passphrase=PASSPHRASE)).status == 429:
        assert PASSPHRASE.encode() not in opened.body
    assert b"Add a version" in opened.body
    assert [one["data"] for one in store.everything()] == [{"name": "before"}]
