"""People: an organization's flows, drawn from the seed, while an owner writes: invitations, roles,
services, new keys, members who leave or lose their machines or keyrings and come back, an owner who
is replaced by their words, and older keys that are forgotten. The proxy that does it is killed in
its middle or with one of its requests, and answers are lost; whoever asked asks again.

Behind each flow the roster says what was acknowledged and nothing else, nothing is due, everybody
who is in reads all, and nobody else reads anything. An invitation lets in once.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from encrypted_records.model.ids import from_text
from tests.simulation.api import Account
from tests.simulation.expected import Expected, Fault
from tests.simulation.proxy import Proxy
from tests.simulation.scenarios.erasure import judge_files, traces_of
from tests.simulation.scenarios.removal import OUT, insist
from tests.simulation.scenarios.reseals import Keeper
from tests.simulation.scenarios.writer import DEFINITION, Writer, judge_end
from tests.simulation.scene import Said, Scene

FLOWS = 4
#: Answers to an invitation that counts no more, or counted already.
ANSWERED = {"already_answered", "not_found", "invitation_over", "already_member"}
#: Codes that tell somebody without keys so.
KEYLESS = {"key_missing", "no_keyring", "identity_replaced", "grant_missing"}
TRIES = 40


@dataclass
class Member:
    """Somebody with a proxy of their own.

    Attributes:
        role: in the organization; None for whoever is not in.
        phrases: the recovery phrases of their keyring, the oldest first.
    """

    number: int
    account: Account
    proxy: Proxy
    role: str | None = None
    phrases: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ServiceAccount(Account):
    """A program with a standing of its own."""

    key: str

    @property
    def auth(self) -> str:
        return f"Bearer {self.key}"


def _is_over(said: Said) -> bool:
    return said.done or said.refused


class Team:
    def __init__(self, scene: Scene, schema: str, dataset: str, expected: Expected) -> None:
        self._scene = scene
        self._schema, self._dataset, self._expected = schema, dataset, expected
        self._machines = 0
        self.members: list[Member] = []
        ada = scene.accounts[0]
        self.organization = ada.organization
        self._people = f"{self.organization}people/"

    @property
    def ada(self) -> Member:
        return self.members[0]

    def flows(self) -> list[Callable[[], Awaitable[None]]]:
        """Those that are possible now."""
        inside = [member for member in self.members[1:] if member.role]
        outside = [member for member in self.members[1:] if not member.role]
        every: list[Callable[[], Awaitable[None]]] = [
            self.rotate,
            self.use_a_service,
            self.forget,
            self.rotate_own_keys,
        ]
        for member in inside:
            every += [
                lambda member=member: self.leave(member),  # type: ignore[misc]
                lambda member=member: self.remove(member),  # type: ignore[misc]
                lambda member=member: self.change_role(member),  # type: ignore[misc]
                lambda member=member: self.restore(member),  # type: ignore[misc]
                lambda member=member: self.come_back(member),  # type: ignore[misc]
                lambda member=member: self.recover(member),  # type: ignore[misc]
            ]
        every += [lambda member=member: self.invite(member) for member in outside]  # type: ignore[misc]
        return every

    async def _owner(self, method: str, target: str, body: Any = None, **more: Any) -> Said:
        return await insist(self._scene, self.ada.proxy, 0, method, target, body, **more)

    async def _as(
        self, who: Member, method: str, target: str, body: Any = None, **more: Any
    ) -> Said:
        return await insist(self._scene, who.proxy, who.number, method, target, body, **more)

    async def beside_kills(self, flow: Callable[[], Awaitable[None]]) -> None:
        proxies = [member.proxy for member in self.members]
        done = asyncio.Event()

        async def kill() -> None:
            while not done.is_set():
                await self._scene.kill_during(self._scene.chance.choice(proxies), 1)
                await self._scene.pause(20)

        async def work() -> None:
            await flow()
            done.set()

        await self._scene.together(work(), kill())

    # --- flows -------------------------------------------------------------------------------

    async def invite(self, who: Member) -> None:
        body: dict[str, Any] = {"email": who.account.email}
        shares = [{"dataset": self._dataset, "role": "writer"}]
        await self._let_in(who, body | {"shares": shares})
        who.role = "member"

    async def come_back(self, who: Member) -> None:
        """By an invitation and with new keys, when machine and words are lost."""
        if who.role == "owner":
            return  # their words make somebody an owner again
        self._new_machine(who)
        await who.proxy.revive()
        await self._let_in(who, {"email": who.account.email})

    async def _let_in(self, who: Member, body: Any) -> None:
        invited = await self._answered(who, body)
        for _ in range(TRIES):
            await self._owner("POST", f"{self.organization}settle/")
            told = (await self._owner("GET", self._people)).json()
            waiting = [each for each in told["invitations"] if each["id"] == invited["id"]]
            if not waiting:
                break
            await self._scene.pause(10)
        else:
            raise Fault(f"{who.account.email} is never let in: {told}")
        await self._back_up(who)
        # The same words, from a machine with other keys.
        machine = self._scene.proxy(f"t{self._next()}")
        await machine.start()
        path = f"/api/invitations/{invited['id']}/words/"
        again = await insist(
            *(self._scene, machine, who.number, "POST", path, {"words": invited["words"]}),
            may=ANSWERED | KEYLESS,
            until=_is_over,
        )
        if again.done:
            raise Fault(f"an invitation is accepted twice: {again.answer}")
        machine.kill()
        self._scene.proxies.remove(machine)

    async def _answered(self, who: Member, body: Any) -> Any:
        for _ in range(TRIES):
            invited = (await self._owner("POST", self._people, body)).json()
            answered = await self._as(
                *(who, "POST", f"/api/invitations/{invited['id']}/words/"),
                {"words": invited["words"]},
                may=ANSWERED,
                until=_is_over,
            )
            if answered.done or answered.code == "already_answered":
                return invited
        raise Fault(f"no invitation of {who.account.email} can be answered")

    async def _back_up(self, who: Member) -> None:
        said = await self._as(who, "POST", "/api/keyring/backup/", {"all": True})
        who.phrases = [each["phrase"] for each in said.json()]

    async def leave(self, who: Member) -> None:
        if who.role == "owner":
            return
        await self._out(who, by=who)

    async def remove(self, who: Member) -> None:
        await self._out(who, by=self.ada)

    async def _out(self, who: Member, by: Member) -> None:
        before = await self._epoch()
        path = f"{self._people}{await self._id(who)}/"
        await self._as(by, "DELETE", path, may=OUT | {"not_a_member"}, until=_is_over)
        who.role = None
        await self._owner("POST", f"{self.organization}settle/")
        if await self._epoch() <= before:
            raise Fault(f"{who.account.email} is out, and keys stay as they were")

    async def change_role(self, who: Member) -> None:
        role = "member" if who.role == "owner" else "owner"
        path = f"{self._people}{await self._id(who)}/"
        await self._owner("PATCH", path, {"role": role}, until=_is_over, may={"not_changed"})
        if role == "member":
            path = f"{self._dataset}people/{await self._id(who)}/"
            await self._owner("PUT", path, {"role": "writer"})
        who.role = role

    async def rotate(self) -> None:
        before = await self._epoch()
        await self._owner("POST", f"{self._dataset}rotate/")
        if await self._epoch() <= before:
            raise Fault("a dataset has no new key")

    async def rotate_own_keys(self) -> None:
        """The owner's own keyring, which their keys in the roster follow."""
        await self._owner("POST", "/api/keyring/rotate/")
        await self._back_up(self.ada)
        for phrase in self.ada.phrases:
            await self._owner("POST", "/api/keyring/backup/confirm/", {"phrase": phrase})
        await self._owner("POST", f"{self.organization}settle/")

    async def restore(self, who: Member) -> None:
        """On a new machine, by their words."""
        self._new_machine(who)
        await who.proxy.revive()
        body = {"phrases": who.phrases, "replace": True}
        await self._as(who, "POST", "/api/keyring/restore/", body)

    async def recover(self, who: Member) -> None:
        """Become an owner by the words of one, once the operator has said so."""
        if who.role != "member":
            return
        with closing(sqlite3.connect(self._scene.api.file)) as database, database:
            database.execute(
                "UPDATE organizations_membership SET role = 'owner' WHERE organization_id = ?"
                " AND user_id = (SELECT id FROM accounts_user WHERE email = ?)",
                (from_text(self.organization.split("/")[-2]), who.account.email),
            )
        await self._as(who, "POST", f"{self.organization}recover/", {"phrases": self.ada.phrases})
        who.role = "owner"

    async def use_a_service(self) -> None:
        """Make services until there is an answer, use that one, and put all out."""
        name = f"service {self._next()}"
        shares = [{"dataset": self._dataset, "role": "writer"}]
        body = {"name": name, "shares": shares}
        made = (await self._owner("POST", f"{self.organization}services/", body)).json()
        ada = self.ada.account
        service = ServiceAccount(name, ada.email, "", ada.organization, made["key"])
        await self._judge_reader(self.ada.proxy, service, {"not_admitted", "bad_token"})
        for each in (await self._owner("GET", self._people)).json()["people"]:
            if each["name"] == name:
                path = f"{self._people}{each['id']}/"
                await self._owner("DELETE", path, may={"not_a_member"}, until=_is_over)
        await self._owner("POST", f"{self.organization}settle/")
        said = await self._scene.ask(
            *(self.ada.proxy, service, "POST", "/api/records/search/", {"schema": self._schema}),
            may={*OUT, "bad_token"},
        )
        if said.done:
            raise Fault(f"a service that was put out is answered {said.answer}")

    async def forget(self) -> None:
        """All is sealed again under a new key, and all older ones are forgotten: the API's files
        have nothing any more that they open."""
        known = [line.id for line in self._expected.lines.values() if line.id]
        body = {"ids": self._scene.chance.sample(known, min(len(known), 3))}
        said = await self._scene.ask(
            *(self.ada.proxy, self.ada.account, "POST", "/api/records/sealed/", body),
            may={"not_found"},
        )
        before = {each["id"]: traces_of(each) for each in said.json()} if said.done else {}
        await self.rotate()
        path = f"{self._dataset}forget/"
        for _ in range(TRIES):
            said = await self._scene.ask(
                self.ada.proxy, self.ada.account, "POST", path, {}, may={"epoch_in_use"}
            )
            if said.code == "nothing_to_forget":
                break
            if said.done and said.answer is not None and said.answer.status == 200:
                break
            if said.code == "epoch_in_use":
                keeper = Keeper(self._scene, self._schema, proxies=[self.ada.proxy])
                await keeper.reseal(1)
            await self._scene.pause(60)
            self._scene.api.sweep()
        else:
            raise Fault(f"older keys are never forgotten: {said.answer}")
        told = (await self._owner("POST", path, {"dry_run": True})).json()
        if not told["forgotten"] or told["oldest"] != told["epoch"]:
            raise Fault(f"older keys are not forgotten: {told}")
        judge_files([self._scene.api.file.parent], before)

    # --- what is looked at -------------------------------------------------------------------

    def _next(self) -> str:
        self._machines += 1
        return "abcdefghijklmnopqrstuvwxyz"[self._machines % 26] * (1 + self._machines // 26)

    def _new_machine(self, who: Member) -> None:
        """In place of one that is lost."""
        who.proxy.kill()
        self._scene.proxies.remove(who.proxy)
        who.proxy = self._scene.proxy(f"m{self._next()}")

    async def _id(self, who: Member) -> str:
        for each in (await self._owner("GET", self._people)).json()["people"]:
            if each["name"] == who.account.email:
                return str(each["id"])
        raise Fault(f"{who.account.email} is in, and is not shown")

    async def _epoch(self) -> int:
        """The number of the dataset's present key."""
        said = await self._owner("POST", f"{self._dataset}forget/", {"dry_run": True})
        return int(said.json()["epoch"])

    async def judge(self) -> None:
        """
        Raises:
            Fault: the roster is another one than was acknowledged, or somebody reads what they may
                not, or not what they may.
        """
        await self._owner("POST", f"{self.organization}settle/")
        told = (await self._owner("GET", self._people)).json()
        shown = {each["name"]: each["role"] for each in told["people"]}
        wanted = {each.account.email: each.role for each in self.members if each.role}
        if shown != wanted or told["due"]:
            raise Fault(f"{shown} are in, not {wanted}; due is {told['due']}")
        for member in self.members:
            if member.role:
                own = (await self._as(member, "GET", self._people)).json()
                if own["words"] != told["words"]:
                    raise Fault(f"{member.account.email} sees another roster: {own}")
                await self._judge_reader(member.proxy, member.account)
            else:
                await self._judge_stranger(member)

    async def _judge_reader(
        self, proxy: Proxy, account: Account, may: frozenset[str] | set[str] = frozenset()
    ) -> None:
        for _ in range(TRIES):
            floors = self._expected.floors()
            found = await self._scene.read_all(proxy, account, self._schema, may=may)
            if found is not None:
                self._expected.judge_results(floors, None, found)
                return
            await self._scene.pause(5)
        raise Fault(f"{account.name} is in, and reads nothing")

    async def _judge_stranger(self, who: Member) -> None:
        said = await self._scene.ask(
            *(who.proxy, who.account, "POST", "/api/records/search/", {"schema": self._schema}),
            may=OUT | KEYLESS,
        )
        if said.done:
            raise Fault(f"{who.account.email} is not in, and is answered {said.answer}")


async def run(scene: Scene) -> None:
    proxies = [scene.proxy(name) for name in "abc"]
    for proxy in proxies:
        await proxy.start()
    ada = scene.accounts[0]
    schema = await scene.new_schema(proxies[0], ada, DEFINITION)
    dataset = (await scene.must(proxies[0], ada, "GET", schema))["dataset"]
    expected = Expected(DEFINITION["properties"])
    team = Team(scene, schema, dataset, expected)
    team.members = [
        Member(number, scene.accounts[number], proxy) for number, proxy in enumerate(proxies)
    ]
    team.ada.role = "owner"
    # A repetition behind a forgetting is told that nobody knows any more.
    may = ["repeat_too_old"]
    writer = Writer(scene, "x", schema, expected, proxies=[proxies[0]], may=may)
    await team._back_up(team.ada)
    await writer.store()
    scene.network.trouble = 8
    await team.beside_kills(lambda: team.invite(team.members[1]))
    for _ in range(FLOWS):
        flow = scene.chance.choice(team.flows())
        await scene.together(team.beside_kills(flow), writer.work(3))
        await team.judge()
    await scene.calm()
    await team.judge()
    await judge_end(scene, schema, expected, [proxies[0]])
