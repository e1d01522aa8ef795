"""Many small groups become one while others read, store, change, delete, merge and erase; proxies
are killed; and rows are altered. Whatever is asked is answered as before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec
import pytest

from encrypted_records.errors import Altered, Conflict
from encrypted_records.index.segments.merge_policy import CrowdSizes, Tier
from encrypted_records.model import wire
from encrypted_records.model.ids import from_text
from encrypted_records.model.resources import SealedRecord
from encrypted_records.proxy.process import MERGES, Run, aside
from encrypted_records.proxy.search import lookup
from encrypted_records.proxy.search.lookup import CurrentRecord
from encrypted_records.proxy.settings import Overrides
from encrypted_records.proxy.write.compactor import MOST_WITH_COMMIT
from tests.e2e.database import database_of
from tests.proxy.beside import first, store
from tests.proxy.test_altered import row_of
from tests.proxy.test_standing import end_all, pages
from tests.support.eventually import eventually
from tests.support.proxies import running_proxy
from tests.support.second_proxy import Proxy, act_as_second, with_keyrings
from tests.support.store import Store

__all__ = ["first", "store"]

P = ParamSpec("P")
T = TypeVar("T")
DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 999},
    },
}
ROWS = [{"name": f"row {n % 5}", "n": n} for n in range(12)]
TIERS = (Tier(4096, 2),)
SIZES = CrowdSizes(few=3, small=(64,), rows=64, groups=64)
#: How many bytes of rows come with the commit, and are not staged.
WAYS = {"with the commit": MOST_WITH_COMMIT, "staged": 0}


@pytest.fixture
def named(store: Store) -> list[str]:
    """The ids of the rows, each of which is a group of its own."""
    return store.ingest(ROWS, at_once=1)


@pytest.fixture
def folder(store: Store, tmp_path: Path, named: list[str]) -> Path:
    return with_keyrings(store.service, tmp_path / "beside")


async def compact(proxy: Proxy, most_with_commit: int = MOST_WITH_COMMIT) -> int:
    """Merge, and make one group of many, until nothing is left to do; how many groups ended."""
    merger = proxy.merger(*TIERS, sizes=SIZES, most_with_commit=most_with_commit)
    await proxy.services.schemas.catch_up(proxy.caller, proxy.state)
    while await merger.merge_next(proxy.caller, proxy.state):
        pass
    ended = 0
    while some := await merger.compact_next(proxy.caller, proxy.state):
        ended += some
    return ended


def run(store: Store, folder: Path, work: Callable[[Proxy], Awaitable[Any]] = compact) -> Any:
    return act_as_second(store, folder, work)


def groups(store: Store, folder: Path) -> list[int]:
    """How many rows each group has, in the order of storing."""

    async def look(proxy: Proxy) -> list[int]:
        return [one.count for one in proxy.state.ledger.snapshot().in_order]

    found: list[int] = run(store, folder, look)
    return found


def answers(store: Store) -> list[Any]:
    """Of every kind of question, and each record with its ETag by its id."""
    shown = store.everything()
    some = shown[::4]
    etags = [store.proxy("GET", f"/api/records/{one['id']}/").headers["ETag"] for one in some]
    return [
        [(one["id"], one["data"]) for one in shown],
        etags,
        store.found({"field": "n", "op": "between", "value": [3, 9]}),
        store.search({"field": "name", "op": "eq", "value": "row 3"}, count=True)["count"],
        pages(store, lambda: None, order_by=["-name", "n"]),
        store.proxy(
            "POST",
            "/api/records/aggregate/",
            {"schema": store.schema, "measures": [{"op": "sum", "field": "n"}]},
        ).body,
    ]


def test_questions_ids_etags_and_pages_are_as_before(
    store: Store, named: list[str], folder: Path
) -> None:
    patched = store.proxy("PATCH", f"/api/records/{named[2]}/", {"data": {"n": 500}})
    assert patched.status == 200
    assert store.proxy("DELETE", f"/api/records/{named[4]}/").status == 204
    before = answers(store)
    expected = pages(store, lambda: None, order_by=["n"])
    ended: list[int] = []
    found = pages(store, lambda: ended.append(run(store, folder)), order_by=["n"])
    assert ended == [13]
    assert found == expected
    assert answers(store) == before
    assert groups(store, folder) == [13]
    # And its rows are changed, deleted and merged as all others.
    store.ingest(ROWS[:3], at_once=1)
    assert store.proxy("DELETE", f"/api/records/{named[0]}/").status == 204
    assert run(store, folder) == 4
    changed = store.proxy("PATCH", f"/api/records/{named[1]}/", {"data": {"n": 501}})
    assert changed.status == 200
    assert store.found({"field": "n", "op": "eq", "value": 501}) == [named[1]]
    assert len(store.everything()) == 12 - 2 + 3


def test_a_proxy_does_it_by_itself_behind_ingests(
    store: Store, named: list[str], folder: Path
) -> None:
    overrides = Overrides(tiers=TIERS, crowds=SIZES)
    with running_proxy(store.service.base_url, folder, overrides=overrides) as proxy:
        own = replace(store, service=replace(store.service, proxy_url=proxy.url))
        own.ingest([{"n": 77}])
        path = f"/api/records/status/?schema={store.schema_id}"
        assert own.proxy("GET", path).json()["merge_pending"]
        proxy.settle(MERGES)
        assert not own.proxy("GET", path).json()["merge_pending"]
        assert own.everything()[-1]["data"] == {"n": 77}
        assert answers(own) == answers(store)
    assert groups(store, with_keyrings(store.service, folder.parent / "after")) == [13]


def dead_rows(store: Store) -> int:
    with database_of(store.service) as database:
        [found] = database.run(
            "SELECT COUNT(*) AS n FROM dead_row d JOIN record_group g ON g.id = d.group_id"
            " WHERE g.schema_id = %s",
            from_text(store.schema_id),
        )
    return int(found["n"])


def test_groups_of_which_no_byte_is_left_need_no_dead_rows_and_are_compacted(
    store: Store, named: list[str], folder: Path
) -> None:
    for record in named[2:7]:
        assert store.proxy("DELETE", f"/api/records/{record}/").status == 204
    expected = answers(store)
    assert dead_rows(store) > 0
    asked = store.proxy("POST", f"{store.schema}erasure/")
    assert asked.status == 200, asked.body
    eventually(lambda: dead_rows(store) == 0, "no dead row is left")
    assert answers(store) == expected
    # A proxy that has nothing reads the log from its first commit.
    assert groups(store, with_keyrings(store.service, folder.parent / "new")) == [1] * 12
    assert run(store, folder) == 12
    assert answers(store) == expected
    assert sum(groups(store, with_keyrings(store.service, folder.parent / "last"))) == 12
    verified = store.proxy("POST", f"{store.schema}verify/")
    report = msgspec.json.decode(verified.body.splitlines()[-1])["verify"]
    assert not report["altered"], report
    assert store.ingest([{"n": 9}])


# --- races ----------------------------------------------------------------------------------


def before_commit(proxy: Proxy, act: Callable[[], object]) -> None:
    """Have something happen right before the commit of the next compaction is sent."""
    publishing, committing = proxy.services.api.publish, proxy.services.api.commit
    left = [act]

    async def publish(*arguments: Any, **named: Any) -> Any:
        if left:
            await asyncio.to_thread(left.pop())
        return await publishing(*arguments, **named)

    async def commit(uploads: Any, *arguments: Any, **named: Any) -> Any:
        if left and wire.decode_commit_body(uploads[0].commit).compacts:
            await asyncio.to_thread(left.pop())
        return await committing(uploads, *arguments, **named)

    proxy.services.api.publish = publish  # type: ignore[method-assign]
    proxy.services.api.commit = commit  # type: ignore[method-assign]


RACES: dict[str, Callable[[Store, list[str], Path], object]] = {
    "a deletion": lambda store, named, _: store.proxy("DELETE", f"/api/records/{named[3]}/"),
    "a change": lambda store, named, _: store.proxy(
        "PATCH", f"/api/records/{named[3]}/", {"data": {"n": 7}}
    ),
    "an ingest": lambda store, named, _: store.ingest([{"n": 5}]),
    "another compaction": lambda store, _, folder: run(store, folder),
    "a reseal": lambda store, named, folder: end_all(store, folder),
}


@pytest.mark.parametrize("most_with_commit", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("race", RACES.values(), ids=RACES)
def test_what_others_do_right_before_the_commit_is_kept_and_the_next_try_goes_through(
    store: Store,
    named: list[str],
    folder: Path,
    tmp_path: Path,
    race: Callable[[Store, list[str], Path], object],
    most_with_commit: int,
) -> None:
    other = with_keyrings(store.service, tmp_path / "other")
    seen: list[Any] = []

    def act() -> None:
        race(store, named, other)
        seen.append(answers(store))

    async def raced(proxy: Proxy) -> None:
        before_commit(proxy, act)
        try:
            await compact(proxy, most_with_commit)
        except Conflict as error:
            assert error.reason in ("group_not_live", "segment_not_live"), error.reason
            await compact(proxy, most_with_commit)

    run(store, folder, raced)
    assert answers(store) == seen[0]
    assert len(groups(store, folder)) <= 3
    with database_of(store.service) as database:
        assert database.of_schema("staging", from_text(store.schema_id), "id") == []


def test_a_merge_that_began_before_is_made_again(
    store: Store, named: list[str], folder: Path, tmp_path: Path
) -> None:
    other = with_keyrings(store.service, tmp_path / "other")
    before = answers(store)
    run(store, folder, _merge_all)
    store.ingest(ROWS[:3], at_once=1)

    async def merging(proxy: Proxy) -> None:
        original = proxy.services.api.commit
        left = [other]

        async def commit(*arguments: Any, **named: Any) -> Any:
            if left:
                assert await asyncio.to_thread(_compact_beside, store, left.pop()) == 12
            return await original(*arguments, **named)

        proxy.services.api.commit = commit  # type: ignore[method-assign]
        merger = proxy.merger(*TIERS)
        with pytest.raises(Conflict) as refused:
            await merger.merge_next(proxy.caller, proxy.state)
        assert refused.value.reason == "group_not_live"
        assert await merger.merge_next(proxy.caller, proxy.state)

    run(store, folder, merging)
    assert groups(store, folder) == [12, 1, 1, 1]
    assert answers(store)[0][:12] == before[0]


async def _merge_all(proxy: Proxy) -> None:
    while await proxy.merger(*TIERS).merge_next(proxy.caller, proxy.state):
        pass


def _compact_beside(store: Store, folder: Path) -> int:
    async def work(proxy: Proxy) -> int:
        return await proxy.merger(*TIERS, sizes=SIZES).compact_next(proxy.caller, proxy.state)

    ended: int = run(store, folder, work)
    return ended


def test_a_purge_goes_on_behind_it(store: Store, named: list[str], folder: Path) -> None:
    run(store, folder)
    assert store.proxy("DELETE", f"/api/records/{named[5]}/").status == 204

    async def purge(proxy: Proxy) -> int:
        return await proxy.merger(*TIERS, sizes=SIZES).purge(proxy.caller, proxy.state)

    run(store, folder, purge)
    assert len(store.everything()) == 11
    assert named[5] not in store.found()
    path = f"/api/records/status/?schema={store.schema_id}"
    assert store.proxy("GET", path).json()["records"] == 11


def test_a_record_is_read_by_its_id_while_its_group_ends(
    store: Store, named: list[str], folder: Path
) -> None:
    """The API names a group, and the log has another by the time that it is read."""
    other = with_keyrings(store.service, folder.parent / "reader")

    async def read(proxy: Proxy) -> None:
        original = proxy.services.api.sealed_records
        left = [folder]

        async def sealed_records(*arguments: Any, **named: Any) -> Any:
            found = await original(*arguments, **named)
            if left:
                await asyncio.to_thread(run, store, left.pop())
            return found

        proxy.services.api.sealed_records = sealed_records  # type: ignore[method-assign]
        changed = await proxy.services.changer.change(
            proxy.caller,
            from_text(named[6]),
            lambda data: {**data, "n": 321},
            versions=None,
            schema=None,
            keeps=True,
            run=aside,
        )
        assert changed.record.version == 2

    run(store, other, read)
    assert store.found({"field": "n", "op": "eq", "value": 321}) == [named[6]]


# --- altered rows, and kills ------------------------------------------------------------------


def test_a_record_is_not_called_altered_whose_group_ends_while_it_is_opened(
    store: Store, named: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is opened in a thread, and the log goes on meanwhile."""
    ended: list[int] = []

    async def look(proxy: Proxy) -> list[CurrentRecord]:
        run_for = lookup._run_for

        def with_a_compaction(sealed: Sequence[SealedRecord]) -> Run:
            async def run(function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
                ended.append(await compact(proxy))
                return await run_for(sealed)(function, *arguments, **named)

            return run

        monkeypatch.setattr(lookup, "_run_for", with_a_compaction)
        services = proxy.services
        ids = [from_text(one) for one in named[:2]]
        return await lookup.look_up(services.api, services.schemas, proxy.caller, ids)

    found: list[CurrentRecord] = run(store, folder, look)
    assert ended == [12]
    assert [one.record.data for one in found] == ROWS[:2]


def test_a_row_that_somebody_with_the_key_altered_gets_into_no_compaction(
    store: Store, named: list[str], folder: Path
) -> None:
    with database_of(store.service) as database:
        row = row_of(database, from_text(named[7]))
        other = row_of(database, from_text(named[8]))
        fields = msgspec.msgpack.decode(row["sealed"], type=list[bytes])
        assert fields != msgspec.msgpack.decode(other["sealed"], type=list[bytes])
        database.change("record_row", row, sealed=other["sealed"])

    async def work(proxy: Proxy) -> None:
        merger = proxy.merger(*TIERS, sizes=SIZES)
        while await merger.merge_next(proxy.caller, proxy.state):
            pass
        with pytest.raises(Altered):
            await merger.compact_next(proxy.caller, proxy.state)
        assert await merger.compact_next(proxy.caller, proxy.state) == 0, "it is left alone"

    run(store, folder, work)
    assert groups(store, folder) == [1] * 12
