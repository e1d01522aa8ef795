"""A log that lacks what was seen can be accepted, for one schema, by naming the head it has.

The API's database is put back to an earlier moment, as from yesterday's backup, under a proxy that
has seen more.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from encrypted_records.errors import Unavailable
from encrypted_records.index.log.order import EMPTY_DIGEST, LogHead
from encrypted_records.model import credentials
from encrypted_records.model.ids import from_text
from encrypted_records.model.records import ManifestDelta
from encrypted_records.proxy.schemas.store import AcceptedHead, Heads
from tests.proxy.lies import each, on
from tests.support.front import Front, running_front
from tests.support.older import make_older
from tests.support.outsider import outsider
from tests.support.proxies import running_proxy
from tests.support.service import Answer, Service, running_service
from tests.support.store import Store, new_schema

DEFINITION = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
}


@dataclass
class Place:
    """An API with a front, and the folder of a proxy with two schemas of one account."""

    api: Service
    front: Front
    folder: Path
    stores: tuple[Store, Store]

    @contextmanager
    def proxy(self, folder: Path | None = None) -> Iterator[tuple[Store, Store]]:
        """The schemas as seen through a proxy on this place's folder, or on another."""
        with running_proxy(self.front.url, folder or self.folder) as proxy:
            one, other = self.stores
            service = replace(self.api, proxy_url=proxy.url)
            yield replace(one, service=service), replace(other, service=service)

    def database(self) -> sqlite3.Connection:
        return sqlite3.connect(self.api.data_dir / "api" / "db.sqlite3", timeout=30)

    @contextmanager
    def yesterday(self) -> Iterator[None]:
        """Behind the block, the database is as it was before."""
        with closing(sqlite3.connect(":memory:")) as backup:
            with closing(self.database()) as database:
                database.backup(backup)
            yield
            with closing(self.database()) as database:
                backup.backup(database)

    def elsewhere(self, folder: Path) -> Path:
        """The folder of another proxy with the same keys, which has seen nothing."""
        shutil.copytree(self.folder / "proxy" / "keyrings", folder / "proxy" / "keyrings")
        shutil.copy(self.folder / "proxy" / "machine.key", folder / "proxy" / "machine.key")
        return folder


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Front]]:
    folder = tmp_path_factory.mktemp("accepting") / "data"
    with running_service(folder) as api, running_front(api.base_url) as front:
        yield api, front


@pytest.fixture
def place(sides: tuple[Service, Front], tmp_path: Path) -> Place:
    """Two schemas with three commits each, of which the proxy has seen two more."""
    api, front = sides
    account = api.new_account()
    # Outsiders break logs that nobody signed.
    make_older(api, account)
    one, other = (Store(api, account, new_schema(api, account, DEFINITION)) for _ in range(2))
    made = Place(api, front, tmp_path / "proxy", (one, other))
    with made.proxy() as stores:
        for store in stores:
            add(store, 3)
        with made.yesterday():
            for store in stores:
                add(store, 2)
    return made


def add(store: Store, count: int) -> None:
    for n in range(count):
        store.ingest([{"n": n}])


def log_of(store: Store, query: str = "") -> dict[str, Any]:
    answer = store.proxy("GET", f"{store.schema}log/{query}")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


def accept(store: Store, **members: Any) -> Answer:
    """Of the head that is shown, unless ``members`` say otherwise."""
    shown = log_of(store)
    proof = {"password": store.account.password}
    body = {"version": shown["version"], "digest": shown["digest"], "proof": proof, **members}
    return store.proxy("POST", f"{store.schema}accept-log/", body)


