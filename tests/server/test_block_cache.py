"""What an API has read of a store that is far away, it keeps on its own disk: it is read again
without the store, never believed where it is damaged, and gone with what is erased."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psycopg
import pytest

from encrypted_records.model import wire
from encrypted_records.model.records import Page, PageRef, RowBatch, RowRef, SealedRow
from tests.server.api import Answer, Api, running_api
from tests.server.staged import Job
from tests.server.test_bulk import found, pages_of, published, rows_of
from tests.server.test_erasing import erase, kill, state, traces
from tests.server.writer import FRAMES, Writer, group_of, person, sealed_page, segment_over
from tests.support.eventually import eventually
from tests.support.postgres import NewDatabase
from tests.support.swift import Swift

BUCKET = "cached"
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
def two(
    swift: Swift, tmp_path_factory: pytest.TempPathFactory, postgresql: NewDatabase
) -> Iterator[Two]:
    swift.make_bucket(BUCKET)
    url = f"s3://{BUCKET}/cached?endpoint={swift.endpoint}&least=0&patience=1"

    def machine(name: str) -> Path:
        return tmp_path_factory.mktemp(name)

    environment = {
        "ERS_BULK_URL": url,
        "ERS_SECRET_KEY_FILE": str(machine("key") / "secret.key"),
        **swift.credentials,
    }

    database = postgresql.with_tables()
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
            if any(needle in data for needle in needles):
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


def copy_rows(job: Job, api: Api, ordinals: Sequence[int]) -> None:
    """Read rows until copies are there: an API keeps none before its first look, nor of what it
    read when a look began."""
    rows = [rows_in(job)[at] for at in ordinals]
    needles = [trace for row in rows for trace in traces(row)]

    def are_copied() -> bool:
        assert elsewhere(job, api, *ordinals) == rows
        return are_in(api, needles)

    eventually(are_copied)


def names_of(api: Api) -> list[str]:
    """What the database calls the copies of processes in an API's folder."""
    signs = (api.data_dir / "api").glob(SIGNS)
    return sorted(sign.name.removeprefix("blocks-").removesuffix(".lock") for sign in signs)


def name_of(api: Api) -> str:
    [name] = names_of(api)
    return name


def looks(api: Api) -> dict[str, int]:
    """The last look of each API that the database knows."""
    assert api.database_url is not None
    with psycopg.connect(api.database_url) as connection:
        return dict(connection.execute("SELECT id, ended FROM cache_file").fetchall())


def test_what_was_read_is_read_again_while_the_store_is_away(two: Two, job: Job) -> None:
    rows = rows_in(job)
    assert found(rows_of(job, 0, 70)) == [rows[0], rows[70]]
    assert pages_of(job).status == 200
    unread = published(job.writer, [person()])
    two.swift.kill("proxy")
    try:
        # Of a block, all rows came.
        assert found(rows_of(job, 0, 63, 70)) == [rows[0], rows[63], rows[70]]
        assert pages_of(job).status == 200
        refused = rows_of(unread, 0)
        assert (refused.status, refused.code) == (503, "bulk_store_unavailable")
    finally:
        two.swift.start("proxy")
    assert found(rows_of(unread, 0)) == rows_in(unread)
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


def test_what_is_erased_goes_from_the_disks_of_all_machines(two: Two, job: Job) -> None:
    rows, gone = rows_in(job), [3, 64]
    needles = [trace for at in gone for trace in traces(rows[at])]
    [group] = job.groups
    for api in (two.here, two.there):
        copy_rows(job, api, gone)
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
    for api in (two.here, two.there):
        copy_rows(job, api, gone)
    mine = looks(two.here)[name_of(two.here)]
    two.there.process.send_signal(signal.SIGSTOP)
    try:
        kill(job.writer, group, *gone)
        asked = job.writer.account.call("POST", f"{job.writer.schema['url']}erasure/").json()
        eventually(lambda: not are_in(two.here, needles))
        again = looks(two.here)[name_of(two.here)] + 2
        assert again > mine
        eventually(lambda: looks(two.here)[name_of(two.here)] >= again)
        assert are_in(two.there, needles)
        assert state(job.writer)["done"] < asked["asked"]
    finally:
        two.there.process.send_signal(signal.SIGCONT)
    eventually(lambda: bool(state(job.writer)["done"] >= asked["asked"]))
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
        copy_rows(job, third, gone)
        cache = name_of(third)
        third.process.kill()
        third.process.wait()
    # What is left of it on the disk has nothing of what it read.
    left = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert left and not any(needle in one.read_bytes() for one in left for needle in needles)
    assert cache in looks(two.here)
    kill(job.writer, group, *gone)
    with third_api() as third:
        # Whoever runs in its folder says that it is dead.
        eventually(lambda: cache not in looks(third))
        erase(job.writer)
        assert elsewhere(job, third, 8, 69) == [rows[8], rows[69]]
        eventually(lambda: name_of(third) in looks(third))
        cache = name_of(third)
    # One that ends has nobody wait for it, nor has one of which nothing was heard for long.
    assert names_of(third) == [] and cache not in looks(two.here)
    two.here.execute(
        "INSERT INTO cache_file (id, begun, ended, seen)"
        " VALUES ('gone', 1, 1, now() - interval '2 minutes')"
    )
    kill(job.writer, group, 9)
    erase(job.writer)


def test_rows_and_pages_around_those_that_were_read_came_with_them(two: Two) -> None:
    account = two.here.new_account()
    writer = Writer(account, account.new_schema())
    staged = Job(writer)
    many = [person() for _ in range(MANY)]
    group = group_of(many)
    segment = segment_over([(group.uid, MANY)], "paged", pages=10)
    every = [Page(segment.uid, at, sealed_page("paged")) for at in range(10)]
    staged.stage(staged.part(0, [group], [segment], [RowBatch(group.uid, 0, many)], every))
    assert staged.publish(staged.commit()).status == 201

    def pages(*numbers: int) -> Answer:
        wanted = wire.encode([PageRef(segment.uid, at) for at in numbers])
        return writer.account.call("POST", f"{writer.schema['url']}pages/", wanted, **FRAMES)

    assert found(rows_of(staged, 100)) == [many[100]] and pages(5).status == 200
    two.swift.kill("proxy")
    try:
        assert found(rows_of(staged, *range(MANY))) == many
        around = pages(*range(10))
    finally:
        two.swift.start("proxy")
    assert around.status == 200
    assert wire.decode_all(around.body, Page) == every
