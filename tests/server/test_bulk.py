"""Parts in objects: read by place and by id, and named where they are lost or altered."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from encrypted_records.errors import ObjectLost, StoreFull, StoreUnavailable
from encrypted_records.model import ids, wire
from encrypted_records.model.records import Page, PageRef, RowRef, SealedRow, StoredRow
from encrypted_records.server.objects import layout
from encrypted_records.server.objects.stores import DRAFT, NEIGHBOURS, Files, Range
from tests.server.api import Account, Answer, Api
from tests.server.staged import Job
from tests.server.writer import FRAMES, Writer, person, sealed_number, sealed_string

#: More than two blocks.
MANY = 150


@pytest.fixture
def writer(ada: Account) -> Writer:
    return Writer(ada, ada.new_schema())


def published(writer: Writer, rows: list[SealedRow]) -> Job:
    job = Job(writer)
    job.stage(job.adding(0, rows))
    commit = job.commit()
    assert job.publish(commit).status == 201
    writer.follow(commit)
    return job


def rows_of(job: Job, *ordinals: int) -> Answer:
    [group] = job.groups
    wanted = wire.encode([RowRef(group, ordinal) for ordinal in ordinals])
    url = job.writer.schema["url"]
    return job.writer.account.call("POST", f"{url}rows/", wanted, **FRAMES)


def pages_of(job: Job) -> Answer:
    [segment] = job.segments
    url = job.writer.schema["url"]
    return job.writer.account.call(
        "POST", f"{url}pages/", wire.encode([PageRef(segment, 0)]), **FRAMES
    )


def found(answer: Answer) -> list[SealedRow]:
    assert answer.status == 200, answer.body
    return [one.row for one in wire.decode_all(answer.body, StoredRow)]


def object_of(api: Api, uid: bytes) -> Path:
    """The object that belongs to a group or segment, as its head says."""
    folder = api.data_dir.parent / "objects"
    files = (path for path in folder.rglob("*") if path.is_file())
    [own] = [path for path in files if path.read_bytes()[8:24] == uid]
    return own


@contextmanager
def altered(path: Path, data: bytes) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(whole)


def flipped(path: Path, at: int) -> bytes:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    return bytes(data)


def test_rows_in_objects_are_read_by_place_and_by_id(writer: Writer) -> None:
    rows = [person() for _ in range(MANY)]
    job = published(writer, rows)
    places = [0, 63, 64, MANY - 1, 1]
    assert found(rows_of(job, *places)) == [rows[at] for at in places]
    for at in places:
        one = f"/api/records/{ids.to_text(rows[at].record_id)}/"
        assert writer.account.call("GET", one).status == 200
    listed = writer.account.call(
        "GET", f"/api/records/?schema={writer.schema['id']}&limit=3&offset={MANY - 2}"
    ).json()
    assert [result["id"] for result in listed["results"]] == [
        ids.to_text(row.record_id) for row in rows[-2:]
    ]


def test_rows_of_long_blocks_are_read_one_by_one(writer: Writer) -> None:
    rows = [
        SealedRow(ids.new_id(), 1, [sealed_string(1 << 14), sealed_number()]) for _ in range(MANY)
    ]
    job = published(writer, rows)
    assert found(rows_of(job, 5, 64, 6)) == [rows[5], rows[64], rows[6]]


@pytest.mark.both_databases
def test_a_record_that_a_job_changed_is_found_by_its_id_in_its_new_version(
    writer: Writer,
) -> None:
    rows = [person() for _ in range(3)]
    before = published(writer, rows)
    [group] = before.groups
    changed = person(rows[1].record_id, version=2)
    job = Job(writer)
    job.stage(job.adding(0, [changed, person()]))
    commit = job.commit(killed=[RowRef(group, 1)])
    assert job.publish(commit).status == 201
    answer = writer.account.call("GET", f"/api/records/{ids.to_text(changed.record_id)}/")
    assert answer.json()["version"] == 2
    assert answer.json()["group"] == next(iter(job.groups)).hex()


@pytest.mark.both_databases
def test_an_id_that_lies_in_an_object_is_not_stored_again(writer: Writer) -> None:
    rows = [person() for _ in range(MANY)]
    published(writer, rows)
    job = Job(writer)
    again = job.post(job.adding(0, [person(rows[70].record_id)]))
    assert (again.status, again.code) == (409, "record_exists")
    assert writer.post(writer.adding([person(rows[149].record_id)])).code == "record_exists"


def test_a_lost_or_short_object_is_named(api: Api, writer: Writer) -> None:
    job = published(writer, [person() for _ in range(MANY)])
    [group], [segment] = job.groups, job.segments

    def ask_rows() -> Answer:
        return rows_of(job, MANY - 1)

    def ask_pages() -> Answer:
        return pages_of(job)

    for uid, ask in ((group, ask_rows), (segment, ask_pages)):
        path = object_of(api, uid)
        with altered(path, path.read_bytes()[:-1]):
            short = ask()
            path.unlink()
            gone = ask()
        for answer in (short, gone):
            assert (answer.status, answer.code) == (500, "object_lost")
            assert path.name in answer.json()["detail"]
        assert ask().status == 200


def test_an_altered_object_is_named_and_never_gives_a_wrong_row(api: Api, writer: Writer) -> None:
    rows = [person() for _ in range(MANY)]
    job = published(writer, rows)
    [group], [segment] = job.groups, job.segments
    path = object_of(api, group)
    last = path.stat().st_size - 1
    # A byte of the last row: the others of its block are as they were.
    with altered(path, flipped(path, last)):
        answer = rows_of(job, MANY - 1)
        assert (answer.status, answer.code) == (500, "object_altered")
        assert path.name in answer.json()["detail"]
        assert found(rows_of(job, MANY - 2)) == [rows[-2]]
    # A byte of each kind in the first line: an id, a version, a length, a digest.
    for at in (0, 19, 23, 31):
        with altered(path, flipped(path, layout.HEAD_BYTES + at)):
            assert rows_of(job, 3).code == "object_altered"
    path = object_of(api, segment)
    with altered(path, flipped(path, layout.HEAD_BYTES + 50)):
        answer = pages_of(job)
    assert (answer.status, answer.code) == (500, "object_altered")
    assert len(wire.decode_all(pages_of(job).body, Page)) == 1


def test_what_is_left_of_a_lost_object_is_still_listed_for_salvage(
    api: Api, writer: Writer
) -> None:
    lost = published(writer, [person() for _ in range(3)])
    rows = [person() for _ in range(2)]
    published(writer, rows)
    path = object_of(api, next(iter(lost.groups)))
    with altered(path, b""):
        listed = writer.account.call(
            "GET", f"/api/records/?schema={writer.schema['id']}&dead=true"
        ).json()
    assert listed["count"] == 5
    assert [result["id"] for result in listed["results"]] == [
        ids.to_text(row.record_id) for row in rows
    ]


# --- files --------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "objects")


def test_files_give_the_ranges_that_were_asked_for_in_their_order(files: Files) -> None:
    long = os.urandom(5 * NEIGHBOURS)
    files.put("aa1", long)
    files.put("ab2", b"short")
    end = len(long)
    asked = [
        Range("aa1", end - 9, end),
        Range("ab2", 1, 4),
        Range("aa1", 0, 10),
        Range("aa1", 5, 20),
        Range("aa1", 2, 4),
        Range("ab2", 1, 4),
    ]
    whole = {"aa1": long, "ab2": b"short"}
    assert files.read(asked) == [whole[one.name][one.start : one.end] for one in asked]


def test_files_say_what_lies_there_and_forget_what_is_deleted(files: Files, tmp_path: Path) -> None:
    assert list(files.listing()) == []
    files.put("aa1", b"one")
    files.put("ab2", b"three")
    (tmp_path / "objects" / "aa" / f"aa9{DRAFT}").write_bytes(b"cut off")
    (tmp_path / "objects" / "stray").write_bytes(b"?")
    assert dict(files.listing()) == {"aa1": 3, "ab2": 5, "aa9": 7, "stray": 1}
    files.delete(["aa1", "aa9", "never"])
    assert dict(files.listing()) == {"ab2": 5, "stray": 1}
    with pytest.raises(ObjectLost, match="aa1"):
        files.read([Range("aa1", 0, 1)])
    with pytest.raises(ObjectLost, match="ab2"):
        files.read([Range("ab2", 0, 6)])


@pytest.mark.parametrize(
    ("number", "expected"), [(errno.ENOSPC, StoreFull), (errno.EIO, StoreUnavailable)]
)
def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(
    number: int,
    expected: type[Exception],
    files: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files.put("aa1", b"one")

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(expected):
        files.put("aa2", b"two")
    assert dict(files.listing()) == {"aa1": 3}


def test_a_folder_that_somebody_else_has_just_made_lasts_before_its_object_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "objects" / "ab"
    folder.mkdir(parents=True)  # and not synced
    synced: set[int] = set()
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    Files(tmp_path / "objects").put("abcd", b"x")
    assert {one.stat().st_ino for one in (tmp_path, folder.parent, folder)} <= synced
