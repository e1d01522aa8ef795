"""Who asks a proxy for a keyring, and an API that takes one of them for another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from encrypted_records.model import credentials
from encrypted_records.model.credentials import DEVICE_HEADER, DeviceSecret
from tests.support.front import Asked, Front, Reply
from tests.support.proxies import Proxy
from tests.support.service import Account, Answer, Service, call

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}

SECRET_WORD = "Quetzalcoatlus"  # in a record, and so in no answer to anybody else


@dataclass(frozen=True)
class Person:
    """Somebody with an account, a schema, and maybe a device."""

    account: Account
    user: str
    schema: str
    device: DeviceSecret | None = None

    def headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        own = {} if self.device is None else {DEVICE_HEADER: self.device.text}
        return own | dict(more or {})

    def ask(
        self,
        proxy: Proxy,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        return call(
            method, proxy.url + path, body, auth=self.account.auth, headers=self.headers(headers)
        )

    def ingest(self, proxy: Proxy, name: str = SECRET_WORD) -> Answer:
        body = [{"schema": f"/api/schemas/{self.schema}/", "data": {"name": name}}]
        return self.ask(proxy, "POST", "/api/records/ingest/", body)

    def at(self, device: DeviceSecret | None) -> Person:
        return Person(self.account, self.user, self.schema, device)


def new_person(service: Service) -> Person:
    account = service.new_account()
    auth = account.auth
    user = call("GET", f"{service.base_url}/api/users/self/", auth=auth).json()["id"]
    body: dict[str, Any] = {"name": "Notes", "organization": account.organization}
    dataset = call("POST", f"{service.base_url}/api/datasets/", body, auth=auth).json()["url"]
    body = {"name": "Note", "dataset": dataset, "schema": DEFINITION}
    schema = call("POST", f"{service.base_url}/api/schemas/", body, auth=auth).json()["id"]
    return Person(account, user, schema, credentials.generate_device_secret())


@contextmanager
def taking_for(front: Front, mistaken: Person, other: Person) -> Iterator[None]:
    """An API that says that one user is another."""

    def lie(asked: Asked, reply: Reply) -> Reply:
        if asked.path != "/api/users/self/" or reply.status != 200:
            return reply
        said = json.loads(reply.body)
        if said["id"] != mistaken.user:
            return reply
        return reply.with_body(json.dumps({**said, "id": other.user}).encode())

    with front.telling(lie):
        yield


def code_of(answer: Answer) -> str:
    return str(answer.json()["code"])
