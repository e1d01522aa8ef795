"""A dataset that several people read and write, each with a proxy and a keyring of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from encrypted_records.model import ids
from encrypted_records.proxy.process import Background
from encrypted_records.proxy.schemas.logs import CheckpointPolicy
from encrypted_records.proxy.settings import Overrides
from tests.proxy.sharing.people import Person, Team
from tests.support.background import Queued
from tests.support.front import Front, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Answer, Service
from tests.support.store import Store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 9999},
        "s": {"type": "string"},
    },
}


@dataclass
class Shared:
    """A dataset with one schema, and people who read and write it."""

    team: Team
    folder: Path
    stack: ExitStack
    schema: str = ""
    fronts: dict[bytes, Front] = field(default_factory=dict)
    _made: int = 0

    def person(self, right: int, *schemas: str) -> Person:
        """Somebody who was let in; the folder is that of a proxy."""
        one = self.team.somebody()
        one.folder = self.folder / one.account.email.partition("@")[0] / "proxy"
        share = self.team.share(right, *(ids.from_text(path.split("/")[-2]) for path in schemas))
        self.team.accept(one, self.team.invite(one, share))
        assert self.team.settle().admitted == [one.account.email]
        return one

    def proxy(
        self,
        person: Person,
        *,
        folder: Path | None = None,
        checkpoints: int = 10_000,
        background: Callable[[], Background] = Queued,
        **overrides: Any,
    ) -> Store:
        """A new proxy of this person's, behind a front that may lie.

        Args:
            folder: another one than the person's own.
            checkpoints: after how many commits it writes one.
            background: starts the work beside requests.
            overrides: of :class:`Overrides`.
        """
        api = person.service.base_url
        front = self.stack.enter_context(running_front(api))
        # However slow the machine is: who settles, and when, says the test.
        never = Overrides(
            attend_seconds=86_400.0,
            checkpointing=CheckpointPolicy(checkpoints, part=1, most=checkpoints),
            **overrides,
        )
        own = folder or person.folder.parent
        proxy = self.stack.enter_context(
            running_proxy(front.url, own, overrides=never, background=background)
        )
        service = Service(person.service.process, api, proxy.url, own, person.service.log_file)
        self.fronts[person.id] = front
        return Store(service, person.account, self.schema)

    def put_out(self, owner: Store, person: Person) -> Answer:
        """An owner's proxy removes somebody, and gives their datasets new keys."""
        people = f"{self.team.ada.account.organization}people/"
        return owner.proxy("DELETE", f"{people}{ids.to_text(person.id)}/")

    def new_schema(self, name: str = "Adults", definition: Any = DEFINITION) -> str:
        body = {"name": name, "dataset": self.team.made["url"], "schema": definition}
        made = self.team.ada.call("POST", "/api/schemas/", body)
        assert made.status == 201, made.body
        return str(made.json()["url"])


@contextmanager
def new_shared(api: Service, folder: Path) -> Iterator[Shared]:
    team = Team(Person(api, api.new_account(), folder / "ada" / "proxy"), folder)
    assert team.made
    with ExitStack() as stack:
        shared = Shared(team, folder, stack)
        shared.schema = shared.new_schema()
        yield shared


def numbers(store: Store) -> list[int]:
    return sorted(one["data"]["n"] for one in store.everything())


def refused(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json()["code"]
