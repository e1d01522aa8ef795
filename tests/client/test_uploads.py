"""A resumable upload brings all bytes over, whatever becomes of its connections, and none twice."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from encrypted_records.client.limits import ClientLimits
from encrypted_records.client.messages import Response
from encrypted_records.client.proxy import jobs
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.client.proxy.jobs import JobProgress
from encrypted_records.client.proxy.uploads import LocalFile
from encrypted_records.client.transport import Transport
from encrypted_records.errors import InvalidSetting, NotFound, ProxyUnreachable
from tests.support.cutting import breaking_way
from tests.support.service import Account, Service
from tests.support.store import Store, new_schema

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}
ROWS = 4000


@pytest.fixture
def store(running: Service, account: Account) -> Store:
    return Store(running, account, new_schema(running, account, DEFINITION))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """About 4 MiB of CSV."""
    path = tmp_path / "names.csv"
    path.write_text("name\n" + "".join(f"{number:04}{'x' * 1020}\n" for number in range(ROWS)))
    return path


#: Small requests, so that a file takes some.
SMALL = ClientLimits(request_bytes=1 << 20, chunk_bytes=64 << 10)


def client(store: Store, url: str | None = None, limits: ClientLimits = SMALL) -> ProxyClient:
    address, who = url or store.service.proxy_url, store.account
    return ProxyClient(address, email=who.email, password=who.password, limits=limits)


async def finished(store: Store, job: str) -> JobProgress:
    async with client(store) as direct:
        return await direct.wait(job)


def test_connections_that_are_cut_cost_no_byte(store: Store, file: Path) -> None:
    eager = replace(SMALL, upload_pauses=(0.05,) * 20)
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    there = urlsplit(store.service.proxy_url)
    assert there.hostname and there.port
    opened = LocalFile(file)

    async def upload(url: str) -> JobProgress:
        async with client(store) as direct:
            begun, job = await direct.begin_upload(opened, "text/csv", schema=store.schema_id)
        async with client(store, url, eager) as cut:
            await cut.send_upload(begun, opened)
        return await finished(store, job)

    with breaking_way(there.hostname, there.port, seed=seed, cuts=4, bytes_before=2 << 20) as way:
        last = asyncio.run(upload(way.url))

    assert (last.status, last.processed) == ("completed", ROWS)
    names = [record["data"]["name"][:4] for record in store.everything()]
    assert names == [f"{number:04}" for number in range(ROWS)]


def test_an_upload_that_was_given_up_goes_on_where_it_stopped(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    broken = True
    real = Transport.request

    async def request(self: Transport, method: str, path: str, **more: Any) -> Response:
        if method == "PATCH":
            if broken and len(sent) == 2:
                raise ProxyUnreachable("cut")
            sent.append(int(more["headers"]["Upload-Offset"]))
        return await real(self, method, path, **more)

    monkeypatch.setattr(Transport, "request", request)
    hasty = replace(SMALL, upload_pauses=(0.0,))
    shown: list[int] = []

    async def upload() -> JobProgress:
        nonlocal broken
        async with client(store, limits=hasty) as direct:
            opened = LocalFile(file)
            begun, job = await direct.begin_upload(opened, "text/csv", schema=store.schema_id)
            with pytest.raises(ProxyUnreachable):
                await direct.send_upload(begun, opened)
            assert await direct.upload_offset(begun) == 2 << 20
            broken = False
            await direct.send_upload(begun, opened, on_offset=shown.append)
        return await finished(store, job)

    last = asyncio.run(upload())

    assert (last.status, last.processed) == ("completed", ROWS)
    assert sent == [0, 1 << 20, 2 << 20, 3 << 20]
    assert shown[0] == 2 << 20
    assert shown == sorted(shown)
    assert shown[-1] == file.stat().st_size


class Restarting:
    """A proxy that does not answer the next requests, as while it restarts: more of them than are
    made of one request.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.silent = 0
        real = Transport.request

        async def request(one: Transport, method: str, path: str, **more: Any) -> Response:
            if self.silent:
                self.silent -= 1
                raise ProxyUnreachable("it restarts")
            return await real(one, method, path, **more)

        monkeypatch.setattr(Transport, "request", request)


