"""``ers storage reconcile`` and ``ers schema repair``: one of database and objects was put back to
a moment before an erasure, and the other was not."""

from __future__ import annotations

import secrets
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.cli.command import Ers, Said, environment
from tests.cli.test_dumped import served
from tests.support import forked, jobs
from tests.support.postgres import NewDatabase
from tests.support.service import ERS, Service, clean_environment
from tests.support.store import Store, new_store
from tests.support.swift import KEY, SECRET, Swift

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
        "share": {"type": "number", "minimum": 0, "maximum": 10, "precision": 1},
        "name": {"type": "string"},
        "text": {"type": "string", "x-index": ["words"]},
    },
    "required": ["number"],
}
#: More than a mini holds, so that its index has pages.
MANY, SMALL = 5000, 300
ERASED = range(100, 150)
QUESTIONS: list[Any] = [
    None,
    {"field": "number", "op": "between", "value": [90, 160]},
    {"field": "name", "op": "eq", "value": "somebody 7"},
    {"field": "share", "op": "ge", "value": 9},
    {"field": "text", "op": "has_words", "value": "seven"},
]


def row(number: int) -> dict[str, Any]:
    made: dict[str, Any] = {"number": number, "name": f"somebody {number % 50}"}
    if number % 3:
        made["share"] = (number % 100) / 10
    if number % 5:
        made["text"] = f"{('six', 'seven', 'eight')[number % 7 % 3]} and more"
    return made


@dataclass
class Place:
    """Where an API and a proxy have what they have; both are started anew on it each time."""

    folder: Path
    settings: dict[str, str]
    swift: Swift | None = None
    bucket: str = ""
    _new_database: NewDatabase | None = None
    _kept: dict[str, Any] = field(default_factory=dict)

    def served(self) -> Any:
        return served(self.folder, self.folder / "proxy", self.settings)

    def operator(self, *arguments: str) -> Said:
        # In a process of its own: Django is set up once in each.
        told = clean_environment(**self.settings, ERS_DATA_DIR=str(self.folder / "api"))
        done = forked.run([*ERS, *arguments], told)
        return Said(done.returncode, done.stdout, done.stderr)

    def keep_database(self) -> None:
        self._kept["database"] = self._copy_of_database()

    def put_back_database(self) -> None:
        kept = self._kept["database"]
        if isinstance(kept, bytes):
            for end in ("", "-wal", "-shm"):
                (self.folder / "api" / "api" / f"db.sqlite3{end}").unlink(missing_ok=True)
            (self.folder / "api" / "api" / "db.sqlite3").write_bytes(kept)
        else:
            self.settings["ERS_DATABASE_URL"] = kept

    def _copy_of_database(self) -> bytes | str:
        url = self.settings.get("ERS_DATABASE_URL")
        if url is None:
            backup = self.folder.with_name("copy.sqlite3")
            path = self.folder / "api" / "api" / "db.sqlite3"
            with closing(sqlite3.connect(path)) as own, closing(sqlite3.connect(backup)) as other:
                own.backup(other)
            return backup.read_bytes()
        assert self._new_database is not None
        copy = self._new_database()
        with psycopg.connect(url, autocommit=True) as connection:
            name = connection.info.dbname
        with psycopg.connect(
            urlsplit(url)._replace(path="/postgres").geturl(), autocommit=True
        ) as (connection):
            made = urlsplit(copy).path.lstrip("/")
            connection.execute(f'DROP DATABASE "{made}"')
            connection.execute(f'CREATE DATABASE "{made}" TEMPLATE "{name}"')
        return copy

    def objects(self) -> dict[str, bytes]:
        if self.swift is None:
            folder = self.folder / "objects"
            return {one.name: one.read_bytes() for one in folder.rglob("*") if one.is_file()}
        import obstore

        bucket = self.swift.bucket(self.bucket, self.folder.name)
        names = [one["path"] for some in obstore.list(bucket) for one in some]
        return {name: bytes(obstore.get(bucket, name).bytes()) for name in names}

    def keep_objects(self) -> None:
        self._kept["objects"] = self.objects()

    def put_back_objects(self) -> None:
        kept: dict[str, bytes] = self._kept["objects"]
        if self.swift is None:
            folder = self.folder / "objects"
            shutil.rmtree(folder)
            for name, data in kept.items():
                (folder / name[:2]).mkdir(parents=True, exist_ok=True)
                (folder / name[:2] / name).write_bytes(data)
            return
        import obstore

        bucket = self.swift.bucket(self.bucket, self.folder.name)
        for name in self.objects().keys() - kept.keys():
            obstore.delete(bucket, name)
        for name, data in kept.items():
            obstore.put(bucket, name, data)


