"""An organization that the API made up, shown to a proxy that has nothing but its user's recovery
words: it stores nothing there, asks for nothing and shows nobody."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from encrypted_records.crypto.keys import DatasetKey, Keyring, RootKey
from encrypted_records.crypto.recovery import keyring_of
from encrypted_records.index.roster.roster import Roster, sign_entry
from encrypted_records.model import roster as form
from encrypted_records.model import wire
from encrypted_records.model.roster import Content, MemberStanding, RosterEntry
from tests.proxy.sharing.people import Person
from tests.proxy.sharing.shared import Shared, numbers, refused
from tests.proxy.sharing.test_coming_back import phrases, rotate_keyring
from tests.support.front import Asked, Reply
from tests.support.keyrings import keyrings_in
from tests.support.store import Store


@dataclass
class MadeUp:
    """A roster of the right organization and dataset, by somebody who has this root key."""

    shared: Shared
    owner: bytes
    root: RootKey
    entries: list[RosterEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        team = self.shared.team
        self.roster = Roster(team.organization)
        self.identity = self.root.identity(team.organization, self.owner, 1)
        self.put(form.FoundingEntry(self.identity.keys, "ada@example.org", bytes(32)))
        key = DatasetKey.generate(team.organization, team.dataset, 1)
        self.put(form.DatasetName(team.dataset, "people", "People", 1, key.commitment, []))

    def put(self, content: Content) -> None:
        entry = sign_entry(self.roster, self.identity, self.owner, int(time.time()), content)
        self.roster.append(entry)
        self.entries.append(entry)

    def admit(self, member: bytes, name: str) -> None:
        """Under keys of the API's own making: nobody has those of the member."""
        organization, root = self.shared.team.organization, RootKey.generate()
        identity = root.identity(organization, member, 1)
        anchor = root.anchor(organization, member, 1).anchor(self.roster.found)
        proof = identity.sign("keys", self.roster.found, member, identity.keys, anchor)
        shares = [form.Share(self.shared.team.dataset, form.WRITER, [])]
        known = (identity.keys, anchor, proof)
        self.put(MemberStanding(member, form.PERSON, form.MEMBER, name, *known, b"", 0, shares))

    def lie(self, asked: Asked, reply: Reply) -> Reply:
        if asked.method == "GET" and "/roster/" in asked.path:
            return reply.with_body(wire.encode(self.entries))
        return reply


def fresh_machine(shared: Shared, person: Person, words: list[str], folder: Path) -> Store:
    """A new proxy that knows of nobody and nothing but its user's words."""
    person.folder = folder / "proxy"
    keyring: Keyring = keyring_of(words, created=int(time.time()))
    keyrings_in(person.folder).changes.restore(person.holder, keyring, replace=False)
    return shared.proxy(person)


def refuses_all_of_it(shared: Shared, person: Person, store: Store, made_up: MadeUp) -> None:
    """Each request ends with the same error, and nothing but questions reaches the API."""
    front = shared.fronts[person.id]
    people = f"{shared.team.ada.account.organization}people/"
    dataset = shared.team.made["url"]
    front.forget()
    with front.telling(made_up.lie):
        for answer in (
            store.send([{"n": 5}]),
            store.ask(),
            store.proxy("GET", people),
            store.proxy("POST", f"{dataset}rotate/", {}),
        ):
            assert refused(answer) == (422, "roster_unknown"), answer.body
    sent = {one.path for one in front.asked if one.method != "GET"}
    assert sent <= {"/api/token/"}, "a login is all that is sent"


@pytest.fixture
def ada(shared: Shared) -> Store:
    store = shared.proxy(shared.team.ada)
    store.ingest([{"n": 1}])
    return store


def test_a_writers_fresh_proxy_refuses_an_organization_that_was_made_up(
    shared: Shared, ada: Store, tmp_path: Path
) -> None:
    grace = shared.person(form.WRITER)
    made_up = MadeUp(shared, shared.team.ada.id, RootKey.generate())
    made_up.admit(grace.id, grace.account.email)
    store = fresh_machine(shared, grace, phrases(grace), tmp_path / "fresh")
    refuses_all_of_it(shared, grace, store, made_up)
    # What it was shown first counts for nothing, once it is shown the right one.
    assert numbers(store) == [1]
    store.ingest([{"n": 2}])
    assert numbers(ada) == [1, 2]


def test_a_founders_fresh_proxy_refuses_one_that_a_leaked_older_key_founded(
    shared: Shared, ada: Store, tmp_path: Path
) -> None:
    owner = shared.team.ada
    leaked = keyrings_in(owner.folder).of(owner.holder).root(1)
    rotate_keyring(owner, confirm=True)
    shared.team.settle()
    made_up = MadeUp(shared, owner.id, leaked)
    store = fresh_machine(shared, owner, phrases(owner), tmp_path / "fresh")
    refuses_all_of_it(shared, owner, store, made_up)
    assert numbers(store) == [1]
    store.ingest([{"n": 2}])
    assert numbers(store) == [1, 2]
