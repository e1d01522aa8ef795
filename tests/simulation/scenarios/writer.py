"""Somebody who stores, changes and deletes records of their own, and reads all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tests.simulation.api import Account
from tests.simulation.expected import Data, Expected, Fault, Line
from tests.simulation.proxy import Proxy
from tests.simulation.scene import Said, Scene

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tag": {"type": "string"},
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["tag", "n"],
}
MEASURES = [
    {"op": "sum", "field": "n"},
    {"op": "max", "field": "name"},
    {"op": "distinct", "field": "name"},
]
_LONG = "p" * 50
_NAMES = (None, "", "a", "b", _LONG + "a", _LONG + "b")
#: How often a keyed request is sent again that has no answer.
TRIES = 6


class Writer:
    """Somebody who changes records of their own, and reads all."""

    def __init__(
        self,
        scene: Scene,
        name: str,
        schema: str,
        expected: Expected,
        *,
        account: Account | None = None,
        proxies: Sequence[Proxy] = (),
        may: Collection[str] = (),
    ) -> None:
        """
        Args:
            account: whose credentials; the first one's.
            proxies: that are asked, one or another; all.
            may: codes of errors that are right for this one.
        """
        self.scene = scene
        self.chance = scene.chance
        self.name = name
        self.schema = schema
        self.expected = expected
        self.own: list[Line] = []
        self.account = account or scene.accounts[0]
        self.proxies = proxies
        self.may = frozenset(may)
        self._made = 0

    async def work(self, steps: int) -> None:
        doing = [self.store] * 3 + [self.change] * 4 + [self.delete, self.read, self.search]
        for _ in range(steps):
            await self.chance.choice(doing)()
            await self.scene.pause(0.5)

    def proxy(self) -> Proxy:
        return self.scene.some(self.proxies)

    async def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        may: Collection[int | str] = (),
    ) -> Said:
        return await self.scene.ask(
            *(self.proxy(), self.account, method, target, body),
            headers=headers,
            may=self.may | set(may),
        )

    def _new_tag(self) -> str:
        self._made += 1
        return f"{self.name}{self._made}"

    def data(self, tag: str) -> Data:
        made: Data = {"tag": tag, "n": self.chance.randrange(10)}
        name = self.chance.choice(_NAMES)
        return made if name is None else made | {"name": name}

    # --- what is done ------------------------------------------------------------------------

    async def store(self) -> None:
        """A keyed ingest, repeated until there is an answer, and now and then behind that."""
        tags = [self._new_tag() for _ in range(self.chance.randint(1, 5))]
        lines = [self.expected.new(self.data(tag)) for tag in tags]
        self.own += lines
        body = [{"schema": self.schema, "data": line.present.data} for line in lines]
        keyed = {"Idempotency-Key": self.scene.new_key()}
        for attempt in range(TRIES):
            said = await self.ask("POST", "/api/records/ingest/", body, headers=keyed)
            if said.done:
                break
            if said.refused and not attempt:
                for line in lines:
                    line.refused()
                return
            await self.scene.pause(6)
        else:
            return
        self._stored(lines, said)
        if not self.chance.randrange(4):
            again = await self.ask("POST", "/api/records/ingest/", body, headers=keyed)
            if again.done and again.json() != said.json():
                raise Fault(f"a repetition is answered {again.answer}, after {said.answer}")

    def _stored(self, lines: list[Line], said: Said) -> None:
        made = [one["id"] for one in said.json()]
        if len(made) != len(lines):
            raise Fault(f"{len(lines)} records are stored as {said.answer}")
        for line, identifier in zip(lines, made, strict=True):
            self.expected.name(line, identifier)
            line.done()

    def _known(self) -> Line | None:
        every = [one for one in self.own if one.id and one.is_settled and one.present.data]
        return self.chance.choice(every) if every else None

    async def change(self) -> None:
        """PUT, or PATCH; some depend on what was read."""
        line = self._known()
        if line is None:
            return
        before = line.present
        assert before.data is not None
        new = self.data(line.tag)
        method = self.chance.choice(["PUT", "PATCH"])
        headers = {}
        if before.least == before.most and self.chance.randrange(2):
            headers = {"If-Match": f'"{before.most}"'}
        line.begin(new if method == "PUT" else before.data | new)
        body = {"data": new}
        said = await self.ask(method, f"/api/records/{line.id}/", body, headers=headers)
        if said.refused:
            self.refused(line, said)
        elif said.done:
            self._changed(line, said)

    def refused(self, line: Line, said: Said) -> None:
        """A change of a record of one's own was refused."""
        line.refused()

    def _changed(self, line: Line, said: Said) -> None:
        assert said.answer is not None
        if said.json()["data"] != line.present.data:
            raise Fault(f"{line.present.data} is answered {said.answer}")
        line.done(int(said.answer.headers["etag"].strip('"')))

    async def delete(self) -> None:
        line = self._known()
        if line is None:
            return
        line.begin(None)
        said = await self.ask("DELETE", f"/api/records/{line.id}/")
        if said.refused:
            self.refused(line, said)
        elif said.done:
            line.done()

    # --- what is read ------------------------------------------------------------------------

    async def read(self) -> None:
        every = [line for line in self.expected.lines.values() if line.id]
        if not every:
            return
        line, floors = self.chance.choice(every), self.expected.floors()
        said = await self.ask("GET", f"/api/records/{line.id}/", may={"not_found"})
        if said.code == "not_found":
            self.expected.judge_record(floors, line, None, None)
        elif said.done:
            assert said.answer is not None
            version = int(said.answer.headers["etag"].strip('"'))
            self.expected.judge_record(floors, line, said.json()["data"], version)

    async def search(self) -> None:
        where = self.chance.choice(
            [
                None,
                {"field": "n", "op": "lt", "value": self.chance.randrange(10)},
                {"field": "name", "op": "le", "value": self.chance.choice(_NAMES[2:])},
                {"field": "name", "op": "is_null"},
            ]
        )
        proxy, floors = self.proxy(), self.expected.floors()
        found = await self.scene.read_all(proxy, self.account, self.schema, where, may=self.may)
        if found is not None:
            self.expected.judge_results(floors, where, found)


