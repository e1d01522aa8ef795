"""One person with a proxy, behind a front that may lie; the schema was made at the API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from encrypted_records.model import roster as form
from encrypted_records.model import wire
from encrypted_records.model.records import ManifestDelta
from tests.proxy.sharing.people import Person
from tests.support.front import Asked, Front, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Service
from tests.support.store import Store, new_schema

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9999}},
}


@dataclass
class Alone:
    """One person with a proxy, behind a front, and a schema that was made at the API."""

    person: Person
    store: Store
    front: Front

    def entries(self) -> list[form.Content]:
        answer = self.store.api("GET", f"{self.person.account.organization}roster/")
        every = wire.decode_all(answer.body, form.RosterEntry)
        return [form.read_entry(one).content for one in every]

    def kinds(self) -> list[str]:
        return [type(entry).__name__ for entry in self.entries()]

    def commits(self, schema: str = "") -> list[tuple[int, bool]]:
        """Of each commit the entry that it names, and whether it is signed."""
        answer = self.store.api("GET", f"{schema or self.store.schema}manifest/?since=0")
        deltas = wire.decode_all(answer.body, ManifestDelta)
        every = [entry.commit for delta in deltas for entry in delta.entries]
        return [(wire.decode_commit_body(one).roster, bool(one.signature)) for one in every]

    def sent(self) -> list[Asked]:
        """The entries that were sent, a request each."""
        return [one for one in self.front.asked if one.method == "POST" and "/roster/" in one.path]


@contextmanager
def one_alone(api: Service, folder: Path) -> Iterator[Alone]:
    with ExitStack() as stack:
        person = Person(api, api.new_account(), folder / "ada" / "proxy")
        front = stack.enter_context(running_front(api.base_url))
        proxy = stack.enter_context(running_proxy(front.url, person.folder.parent))
        service = replace(api, proxy_url=proxy.url, data_dir=person.folder.parent)
        schema = new_schema(replace(api, proxy_url=api.base_url), person.account, DEFINITION)
        yield Alone(person, Store(service, person.account, schema), front)
