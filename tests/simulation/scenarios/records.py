"""Records: writers of one keyring at two proxies store, change, delete, read and search, while
segments are merged, in one lane or another, groups compacted, whose rows are staged or come with
the commit, and proxies killed.

An acknowledged change is there for all who ask later, at any proxy; it is done once; an id is given
once; a keyed repetition has the same answer.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from encrypted_records.proxy.write.merge_scheduler import Lanes
from tests.simulation.expected import Expected
from tests.simulation.proxy import Proxy
from tests.simulation.scenarios.writer import DEFINITION, Writer, judge_end
from tests.simulation.scene import Scene

#: Up to how many rows merges are ordinary, and large; others are huge.
LANES = ((1 << 16, 1 << 20), (8, 1 << 20), (4, 16))


async def two_proxies(
    scene: Scene, overrides: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Proxy, Proxy, str]:
    """Two proxies with one keyring, and a schema of theirs; see :meth:`Scene.proxy`."""
    one, two = (scene.proxy(name, overrides=overrides) for name in "ab")
    await one.start()
    await scene.must(one, scene.accounts[0], "POST", "/api/keyring/backup/")
    schema = await scene.new_schema(one, scene.accounts[0], DEFINITION)
    two.take_keys(one)
    await two.start()
    return one, two, schema


async def run(scene: Scene) -> None:
    lanes = functools.partial(Lanes, *scene.chance.choice(LANES))
    staged = {"most_with_commit": 0} if scene.chance.randrange(2) else {}
    overrides = {"lanes": lanes, "pages_at_once": 2, **staged}
    one, two, schema = await two_proxies(scene, overrides)
    expected = Expected(DEFINITION["properties"])
    writers = [Writer(scene, name, schema, expected) for name in "xyz"]
    scene.network.trouble = 12
    one.lost = two.lost = 10
    await scene.together(
        *(writer.work(14) for writer in writers),
        scene.kill_some(4, 20),
        scene.disturb_some(3, 20),
        scene.sweep_some(3, 20),
    )
    await scene.calm()
    await judge_end(scene, schema, expected)
