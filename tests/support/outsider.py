"""A member of an organization without any key, who speaks to the API and to no proxy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from encrypted_records.model import ids
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.records import RowRef, SealedRow
from tests.server.writer import Writer, sealed_number, sealed_string
from tests.support.service import Account, Answer, Service, call
from tests.support.store import Store


class Outsider:
    """Whoever it is, the API takes their commits: it cannot tell that they authenticate nothing."""

    def __init__(self, service: Service, account: Account) -> None:
        self._service = service
        self.account = account

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        return call(
            method, self._service.base_url + path, body, auth=self.account.auth, headers=headers
        )

    def break_log(self, store: Store, *, killed: Sequence[RowRef] = (), rows: int = 1) -> Writer:
        """Append a commit of the right shape, under the schema's public key id and a random MAC.

        Args:
            killed: rows that it says have ended.
        """
        found = self.call("GET", store.schema)
        assert found.status == 200, found.body
        schema = found.json()
        writer = Writer(self, schema, key_id=bytes.fromhex(schema["key_id"]))  # type: ignore[arg-type]
        writer.key_version = schema["key_version"]
        writer.catch_up()
        names = list(parse_definition(msgspec.json.encode(schema["schema"])).fields)
        made = [_nonsense(schema["schema"], names) for _ in range(rows)]
        writer.send(writer.adding(made, killed=killed))
        return writer


def _nonsense(definition: Mapping[str, Any], names: Sequence[str]) -> SealedRow:
    kinds = {name: one["type"] for name, one in definition["properties"].items()}
    fields = [sealed_string() if kinds[name] == "string" else sealed_number() for name in names]
    return SealedRow(ids.new_id(), 1, fields)


def outsider(store: Store) -> Outsider:
    """Somebody whom the store's owner has invited, and who has never used a proxy."""
    service, owner = store.service, store.account
    account = service.new_account()
    base = service.base_url
    invited = call(
        "POST",
        f"{base}{owner.organization}invitations/",
        {"email": account.email},
        auth=owner.auth,
    )
    assert invited.status == 201, invited.body
    invitation = invited.json()["id"]
    joined = call("POST", f"{base}/api/invitations/{invitation}/accept/", auth=account.auth)
    assert joined.status == 201, joined.body
    return Outsider(service, account)