def refusal(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json().get("code", "")


def count(store: Store) -> int | tuple[int, str]:
    answer = store.ask(count=True)
    return answer.json()["count"] if answer.status == 200 else refusal(answer)


BROKEN = (422, "log_broken")


def test_an_older_log_is_shown_with_what_is_lost_and_accepted_for_its_schema_alone(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with place.proxy() as (store, other):
        assert (count(store), count(other)) == (BROKEN, BROKEN)
        shown = log_of(store)
        assert (shown["state"], shown["version"], shown["common"]) == ("older", 3, 3)
        assert (shown["seen"]["version"], shown["records"]) == (5, 3)
        assert shown["fault"]["code"] == "log_broken"
        assert shown["changed"].startswith("20")

        with caplog.at_level(logging.WARNING):
            assert accept(store).status == 200
        assert "accepts another log" in caplog.text
        assert shown["digest"] in caplog.text

        assert (count(store), count(other)) == (3, BROKEN)
        assert log_of(store)["state"] == "whole"
        # The process that wrote the lost commits goes on under numbers that were never used.
        add(store, 1)
        assert refusal(accept(store)) == (409, "nothing_to_accept")
    with place.proxy() as (store, other):
        assert (count(store), count(other)) == (4, BROKEN)
        assert log_of(other)["state"] == "older"


def test_a_proxy_that_runs_while_the_database_is_put_back_can_accept_it_too(
    place: Place, sides: tuple[Service, Front]
) -> None:
    with place.proxy() as (store, other):
        assert accept(store).status == 200
        with place.yesterday():
            add(store, 2)
        for change in (store.send([{"n": 1}]), store.ask(), store.send([{"n": 1}])):
            assert refusal(change) == BROKEN
        assert accept(store).status == 200
        add(store, 1)
        assert (count(store), count(other)) == (4, BROKEN)
        # From here on as always: what was accepted may not be taken away either.
        with place.yesterday():
            add(store, 1)
        assert count(store) == BROKEN


@pytest.mark.parametrize("commits", [1, 4], ids=["shorter", "longer"])
def test_a_log_that_went_another_way_is_refused_unless_just_that_is_meant(
    place: Place, tmp_path: Path, commits: int
) -> None:
    with place.proxy(place.elsewhere(tmp_path / "elsewhere")) as (store, _):
        add(store, commits)
    with place.proxy() as (store, other):
        shown = log_of(store)
        assert (shown["state"], shown["common"]) == ("forked", 3)
        assert shown["version"] == 3 + commits
        refused = accept(store)
        assert refusal(refused) == (409, "log_forked")
        assert f"{commits} commits instead of 2" in refused.json()["detail"]
        assert count(store) == BROKEN
        assert accept(store, forked=True).status == 200
        assert (count(store), count(other)) == (3 + commits, BROKEN)


def test_a_log_that_is_broken_cannot_be_accepted_however_old_it_is(place: Place) -> None:
    outsider(place.stores[0]).break_log(place.stores[0])
    with place.proxy() as (store, _):
        shown = log_of(store)
        assert (shown["state"], shown["version"], shown["common"]) == ("broken", 3, 3)
        for forked in (False, True):
            refused = accept(store, forked=forked)
            assert refusal(refused) == BROKEN
            assert "ers salvage" in refused.json()["hint"]
        assert count(store) == BROKEN


def test_where_nothing_tells_older_from_forked_that_is_said(place: Place) -> None:
    """Of a folder from before the versions in between were kept."""
    file = place.folder / "proxy" / "heads.sqlite3"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("DELETE FROM user_passed")
    with place.proxy() as (store, _):
        assert (log_of(store)["state"], log_of(store)["common"]) == ("unclear", 0)
        refused = accept(store)
        assert refusal(refused) == (409, "log_forked")
        assert "cannot tell whether it is the beginning" in refused.json()["detail"]
        assert accept(store, forked=True).status == 200
        assert count(store) == 3


def test_only_the_head_that_was_shown_is_accepted(place: Place) -> None:
    with place.proxy() as (store, _):
        shown = log_of(store)

        def shortened(delta: ManifestDelta) -> ManifestDelta:
            return msgspec.structs.replace(delta, version=2, entries=delta.entries[:2])

        with place.front.telling(on(("manifest",), each(ManifestDelta, shortened))):
            proof = {"password": store.account.password}
            body = {"version": shown["version"], "digest": shown["digest"], "proof": proof}
            moved = store.proxy("POST", f"{store.schema}accept-log/", body)
        assert refusal(moved) == (409, "log_moved")
        assert refusal(accept(store, digest="00" * 32)) == (409, "log_moved")
        assert refusal(accept(store, version=2)) == (409, "log_moved")
        for wrong in ({"version": -1}, {"version": True}, {"digest": "00"}, {"digest": None}):
            assert refusal(accept(store, **wrong)) == (400, "invalid_query")
        assert refusal(accept(store, forked="yes")) == (400, "invalid_query")
        assert refusal(accept(store, more=1)) == (400, "invalid_query")
        assert count(store) == BROKEN


def test_a_log_that_is_empty_again_is_older(place: Place) -> None:
    with closing(place.database()) as database, database:
        database.execute(
            "UPDATE datasets_schema SET version = 0, key_id = NULL, key_version = NULL,"
            " first_key_version = NULL, log_digest = ?, live_rows = 0, live_segments = 0"
            " WHERE id = ?",
            (EMPTY_DIGEST, from_text(place.stores[0].schema_id)),
        )
    with place.proxy() as (store, _):
        shown = log_of(store)
        assert (shown["state"], shown["version"], shown["changed"]) == ("older", 0, None)
        assert accept(store).status == 200
        assert count(store) == 0


def test_who_has_no_key_or_is_a_stranger_accepts_nothing(place: Place) -> None:
    member = outsider(place.stores[0]).account
    with place.proxy() as (store, _):
        shown = log_of(store)
        head = {"version": shown["version"], "digest": shown["digest"]}
        path = f"{store.schema}accept-log/"
        for account, said in (
            (member, (422, "key_missing")),
            (place.api.new_account(), (404, "not_found")),
        ):
            stranger = replace(store, account=account, device=credentials.generate_device_secret())
            assert refusal(stranger.proxy("POST", path, head)) == (403, "proof_needed")
            body = {**head, "proof": {"password": account.password}}
            assert refusal(stranger.proxy("POST", path, body)) == said
        # Nor with a keyring of their own.
        theirs = replace(store, account=member, device=credentials.generate_device_secret())
        assert theirs.proxy("POST", "/api/keyring/backup/", {}).status == 200
        assert log_of(theirs)["state"] == "broken"
        body = {**head, "proof": {"password": member.password}}
        assert refusal(theirs.proxy("POST", path, body)) == (422, "key_missing")
        assert count(store) == BROKEN


def test_two_people_can_compare_the_heads_of_their_proxies(place: Place, tmp_path: Path) -> None:
    with (
        place.proxy() as (mine, _),
        place.proxy(place.elsewhere(tmp_path / "elsewhere")) as (theirs, _),
    ):
        assert accept(mine).status == 200
        head = log_of(theirs)
        assert head["seen"] is None
        add(mine, 2)
        assert log_of(mine)["digest"] != head["digest"]
        at = log_of(mine, f"?version={head['version']}")["at"]
        assert at == {"version": head["version"], "digest": head["digest"]}
        beyond = mine.proxy("GET", f"{mine.schema}log/?version=99")
        assert refusal(beyond) == (400, "invalid_query")


# --- what is remembered -------------------------------------------------------------------------


ADA, EVE = b"a" * 16, b"e" * 16


def accepted(user: bytes, head: LogHead, seen: LogHead) -> AcceptedHead:
    return AcceptedHead(user, head, seen, writer=True, time=1_700_000_000_000)


def some(first: int, last: int, mark: int = 0) -> list[LogHead]:
    return [
        LogHead(at, bytes([mark]) * 16 + at.to_bytes(16, "big")) for at in range(first, last + 1)
    ]


def test_versions_before_the_head_are_kept_as_far_as_they_are_not_too_many(
    tmp_path: Path,
) -> None:
    kept = Heads(tmp_path / "heads.sqlite3", kept=10)
    one, other = bytes(16), bytes([1]) * 16
    kept.remember(ADA, other, some(1, 1)[0])
    for head in some(1, 5):
        kept.remember(ADA, one, head)
    assert kept.list_passed(ADA, one, 99) == some(1, 5)[::-1]
    kept.remember(ADA, one, some(30, 30)[0], some(6, 30))
    assert kept.list_passed(ADA, one, 99) == some(21, 30)[::-1]
    assert kept.list_passed(ADA, one, 23) == some(21, 23)[::-1]
    assert kept.get(ADA, one) == some(30, 30)[0]
    assert kept.list_passed(ADA, other, 99) == some(1, 1)
    assert kept.get(EVE, one) is None
    assert kept.list_passed(EVE, one, 99) == []
    kept.close()


def test_a_memory_that_all_users_shared_counts_for_each_until_they_have_their_own(
    tmp_path: Path,
) -> None:
    """The file of a proxy from before its users were told apart."""
    file, schema = tmp_path / "heads.sqlite3", bytes(16)
    Heads(file).close()
    rows = [(schema, head.version, head.digest) for head in some(1, 5)]
    with closing(sqlite3.connect(file)) as database, database:
        database.executemany("INSERT INTO passed VALUES (?, ?, ?)", rows)
        database.execute("INSERT INTO head VALUES (?, ?, ?)", rows[-1])
    kept = Heads(file)
    for user in (ADA, EVE):
        assert kept.get(user, schema) == some(5, 5)[0]
        assert kept.list_passed(user, schema, 99) == some(1, 5)[::-1]
    kept.remember(ADA, schema, some(6, 6)[0])
    assert kept.list_passed(ADA, schema, 99) == some(1, 6)[::-1]
    kept.accept(schema, accepted(ADA, some(2, 2)[0], some(6, 6)[0]), some(1, 2))
    assert kept.get(ADA, schema) == some(2, 2)[0]
    assert kept.list_passed(ADA, schema, 99) == some(1, 2)[::-1]
    assert kept.get(EVE, schema) == some(5, 5)[0]
    assert kept.list_passed(EVE, schema, 99) == some(1, 5)[::-1]
    kept.close()


def test_another_log_takes_the_place_of_one_schema_for_one_user_or_nothing_changes(
    tmp_path: Path,
) -> None:
    kept = Heads(tmp_path / "heads.sqlite3")
    one, other = bytes(16), bytes([1]) * 16
    before = (some(5, 5)[0], some(1, 5)[::-1])
    for user in (ADA, EVE):
        for schema in (one, other):
            kept.remember(user, schema, some(5, 5)[0], some(1, 5))

    def memory(user: bytes, schema: bytes) -> tuple[LogHead | None, list[LogHead]]:
        return kept.get(user, schema), kept.list_passed(user, schema, 99)

    unusable = accepted(ADA, LogHead(2, None), before[0])  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        kept.accept(one, unusable, some(1, 2, mark=9))
    assert memory(ADA, one) == before
    assert kept.acceptances(one) == []
    made = accepted(ADA, some(3, 3, mark=9)[0], before[0])
    kept.accept(one, made, some(1, 3, mark=9))
    assert memory(ADA, one) == (some(3, 3, 9)[0], some(1, 3, 9)[::-1])
    assert memory(ADA, other) == memory(EVE, one) == memory(EVE, other) == before
    assert kept.acceptances(one) == [made]
    assert kept.acceptances(other) == []
    kept.close()
