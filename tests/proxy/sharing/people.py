"""People with a data folder each, whose proxies share an API: the flows without their endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pytest

from encrypted_records.client.transport import Transport
from encrypted_records.errors import ErsError
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import Background
from encrypted_records.proxy.rosters import Rosters
from encrypted_records.proxy.sharing.joining import Invited, JoinedOrganization
from encrypted_records.proxy.sharing.reading import View
from encrypted_records.proxy.sharing.settling import AppliedChanges, Sharing
from tests.proxy.sharing.heads import ShownHeads
from tests.support.keyrings import keyrings_in
from tests.support.service import Account, Answer, Service, call

T = TypeVar("T")


@dataclass
class Person:
    """Somebody with an account and a data folder; ``url`` is that of the API, or of what stands
    before it."""

    service: Service
    account: Account
    folder: Path
    url: str = ""
    organization_path: str = ""

    @property
    def organization(self) -> bytes:
        return ids.from_text((self.organization_path or self.account.organization).split("/")[-2])

    @cached_property
    def id(self) -> bytes:
        answer = self.call("GET", "/api/users/self/")
        return ids.from_text(answer.json()["id"])

    @cached_property
    def holder(self) -> Holder:
        token = call(
            "POST",
            f"{self.service.base_url}/api/token/",
            {"email": self.account.email, "password": self.account.password},
        ).json()["access"]
        return Holder(self.id, f"Bearer {token}", "device00")

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        return call(method, self.service.base_url + path, body, auth=self.account.auth)

    def do(self, act: Callable[[Sharing], Awaitable[T]]) -> T:
        """What a proxy started now on this folder does, which ends then."""

        async def run() -> T:
            keyrings = keyrings_in(self.folder)
            rosters = Rosters(self.folder / "rosters.sqlite3")
            transport = Transport(self.url or self.service.base_url)
            try:
                heads, background = ShownHeads(transport), Background()
                return await act(Sharing(transport, keyrings, rosters, heads, background))
            finally:
                await transport.close()
                rosters.close()

        return asyncio.run(run())

    def new_dataset(self, name: str = "People") -> Any:
        body = {"name": name, "organization": self.account.organization}
        answer = self.call("POST", "/api/datasets/", body)
        assert answer.status == 201, answer.body
        return answer.json()


def new_person(service: Service, folder: Path, url: str = "") -> Person:
    account = service.new_account()
    return Person(service, account, folder / account.email.partition("@")[0], url)


@dataclass
class Team:
    """An organization that ``ada`` has founded, with one dataset that has keys."""

    ada: Person
    folder: Path

    @cached_property
    def made(self) -> Any:
        made = self.ada.new_dataset()
        self.begin(made)
        return made

    @property
    def dataset(self) -> bytes:
        return ids.from_text(self.made["id"])

    @property
    def organization(self) -> bytes:
        return self.ada.organization

    def begin(self, made: Any) -> None:
        async def act(sharing: Sharing) -> None:
            ada = self.ada
            await sharing.founding.found(ada.holder, ada.organization, ada.account.email)
            dataset = ids.from_text(made["id"])
            await sharing.founding.begin_dataset(
                ada.holder, ada.organization, dataset, slug=made["slug"], name=made["name"]
            )

        self.ada.do(act)

    def share(self, right: int = form.READER, *schemas: bytes) -> form.Share:
        return form.Share(self.dataset, form.WRITER if right == 1 else form.READER, list(schemas))

    def somebody(self, url: str = "") -> Person:
        person = new_person(self.ada.service, self.folder, url)
        person.organization_path = self.ada.account.organization
        return person

    def invite(self, person: Person, *shares: form.Share, by: Person | None = None) -> Invited:
        owner, wanted = by or self.ada, list(shares) or [self.share()]
        return owner.do(
            lambda sharing: sharing.inviting.invite(
                owner.holder, self.organization, person.account.email, wanted
            )
        )

    def accept(self, person: Person, invited: Invited, words: str = "") -> JoinedOrganization:
        return person.do(
            lambda sharing: sharing.inviting.accept(
                person.holder, invited.id, words or invited.words
            )
        )

    def settle(self, by: Person | None = None) -> AppliedChanges:
        owner = by or self.ada
        return owner.do(lambda sharing: sharing.settling.settle(owner.holder, self.organization))

    def join(self, *shares: form.Share) -> Person:
        person = self.somebody()
        self.accept(person, self.invite(person, *shares))
        settled = self.settle()
        assert settled.admitted == [person.account.email], settled
        return person

    def view(self, person: Person) -> View:
        async def act(sharing: Sharing) -> View:
            view = await sharing.reader.read(person.holder, self.organization)
            assert view is not None
            return view

        return person.do(act)

    def keys(self, person: Person, dataset: bytes | None = None) -> Mapping[int, bytes]:
        """What a person's proxy opens: D of each epoch, by its commitment."""

        async def act(sharing: Sharing) -> Mapping[int, bytes]:
            view = await sharing.reader.read(person.holder, self.organization)
            assert view is not None
            held = await sharing.grants.whole(view, dataset or self.dataset)
            return {epoch: key.commitment for epoch, key in held.items()}

        return person.do(act)

    def refusal(self, act: Callable[[], object]) -> str:
        """The code of the error that something ends with."""
        with pytest.raises(ErsError) as refused:
            act()
        return refused.value.reason
