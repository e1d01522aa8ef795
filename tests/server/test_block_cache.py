"""What an API has read of a store that is far away, it keeps on its own disk: it is read again
without the store, never believed where it is damaged, and gone with what is erased."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psycopg
import pytest

from encrypted_records.errors import ObjectLost
from encrypted_records.model import wire
from encrypted_records.model.records import RowRef, SealedRow
from encrypted_records.server.records.bulk import block_cache
from encrypted_records.server.records.bulk.block_cache import (
    MOST_AT_ONCE,
    MOST_FAILURES,
    TRUSTED_SECONDS,
    BlockCache,
)
from encrypted_records.server.records.bulk.files import Files
from encrypted_records.server.records.bulk.protocol import Range
from tests.server.api import Api, running_api
from tests.server.staged import Job
from tests.server.test_bulk import found, pages_of, published, rows_of
from tests.server.test_erasing import erase, kill, state, traces, until
from tests.server.writer import FRAMES, Writer, person
from tests.support.postgres import NewDatabase
from tests.support.swift import Swift, running_swift

BUCKET = "records"
MANY = 150
FILE = "blocks.sqlite3"


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
    return sorted((api.data_dir / "api").glob(f"{FILE}*"))


def are_in(api: Api, needles: list[bytes]) -> bool:
    return any(one in path.read_bytes() for path in files_of(api) for one in needles)


def rows_in(job: Job) -> list[SealedRow]:
    return job.parts[0].rows[0].present


def elsewhere(job: Job, api: Api, *ordinals: int) -> list[SealedRow]:
    """The rows that another API gives for the same user."""
    [group] = job.groups
    other = replace(job.writer.account, api=api)
    wanted = wire.encode([RowRef(group, at) for at in ordinals])
    return found(other.call("POST", f"{job.writer.schema['url']}rows/", wanted, **FRAMES))


def name_of(api: Api) -> str:
    """What the database calls the copies of an API."""
    with closing(sqlite3.connect(api.data_dir / "api" / FILE)) as database:
        [(name,)] = database.execute("SELECT id FROM own").fetchall()
    return str(name)


def looks(api: Api) -> dict[str, int]:
    """The last look of each API that the database knows."""
    assert api.database_url is not None
    with psycopg.connect(api.database_url) as connection:
        return dict(connection.execute("SELECT id, ended FROM cache_file").fetchall())


class Known:
    """What a database knows, without one."""

    def __init__(self, objects: Collection[str] = ()) -> None:
        self.objects = set(objects)
        self.files: dict[str, int] = {}

    def begin(self, cache: str) -> int:
        self.files[cache] = self.files.get(cache, 0) + 1
        return self.files[cache]

    def end(self, cache: str, number: int) -> bool:
        return self.files.get(cache, 0) >= number

    def leave(self, cache: str) -> None:
        self.files.pop(cache, None)

    def known(self, names: Collection[str]) -> Collection[str]:
        return self.objects.intersection(names)


def looked_at(path: Path, *, database: Known | None = None, **more: int) -> BlockCache:
    cache = BlockCache(path, 1 << 20, **more)
    assert cache.look(database or Known())
    return cache


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
    assert {path.stat().st_mode & 0o777 for path in files_of(two.here)} == {0o600}


def test_a_copy_that_is_damaged_is_not_believed(two: Two, job: Job) -> None:
    rows = rows_in(job)
    assert found(rows_of(job, 0, MANY - 1)) == [rows[0], rows[-1]]
    with closing(sqlite3.connect(two.here.data_dir / "api" / FILE)) as database:
        # One whose own sum is wrong, and one with a sum that is right, of other bytes.
        changed = database.execute("UPDATE block SET crc = crc + 1 WHERE number % 2").rowcount
        zeros = bytes(5000)
        other = database.execute(
            "UPDATE block SET data = ?, crc = ? WHERE NOT number % 2", (zeros, zlib.crc32(zeros))
        ).rowcount
        database.commit()
    assert changed and other
    assert found(rows_of(job, 0, MANY - 1)) == [rows[0], rows[-1]]
    assert pages_of(job).status == 200
    # Every copy there is, with a sum that is right.
    assert pages_of(job).status == 200
    with closing(sqlite3.connect(two.here.data_dir / "api" / FILE)) as database:
        statement = "UPDATE block SET data = zeroblob(length(data)), crc = ?"
        for (size,) in database.execute("SELECT DISTINCT length(data) FROM block").fetchall():
            own = (zlib.crc32(bytes(size)), size)
            database.execute(f"{statement} WHERE length(data) = ?", own)
        database.commit()
    assert pages_of(job).status == 200
    assert found(rows_of(job, 0, MANY - 1)) == [rows[0], rows[-1]]


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


def test_an_api_that_was_killed_drops_what_went_meanwhile_before_it_goes_by_its_copies(
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
        third.process.kill()
        third.process.wait()
    assert are_in(third, needles) and cache in looks(two.here)
    kill(job.writer, group, *gone)
    # Nobody hears of it for an hour.
    two.here.execute(
        f"UPDATE cache_file SET seen = seen - interval '61 minutes' WHERE id = '{cache}'"
    )
    erase(job.writer)
    assert are_in(third, needles)
    with third_api() as third:
        until(lambda: name_of(third) == cache and cache in looks(third))
        until(lambda: not are_in(third, needles))
        assert elsewhere(job, third, 8, 69) == [rows[8], rows[69]]
        until(lambda: bool(files_of(third)))
    # One that ends has nobody wait for it.
    assert not files_of(third) and cache not in looks(two.here)


def test_an_api_that_is_to_keep_nothing_deletes_what_it_kept(tmp_path: Path) -> None:
    cache, store = looked_at(tmp_path / FILE), Files(tmp_path / "objects")
    store.put("a" * 32, b"data")
    cache.read(store, [Range("a" * 32, 0, 4)])
    block_cache.open_cache(tmp_path / FILE, 0)
    assert block_cache.opened() is None and not list(tmp_path.glob(f"{FILE}*"))


class Slow(Files):
    """A store of files, of which something happens while it reads."""

    def __init__(self, folder: Path, meanwhile: Callable[[], object]) -> None:
        super().__init__(folder)
        self._meanwhile = meanwhile

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        data = super().read(ranges)
        self._meanwhile()
        return data


def test_what_was_read_before_a_look_is_not_kept_after_it(tmp_path: Path) -> None:
    database = Known()
    one, other = (looked_at(tmp_path / FILE, database=database) for _ in range(2))

    def go() -> None:
        database.objects.clear()
        assert other.look(database, soon=True)

    store = Slow(tmp_path / "objects", go)
    store.put("a" * 32, b"data")
    database.objects.add("a" * 32)
    assert one.read(store, [Range("a" * 32, 0, 4)]) == [b"data"]
    assert one.names() == other.names() == set()


def test_a_process_that_has_not_looked_for_a_minute_asks_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, store = Known({"a" * 32}), Files(tmp_path / "objects")
    cache = looked_at(tmp_path / FILE, database=database)
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
    # As one that has just begun.
    store.put("a" * 32, b"data")
    assert cache.read(store, wanted) == [b"data"]
    begins = BlockCache(tmp_path / FILE, 1 << 20)
    store.delete(["a" * 32])
    with pytest.raises(ObjectLost):
        begins.read(store, wanted)


def test_a_file_that_cannot_be_cleared_is_made_again(tmp_path: Path) -> None:
    database, store = Known({"a" * 32}), Files(tmp_path / "objects")
    cache = looked_at(tmp_path / FILE, database=database)
    store.put("a" * 32, b"data")
    cache.read(store, [Range("a" * 32, 0, 4)])
    [before] = database.files
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(MOST_FAILURES):
            assert not cache.look(database, soon=True)
    assert database.files == {}
    assert cache.look(database) and cache.names() == set()
    assert before not in database.files and len(database.files) == 1


def test_there_is_room_for_no_more_than_was_said(tmp_path: Path) -> None:
    store, cache = Files(tmp_path / "objects"), looked_at(tmp_path / FILE)
    data = bytes(range(256)) * (1 << 14)
    store.put("a" * 32, data)
    size = 64 << 10
    for start in range(0, len(data), size):
        one = Range("a" * 32, start, start + size)
        assert cache.read(store, [one, one]) == [data[start : start + size]] * 2
        assert (tmp_path / FILE).stat().st_size < 2 << 20
    # The newest are there, and what is more than somebody waits for is not.
    store.delete(["a" * 32])
    newest = Range("a" * 32, len(data) - size, len(data))
    assert cache.read(store, [newest]) == [data[-size:]]
    store.put("b" * 32, bytes(MOST_AT_ONCE + 1))
    whole = [Range("b" * 32, 0, MOST_AT_ONCE), Range("b" * 32, MOST_AT_ONCE, MOST_AT_ONCE + 1)]
    assert list(map(len, cache.read(store, whole))) == [MOST_AT_ONCE, 1]
    assert cache.names() == {"a" * 32}


def test_a_disk_that_is_nearly_full_is_left_to_others(tmp_path: Path) -> None:
    store, much = Files(tmp_path / "objects"), shutil.disk_usage(tmp_path).total
    cache = looked_at(tmp_path / FILE, keep_free=much)
    store.put("a" * 32, b"data")
    assert cache.read(store, [Range("a" * 32, 0, 4)]) == [b"data"]
    assert cache.names() == set()


@pytest.mark.parametrize("before", [b"", b"no database", bytes(8192)])
def test_a_file_that_is_no_database_is_no_loss(tmp_path: Path, before: bytes) -> None:
    (tmp_path / FILE).write_bytes(before)
    store, cache = Files(tmp_path / "objects"), looked_at(tmp_path / FILE)
    store.put("a" * 32, b"data")
    wanted = [Range("a" * 32, 1, 3)]
    assert cache.read(store, wanted) == [b"at"]
    store.delete(["a" * 32])
    assert cache.read(store, wanted) == [b"at"]
    assert cache.names() == {"a" * 32}


def test_nobody_waits_for_a_cache_that_somebody_else_holds(tmp_path: Path) -> None:
    store, cache = Files(tmp_path / "objects"), looked_at(tmp_path / FILE)
    store.put("a" * 32, b"data")
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert cache.read(store, [Range("a" * 32, 0, 4)]) == [b"data"]
        assert cache.names() == set()
    assert cache.read(store, [Range("a" * 32, 0, 4)]) == [b"data"]
    assert cache.names() == {"a" * 32}
