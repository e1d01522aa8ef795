"""The disk below an API's objects is full: a small disk of its own, which nothing else fills.

Nothing of what is refused is stored, what was stored is read as before, and once there is room
what waits goes on, and the disk has the objects that the database names, and no other.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from encrypted_records.errors import ErsError
from encrypted_records.index.segments.merge_policy import Tier
from encrypted_records.model import ids
from encrypted_records.proxy.write.merge_scheduler import MergeOutcome
from encrypted_records.server.objects.stores import DRAFT
from tests.support import jobs
from tests.support.doctor import looked_at
from tests.support.erasures import seen_through
from tests.support.eventually import eventually
from tests.support.objects import wait_until_swept
from tests.support.second_proxy import Proxy, second_proxy, with_keyrings
from tests.support.service import Service, running_service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {"number": {"type": "integer", "minimum": 0, "maximum": 10**6}},
    "required": ["number"],
}
MANY = 300
MIB = 1 << 20
SOON = 60.0


@dataclass(frozen=True)
class SmallDisk:
    """``folder`` has 16 MiB, and the API's objects."""

    folder: Path

    @property
    def url(self) -> str:
        return f"file://{quote(str(self.folder / 'objects'))}?least=0"

    def names(self) -> set[str]:
        """Of all files of the objects, also of those that are not whole."""
        return {one.name for one in (self.folder / "objects").rglob("*") if one.is_file()}

    def holds(self, needle: bytes) -> bool:
        """Whether a file of the objects has these bytes."""
        every = (one for one in (self.folder / "objects").rglob("*") if one.is_file())
        return any(needle in one.read_bytes() for one in every)

    @contextmanager
    def full(self, *, but: int = 0) -> Iterator[None]:
        """
        Args:
            but: bytes for which there is room.
        """
        filler = self.folder / "filler"
        with filler.open("wb", buffering=0) as file:
            for size in (MIB, 4096):
                while True:
                    try:
                        if file.write(bytes(size)) < size:
                            break
                    except OSError:
                        break
        assert os.statvfs(self.folder).f_bavail == 0
        os.truncate(filler, filler.stat().st_size - but)
        try:
            yield
        finally:
            filler.unlink()


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    folder = tmp_path_factory.mktemp("disk")
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def service(disk: SmallDisk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service") / "data"
    with running_service(folder, environment={"ERS_BULK_URL": disk.url}) as running:
        yield running


@pytest.fixture
def store(service: Service) -> Store:
    return new_store(service, DEFINITION)


def started(store: Store, first: int) -> str:
    rows = [{"number": at} for at in range(first, first + MANY)]
    return jobs.started(store, jobs.as_json(store, rows))


def numbers(store: Store) -> list[int]:
    return sorted(one["data"]["number"] for one in store.everything())


def said_of(service: Service, path: str, since: int) -> str:
    """Why a job waits, by the proxy's log."""
    waits = f"job {path.split('/')[-2]} waits"

    def line() -> str:
        return next(
            (splitline for splitline in service.log[since:].splitlines() if waits in splitline), ""
        )

    return eventually(line, "the log says that the job waits", SOON)


def test_nothing_is_stored_in_part_and_what_waits_goes_on(
    disk: SmallDisk, service: Service, store: Store
) -> None:
    stored_in = {"ERS_DATA_DIR": str(service.data_dir), "ERS_BULK_URL": disk.url}
    jobs.completed(store, started(store, 0))
    stored = list(range(MANY))
    with disk.full():
        since, before = len(service.log), disk.names()
        path = started(store, MANY)
        assert "the disk that holds the API's bulk store is full" in said_of(service, path, since)
        told = jobs.status(store, path)
        assert told["status"] == "processing" and "error" not in told
        # What is small is stored beside the objects, and what lies there is read.
        assert store.send([{"number": 10**6}]).status == 201
        assert numbers(store) == [*stored, 10**6]
        gone = store.found({"field": "number", "op": "eq", "value": 10**6})
        assert store.proxy("DELETE", f"/api/records/{gone[0]}/").status == 204
        assert numbers(store) == stored
        look = looked_at("bulk store", **stored_in)
        assert (look.state, look.status) == ("failed", 1) and "full" in look.found
        left = disk.names()
        assert left >= before and not [one for one in left if one.endswith(DRAFT)]
    jobs.completed(store, path)
    assert numbers(store) == list(range(2 * MANY))
    # It can be used again, and is as small as before.
    look = looked_at("bulk store", **stored_in)
    assert (look.state, look.status) == ("warning", 0) and "little space" in look.found
    wait_until_swept(service.data_dir, disk.names)
    assert numbers(store) == list(range(2 * MANY))


#: More than a mini holds; and segments of which two are merged.
LARGE = 4200
TIERS = (Tier(4096, 64), Tier(1 << 16, 1))
LOW = {"field": "number", "op": "lt", "value": 10}
#: Room for the first of the parts that a merge stages, and not for all.
SOME = 80 << 10


def test_a_large_merge_leaves_nothing_in_part_and_is_made_once_there_is_room(
    disk: SmallDisk, store: Store, tmp_path: Path
) -> None:
    async def refused(proxy: Proxy) -> ErsError:
        merger = proxy.merger(*TIERS, pages_at_once=2)
        with pytest.raises(ErsError) as failure:
            await merger.merge_next(proxy.caller, proxy.state)
        return failure.value

    async def test() -> None:
        async with second_proxy(store, with_keyrings(store.service, tmp_path)) as proxy:
            for first in (0, LARGE):
                await proxy.ingest([{"number": first + at} for at in range(LARGE)])
            before, had = proxy.state.ledger.snapshot().segments, disk.names()
            for room in (0, SOME):
                with disk.full(but=room):
                    failure = await refused(proxy)
                    assert "the disk that holds the API's bulk store is full" in failure.message
                    # Parts were staged of which nothing will be made.
                    assert disk.names() == had if not room else disk.names() > had
                    assert proxy.state.ledger.snapshot().segments == before
                    assert await proxy.count(LOW) == 10
                    assert not [name for name in disk.names() if name.endswith(DRAFT)]
            merger = proxy.merger(*TIERS, pages_at_once=2)
            merged = await merger.merge_next(proxy.caller, proxy.state)
            assert merged == MergeOutcome(2, 2 * LARGE)
            assert await proxy.count(LOW) == 10

    assert store.send([{"number": 10**6}]).status == 201
    asyncio.run(test())
    wait_until_swept(store.service.data_dir, disk.names)
    assert numbers(store) == [*range(2 * LARGE), 10**6]


def test_an_erasure_waits_for_room_and_says_so(disk: SmallDisk, store: Store) -> None:
    jobs.completed(store, started(store, 0))
    [one] = store.found({"field": "number", "op": "eq", "value": 7})
    needle = ids.from_text(one)
    assert disk.holds(needle)
    left = [at for at in range(MANY) if at != 7]
    with disk.full():
        before = disk.names()
        answer = store.proxy("DELETE", f"/api/records/{one}/?erase=true")
        assert (answer.status, answer.json()["gone"]) == (202, False)
        # It is no record any more, and its bytes are there until the object is written again.
        assert numbers(store) == left
        # Of its index, the small rest is in the database.
        assert disk.holds(needle) and disk.names() <= before
    assert seen_through(store, answer)["gone"]
    assert not disk.holds(needle)
    assert numbers(store) == left
    wait_until_swept(store.service.data_dir, disk.names)
    assert numbers(store) == left
