"""``ers backup`` and ``ers restore`` with a service that runs, is written to, and is killed."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from pathlib import Path

import pytest

from encrypted_records.cli.supervise.backup import whole_or_nothing
from encrypted_records.errors import Conflict
from tests.cli.command import Said, run_here
from tests.support import forked, jobs
from tests.support.eventually import eventually
from tests.support.service import ERS, clean_environment, gone, running_service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 0, "maximum": 10**6},
        "text": {"type": "string"},
    },
    "required": ["number", "text"],
}
#: A job of so many records makes objects.
MANY = 1500


@dataclass
class Writing:
    """Stores one record after the other; what was sent, and what was acknowledged."""

    store: Store
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(MANY))
    sent: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    more: threading.Condition = field(default_factory=threading.Condition)

    def run(self) -> None:
        for number in self.numbers:
            if self.stop.is_set():
                return
            self.sent.append(number)
            try:
                answer = self.store.send([{"number": number, "text": "while it is copied"}])
            except (OSError, HTTPException):
                return
            if answer.status != 201:
                return
            with self.more:
                self.acknowledged.append(number)
                self.more.notify_all()

    def wait_for(self, count: int) -> None:
        with self.more:
            assert self.more.wait_for(lambda: len(self.acknowledged) >= count, timeout=60)


@contextmanager
def writing(store: Store) -> Iterator[Writing]:
    own = Writing(store)
    thread = threading.Thread(target=own.run)
    thread.start()
    try:
        own.wait_for(1)
        yield own
    finally:
        own.stop.set()
        thread.join(60)


def ers(*arguments: str | Path) -> Said:
    return run_here(clean_environment(), *map(str, arguments))


def begun(data_dir: Path, target: Path) -> subprocess.Popen[bytes]:
    """``ers backup``, which waits for the database of jobs by now; whoever calls holds it."""
    process = forked.Forked(
        [*ERS, "backup", target, "--data-dir", data_dir], env=clean_environment()
    )

    # What is copied before that one: objects of the database.
    def copies() -> bool:
        assert process.poll() is None
        return any(target.with_name(f"{target.name}.partial").rglob("api/objects/*/*"))

    eventually(copies, "objects are copied", pause=0.01)
    return process


@contextmanager
def held(data_dir: Path) -> Iterator[None]:
    """Nobody else writes to the database of jobs meanwhile, which a backup waits for."""
    path = data_dir / "proxy" / "jobs.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")


def objects_in(folder: Path) -> set[str]:
    return {path.name for path in (folder / "api" / "objects").rglob("*") if path.is_file()}


def objects_named(folder: Path) -> set[str]:
    with closing(sqlite3.connect(folder / "api" / "db.sqlite3")) as database:
        return {name for (name,) in database.execute("SELECT name FROM bulk_object")}


@dataclass(frozen=True)
class BackedUp:
    """A data folder of a service that was killed, two backups of it, and what had been acknowledged
    when each began."""

    data: Path
    backups: dict[Path, list[int]]
    store: Store
    sent: list[int]

    @property
    def first(self) -> Path:
        return next(iter(self.backups))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> BackedUp:
    folder = tmp_path_factory.mktemp("backups")
    data, first, second = folder / "data", folder / "first", folder / "second"
    with running_service(data) as service:
        store = new_store(service, DEFINITION)
        rows = [{"number": number, "text": f"of a job {number:0300d}"} for number in range(MANY)]
        jobs.completed(store, jobs.started(store, jobs.as_json(store, rows)))
        with writing(store) as now:
            # One that is killed in the middle leaves no backup, and is in nobody's way.
            with held(data):
                killed = begun(data, first)
                killed.kill()
                killed.wait()
            assert not first.exists()
            refused = ers("restore", f"{first}.partial", "--data-dir", folder / "none")
            assert (refused.code, "not a complete backup" in refused.err) == (2, True)
            assert not (folder / "none").exists()

            before = list(now.acknowledged)
            said = ers("backup", first, "--data-dir", data)
            assert said.code == 0, said.err
            now.wait_for(len(now.acknowledged) + 1)  # the service goes on

            # And one during which the service is killed.
            with held(data):
                going_on = begun(data, second)
                before_kill = list(now.acknowledged)
                pids = [service.process.pid, *service.children()]
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
                assert gone(pids, within=60)
            assert going_on.wait(60) == 0
    assert not (folder / "first.partial").exists()
    return BackedUp(data, {first: before, second: before_kill}, store, now.sent)


def test_a_backup_of_a_running_service_holds_all_that_was_acknowledged(
    made: BackedUp, tmp_path: Path
) -> None:
    of_the_job = set(range(MANY))
    for backup, acknowledged in made.backups.items():
        restored = tmp_path / f"of-{backup.name}"
        said = ers("restore", backup, "--data-dir", restored)
        assert said.code == 0, said.err
        assert objects_in(restored) == objects_named(restored) != set()
        with running_service(restored) as service:
            store = replace(made.store, service=service)
            stored = sorted(record["data"]["number"] for record in store.everything())
            assert of_the_job | set(acknowledged) <= set(stored) <= of_the_job | set(made.sent)
            assert len(stored) == len(set(stored))
            # And it goes on from there.
            assert store.send([{"number": 10**6, "text": "after"}]).status == 201


@pytest.fixture
def backup(made: BackedUp) -> Path:
    return made.first


def test_neither_overwrites_anything(backup: Path, tmp_path: Path) -> None:
    data = backup.with_name("data")
    (tmp_path / "other.partial").mkdir()
    (tmp_path / "other.partial" / "mine").touch()
    for arguments in (
        ("backup", backup, "--data-dir", data),
        ("backup", tmp_path / "other", "--data-dir", data),
        ("restore", backup, "--data-dir", data),
    ):
        said = ers(*arguments)
        assert (said.code, "nothing is overwritten" in said.err) == (2, True)
    assert (tmp_path / "other.partial" / "mine").exists()
    # An empty folder is as good as none.
    (tmp_path / "empty").mkdir()
    assert ers("restore", backup, "--data-dir", tmp_path / "empty").code == 0
    assert (tmp_path / "empty").stat().st_mode & 0o077 == 0
    assert (tmp_path / "empty" / "api" / "db.sqlite3").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", ["altered", "gone", "manifest", "outside"])
def test_a_damaged_backup_is_refused_and_leaves_nothing(
    backup: Path, damage: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(backup, copy)
    database, manifest = copy / "api" / "db.sqlite3", copy / "backup.json"
    match damage:
        case "altered":
            data = bytearray(database.read_bytes())
            data[-1] ^= 1
            database.write_bytes(data)
        case "gone":
            database.unlink()
        case "manifest":
            manifest.write_bytes(manifest.read_bytes()[:-9])
        case _:
            listed = json.loads(manifest.read_text())
            listed["files"]["../outside"] = listed["files"]["format"]
            manifest.write_text(json.dumps(listed))
    said = ers("restore", copy, "--data-dir", tmp_path / "data")
    assert (said.code, "the backup is damaged" in said.err) == (5, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]


def test_a_backup_says_where_it_cannot_help(backup: Path, tmp_path: Path) -> None:
    data = backup.with_name("data")
    here = ("backup", tmp_path / "to", "--data-dir")
    for arguments, words in (
        ((*here, tmp_path), "not a data folder"),
        ((*here, data, "--bulk-url", "s3://bucket/here"), "pg_dump"),
    ):
        said = ers(*arguments)
        assert said.code == 2
        assert words in said.err
    assert list(tmp_path.iterdir()) == []


def test_of_a_service_on_postgresql_the_keys_are_copied_and_the_rest_is_named(
    backup: Path, tmp_path: Path
) -> None:
    url = ("--database-url", "postgresql://somebody@127.0.0.1/x")
    said = ers("backup", tmp_path / "to", "--data-dir", backup.with_name("data"), *url)
    assert (said.code, "pg_dump" in said.err) == (0, True)
    assert list((tmp_path / "to" / "proxy" / "keyrings").iterdir())
    assert not (tmp_path / "to" / "api" / "db.sqlite3").exists()
    assert not (tmp_path / "to" / "api" / "objects").exists()
    of_api = ("backup", tmp_path / "too", "--data-dir", tmp_path / "api", *url)
    (tmp_path / "api" / "api").mkdir(parents=True)
    (tmp_path / "api" / "format").touch()
    assert "pg_dump" in ers(*of_api).err
    assert not (tmp_path / "too").exists()


def test_a_folder_without_its_objects_is_not_backed_up_and_the_reason_named(
    backup: Path, tmp_path: Path
) -> None:
    """As where the objects were moved to another store, which this command was not told."""
    data = tmp_path / "data"
    assert ers("restore", backup, "--data-dir", data).code == 0
    shutil.rmtree(data / "api" / "objects")
    said = ers("backup", tmp_path / "to", "--data-dir", data)
    assert said.code != 0
    assert "is not in api/objects/ of the data folder" in said.err
    assert "name it with --bulk-url" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_second_command_for_a_folder_that_is_being_made_leaves_it_alone(tmp_path: Path) -> None:
    with whole_or_nothing(tmp_path / "to") as partial:
        (partial / "copied").touch()
        with pytest.raises(Conflict, match="another process"), whole_or_nothing(tmp_path / "to"):
            pass
        assert (partial / "copied").exists()
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["copied"]


def test_a_folder_is_made_where_the_file_system_locks_no_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_file: int, _operation: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")  # as NFS says it

    monkeypatch.setattr(fcntl, "flock", refuse)
    with whole_or_nothing(tmp_path / "to") as partial:
        (partial / "copied").touch()
    assert (tmp_path / "to" / "copied").exists()
