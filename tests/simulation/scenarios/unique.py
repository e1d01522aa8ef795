"""Unique: writers at two proxies store, replace and delete by a field whose values no two records
share.

No search finds a value twice. What is read of a value is what was stored last, as far as anybody
can tell: nothing that was overwritten before the read began, and nothing that nobody has sent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tests.simulation.expected import Fault
from tests.simulation.scenarios.records import two_proxies
from tests.simulation.scene import Said, Scene

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "email": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
    },
    "required": ["email", "n"],
    "unique": [["email"]],
}
EMAILS = tuple(f"{name}@example.org" for name in ("a", "b", "c", "d", "e"))
#: What only says that another one was first.
TAKEN = ("not_unique",)


@dataclass
class Write:
    """``value`` is None of a deletion; ``end`` is when it was acknowledged, endless where nobody
    knows whether it was done."""

    value: int | None
    begin: float
    end: float = math.inf


class Register:
    """What was written under one value of the unique field."""

    def __init__(self) -> None:
        self.writes = [Write(None, -math.inf, -math.inf)]

    def judge(self, value: int | None, began: float) -> None:
        """
        Args:
            began: when the read did.

        Raises:
            Fault: that value was overwritten before, or never written.
        """
        known = [write for write in self.writes if write.value == value]
        if not any(not self._is_over(one, began) for one in known):
            raise Fault(f"{value} is read at {began}, of {self.writes}")

    def _is_over(self, write: Write, began: float) -> bool:
        return any(write.end < other.begin and other.end < began for other in self.writes)


class Person:
    def __init__(self, scene: Scene, schema: str, registers: dict[str, Register]) -> None:
        self._scene = scene
        self._schema = schema
        self._registers = registers

    async def work(self, steps: int) -> None:
        doing = [self.store, self.replace, self.replace, self.delete, self.look, self.look]
        for _ in range(steps):
            await self._scene.chance.choice(doing)()
            await self._scene.pause(0.5)

    @property
    def _now(self) -> float:
        return self._scene.world.loop.now

    async def _ask(self, *request: Any, **more: Any) -> Said:
        scene = self._scene
        proxy = scene.some()
        return await scene.ask(proxy, scene.accounts[0], *request, **more)

    async def _write(self, method: str, target: str, emails: list[str], **more: Any) -> None:
        writes = {
            email: Write(self._scene.chance.randrange(1_000_000), self._now) for email in emails
        }
        for email, write in writes.items():
            self._registers[email].writes.append(write)
        body = [
            {"schema": self._schema, "data": {"email": email, "n": write.value}}
            for email, write in writes.items()
        ]
        said = await self._ask(method, target, body, may=TAKEN, **more)
        for email, write in writes.items():
            if said.done:
                write.end = self._now
            elif said.refused:
                self._registers[email].writes.remove(write)

    async def store(self) -> None:
        keyed = {"Idempotency-Key": self._scene.new_key()}
        one = self._scene.chance.choice(EMAILS)
        await self._write("POST", "/api/records/ingest/", [one], headers=keyed)

    async def replace(self) -> None:
        some = self._scene.chance.sample(EMAILS, self._scene.chance.randint(1, 3))
        await self._write("PUT", "/api/records/?by=email", some)

    async def delete(self) -> None:
        email = self._scene.chance.choice(EMAILS)
        found = await self._find(email)
        if not found:
            return
        write = Write(None, self._now)
        self._registers[email].writes.append(write)
        said = await self._ask("DELETE", f"/api/records/{found[0]['id']}/", may=["not_found"])
        if said.done:
            write.end = self._now
        elif said.refused:
            self._registers[email].writes.remove(write)

    async def look(self) -> None:
        await self._find(self._scene.chance.choice(EMAILS))

    async def _find(self, email: str) -> list[Any]:
        began = self._now
        where = {"field": "email", "op": "eq", "value": email}
        body = {"schema": self._schema, "where": where}
        said = await self._ask("POST", "/api/records/search/", body)
        if not said.done:
            return []
        found: list[Any] = said.json()["results"]
        if len(found) > 1:
            raise Fault(f"{email} is there twice: {found}")
        self._registers[email].judge(found[0]["data"]["n"] if found else None, began)
        return found


async def run(scene: Scene) -> None:
    one, two, _ = await two_proxies(scene)
    schema = await scene.new_schema(one, scene.accounts[0], DEFINITION, "unique")
    registers = {email: Register() for email in EMAILS}
    people = [Person(scene, schema, registers) for _ in range(4)]
    scene.network.trouble = 10
    one.lost = two.lost = 5
    await scene.together(*(person.work(12) for person in people), scene.kill_some(3, 20))
    await scene.calm()
    seen: Any = None
    for proxy in (one, two):
        began = scene.world.loop.now
        found = await scene.read_all(proxy, scene.accounts[0], schema)
        values = {each["data"]["email"]: each["data"]["n"] for each in found or []}
        if found is None or len(values) != len(found):
            raise Fault(f"a value is there twice: {found}")
        for email in EMAILS:
            registers[email].judge(values.get(email), began)
        if seen not in (None, found):
            raise Fault(f"{proxy.life} finds others than the first proxy")
        seen = found
