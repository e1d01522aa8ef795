"""What an API has read of a store that is far away, it keeps on its own disk: it is read again
without the store, never believed where it is damaged, and gone with what is erased."""

from __future__ import annotations

import os
import shutil
import signal
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from encrypted_records.errors import ObjectLost
from encrypted_records.model import wire
from encrypted_records.model.records import RowRef, SealedRow
from encrypted_records.server.records.bulk import block_cache
from encrypted_records.server.records.bulk.block_cache import (
    MOST_AT_ONCE,
    TRUSTED_SECONDS,
    BlockCache,
)
from encrypted_records.server.records.bulk.files import Files
from encrypted_records.server.records.bulk.protocol import Range
from tests.server.api import Api, running_api
from tests.server.cache_parts import Counted, Known, Slow
from tests.server.staged import Job
from tests.server.test_bulk import found, pages_of, published, rows_of
from tests.server.test_erasing import erase, kill, state, traces, until
from tests.server.writer import FRAMES, Writer, person
from tests.support.postgres import NewDatabase
from tests.support.swift import Swift, running_swift

BUCKET = "records"
MANY = 150
#: In the folder of an API, by which others see that its process runs.
SIGNS = "blocks-*.lock"


@dataclass(frozen=True)
class Two:
    """Two APIs of one database and one bucket, each on a machine of its own."""

    swift: Swift
    here: Api
    there: Api
    environment: dict[str, str]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, postgresql: NewDatabase) -> Iterator[Two]:
    with running_swift(tmp_path_factory.mktemp("swift")) as swift:
        swift.make_bucket(BUCKET)
        url = f"s3://{BUCKET}/cached?endpoint={swift.endpoint}&least=0&patience=1"

        def machine(name: str) -> Path:
            return tmp_path_factory.mktemp(name)

        environment = {
            "ERS_BULK_URL": url,
            "ERS_SECRET_KEY_FILE": str(machine("key") / "secret.key"),
            **swift.credentials,
        }

        database = postgresql()
        with (
            running_api(machine("a"), database_url=database, environment=environment) as here,
            running_api(machine("b"), database_url=database, environment=environment) as there,
        ):
            yield Two(swift, here, there, environment)


@pytest.fixture
def job(two: Two) -> Job:
    account = two.here.new_account()
    return published(Writer(account, account.new_schema()), [person() for _ in range(MANY)])


