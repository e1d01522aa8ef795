"""A job that seals all records again holds the version that it reads as long as it runs, and a hold
is renewed as long as somebody needs it."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.proxy.search import upstream
from encrypted_records.proxy.search.upstream import VersionHold
from tests.support import jobs
from tests.support.erasures import seen_through
from tests.support.front import Asked, Reply, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Service
from tests.support.store import new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


def test_a_reseal_holds_what_it_reads_until_it_ends_and_an_erasure_goes_on_then(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, DEFINITION)
    held: list[dict[str, Any]] = []

    def look(asked: Asked, reply: Reply) -> Reply:
        """Each time that a part is staged, before the job hears of it."""
        if asked.path.endswith("/staging/"):
            held.extend(store.api("GET", f"{store.schema}holds/").json())
        return reply

    with running_front(service.base_url) as front, running_proxy(front.url, tmp_path) as proxy:
        behind = dataclasses.replace(
            store, service=dataclasses.replace(service, proxy_url=proxy.url)
        )
        gone, *left = behind.ingest([{"name": f"name {n}"} for n in range(5)])
        with front.telling(look):
            begun = behind.proxy("POST", f"{store.schema}reseal/")
            assert begun.status == 202, begun.body
            jobs.completed(behind, begun.headers["X-Job-Status-URL"])
        assert {one["reason"] for one in held} == {"job"}
        assert {one["email"] for one in held} == {store.account.email}
        assert store.api("GET", f"{store.schema}holds/").json() == []
        erased = seen_through(behind, behind.proxy("DELETE", f"/api/records/{gone}/?erase=true"))
        assert erased["gone"]
        assert behind.found() == left


def test_a_hold_is_renewed_behind_a_renewal_that_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else what an export of an hour reads may be erased under it, and nobody knows why."""
    renewals = 0
    renewed = asyncio.Event()

    async def begin(_: VersionHold) -> None:
        nonlocal renewals
        renewals += 1
        if renewals == 1:
            raise KeyError("73519 is somebody's salary")
        renewed.set()

    async def end(_: VersionHold) -> None:
        pass

    async def read() -> None:
        hold = VersionHold(Any, Any, bytes(16), 1, "export")  # type: ignore[arg-type]
        async with hold.renewed():
            await asyncio.wait_for(renewed.wait(), 60)

    monkeypatch.setattr(upstream, "RENEW_SECONDS", 0)
    monkeypatch.setattr(VersionHold, "begin", begin)
    monkeypatch.setattr(VersionHold, "end", end)
    asyncio.run(read())
    assert "renewing a hold failed because of an internal error: KeyError" in caplog.text
    assert "salary" not in caplog.text