PATIENT = replace(SMALL, upload_pauses=(0.0,) * 6)


def test_an_upload_survives_a_restart_that_takes_longer_than_the_tries_of_a_request(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Restarting(monkeypatch)

    told: set[int] = set()

    def stop_once(offset: int) -> None:
        if offset == 2 << 20 and offset not in told:
            proxy.silent = 6
        told.add(offset)

    async def upload() -> JobProgress:
        async with client(store, limits=PATIENT) as direct:
            opened = LocalFile(file)
            begun, job = await direct.begin_upload(opened, "text/csv", schema=store.schema_id)
            await direct.send_upload(begun, opened, on_offset=stop_once)
        return await finished(store, job)

    last = asyncio.run(upload())
    assert (last.status, last.processed) == ("completed", ROWS)


def test_a_stream_survives_a_restart_that_takes_longer_than_the_tries_of_a_request(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Restarting(monkeypatch)

    async def upload() -> JobProgress:
        async with client(store, limits=PATIENT) as direct:
            begun, job = await direct.begin_stream("names.csv", schema=store.schema_id)
            offset = await direct.append(begun, 0, b"name\nAda\n", is_last=False)
            proxy.silent = 6
            await direct.append(begun, offset, b"Grace\n", is_last=True)
        return await finished(store, job)

    last = asyncio.run(upload())
    assert (last.status, last.processed) == ("completed", 2)


def test_a_job_is_watched_through_a_restart_and_not_at_a_proxy_that_never_answered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Restarting(monkeypatch)

    async def broken(_: Transport, path: str) -> AsyncIterator[str]:
        proxy.silent = 6
        raise ProxyUnreachable(path)
        yield ""

    async def watch() -> list[str]:
        async with client(store, limits=PATIENT) as direct:
            _, job = await direct.begin_stream("names.csv", schema=store.schema_id)
            states: list[str] = []
            with monkeypatch.context() as patched:
                patched.setattr(Transport, "messages", broken)
                patched.setattr(jobs, "_PAUSE_SECONDS", 0.0)
                async for progress in direct.watch(job):
                    states.append(progress.status)
                    if len(states) == 2:
                        break
            proxy.silent = 1
            with pytest.raises(ProxyUnreachable):
                await direct.wait(job)
        return states

    assert asyncio.run(watch()) == ["uploading", "uploading"]


def test_an_upload_that_is_not_there_is_not_found(store: Store, file: Path) -> None:
    async def ask() -> None:
        async with client(store) as direct:
            await direct.send_upload("/api/files/2JZrj6hSaxLxqvJcVPJkN2", LocalFile(file))

    with pytest.raises(NotFound):
        asyncio.run(ask())


def test_a_file_that_changes_in_the_middle_of_a_request_is_refused(
    store: Store, file: Path
) -> None:
    os.utime(file, ns=(0, 0))  # clocks of files are coarse
    opened = LocalFile(file)
    at_once = replace(SMALL, request_bytes=64 << 20, upload_pauses=(0.0,))

    def change(offset: int) -> None:
        if 0 < offset <= 1 << 20:
            with file.open("r+b") as written:
                written.seek(-10, os.SEEK_END)
                written.write(b"y" * 9)

    async def upload() -> None:
        async with client(store, limits=at_once) as direct:
            begun, _ = await direct.begin_upload(opened, "text/csv", schema=store.schema_id)
            with pytest.raises(InvalidSetting, match="was changed while it was sent"):
                await direct.send_upload(begun, opened, on_offset=change)
            await direct.abandon_upload(begun)

    asyncio.run(upload())
    assert store.everything() == []


def test_a_file_that_changes_while_it_is_read_ends_without_its_last_piece(file: Path) -> None:
    os.utime(file, ns=(0, 0))
    pieces = LocalFile(file).pieces()
    next(pieces)
    with file.open("ab") as written:
        written.write(b"late")
    with pytest.raises(InvalidSetting, match="was changed while it was sent"):
        list(pieces)
