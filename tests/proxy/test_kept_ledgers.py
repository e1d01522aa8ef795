"""A proxy that starts again reads of a log what is new, and believes what it kept no further.

Whatever is wrong with what was kept, or with the API, costs time and is never an answer.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.crypto.keys import Keyring, SchemaKeys
from encrypted_records.crypto.recovery import MachineKey, unwrap
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.order import LogHead
from encrypted_records.model import ids
from encrypted_records.proxy.schemas.store import Heads, KeepingPolicy, LedgerStore
from encrypted_records.proxy.settings import Overrides
from tests.index.world import World
from tests.proxy.lies import LIES
from tests.proxy.test_hostile_api import right_or_named
from tests.support.front import Front, running_front
from tests.support.older import older_store
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Answer, Service
from tests.support.sqlite_files import have_read_again
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "uncommon_name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 10_000},
    },
}


#: Logs are kept as soon as there is something to keep.
OFTEN = Overrides(keeping=KeepingPolicy(least_commits=2, least_at_the_end=1))


@contextmanager
def keeping_proxy(base_url: str, folder: Path) -> Iterator[Proxy]:
    with running_proxy(base_url, folder, overrides=OFTEN) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def front(service: Service) -> Iterator[Front]:
    with running_front(service.base_url) as running:
        yield running


def at(store: Store, url: str) -> Store:
    return replace(store, service=replace(store.service, proxy_url=url))


@pytest.fixture(scope="module")
def store(service: Service) -> Store:
    # One test puts another log in the place of this one, under the keyring's own keys.
    return older_store(service, DEFINITION)


@pytest.fixture(scope="module")
def ended(store: Store, front: Front, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a proxy that has stored, changed and deleted records, and ended."""
    folder = tmp_path_factory.mktemp("ended") / "own"
    with keeping_proxy(front.url, folder) as proxy:
        here = at(store, proxy.url)
        (first, *_) = [
            here.ingest([{"uncommon_name": f"uncommon value {n}", "n": n}])[0] for n in range(4)
        ]
        assert here.proxy("PATCH", f"/api/records/{first}/", {"data": {"n": 100}}).status == 200
        assert here.proxy("DELETE", f"/api/records/{first}/").status == 204
    return folder


@pytest.fixture
def folder(ended: Path, tmp_path: Path) -> Path:
    return shutil.copytree(ended, tmp_path / "own")


def newest(folder: Path) -> int:
    """The version of the log that the folder's proxy has seen last."""
    heads = folder / "proxy" / "heads.sqlite3"
    ((version,),) = execute(heads, "SELECT max(version) FROM user_head")
    return int(version)


def ledgers(folder: Path) -> Path:
    return folder / "proxy" / "ledgers.sqlite3"


