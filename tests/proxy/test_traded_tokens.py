"""An API with another database or secret key refuses the tokens that a proxy has traded: whoever
sends the right password does not notice."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uuid_utils

from tests.e2e.database import database_of
from tests.support.front import Front
from tests.support.proxies import Proxy
from tests.support.service import Service, call
from tests.support.store import Store


@pytest.fixture
def definition() -> dict[str, Any]:
    return {"type": "object", "properties": {"t": {"type": "string"}}}


def end_logins(service: Service) -> None:
    """As a database that was put back does, or another secret key."""
    with database_of(service) as database:
        database.run("DELETE FROM accounts_login")


def let_memory_pass(proxy: Proxy) -> None:
    """The proxy asks the API again who its callers are."""
    for entry in proxy.services.access._known.values():
        entry.caller_until = 0.0


@pytest.mark.parametrize("remembers", [True, False])
def test_a_token_that_the_api_does_not_know_is_traded_again(
    store: Store, proxy: Proxy, *, remembers: bool
) -> None:
    store.ingest([{"t": "first"}])
    end_logins(store.service)
    if not remembers:
        let_memory_pass(proxy)
    assert store.send([{"t": "second"}]).status == 201
    end_logins(store.service)
    if not remembers:
        let_memory_pass(proxy)
    assert len(store.found()) == 2


def test_many_requests_at_once_are_all_answered_and_each_stored_once(
    store: Store, front: Front
) -> None:
    store.ingest([{"t": "first"}])
    end_logins(store.service)
    front.forget()
    record = json.dumps([{"schema": store.schema, "data": {"t": "x"}}]).encode()

    def send(_: int) -> int:
        return call(
            "POST",
            f"{store.service.proxy_url}/api/records/ingest/",
            record,
            auth=store.account.auth,
            headers={
                "Content-Type": "application/json",
                "Idempotency-Key": str(uuid_utils.uuid7()),
            },
        ).status

    with ThreadPoolExecutor(12) as pool:
        assert set(pool.map(send, range(12))) == {201}
    assert len(store.found()) == 13
    # The password is asked for once, however many requests were refused.
    assert len([one for one in front.asked if one.path == "/api/token/"]) <= 2


def test_a_wrong_password_is_refused_as_before(store: Store, proxy: Proxy) -> None:
    store.ingest([{"t": "first"}])
    new = "another long passphrase"
    sent = {"old_password": store.account.password, "password": new, "password_confirm": new}
    assert store.api("POST", "/api/accounts/change-password/", sent).status == 200
    for _ in range(2):
        refused = store.send([{"t": "second"}])
        assert (refused.status, refused.json()["code"]) == (401, "bad_credentials")


def test_nothing_keeps_credentials_once_their_request_is_answered(
    store: Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from encrypted_records.client import transport
    from encrypted_records.proxy.http import guard

    made: list[transport.Renewal] = []

    def make() -> transport.Renewal:
        made.append(transport.Renewal())
        return made[-1]

    monkeypatch.setattr(guard, "Renewal", make)
    store.ingest([{"t": "first"}])
    assert made
    assert all(one.renew is None for one in made)
