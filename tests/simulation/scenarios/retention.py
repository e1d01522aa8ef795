"""Retention: over some days, writers of one keyring store records with old and young dates, and
change and delete them, while proxies that are killed let go what the definition lets go, and clocks
jump.

Nothing goes whose date may stay, whoever changed it last; in the end all has gone that had to, also
where nobody asks for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from tests import oracle
from tests.simulation.expected import Data, Expected, Fault, Line
from tests.simulation.proxy import Proxy
from tests.simulation.scenarios.records import two_proxies
from tests.simulation.scenarios.writer import DEFINITION as PLAIN
from tests.simulation.scenarios.writer import Writer, judge_end
from tests.simulation.scene import Said, Scene
from tests.simulation.world import BEGINS, MONOTONIC

DAYS = 30
DAY_SECONDS = 86_400
DEFINITION: dict[str, Any] = PLAIN | {
    "formats": "enforced",
    "retention": {"days": DAYS, "field": "seen"},
    "properties": PLAIN["properties"] | {"seen": {"type": "string", "format": "date"}},
}
#: How old what is stored is: much of it is due within the days of a run.
AGES = (None, 0, 1, DAYS - 2, DAYS - 1, DAYS, DAYS + 1, 400)
#: Days for which people work, and steps of each on one of them.
WORKING, STEPS = 2, 10
#: Errors that may answer a request to let records go.
IN_DOUBT = ("clock_wrong",)


class Aging(Expected):
    """Records of which those may be gone that are too old."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(DEFINITION["properties"])
        self._scene = scene

    @property
    def today(self) -> date:
        """By the right clock, in UTC."""
        now = BEGINS + self._scene.world.loop.now - MONOTONIC
        return datetime.fromtimestamp(now, UTC).date()

    def is_due(self, data: Mapping[str, Any] | None) -> bool:
        """Whether a record with these data may go, and has to."""
        if data is None or "seen" not in data:
            return False
        return date.fromisoformat(data["seen"]) < self.today - timedelta(days=DAYS)

    def judge_record(
        self, floors: Mapping[str, int], line: Line, data: Data | None, version: int | None
    ) -> None:
        if data is None:
            self._let_go(floors, line, None)
        super().judge_record(floors, line, data, version)

    def _judge_missing(self, floors: Mapping[str, int], where: Any, line: Line) -> None:
        self._let_go(floors, line, where)
        super()._judge_missing(floors, where, line)

    def _let_go(self, floors: Mapping[str, int], line: Line, where: Any) -> None:
        """It is not found: it may be gone, if it was old enough and would have been found; and is,
        if nothing else explains it."""
        may = [state.data for state in line.states[floors.get(line.tag, 0) :]]
        fits = [data and oracle.holds(where, data, self.fields) for data in may]
        if None in may or not any(fits[at] and self.is_due(data) for at, data in enumerate(may)):
            return
        line.begin(None)
        if all(fits):
            line.done()


class Keeper(Writer):
    """A writer whose records have dates.

    Attributes:
        is_in: until they are put out "not found" says that a record is gone.
    """

    expected: Aging
    is_in = True

    def data(self, tag: str) -> Data:
        age = self.chance.choice(AGES)
        made = super().data(tag)
        if age is None:
            return made
        return made | {"seen": (self.expected.today - timedelta(days=age)).isoformat()}

    def refused(self, line: Line, said: Said) -> None:
        if line.is_settled and line.present.data is None:
            return  # somebody has seen that it is gone
        line.refused()
        if said.code == "not_found" and self.is_in:
            self.expected.judge_record(self.expected.floors(), line, None, None)


async def let_go(scene: Scene, schema: str, count: int, proxies: Sequence[Proxy] = ()) -> None:
    """Ask now and then that what is old goes."""
    for _ in range(count):
        await scene.pause(10)
        asked = (scene.some(proxies), scene.accounts[0])
        await scene.ask(*asked, "POST", f"{schema}retention/", may=IN_DOUBT)


async def jump(scene: Scene, one: Proxy, schema: str) -> None:
    """Have the clock of a machine be wrong by days for a while, in which it only reads: what it
    stored then would have that time in the log."""
    scene.world.fast[one.name] = scene.chance.choice((-20, 3, 40, 500)) * DAY_SECONDS
    for _ in range(2):
        asked = (one, scene.accounts[0])
        await scene.ask(*asked, "POST", f"{schema}retention/", may=IN_DOUBT)
        await scene.read_all(*asked, schema)
        await scene.pause(10)
    scene.world.fast[one.name] = 0.0


async def run(scene: Scene) -> None:
    one, two, _ = await two_proxies(scene)
    account = scene.accounts[0]
    schema = await scene.new_schema(one, account, DEFINITION, "aging")
    expected = Aging(scene)
    writers = [Keeper(scene, name, schema, expected, may=["not_found"]) for name in "xy"]
    await writers[0].store()  # an owner signs the rule with the first records
    for _ in range(WORKING):
        scene.network.trouble = 8
        await scene.together(
            *(writer.work(STEPS) for writer in writers),
            let_go(scene, schema, 3),
            scene.kill_some(2, 15),
        )
        await jump(scene, scene.chance.choice([one, two]), schema)
        await scene.calm()
        await scene.pass_time(DAY_SECONDS)
    # The first request of a day lets go what is old, now that no clock is in doubt.
    await scene.read_all(one, account, schema)
    await asyncio.sleep(60)
    found = await scene.read_all(one, account, schema) or []
    stayed = [each["data"] for each in found if expected.is_due(each["data"])]
    if stayed:
        raise Fault(f"{stayed} are there on {expected.today}")
    told = await scene.must(two, account, "GET", f"{schema}retention/")
    if (told["records"], told["held"]) != (0, 0):
        raise Fault(f"there is something to let go: {told}")
    await judge_end(scene, schema, expected)
