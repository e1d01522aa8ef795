"""Every flow, cut off around each request that changes something, and then repeated.

Either side is killed. A proxy is, by the request that is to be its last one, before the API has it
or once the API has done it; what a new one on the same folder makes of it is compared with the flow
that nobody interrupted. An API is killed within the request, with all that it changes and before
the database has it, or once the database has it and before anybody is told; then the proxy, which
goes on, repeats the flow where it was told that it failed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from encrypted_records.crypto.recovery import phrase_of
from encrypted_records.index.roster.due import due_datasets
from encrypted_records.index.roster.state import Member
from encrypted_records.proxy.rosters import Rosters
from tests.proxy.sharing.cutting import Cutter, interrupt
from tests.proxy.sharing.killable import Killable, Task, do
from tests.proxy.sharing.killable_api import KillableApi, running_killable_api
from tests.proxy.sharing.people import Person, Team, new_person
from tests.proxy.sharing.test_flows import make_owner
from tests.support.front import running_front
from tests.support.keyrings import keyrings_in
from tests.support.service import Service


@pytest.fixture(scope="module")
def killable() -> Iterator[Killable]:
    program = Killable()
    yield program
    program.close()


@pytest.fixture(scope="module")
def killable_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillableApi]:
    with running_killable_api(tmp_path_factory.mktemp("killable")) as api:
        yield api


@pytest.fixture(scope="module")
def api(killable_api: KillableApi) -> Service:
    return killable_api.service


@pytest.fixture(scope="module")
def cutter(killable: Killable, killable_api: KillableApi) -> Iterator[Cutter]:
    with running_front(killable_api.service.base_url) as front:
        yield Cutter(killable, killable_api, front)


@dataclass
class Scene:
    team: Team
    cutter: Cutter
    made: int = 0

    def task(self, flow: str, by: Person | None = None, **more: Any) -> Task:
        who = by or self.team.ada
        plain = Task(
            flow=flow,
            url=who.service.base_url,
            folder=str(who.folder),
            user=who.id,
            auth=who.holder.auth,
            organization=self.team.organization,
            dataset=self.team.dataset,
        )
        return msgspec.structs.replace(plain, **more)

    def new_name(self) -> str:
        self.made += 1
        return f"{self.made}.{os.urandom(4).hex()}@example.org"

    def owner_does(self, flow: str, **more: Any) -> None:
        assert do(self.task(flow, **more)).refused == ""

    def answered(self, person: Person) -> None:
        """Invite somebody, who answers from a new machine."""
        invited = self.team.invite(person)
        self.new_machine(person)
        self.team.accept(person, invited)

    def new_machine(self, person: Person) -> None:
        self.made += 1
        person.folder = person.folder.with_name(f"machine{self.made}")

    def member(self, member: bytes) -> Member:
        found = self.team.view(self.team.ada).roster.member(member)
        assert found is not None
        return found

    @property
    def epochs(self) -> int:
        return len(self.team.view(self.team.ada).roster.epochs(self.team.dataset))

    def held(self, *people: Person) -> list[int]:
        """The epochs that all of them open, with one key each; nothing is due."""
        ada = self.team.ada
        roster = self.team.view(ada).roster
        assert due_datasets(roster) == []
        wanted = {one.epoch: one.commitment for one in roster.epochs(self.team.dataset)}
        for person in (ada, *people):
            assert self.team.keys(person) == wanted
        return sorted(wanted)


@pytest.fixture(scope="module")
def scene(api: Service, cutter: Cutter, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """One organization for all flows: what one leaves behind must not stop the next."""
    folder = tmp_path_factory.mktemp("scene")
    team = Team(new_person(api, folder), folder)
    assert team.made
    return Scene(team, cutter)


def test_founding_and_the_keys_of_a_dataset(cutter: Cutter, api: Service, tmp_path: Path) -> None:
    people: dict[bytes, Team] = {}

    def make() -> Task:
        person = new_person(api, tmp_path)
        team = Team(person, tmp_path)
        team.__dict__["made"] = person.new_dataset()
        people[person.organization] = team
        return Scene(team, cutter).task("found", name=person.account.email)

    def outcome(task: Task) -> object:
        team = people[task.organization]
        view = team.view(team.ada)
        with_rosters = Rosters(Path(task.folder) / "rosters.sqlite3")
        waiting = with_rosters.founding(task.user, task.organization)
        with_rosters.close()
        assert view.roster.founder == task.user
        assert Scene(team, cutter).held() == [1]
        return view.roster.number, waiting

    interrupt(cutter, make, outcome, keeps=False)


def test_an_invitation(scene: Scene) -> None:
    """Words that were lost with the process open nothing that the list of people does not show."""
    counts: list[int] = []

    def make() -> Task:
        return scene.task("invite", name=scene.new_name())

    def outcome(task: Task) -> object:
        roster = scene.team.view(scene.team.ada).roster
        own = [one for one in roster.invitations() if one.content.name == task.name]
        assert all(one.open for one in own)
        counts.append(len(own))
        for one in own:
            scene.owner_does("remove", target=one.content.id)
        after = scene.team.view(scene.team.ada).roster
        assert not any(after.invitation(one.content.id).open for one in own)  # type: ignore[union-attr]
        return {tuple(share.dataset for share in one.content.shares) for one in own}

    interrupt(scene.cutter, make, outcome, keeps=False)
    # Uninterrupted; the proxy killed after, so that words are lost. One that goes on finds out what
    # became of its request.
    assert counts == [1, 2, 1, 1]


def test_an_answer_and_its_admission(scene: Scene) -> None:
    grace = scene.team.somebody()

    def make() -> Task:
        invited = scene.team.invite(grace)
        scene.new_machine(grace)
        return scene.task("accept", grace, target=invited.id, words=invited.words)

    def outcome(_task: Task) -> object:
        scene.owner_does("settle")
        scene.held(grace)
        return len(scene.team.view(grace).roster.members())

    interrupt(scene.cutter, make, outcome, keeps=True)


def test_letting_in_and_new_keys_where_they_are_due(scene: Scene) -> None:
    """Somebody comes back with new keys, so that settling admits and begins an epoch."""
    grace = scene.team.join()
    began: list[int] = []

    def make() -> Task:
        scene.answered(grace)
        began.append(scene.epochs)
        return scene.task("settle")

    def outcome(_task: Task) -> object:
        return len(scene.held(grace)) - began[-1]

    interrupt(scene.cutter, make, outcome, keeps=False)


def test_sharing_more(scene: Scene) -> None:
    grace = scene.team.join()
    owner = scene.team.ada

    def make() -> Task:
        owner.do(
            lambda sharing: sharing.members.set_shares(
                owner.holder, scene.team.organization, scene.team.dataset, grace.id, []
            )
        )
        scene.owner_does("settle")
        return scene.task("share", target=grace.id)

    def outcome(task: Task) -> object:
        scene.held(grace)
        return scene.member(task.target).writes(task.dataset).whole

    interrupt(scene.cutter, make, outcome, keeps=False)


def test_putting_somebody_out(scene: Scene) -> None:
    stays = scene.team.join()
    began: list[int] = []

    def make() -> Task:
        name = scene.new_name()
        scene.owner_does("make_service", name=name)
        (made,) = [one for one in scene.team.view(stays).roster.members() if one.name == name]
        began.append(scene.epochs)
        return scene.task("remove", target=made.member)

    def outcome(task: Task) -> object:
        assert not scene.member(task.target).present
        return len(scene.held(stays)) - began[-1]

    interrupt(scene.cutter, make, outcome, keeps=False)


def test_leaving(scene: Scene) -> None:
    stays, grace = scene.team.join(), scene.team.join()
    began: list[int] = []

    def make() -> Task:
        if not scene.member(grace.id).present:
            scene.answered(grace)
            scene.owner_does("settle")
        began.append(scene.epochs)
        return scene.task("leave", grace)

    def outcome(_task: Task) -> object:
        assert not scene.member(grace.id).present
        scene.owner_does("settle")
        return len(scene.held(stays)) - began[-1]

    interrupt(scene.cutter, make, outcome, keeps=False)


@pytest.mark.parametrize("flow", ["promote", "demote"])
def test_another_role(scene: Scene, flow: str) -> None:
    """Whoever becomes an owner has every key at once; who is one no more misses the next."""
    grace = scene.team.join()
    began: list[int] = []

    def make() -> Task:
        scene.owner_does("demote" if flow == "promote" else "promote", target=grace.id)
        began.append(scene.epochs)
        return scene.task(flow, target=grace.id)

    def outcome(task: Task) -> object:
        owns = scene.member(task.target).owns
        assert owns == (flow == "promote")
        return len(scene.held(*[grace] if owns else [])) - began[-1]

    interrupt(scene.cutter, make, outcome, keeps=False)


def test_a_new_key(scene: Scene) -> None:
    """Repeated after it went through it is one more, as when it is asked for twice."""
    stays = scene.team.join()
    began: list[int] = []
    more: list[int] = []

    def make() -> Task:
        began.append(scene.epochs)
        return scene.task("rotate")

    def outcome(_task: Task) -> object:
        more.append(len(scene.held(stays)) - began[-1])
        return None

    interrupt(scene.cutter, make, outcome, keeps=False)
    # Uninterrupted; the proxy killed after, so that a new one begins another. A proxy that goes on
    # finds out what became of its request.
    assert more == [1, 2, 1, 1]


def test_an_owners_keys_follow_their_keyring(scene: Scene) -> None:
    ada = scene.team.ada

    def make() -> Task:
        keyrings = keyrings_in(ada.folder)
        keyring = keyrings.changes.rotate(ada.holder)
        keyrings.backups.confirm(ada.id, keyring.roots.values())
        return scene.task("settle")

    def outcome(task: Task) -> object:
        keyring = keyrings_in(ada.folder).of(ada.holder)
        identity = keyring.root(keyring.newest).identity(task.organization, ada.id, keyring.newest)
        scene.held()
        return scene.member(ada.id).keys.raw == identity.keys

    interrupt(scene.cutter, make, outcome, keeps=False)


def test_coming_back_by_a_lost_owners_words(scene: Scene) -> None:
    grace, ada = scene.team.join(), scene.team.ada
    roots = keyrings_in(ada.folder).of(ada.holder).roots
    words = ",".join(phrase_of(roots[one]) for one in sorted(roots))

    def make() -> Task:
        ada.do(
            lambda sharing: sharing.members.set_role(
                ada.holder, scene.team.organization, grace.id, owner=False
            )
        )
        scene.owner_does("settle")
        make_owner(grace, scene.team)
        return scene.task("recover", grace, words=words, name=grace.account.email)

    def outcome(_task: Task) -> object:
        scene.held(grace)
        return scene.member(grace.id).owns

    interrupt(scene.cutter, make, outcome, keeps=False)


def test_making_a_service(scene: Scene) -> None:
    """A service of which the string was lost is in the list, where it can be put out."""
    counts: list[int] = []

    def make() -> Task:
        return scene.task("make_service", name=scene.new_name())

    def outcome(task: Task) -> object:
        members = scene.team.view(scene.team.ada).roster.members()
        made = [one for one in members if one.name == task.name]
        counts.append(len(made))
        return {one.writes(task.dataset).whole for one in made}

    interrupt(scene.cutter, make, outcome, keeps=False)
    # Uninterrupted; the proxy killed after either request, the second of which makes it live;
    # between. Then the API in each.
    assert counts == [1, 1, 2, 1, *[1] * 3]


def test_forgetting_older_keys(cutter: Cutter, api: Service, tmp_path: Path) -> None:
    """In an organization of its own, since others look for all epochs."""
    team = Team(new_person(api, tmp_path), tmp_path)
    ada, grace, scene = team.ada, team.join(), Scene(team, cutter)

    def make() -> Task:
        place = (ada.holder, team.organization, team.dataset)
        assert ada.do(lambda sharing: sharing.settling.rotate(*place))
        return scene.task("forget")

    def outcome(task: Task) -> object:
        roster = team.view(ada).roster
        (newest,) = {len(roster.epochs(task.dataset)), roster.first(task.dataset)}
        for person in (ada, grace):
            assert sorted(team.keys(person)) == [newest]
        return len(roster.voids)

    interrupt(cutter, make, outcome, keeps=False)