@pytest.fixture(params=["files", "swift"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    folder = tmp_path / "srv"
    folder.mkdir()
    if request.param == "files":
        return Place(folder, {"ERS_BULK_URL": f"file://{folder}/objects?least=0"})
    new_database: NewDatabase = request.getfixturevalue("postgresql")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    swift: Swift = request.getfixturevalue("swift")
    bucket = f"reconciled-{secrets.token_hex(4)}"
    swift.make_bucket(bucket)
    url = f"s3://{bucket}/{folder.name}?endpoint={swift.endpoint}&least=0"
    settings = {"ERS_BULK_URL": url, "ERS_DATABASE_URL": new_database.with_tables()}
    return Place(folder, settings, swift, bucket, new_database)


def stored(store: Store, numbers: range) -> None:
    rows = [row(number) for number in numbers]
    jobs.completed(store, jobs.started(store, jobs.as_json(store, rows)))


def found(store: Store, where: Any) -> list[dict[str, Any]]:
    every = [one["data"] for one in store.everything(where)]
    return sorted(every, key=lambda one: one["number"])


def same(store: Store, numbers: set[int]) -> None:
    """Each question finds just what a plain reading of these rows finds."""
    rows = [row(number) for number in sorted(numbers)]
    plain: list[Any] = [
        lambda _: True,
        lambda one: 90 <= one["number"] <= 160,
        lambda one: one["name"] == "somebody 7",
        lambda one: one.get("share", 0) >= 9,
        lambda one: "seven" in one.get("text", ""),
    ]
    for where, matches in zip(QUESTIONS, plain, strict=True):
        shown = [
            {**one, **({"share": float(one["share"])} if "share" in one else {})}
            for one in found(store, where)
        ]
        assert shown == [one for one in rows if matches(one)], where


def erased(ers: Ers, schema: str) -> None:
    where = f"number between {ERASED.start} and {ERASED.stop - 1}"
    ers.done("record", "delete", "--schema", schema, "--matching", where, "--erase", "--yes")


def commands(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    service: Service,
    store: Store,
) -> Ers:
    told: Mapping[str, str] = environment(service, store.account)
    return Ers(monkeypatch, capsys, **told)


def whole(place: Place, ers: Ers, store: Store) -> None:
    """Nothing that is stored is not what its log and its digests say, and nothing else is stored,
    once the API has deleted what was replaced."""
    answer = store.proxy("POST", f"{store.schema}erasure/")
    assert (answer.status, answer.json()["gone"]) == (200, True), answer.body
    said = place.operator("verify", "--stored")
    assert (said.code, "not known" in said.out) == (0, False), said.out
    ers.done("schema", "verify", store.schema_id)


def test_what_was_erased_stays_so_with_the_database_and_with_the_objects_of_before(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = set(range(MANY + SMALL)) - set(ERASED)
    with place.served() as service:
        store = new_store(service, DEFINITION)
        stored(store, range(MANY))
        store.ingest([row(MANY + at) for at in range(SMALL)])
    place.keep_database()
    place.keep_objects()
    with place.served() as service:
        store = replace(store, service=service)
        erased(commands(monkeypatch, capsys, service, store), store.schema_id)
        same(store, kept)

    place.put_back_database()
    said = place.operator("verify", "--stored")
    assert (said.code, "lost: object" in said.out) == (1, True), said
    with place.served() as service:
        store = replace(store, service=service)
        ers = commands(monkeypatch, capsys, service, store)
        assert store.ask(None).status != 200  # the proxy has seen more
        said = place.operator("storage", "reconcile")
        assert said.code == 1, said.out
        assert "1 objects of rows were found" in said.out
        said = ers.done("proxy", "accept-rollback", "--yes")
        assert "the API has lost 50 records entirely" in said.err
        assert "of the index" in said.err
        same(store, kept)
        assert "nothing to accept" in ers.done("proxy", "accept-rollback").out
        # It goes on from there.
        stored(store, range(10_000, 10_000 + SMALL))
        same(store, kept | set(range(10_000, 10_000 + SMALL)))
        whole(place, ers, store)
        assert place.operator("storage", "reconcile").code == 0

    place.put_back_objects()
    with place.served() as service:
        store = replace(store, service=service)
        ers = commands(monkeypatch, capsys, service, store)
        said = place.operator("storage", "reconcile")
        assert (said.code, "1 objects of rows were found" in said.out) == (1, True), said.out
        refused = ers("schema", "repair", store.schema_id)
        assert (refused.code, "--yes" in refused.err) == (2, True)
        said = ers.done("schema", "repair", store.schema_id, "--yes")
        assert f"the API has lost {SMALL} records entirely" in said.err
        same(store, kept)
        assert "nothing is lost" in ers.done("schema", "repair", store.schema_id).out
        whole(place, ers, store)
