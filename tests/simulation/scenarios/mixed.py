"""Mixed: all at once in one schema with a retention. An owner's writers at two proxies and a
member's at a third, a job, exports, limited tokens, erasures, reseals and retention, while the
member is put out, proxies are killed, workers are lost, the API sweeps and a day passes.

Each promise is that of the scenario of that name; here none of them may break another's.
"""

from __future__ import annotations

import asyncio

from tests.simulation.scenarios.erasure import Eraser, Exporter
from tests.simulation.scenarios.jobs import Upload
from tests.simulation.scenarios.removal import Removed, insist, let_in
from tests.simulation.scenarios.reseals import Keeper as Resealer
from tests.simulation.scenarios.retention import DAY_SECONDS, DEFINITION, Aging, Keeper, let_go
from tests.simulation.scenarios.tokens import Person
from tests.simulation.scenarios.writer import judge_end
from tests.simulation.scene import Scene

STEPS = 6


class Erasing(Keeper, Eraser):
    """A writer whose records have dates, and whose deletions erase."""


class Leaving(Removed, Keeper):
    """A member whose records have dates, and who is put out at some time."""

    is_in = False


async def run(scene: Scene) -> None:
    one, two, three = (scene.proxy(name) for name in "abc")
    await one.start()
    await three.start()
    ada, bea = scene.accounts[:2]
    await scene.must(one, ada, "POST", "/api/keyring/backup/")
    schema = await scene.new_schema(one, ada, DEFINITION, "mixed")
    other = await scene.new_schema(one, ada, DEFINITION, "others")
    dataset = (await scene.must(one, ada, "GET", schema))["dataset"]
    two.take_keys(one)
    await two.start()
    own = [one, two]
    expected = Aging(scene)
    may = ["not_found", "repeat_too_old"]
    writers = [Erasing(scene, name, schema, expected, proxies=own, may=may) for name in "xy"]
    leaving = Leaving(scene, "z", schema, expected, account=bea, proxies=[three])
    exporter = Exporter(scene, "e", schema, expected, proxies=own)
    upload = Upload(scene, "u", two, schema, expected)
    resealer = Resealer(scene, schema, own)
    person = Person(scene, "p", (schema, dataset, other), expected, proxies=own)
    await writers[0].store()
    scene.network.trouble = 6
    for proxy in scene.proxies:
        proxy.lost = 5
    member = await let_in(scene, one, three, dataset)

    async def put_out() -> None:
        await scene.pause(12)
        path = f"{ada.organization}people/{member}/"
        await insist(
            *(scene, one, 0, "DELETE", path),
            may={"not_a_member"},
            until=lambda said: said.done or said.refused,
        )
        leaving.is_out = True
        await insist(scene, one, 0, "POST", f"{dataset}rotate/")

    await scene.together(
        *(writer.work(STEPS) for writer in [*writers, leaving]),
        put_out(),
        upload.work(),
        exporter.export(3),
        person.work(1),
        resealer.reseal(1),
        let_go(scene, schema, 2, own),
        scene.kill_some(4, 25),
        scene.sweep_some(6, 25),
    )
    await scene.calm()
    await scene.pass_time(DAY_SECONDS)
    await scene.read_all(one, ada, schema)
    await asyncio.sleep(60)
    await judge_end(scene, schema, expected, own)
    upload.judge_whole(await scene.read_all(two, ada, schema) or [])
