"""One account's use of a running service: schemas, records, searches, by plain HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from encrypted_records.model import credentials, strict_json
from encrypted_records.model.credentials import DeviceSecret
from tests.support.service import Account, Answer, Service, call


@dataclass(frozen=True)
class Store:
    """An account and one schema of its own, used by a program of the user who runs the proxy: it
    has a device, and shows the door where keys go out or change."""

    service: Service
    account: Account
    schema: str
    device: DeviceSecret = field(default_factory=credentials.generate_device_secret)

    @property
    def schema_id(self) -> str:
        return self.schema.split("/")[-2]

    def proxy(self, method: str, path: str, body: Any = None) -> Answer:
        headers = {credentials.DEVICE_HEADER: self.device.text}
        if path.startswith(("/api/keyring/", "/api/devices/")):
            headers |= self.service.door
        return _call(self.service.proxy_url, method, path, body, self.account, headers)

    def api(self, method: str, path: str, body: Any = None) -> Answer:
        return _call(self.service.base_url, method, path, body, self.account)

    def another_schema(self, definition: Any) -> Store:
        schema = new_schema(self.service, self.account, definition)
        return Store(self.service, self.account, schema, self.device)

    def send(self, rows: Sequence[dict[str, Any]]) -> Answer:
        """One direct ingest."""
        records = [{"schema": self.schema, "data": row} for row in rows]
        return self.proxy("POST", "/api/records/ingest/", records)

    def ingest(self, rows: Sequence[dict[str, Any]], *, at_once: int = 100) -> list[str]:
        """The ids of the stored rows, in their order."""
        ids: list[str] = []
        for start in range(0, len(rows), at_once):
            answer = self.send(rows[start : start + at_once])
            assert answer.status == 201, answer.body
            ids += [one["id"] for one in answer.json()]
        return ids

    def search(self, where: Any = None, **members: Any) -> dict[str, Any]:
        answer = self.ask(where, **members)
        assert answer.status == 200, answer.body
        found: dict[str, Any] = exact(answer)
        return found

    def ask(self, where: Any = None, **members: Any) -> Answer:
        body = {"schema": self.schema, "where": where, **members}
        return self.proxy("POST", "/api/records/search/", body)

    def everything(self, where: Any = None) -> list[dict[str, Any]]:
        """All records that match, page by page."""
        records: list[dict[str, Any]] = []
        cursor = None
        while True:
            page = self.search(where, limit=1000, cursor=cursor)
            records += page["results"]
            cursor = page["next_cursor"]
            if cursor is None:
                return records

    def found(self, where: Any = None) -> list[str]:
        """The ids of all records that match."""
        return [record["id"] for record in self.everything(where)]


def exact(answer: Answer) -> Any:
    """JSON with every number as it was written."""
    return json.loads(answer.body, parse_float=Decimal)


def new_store(service: Service, definition: Any) -> Store:
    account = service.new_account()
    return Store(service, account, new_schema(service, account, definition))


def new_schema(service: Service, account: Account, definition: Any) -> str:
    """The path of a new schema in a new dataset."""
    dataset = _call(
        service.proxy_url,
        "POST",
        "/api/datasets/",
        {"name": "data", "organization": account.organization},
        account,
    )
    assert dataset.status == 201, dataset.body
    schema = _call(
        service.proxy_url,
        "POST",
        "/api/schemas/",
        {"name": "rows", "dataset": dataset.json()["url"], "schema": definition},
        account,
    )
    assert schema.status == 201, schema.body
    url: str = schema.json()["url"]
    return url


def _call(
    host: str,
    method: str,
    path: str,
    body: Any,
    account: Account,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    data = None if body is None else strict_json.encode(body)
    sent = {} if data is None else {"Content-Type": "application/json"}
    return call(method, host + path, data, auth=account.auth, headers={**sent, **(headers or {})})