async def judge_end(
    scene: Scene, schema: str, expected: Expected, readers: Sequence[Proxy] = ()
) -> None:
    """What all proxies find in the end, and one with empty caches, is what was acknowledged.

    Args:
        readers: proxies of the first account's; all.

    Raises:
        Fault: it is not.
    """
    account = scene.accounts[0]
    readers = list(readers or scene.proxies)
    fresh = scene.proxy("z")
    fresh.take_keys(readers[0])
    await fresh.start()
    before: Any = None
    for proxy in [*readers, fresh]:
        floors = expected.floors()
        found = await scene.read_all(proxy, account, schema)
        if found is None:
            raise Fault(f"{proxy.life} reads nothing without trouble")
        expected.judge_results(floors, None, found)
        if before is None:
            expected.settle_at(found)
            before = found
        elif found != before:
            raise Fault(f"{proxy.life} finds others than the first proxy, or in another order")
        body = {"schema": schema, "measures": MEASURES}
        told = await scene.must(proxy, account, "POST", "/api/records/aggregate/", body)
        if told["measures"] != expected.measured(MEASURES):
            raise Fault(f"{proxy.life} measures {told}, not {expected.measured(MEASURES)}")
        count = {"schema": schema, "limit": 0, "count": True}
        told = await scene.must(proxy, account, "POST", "/api/records/search/", count)
        if told["count"] != len(expected.held()):
            raise Fault(f"{proxy.life} counts {told['count']} records of {len(expected.held())}")
    said = await scene.ask(fresh, account, "POST", f"{schema}verify/")
    if not said.done or said.answer is None:
        raise Fault(f"verify says {said.answer}")
    lines = said.answer.body.decode().splitlines()
    if len([line for line in lines if line.strip()]) != 1:
        raise Fault(f"verify says {lines}")
