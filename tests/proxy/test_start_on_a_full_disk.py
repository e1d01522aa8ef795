"""A proxy starts on a full disk, and answers what needs no room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from encrypted_records.errors import Startup
from encrypted_records.proxy import disk
from tests.support.proxies import running_proxy
from tests.support.service import Service
from tests.support.store import Store, new_schema

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}
MEGABYTES = 40


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of a size that a test can fill."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={MEGABYTES}m,mode=0700", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("this user may not mount a file system")
    try:
        yield folder
    finally:
        # A start that failed leaves its files open until its process ends.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "filling").open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    assert os.statvfs(folder).f_bavail == 0


def test_a_proxy_starts_on_a_full_disk_and_reads(
    services: Callable[[str], Service], small_disk: Path
) -> None:
    service = services("sqlite")
    account = service.new_account()
    with running_proxy(service.base_url, small_disk) as proxy:
        at_proxy = replace(service, proxy_url=proxy.url)
        store = Store(at_proxy, account, new_schema(at_proxy, account, DEFINITION))
        store.ingest([{"name": "Ada"}])
        kept = small_disk / "proxy" / disk.BALLAST_NAME
        assert kept.stat().st_blocks * 512 == disk.BALLAST_BYTES
    fill(small_disk)
    for _ in range(2):  # where nobody has made room, it starts again in what the first one left
        with running_proxy(service.base_url, small_disk) as proxy:
            reader = replace(store, service=replace(service, proxy_url=proxy.url))
            assert reader.search(None, count=True)["count"] == 1
            assert not kept.exists()
    fill(small_disk)
    with pytest.raises(Startup), running_proxy(service.base_url, small_disk):
        pass
    (small_disk / "filling").unlink()
    with running_proxy(service.base_url, small_disk) as proxy:
        writer = replace(store, service=replace(service, proxy_url=proxy.url))
        writer.ingest([{"name": "Grace"}])
        assert writer.search(None, count=True)["count"] == 2
        assert kept.stat().st_size == disk.BALLAST_BYTES


def test_a_start_for_which_there_is_too_little_room_says_so(
    services: Callable[[str], Service], small_disk: Path
) -> None:
    """The disk may also fill up under the first row that a start writes."""
    base_url = services("sqlite").base_url
    with running_proxy(base_url, small_disk):
        pass
    (small_disk / "proxy" / disk.BALLAST_NAME).unlink()
    for pages in range(8):
        (small_disk / "room").write_bytes(bytes(pages * 4096))
        fill(small_disk)
        (small_disk / "room").unlink()
        with pytest.raises(Startup), running_proxy(base_url, small_disk):
            pass
        (small_disk / "filling").unlink()


def test_no_room_is_kept_where_there_is_hardly_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "BALLAST_BYTES", 1 << 60)
    disk.drop_ballast_if_full(tmp_path)
    disk.keep_ballast(tmp_path)
    assert list(tmp_path.iterdir()) == []
