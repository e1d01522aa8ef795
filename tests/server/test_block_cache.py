"""What an API has read of a store that is far away, it keeps on its own disk: it is read again
without the store, never believed where it is damaged, and gone with what is erased."""

from __future__ import annotations

import shutil
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from encrypted_records.model import wire
from encrypted_records.model.records import RowRef, SealedRow
from encrypted_records.server.records.bulk.block_cache import MOST_AT_ONCE, BlockCache
from encrypted_records.server.records.bulk.files import Files
from encrypted_records.server.records.bulk.protocol import Range
from tests.server.api import Api, running_api
from tests.server.staged import Job
from tests.server.test_bulk import found, pages_of, published, rows_of
from tests.server.test_erasing import erase, kill, traces, until
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
            yield Two(swift, here, there)


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


def test_what_is_erased_goes_from_the_disks_of_all_machines(two: Two, job: Job) -> None:
    rows, gone = rows_in(job), [3, 64]
    needles = [trace for at in gone for trace in traces(rows[at])]
    [group] = job.groups
    assert found(rows_of(job, *gone)) == [rows[at] for at in gone]
    assert elsewhere(job, two.there, *gone) == [rows[at] for at in gone]
    assert are_in(two.here, needles) and are_in(two.there, needles)
    kill(job.writer, group, *gone)
    erase(job.writer)
    until(lambda: not are_in(two.here, needles) and not are_in(two.there, needles))
    assert found(rows_of(job, 4, 65)) == [rows[4], rows[65]]
    assert elsewhere(job, two.there, 4, 65) == [rows[4], rows[65]]


def test_there_is_room_for_no_more_than_was_said(tmp_path: Path) -> None:
    store, cache = Files(tmp_path / "objects"), BlockCache(tmp_path / FILE, 1 << 20)
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
    cache = BlockCache(tmp_path / FILE, 1 << 20, keep_free=much)
    store.put("a" * 32, b"data")
    assert cache.read(store, [Range("a" * 32, 0, 4)]) == [b"data"]
    assert cache.names() == set()


@pytest.mark.parametrize("before", [b"", b"no database", bytes(8192)])
def test_a_file_that_is_no_database_is_no_loss(tmp_path: Path, before: bytes) -> None:
    (tmp_path / FILE).write_bytes(before)
    store, cache = Files(tmp_path / "objects"), BlockCache(tmp_path / FILE, 1 << 20)
    store.put("a" * 32, b"data")
    wanted = [Range("a" * 32, 1, 3)]
    assert cache.read(store, wanted) == [b"at"]
    store.delete(["a" * 32])
    assert cache.read(store, wanted) == [b"at"]
    assert cache.names() == {"a" * 32}


def test_nobody_waits_for_a_cache_that_somebody_else_holds(tmp_path: Path) -> None:
    store, cache = Files(tmp_path / "objects"), BlockCache(tmp_path / FILE, 1 << 20)
    store.put("a" * 32, b"data")
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert cache.read(store, [Range("a" * 32, 0, 4)]) == [b"data"]
        assert cache.names() == set()
    assert cache.read(store, [Range("a" * 32, 0, 4)]) == [b"data"]
    assert cache.names() == {"a" * 32}
