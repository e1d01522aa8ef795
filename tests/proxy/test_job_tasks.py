"""Work of jobs in the background: the end of one piece hides no other piece of the same job."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

from encrypted_records.proxy.jobs.service import BatchJobs
from encrypted_records.proxy.process import Background

JOB = b"j" * 16
NOTHING = cast("Any", None)


async def _work(
    began: asyncio.Event, go: asyncio.Event, ended: list[str], name: str, _job: bytes
) -> None:
    began.set()
    try:
        await go.wait()
    finally:
        ended.append(name)


def test_work_that_began_while_other_work_of_its_job_ended_is_still_known_and_stopped() -> None:
    async def whole() -> list[str]:
        jobs, ended = BatchJobs(NOTHING, NOTHING, NOTHING, Background()), list[str]()
        go, never, began = asyncio.Event(), asyncio.Event(), asyncio.Event()
        jobs._track(JOB, partial(_work, asyncio.Event(), go, ended, "first"))
        first = jobs._running[JOB]
        jobs._track(JOB, partial(_work, began, never, ended, "second"))
        await began.wait()
        go.set()
        await asyncio.wait([first])
        assert ended == ["first"]
        assert JOB in jobs._running
        jobs._track(JOB, partial(_work, asyncio.Event(), never, ended, "third"))
        await asyncio.sleep(0)
        await jobs.stop()
        assert JOB not in jobs._running
        return ended

    # What was replaced is stopped as well.
    assert sorted(asyncio.run(whole())) == ["first", "second", "third"]