def files_of(api: Api) -> list[Path]:
    """The files without a name that the process of an API has open in its folder, as the system
    shows them."""
    folder = str((api.data_dir / "api").resolve())
    found = []
    for one in Path(f"/proc/{api.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # others come and go
            target = str(one.readlink())
            if target.startswith(folder) and target.endswith("(deleted)"):
                found.append(one)
    return found


def are_in(api: Api, needles: list[bytes]) -> bool:
    """Whether one of these bytes is among an API's copies."""
    for path in files_of(api):
        with suppress(FileNotFoundError):
            data = path.read_bytes()
            if any(one in data for one in needles):
                return True
    return False


def rows_in(job: Job) -> list[SealedRow]:
    return job.parts[0].rows[0].present


def elsewhere(job: Job, api: Api, *ordinals: int) -> list[SealedRow]:
    """The rows that another API gives for the same user."""
    [group] = job.groups
    other = replace(job.writer.account, api=api)
    wanted = wire.encode([RowRef(group, at) for at in ordinals])
    return found(other.call("POST", f"{job.writer.schema['url']}rows/", wanted, **FRAMES))


def names_of(api: Api) -> list[str]:
    """What the database calls the copies of processes in an API's folder."""
    signs = (api.data_dir / "api").glob(SIGNS)
    return sorted(one.name.removeprefix("blocks-").removesuffix(".lock") for one in signs)


def name_of(api: Api) -> str:
    [name] = names_of(api)
    return name


def looks(api: Api) -> dict[str, int]:
    """The last look of each API that the database knows."""
    assert api.database_url is not None
    with psycopg.connect(api.database_url) as connection:
        return dict(connection.execute("SELECT id, ended FROM cache_file").fetchall())


def looked_at(folder: Path, *, database: Known | None = None, **more: Any) -> BlockCache:
    cache = BlockCache(folder, 1 << 20, **more)
    assert cache.look(database or Known())
    return cache


def file_of(cache: BlockCache) -> int:
    assert cache._file is not None
    return cache._file.fileno()


def bytes_of(cache: BlockCache) -> bytes:
    """All that lies in the file of a cache."""
    return os.pread(file_of(cache), 1 << 22, 0)


def test_what_was_read_is_read_again_while_the_store_is_away(two: Two, job: Job) -> None:
    rows = rows_in(job)
    assert found(rows_of(job, 0, 70)) == [rows[0], rows[70]]
    assert pages_of(job).status == 200
    two.swift.kill("proxy")
    try:
        # Of a block, all rows came.
        assert found(rows_of(job, 0, 63, 70)) == [rows[0], rows[63], rows[70]]
        assert pages_of(job).status == 200
        unread = rows_of(job, MANY - 1)
        assert (unread.status, unread.code) == (503, "bulk_store_unavailable")
    finally:
        two.swift.start("proxy")
    assert found(rows_of(job, MANY - 1)) == [rows[-1]]
    # It has a file, and nothing of it has a name.
    assert files_of(two.here)
    assert all(one.stat().st_size == 0 for one in (two.here.data_dir / "api").glob("blocks*"))


def test_a_copy_that_is_damaged_is_not_believed(two: Two, job: Job) -> None:
    rows = rows_in(job)
    assert found(rows_of(job, 0, MANY - 1)) == [rows[0], rows[-1]]
    for path in files_of(two.here):
        with suppress(FileNotFoundError), path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
    assert found(rows_of(job, 0, MANY - 1)) == [rows[0], rows[-1]]
    assert pages_of(job).status == 200


def test_whoever_finds_a_copy_to_be_another_passes_it_over(tmp_path: Path) -> None:
    """What reads by copies compares digests, and asks the store where they differ."""
    store, cache = Files(tmp_path / "objects"), looked_at(tmp_path)
    store.put("a" * 32, b"data")
    wanted = [Range("a" * 32, 0, 4)]
    cache.read(store, wanted)
    [(one, kept)] = cache._kept.items()
    cache._kept[one] = kept._replace(crc=zlib.crc32(b"evil"))
    os.pwrite(file_of(cache), b"evil", 0)
    assert cache.read(store, wanted) == [b"evil"]
    with cache.passed_over():
        assert cache.read(store, wanted) == [b"data"]
    assert cache.read(store, wanted) == [b"data"]


def test_what_is_erased_goes_from_the_disks_of_all_machines(two: Two, job: Job) -> None:
    rows, gone = rows_in(job), [3, 64]
    needles = [trace for at in gone for trace in traces(rows[at])]
    [group] = job.groups
    assert found(rows_of(job, *gone)) == [rows[at] for at in gone]
    assert elsewhere(job, two.there, *gone) == [rows[at] for at in gone]
    assert are_in(two.here, needles) and are_in(two.there, needles)
    kill(job.writer, group, *gone)
    erase(job.writer)
    assert not are_in(two.here, needles) and not are_in(two.there, needles)
    assert found(rows_of(job, 4, 65)) == [rows[4], rows[65]]
    assert elsewhere(job, two.there, 4, 65) == [rows[4], rows[65]]


def test_an_erasure_waits_for_an_api_that_is_paused(two: Two, job: Job) -> None:
    rows, gone = rows_in(job), [5, 66]
    needles = [trace for at in gone for trace in traces(rows[at])]
    [group] = job.groups
    assert elsewhere(job, two.there, *gone) == [rows[at] for at in gone]
    assert found(rows_of(job, *gone)) == [rows[at] for at in gone]
    mine = looks(two.here)[name_of(two.here)]
    two.there.process.send_signal(signal.SIGSTOP)
    try:
        kill(job.writer, group, *gone)
        asked = job.writer.account.call("POST", f"{job.writer.schema['url']}erasure/").json()
        until(lambda: not are_in(two.here, needles))
        again = looks(two.here)[name_of(two.here)] + 2
        assert again > mine
        until(lambda: looks(two.here)[name_of(two.here)] >= again)
        assert are_in(two.there, needles)
        assert state(job.writer)["done"] < asked["asked"]
    finally:
        two.there.process.send_signal(signal.SIGCONT)
    until(lambda: bool(state(job.writer)["done"] >= asked["asked"]))
    assert not are_in(two.there, needles)
    assert elsewhere(job, two.there, 6, 67) == [rows[6], rows[67]]


def test_of_an_api_that_was_killed_nothing_is_left_and_nobody_waits_for_it(
    two: Two, job: Job, tmp_path: Path
) -> None:
    rows, gone = rows_in(job), [7, 68]
    needles = [trace for at in gone for trace in traces(rows[at])]
    [group] = job.groups
    third_api = partial(
        running_api, tmp_path, database_url=two.here.database_url, environment=two.environment
    )
    with third_api() as third:
        assert elsewhere(job, third, *gone) == [rows[at] for at in gone]
        until(lambda: name_of(third) in looks(third))
        cache = name_of(third)
        assert are_in(third, needles)
        third.process.kill()
        third.process.wait()
    # What is left of it on the disk has nothing of what it read.
    left = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert left and not any(needle in one.read_bytes() for one in left for needle in needles)
    assert cache in looks(two.here)
    kill(job.writer, group, *gone)
    with third_api() as third:
        # Whoever runs in its folder says that it is dead.
        until(lambda: cache not in looks(third))
        erase(job.writer)
        assert elsewhere(job, third, 8, 69) == [rows[8], rows[69]]
        until(lambda: name_of(third) in looks(third))
        cache = name_of(third)
    # One that ends has nobody wait for it, nor has one of which nothing was heard for long.
    assert names_of(third) == [] and cache not in looks(two.here)
    two.here.execute(
        "INSERT INTO cache_file (id, begun, ended, seen)"
        " VALUES ('gone', 1, 1, now() - interval '11 minutes')"
    )
    kill(job.writer, group, 9)
    erase(job.writer)


def test_an_api_that_is_to_keep_nothing_deletes_what_it_kept_under_a_name(tmp_path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"blocks.sqlite3{end}").write_bytes(b"of an older version")
    block_cache.open_cache(tmp_path, 0)
    assert block_cache.opened() is None and not list(tmp_path.iterdir())


def test_what_was_read_before_a_look_is_not_kept_after_it(tmp_path: Path) -> None:
    database = Known({"a" * 32})
    cache = looked_at(tmp_path, database=database)

    def go() -> None:
        database.objects.clear()
        assert cache.look(database, soon=True)

    store = Slow(tmp_path / "objects", go)
    store.put("a" * 32, b"data")
    assert cache.read(store, [Range("a" * 32, 0, 4)]) == [b"data"]
    assert cache.names() == set() and b"data" not in bytes_of(cache)


def test_a_process_that_has_not_looked_for_a_minute_asks_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, store = Known({"a" * 32}), Files(tmp_path / "objects")
    cache = looked_at(tmp_path, database=database)
    store.put("a" * 32, b"data")
    wanted = [Range("a" * 32, 0, 4)]
    assert cache.read(store, wanted) == [b"data"]
    store.delete(["a" * 32])
    assert cache.read(store, wanted) == [b"data"]
    later = block_cache._now() + TRUSTED_SECONDS
    monkeypatch.setattr(block_cache, "_now", lambda: later)
    with pytest.raises(ObjectLost):
        cache.read(store, wanted)
    database.objects.clear()
    assert cache.look(database) and cache.names() == set()
    assert b"data" not in bytes_of(cache)


def test_a_file_that_cannot_be_cleared_is_made_again(tmp_path: Path) -> None:
    database, store = Known({"a" * 32}), Files(tmp_path / "objects")
    cache = looked_at(tmp_path, database=database)
    store.put("a" * 32, b"data")
    wanted = [Range("a" * 32, 0, 4)]
    cache.read(store, wanted)
    # As where the disk takes nothing any more.
    reading = os.open(f"/proc/self/fd/{file_of(cache)}", os.O_RDONLY)
    os.dup2(reading, file_of(cache))
    os.close(reading)
    database.objects.clear()
    assert cache.look(database, soon=True) and cache.names() == set()
    assert bytes_of(cache) == b""
    assert cache.read(store, wanted) == cache.read(store, wanted) == [b"data"]
    assert cache.names() == {"a" * 32}


def test_there_is_room_for_no_more_than_was_said(tmp_path: Path) -> None:
    store, cache = Files(tmp_path / "objects"), looked_at(tmp_path)
    data = b"".join(number.to_bytes(4, "big") for number in range(1 << 20))
    store.put("a" * 32, data)
    places, begin = [], 0
    while begin < len(data):
        size = 40_000 + begin % 30_011
        places.append(Range("a" * 32, begin, min(begin + size, len(data))))
        begin += size
    for one in places:
        assert cache.read(store, [one, one]) == [data[one.start : one.end]] * 2
        assert os.fstat(file_of(cache)).st_size <= 1 << 20
    # The newest are there, byte for byte, and what is more than somebody waits for is not.
    store.delete(["a" * 32])
    newest = [one for one in places if one in cache._kept]
    assert newest == places[-len(newest) :]
    assert sum(one.end - one.start for one in newest) > 1 << 19
    assert cache.read(store, newest) == [data[one.start : one.end] for one in newest]
    store.put("b" * 32, bytes(MOST_AT_ONCE + 1))
    whole = [Range("b" * 32, 0, MOST_AT_ONCE), Range("b" * 32, MOST_AT_ONCE, MOST_AT_ONCE + 1)]
    assert list(map(len, cache.read(store, whole))) == [MOST_AT_ONCE, 1]
    assert cache.names() == {"a" * 32}
    # What had to make room, or is deleted, has left no byte behind.
    cache.forget({"a" * 32})
    assert not any(bytes_of(cache))


def test_a_disk_that_is_nearly_full_is_left_to_others(tmp_path: Path) -> None:
    store, much = Files(tmp_path / "objects"), shutil.disk_usage(tmp_path).total
    cache = looked_at(tmp_path, keep_free=much)
    store.put("a" * 32, b"data")
    assert cache.read(store, [Range("a" * 32, 0, 4)]) == [b"data"]
    assert cache.names() == set()


def test_what_a_store_reads_over_is_kept_as_well(tmp_path: Path) -> None:
    store, cache = Files(tmp_path / "objects"), looked_at(tmp_path)
    pages = [bytes([at]) * 16_384 for at in range(100)]
    store.put("a" * 32, b"".join(pages))
    every = [Range("a" * 32, at * 16_384, (at + 1) * 16_384) for at in range(100)]
    # Between the second and the third lies more than is read as one.
    wanted = [every[3], every[20], every[99]]
    assert cache.read(store, wanted, every) == [pages[3], pages[20], pages[99]]
    store.delete(["a" * 32])
    assert cache.read(store, every[3:21]) == pages[3:21]
    for at in (2, 21, 98):
        with pytest.raises(ObjectLost):
            cache.read(store, [every[at]])


def test_what_becomes_of_ranges_is_counted(tmp_path: Path) -> None:
    store, counted = Files(tmp_path / "objects"), Counted()
    cache = BlockCache(tmp_path, 1000, counted)
    database = Known({"a" * 32})
    assert cache.look(database)
    store.put("a" * 32, bytes(4000))
    for start in (0, 600, 0, 0):
        cache.read(store, [Range("a" * 32, start, start + 600)])
    assert (counted.hits, counted.misses, counted.size) == (1, 3, 600)
    database.objects.clear()
    assert cache.look(database, soon=True)
    assert (counted.gone, counted.room, counted.size) == (1, 2, 0)
