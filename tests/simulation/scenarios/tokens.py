"""Tokens: limited tokens are made, used by writers, readers and jobs at two proxies, and revoked in
the middle of that; proxies are killed.

A revoked token is answered nothing that is asked after its revocation was acknowledged, by no proxy
and not by a job that it began; one that is not revoked is not refused. A limited token gets and
changes nothing beyond its limits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation.api import Account
from tests.simulation.expected import Expected, Fault, Line
from tests.simulation.proxy import Proxy
from tests.simulation.scenarios.records import two_proxies
from tests.simulation.scenarios.writer import DEFINITION, Writer, judge_end
from tests.simulation.scene import Said, Scene

#: Codes that a revoked token is refused with, and one that asks for more than it may.
OVER = "bad_token"
LIMITED = {"token_limited", "not_found", "unknown_reference", "invalid_records"}
#: How often somebody asks for a token, or revokes one, until it is done.
TRIES = 40
#: A text that only records of the other dataset have.
ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Token(Account):
    """Requests that come with an API token of the account."""

    secret: str
    url: str
    scope: str
    #: whether it reaches one of the datasets alone
    is_limited: bool

    @property
    def auth(self) -> str:
        return f"Bearer {self.secret}"


class Holder(Writer):
    """A program that has a token, until it is revoked.

    Attributes:
        revoking: the revocation was asked for.
        revoked: it was acknowledged.
    """

    account: Token

    def __init__(self, *arguments: Any, other: str, **named: Any) -> None:
        """
        Args:
            other: the schema of the other dataset.
        """
        super().__init__(*arguments, may={OVER}, **named)
        self.revoking = self.revoked = False
        self._other = other
        self._job: list[Line] = []

    async def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        may: Collection[int | str] = (),
    ) -> Said:
        was_revoked = self.revoked
        said = await super().ask(method, target, body, headers=headers, may=may)
        if said.done and was_revoked:
            raise Fault(f"{method} {target} with a token that was revoked: {said.answer}")
        if said.code == OVER and not self.revoking:
            raise Fault(f"{method} {target} with a token that nobody revokes: {said.answer}")
        return said

    async def work(self, steps: int) -> None:
        doing = [self.read, self.search, self.reach_out]
        if self.account.scope == "write":
            doing += [self.store] * 3 + [self.change] * 3 + [self.delete]
        else:
            doing += [self.overreach]
        for _ in range(steps):
            await self.chance.choice(doing)()
            await self.scene.pause(0.5)

    async def search(self) -> None:
        floors = self.expected.floors()
        said = await self.ask("POST", "/api/records/search/", self._search(self.schema))
        if said.done:
            self.expected.judge_results(floors, None, said.json()["results"])

    async def reach_out(self) -> None:
        """Ask for what the other dataset has."""
        said = await self.ask(
            "POST", "/api/records/search/", self._search(self._other), may=LIMITED
        )
        self._judge_limits(said, self.account.is_limited)
        row = {"schema": self._other, "data": {"tag": ELSEWHERE, "n": 0}}
        if self.account.is_limited:
            said = await self.ask("POST", "/api/records/ingest/", [row], may=LIMITED)
            self._judge_limits(said, True)

    async def overreach(self) -> None:
        """Ask a token that only reads to change something."""
        row = {"schema": self.schema, "data": {"tag": f"{self.name}!", "n": 0}}
        requests: list[tuple[str, str, Any]] = [
            ("POST", "/api/records/ingest/", [row]),
            ("POST", "/api/jobs/upload/", [row]),
            ("POST", f"{self.schema}erasure/", None),
            ("PATCH", self.schema, {"name": "other"}),
            ("POST", "/api/tokens/", {"name": "more"}),
        ]
        said = await self.ask(*self.chance.choice(requests), may=LIMITED)
        self._judge_limits(said, True)

    def _judge_limits(self, said: Said, is_beyond: bool) -> None:
        if is_beyond and said.done:
            raise Fault(f"a token gets more than it may: {said.answer}")
        if is_beyond and said.answer is not None and ELSEWHERE.encode() in said.answer.body:
            raise Fault(f"a token is told what it may not see: {said.answer}")
        if not is_beyond and said.code in LIMITED:
            raise Fault(f"a token gets less than it may: {said.answer}")

    @staticmethod
    def _search(schema: str) -> Any:
        return {"schema": schema, "limit": 1000}

    async def begin_job(self) -> None:
        """Have a job store records, which does not end before the token is revoked, or does."""
        rows: list[Any] = [{"tag": f"{self.name}j{at}", "n": at % 10} for at in range(40)]
        self._job = [self.expected.new(row) for row in rows]
        body = [{"schema": self.schema, "data": row} for row in rows]
        await self.ask("POST", "/api/jobs/upload/", body)

    async def judge_job(self) -> None:
        """Behind the revocation: records of its job that are not there never come."""
        floors = self.expected.floors()
        found = await self.scene.read_all(
            self.proxy(), self.scene.accounts[0], self.schema, limit=1000
        )
        if found is None or not self._job:
            return
        self.expected.judge_results(floors, None, found)
        there = {each["data"]["tag"] for each in found}
        if any(line.tag in there for line in self._job):
            return
        for line in self._job:
            if not line.is_settled:
                line.refused()


class Person:
    """Somebody who makes tokens, has programs use them, and revokes them."""

    def __init__(
        self,
        scene: Scene,
        name: str,
        places: tuple[str, str, str],
        expected: Expected,
        proxies: Sequence[Proxy] = (),
    ) -> None:
        """
        Args:
            places: a schema, its dataset, and a schema of another one.
            proxies: that are asked, one or another; all.
        """
        self._scene = scene
        self._name = name
        self._schema, self._dataset, self._other = places
        self._expected = expected
        self._proxies = proxies

    async def work(self, count: int) -> None:
        scene = self._scene
        for number in range(count):
            token = await self._make()
            holder = Holder(
                *(scene, f"{self._name}{number}-", self._schema, self._expected),
                account=token,
                other=self._other,
                proxies=self._proxies,
            )
            if token.scope == "write" and scene.chance.randrange(2):
                await holder.begin_job()
            working = scene.world.loop.create_task(holder.work(12))
            await scene.pause(6)
            holder.revoking = True
            await self._revoke(token)
            holder.revoked = True
            await holder.judge_job()
            await working
            said = await holder.ask("GET", "/api/jobs/")
            if said.refused and said.code != OVER:
                raise Fault(f"a token that was revoked is answered {said.answer}")

    async def _make(self) -> Token:
        scene, account = self._scene, self._scene.accounts[0]
        scope = scene.chance.choice(["read", "write", "write"])
        is_limited = scene.chance.randrange(3) > 0
        body = {"name": self._name, "scope": scope}
        more = {"datasets": [self._dataset]} if is_limited else {}
        for _ in range(TRIES):
            said = await scene.ask(
                scene.some(self._proxies), account, "POST", "/api/tokens/", body | more
            )
            if said.done:
                told = said.json()
                return Token(
                    *(account.name, account.email, account.password, account.organization),
                    *(told["token"], told["url"], scope, is_limited),
                )
            await scene.pause(5)
        raise Fault(f"no token can be made: {said.answer}")

    async def _revoke(self, token: Token) -> None:
        scene = self._scene
        for _ in range(TRIES):
            asked = (scene.some(self._proxies), scene.accounts[0], "DELETE", token.url)
            said = await scene.ask(*asked, may={"not_found"})
            if said.done or said.refused:  # gone already: it was done, and nobody heard of it
                return
            await scene.pause(5)
        raise Fault(f"a token cannot be revoked: {said.answer}")


async def run(scene: Scene) -> None:
    one, two, schema = await two_proxies(scene)
    account = scene.accounts[0]
    other = await scene.new_schema(one, account, DEFINITION, "others")
    row = {"schema": other, "data": {"tag": ELSEWHERE, "n": 1}}
    await scene.must(one, account, "POST", "/api/records/ingest/", [row])
    dataset = (await scene.must(one, account, "GET", schema))["dataset"]
    expected = Expected(DEFINITION["properties"])
    places = (schema, dataset, other)
    people = [Person(scene, name, places, expected) for name in "pq"]
    scene.network.trouble = 8
    one.lost = two.lost = 5
    await scene.together(
        *(person.work(3) for person in people),
        Writer(scene, "x", schema, expected).work(10),
        scene.kill_some(3, 25),
    )
    await scene.calm()
    found = await scene.read_all(two, account, other)
    if [each["data"]["tag"] for each in found or []] != [ELSEWHERE]:
        raise Fault(f"the other dataset has {found}")
    await judge_end(scene, schema, expected)
