"""Whoever has a copy of the API's folder and database gets nothing from a proxy."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import Any

import jwt

from encrypted_records.model import ids
from tests.e2e.database import Row, database_of
from tests.support.service import Service, call
from tests.support.store import new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


def logins_of(service: Service) -> list[Row]:
    with database_of(service) as database:
        return database.run("SELECT * FROM accounts_login")


def guesses(row: Row) -> Iterator[str | None]:
    """What a thief could take for the secret of a login."""
    yield None
    for value in row.values():
        if isinstance(value, bytes | memoryview):
            yield bytes(value).hex()
            yield base64.urlsafe_b64encode(bytes(value)).decode().rstrip("=")


def signed(claims: dict[str, Any], key: str) -> str:
    now = int(time.time())
    usual = {"token_type": "access", "jti": "0" * 32, "iat": now, "exp": now + 600}
    return "Bearer " + jwt.encode(usual | claims, key, "HS256")


def test_no_token_made_of_a_stolen_key_and_table_opens_a_keyring(service: Service) -> None:
    store = new_store(service, DEFINITION)
    store.ingest([{"name": "Ada"}])
    who = {"email": store.account.email, "password": store.account.password}
    token = call("POST", f"{service.base_url}/api/token/", who).json()["access"]
    key = (service.data_dir / "api" / "secret.key").read_text()
    mine = jwt.decode(token, key, ["HS256"])
    keyring = f"{service.proxy_url}/api/keyring/"
    logins = {ids.to_text(bytes(row["id"])): row for row in logins_of(service)}

    for secret in guesses(logins[mine["login"]]):
        forged = signed({"login": mine["login"], "secret": secret}, key)
        for method, path in (("GET", keyring), ("POST", f"{keyring}backup/")):
            assert call(method, path, auth=forged).status == 401
    # The same key and login with the secret, which the table does not have, are let in.
    genuine = signed({name: mine[name] for name in ("login", "secret")}, key)
    assert call("GET", keyring, auth=genuine).status == 200
