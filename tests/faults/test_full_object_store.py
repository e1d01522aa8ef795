"""The disk below an API's objects is full: a small disk of its own, which nothing else fills.

Nothing of what is refused is stored, what was stored is read as before, and once there is room
what waits goes on, and the disk has the objects that the database names, and no other.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from encrypted_records.server.records.bulk.files import DRAFT
from tests.support import jobs
from tests.support.doctor import looked_at
from tests.support.objects import wait_until_swept
from tests.support.service import Service, running_service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {"number": {"type": "integer", "minimum": 0, "maximum": 10**6}},
    "required": ["number"],
}
MANY = 3000
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

    @contextmanager
    def full(self) -> Iterator[None]:
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
        try:
            yield
        finally:
            filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def started(store: Store, first: int) -> str:
    rows = [{"number": at} for at in range(first, first + MANY)]
    return jobs.started(store, jobs.as_json(store, rows))


def numbers(store: Store) -> list[int]:
    return sorted(one["data"]["number"] for one in store.everything())


def said_of(service: Service, path: str, since: int) -> str:
    """Why a job waits, by the proxy's log."""
    waits, deadline = f"job {path.split('/')[-2]} waits", time.monotonic() + SOON
    while waits not in service.log[since:]:
        assert time.monotonic() < deadline, service.log[since:]
        time.sleep(0.1)
    return next(line for line in service.log[since:].splitlines() if waits in line)


def test_nothing_is_stored_in_part_and_what_waits_goes_on(disk: SmallDisk, tmp_path: Path) -> None:
    environment = {"ERS_BULK_URL": disk.url}
    with running_service(tmp_path / "data", environment=environment) as service:
        stored_in = {"ERS_DATA_DIR": str(service.data_dir), **environment}
        store = new_store(service, DEFINITION)
        jobs.completed(store, started(store, 0))
        stored = list(range(MANY))
        with disk.full():
            since, before = len(service.log), disk.names()
            path = started(store, MANY)
            assert "the disk that holds the API's bulk store is full" in said_of(
                service, path, since
            )
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
        assert (look.state, look.status) == ("warning", 0) and "little room" in look.found
        wait_until_swept(service.data_dir, disk.names)
        assert numbers(store) == list(range(2 * MANY))
