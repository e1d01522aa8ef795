"""Packing: the jobs of :mod:`.jobs`, whose index is packed, over a log of which checkpoints are
written every few commits; proxies are killed while they pack, and lose workers.

As there; and nothing is left in the end: no staged part at the API, no file of an upload.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from encrypted_records.proxy.jobs.packing import PackingPolicy
from encrypted_records.proxy.schemas.logs import CheckpointPolicy
from tests.simulation.expected import Fault
from tests.simulation.scenarios import jobs
from tests.simulation.scene import Scene

#: Every job is packed, one or two chunks together, and sent page by page.
POLICY = PackingPolicy(least=1, rows=80, pages=1, keep_free=0)
CHECKPOINTS = CheckpointPolicy(least=4, part=16, most=8)
OPTIONS: dict[str, Any] = {"packing": POLICY, "checkpointing": CHECKPOINTS}
#: Tables that have rows of a job until it is published.
_STAGED = ("staging", "staged_part")
_ORPHANS = "SELECT COUNT(*) FROM index_page WHERE segment_id NOT IN (SELECT id FROM index_segment)"


class Packed(jobs.Upload):
    """A job that ends, so that the log gets long enough for checkpoints."""

    cancelled = 0


async def run(scene: Scene) -> None:
    await jobs.run(scene, Packed, OPTIONS)
    judge_left(scene)


def judge_left(scene: Scene) -> None:
    """
    Raises:
        Fault: something of a job is left that has ended.
    """
    with closing(sqlite3.connect(scene.api.file)) as database:
        counts = [f"SELECT COUNT(*) FROM {table}" for table in _STAGED] + [_ORPHANS]
        left = [database.execute(count).fetchone()[0] for count in counts]
        (checkpoints,) = database.execute("SELECT COUNT(*) FROM log_checkpoint").fetchone()
        (version,) = database.execute("SELECT MAX(version) FROM commit_log").fetchone()
    if any(left):
        raise Fault(f"staged parts and pages are left: {left}")
    if version >= 2 * CHECKPOINTS.least and not checkpoints:
        raise Fault(f"no checkpoint was written of {version} commits")
    files = [
        path.name
        for proxy in scene.proxies
        for path in (proxy.folder / "proxy" / "spool").glob("*")
    ]
    if files:
        raise Fault(f"files of uploads are left: {files}")