def execute(path: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database, database:
        return database.execute(statement, values).fetchall()


def since(front: Front) -> list[int]:
    """From which versions on the API was asked for the log."""
    found = [re.search(r"/manifest/\?since=(\d+)", asked.path) for asked in front.asked]
    return [int(match[1]) for match in found if match]


def questions(store: Store) -> dict[str, Answer]:
    return {
        "all": store.ask(None, count=True),
        "some": store.ask({"field": "n", "op": "ge", "value": 2}, count=True),
        "sorted": store.ask(None, order_by=["-n"], limit=2),
    }


def test_a_proxy_that_starts_again_asks_for_what_is_new_alone(
    service: Service, front: Front, tmp_path: Path
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    store = new_store(service, DEFINITION)
    with keeping_proxy(front.url, own) as proxy:
        for n in range(4):
            at(store, proxy.url).ingest([{"n": n}])
    seen = newest(own)
    # Another one with the same keys goes on with the log meanwhile.
    shutil.copytree(own, other)
    front.forget()
    with keeping_proxy(front.url, other) as proxy:
        for n in range(3):
            at(store, proxy.url).ingest([{"n": 200 + n}])
    assert since(front)[0] == seen
    front.forget()
    with keeping_proxy(front.url, own) as proxy:
        here = at(store, proxy.url)
        found = here.search(None, order_by=["n"])["results"]
        assert [one["data"]["n"] for one in found] == [0, 1, 2, 3, 200, 201, 202]
        assert since(front)[0] == seen
        # And what it stores continues the log.
        here.ingest([{"n": 300}])
        assert here.search(None, count=True)["count"] == 8


def test_a_proxy_that_is_killed_goes_on_from_what_it_kept(
    service: Service, front: Front, tmp_path: Path
) -> None:
    """What it leaves is what lies in its folder while it runs."""
    own, left = tmp_path / "own", tmp_path / "left"
    store = new_store(service, DEFINITION)
    with keeping_proxy(front.url, own) as proxy:
        for n in range(4):
            at(store, proxy.url).ingest([{"n": n}])
        proxy.settle()
        shutil.copytree(own, left)
    ((kept,),) = execute(ledgers(left), "SELECT version FROM ledger")
    front.forget()
    with keeping_proxy(front.url, left) as proxy:
        assert at(store, proxy.url).search(None, count=True, limit=0)["count"] == 4
        assert since(front)[0] == kept > 0


@pytest.fixture(scope="module")
def truth(
    store: Store, front: Front, ended: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    folder = shutil.copytree(ended, tmp_path_factory.mktemp("truth") / "own")
    ledgers(folder).unlink()
    with keeping_proxy(front.url, folder) as proxy:
        answers = questions(at(store, proxy.url))
    assert answers["all"].json()["count"] == 3
    return {name: answer.body for name, answer in answers.items()}


@pytest.mark.parametrize("name", [name for name in LIES if " log" in name or "commit" in name])
def test_no_lie_about_the_log_is_believed_behind_a_kept_one(
    store: Store, front: Front, folder: Path, truth: dict[str, bytes], name: str
) -> None:
    with front.telling(LIES[name]), keeping_proxy(front.url, folder) as proxy:
        right_or_named(questions(at(store, proxy.url)), truth)
    with keeping_proxy(front.url, folder) as proxy:
        found = questions(at(store, proxy.url))
        assert {name: answer.body for name, answer in found.items()} == truth


def flipped(data: bytes) -> bytes:
    return data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": lambda path: execute(
        path, "UPDATE ledger SET data = ?", flipped(execute(path, "SELECT data FROM ledger")[0][0])
    ),
    "cut short": lambda path: execute(path, "UPDATE ledger SET data = substr(data, 1, 10)"),
    "empty": lambda path: execute(path, "UPDATE ledger SET data = x''"),
    "nonsense": lambda path: execute(path, "UPDATE ledger SET data = randomblob(1048576)"),
    "another version": lambda path: execute(
        path, "UPDATE ledger SET data = CAST(x'02' || substr(data, 2) AS BLOB)"
    ),
    "another user's": lambda path: execute(path, "UPDATE ledger SET user = randomblob(16)"),
    "another table": lambda path: execute(path, "DROP TABLE ledger"),
    "a damaged header": lambda path: path.write_bytes(b"\xff" * 100 + path.read_bytes()[100:]),
    "a damaged page": lambda path: path.write_bytes(
        path.read_bytes()[:4096] + b"\xff" * (path.stat().st_size - 4096)
    ),
    "half a file": lambda path: os.truncate(path, path.stat().st_size // 2),
    "no file": lambda path: path.unlink(),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_wrong_with_the_file_costs_the_whole_log_and_is_mended(
    store: Store, front: Front, folder: Path, name: str
) -> None:
    DAMAGES[name](ledgers(folder))
    for expected in (0, newest(folder)):
        front.forget()
        with keeping_proxy(front.url, folder) as proxy:
            assert at(store, proxy.url).search(None, count=True, limit=0)["count"] == 3
            assert since(front)[0] == expected


def test_a_kept_log_that_goes_beyond_what_was_seen_is_not_believed(
    store: Store, front: Front, folder: Path
) -> None:
    """Whoever has a proxy forget what it saw, to follow a restored API, need know of one file."""
    schema = ids.from_text(store.schema_id)
    heads = folder / "proxy" / "heads.sqlite3"
    (keyring,) = (folder / "proxy" / "keyrings").glob("*.keyring")
    user = ids.from_text(keyring.stem)
    for change in ("DELETE FROM user_head", "UPDATE user_head SET version = 1"):
        front.forget()
        execute(heads, change)
        with keeping_proxy(front.url, folder) as proxy:
            found = at(store, proxy.url).ask(None, count=True)
        assert since(front)[0] == 0
        if change.startswith("UPDATE"):
            assert found.json()["code"] == "log_broken"  # its digest is not that of version 1
        else:
            assert found.json()["count"] == 3
            with closing(Heads(heads)) as remembered:
                assert remembered.get(user, schema) is not None


def test_a_kept_log_that_the_apis_log_does_not_continue_is_given_up_for_that_log(
    store: Store, front: Front, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after an operator has taken another log for the one that was seen."""
    caplog.set_level(logging.INFO)
    proxy = folder / "proxy"
    (file,) = (proxy / "keyrings").glob("*.keyring")
    user = ids.from_text(file.stem)
    keyring = unwrap(file.read_bytes(), MachineKey((proxy / "machine.key").read_bytes()), user)
    organization = ids.from_text(store.account.organization.split("/")[-2])
    keys = keyring.schema(organization, ids.from_text(store.schema_id))
    fork = kept_world(3, keys)
    with closing(LedgerStore(ledgers(folder))) as kept:
        kept.put(user, keys, fork.ledger.state())
    for asked in ([3, 0], [newest(folder)]):
        front.forget()
        with keeping_proxy(front.url, folder) as running:
            assert at(store, running.url).search(None, count=True, limit=0)["count"] == 3
        assert since(front)[: len(asked)] == asked
    assert caplog.text.count("a log is being read from its beginning") == 1


def test_what_is_kept_holds_nothing_in_the_clear_and_is_of_no_use_without_the_keyring(
    store: Store, front: Front, folder: Path
) -> None:
    kept = b"".join(path.read_bytes() for path in (folder / "proxy").glob("ledgers.sqlite3*"))
    (data,) = execute(ledgers(folder), "SELECT data FROM ledger")
    assert len(data[0]) > 500
    for word in (b"uncommon_name", b"uncommon value", b"properties"):
        assert word not in kept
    (keyring,) = (folder / "proxy" / "keyrings").glob("*.keyring")
    keyring.rename(folder / "away")
    with keeping_proxy(front.url, folder) as proxy:
        refused = at(store, proxy.url).ask(None, count=True)
        assert refused.status == 422, refused.body
    (folder / "away").rename(keyring)
    with keeping_proxy(front.url, folder) as proxy:
        assert at(store, proxy.url).search(None, count=True, limit=0)["count"] == 3


TEXT = json.dumps(DEFINITION)


def kept_world(commits: int, keys: SchemaKeys | None = None) -> World:
    world = World(TEXT, keys)
    for n in range(commits):
        world.ingest([{"n": n}])
    return world


@pytest.fixture
def alone(service: Service, tmp_path: Path) -> Iterator[LedgerStore]:
    found = LedgerStore(tmp_path / "ledgers.sqlite3", budget=10_000)
    yield found
    found.close()


def test_logs_that_were_not_used_for_longest_go_first_and_one_that_is_too_large_is_not_kept(
    alone: LedgerStore,
) -> None:
    user = ids.new_id()
    worlds = [kept_world(6) for _ in range(10)]
    for world in worlds:
        alone.put(user, world.keys, world.ledger.state())
        assert alone.find(user, worlds[0].keys.schema) is not None  # and so it is used again
    there = [alone.find(user, world.keys.schema) is not None for world in worlds]
    assert there[0] and there[-1] and not there[1] and 3 < sum(there) < 10
    large = kept_world(100)
    alone.put(user, large.keys, large.ledger.state())
    assert alone.find(user, large.keys.schema) is None
    assert alone.find(user, worlds[0].keys.schema) is not None


def test_only_the_keys_place_and_user_that_sealed_it_open_it(alone: LedgerStore) -> None:
    user, keyring = ids.new_id(), Keyring.generate()
    world = kept_world(3, keyring.schema(ids.new_id(), ids.new_id()))
    alone.put(user, world.keys, world.ledger.state())
    sealed = alone.find(user, world.keys.schema)
    assert sealed is not None
    keys, ledger = world.keys, world.ledger

    def opened(**other: Any) -> Ledger | None:
        asked: dict[str, Any] = {"user": user, "keys": keys, "sealed": sealed, "seen": ledger.head}
        return alone.open(writer=ids.new_id(), **(asked | other))

    found = opened()
    assert found is not None
    assert found.snapshot() == ledger.snapshot()
    assert opened(seen=LogHead(7, bytes(32))) is not None  # what it is, the log tells
    assert opened(user=ids.new_id()) is None
    assert opened(keys=Keyring.generate().schema(keys.organization, keys.schema)) is None
    assert opened(keys=keyring.schema(ids.new_id(), keys.schema)) is None
    assert opened(keys=keyring.schema(keys.organization, ids.new_id())) is None
    assert opened(seen=LogHead(2, bytes(32))) is None
    assert opened(keys=keyring.rotate().schema(keys.organization, keys.schema)) is not None


def test_under_a_damage_that_comes_later_the_file_is_begun_anew(
    alone: LedgerStore, tmp_path: Path
) -> None:
    user, world = ids.new_id(), kept_world(6)
    alone.put(user, world.keys, world.ledger.state())
    path = tmp_path / "ledgers.sqlite3"
    have_read_again(path)
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * (path.stat().st_size - 4096))
    assert alone.find(user, world.keys.schema) is None
    alone.put(user, world.keys, world.ledger.state())
    assert alone.find(user, world.keys.schema) is not None
