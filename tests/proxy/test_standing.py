"""Other groups stand for those that a commit ended: proxies go on, or say why they do not. That all
records stay as they were is in ``test_reseal.py`` and ``test_reseal_changes.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.errors import Conflict
from encrypted_records.model import ids
from encrypted_records.model.records import RowRef
from encrypted_records.proxy.search.context import QueryContext
from encrypted_records.proxy.search.upstream import Upstream
from tests.e2e.database import database_of
from tests.support.second_proxy import Proxy, act_as_second, with_keyrings
from tests.support.service import Service
from tests.support.standing import Standing, stand
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 999},
    },
}
ROWS = [{"name": f"row {n}", "n": n} for n in range(12)]
#: How often a commit may meet a merge: these rows are worth a few merges.
ATTEMPTS = 5


@pytest.fixture
def store(service: Service) -> Store:
    return new_store(service, DEFINITION)


@pytest.fixture
def named(store: Store) -> list[str]:
    """The ids of the rows, which lie in four groups."""
    return store.ingest(ROWS, at_once=3)


@pytest.fixture
def folder(store: Store, tmp_path: Path, named: list[str]) -> Path:
    return with_keyrings(store.service, tmp_path)


async def sealed_again(proxy: Proxy, **which: Any) -> Standing:
    """All groups that a schema has, or ``which`` of them, sealed again."""
    await proxy.services.schemas.catch_up(proxy.caller, proxy.state)
    state = proxy.state
    upstream = Upstream(proxy.services.api, proxy.caller, state, confirmed=True)
    context = QueryContext(upstream, proxy.services.fetcher)
    snapshot = context.snapshot
    every = [
        RowRef(one.uid, at)
        for one in snapshot.in_order[: len(snapshot.groups)]
        for at in range(one.count)
    ]
    live = [ref for ref in every if snapshot.is_live(ref.group, ref.ordinal)]
    records = dict(zip(live, await context.rows(live), strict=True))
    return stand(state.ledger, state.definition, records.__getitem__, **which)


async def commit(proxy: Proxy, standing: Standing) -> None:
    """Draft what ends the groups, and again where a merge of the other proxy came first."""
    for attempt in range(ATTEMPTS):
        await proxy.services.schemas.catch_up(proxy.caller, proxy.state)
        upload = standing.draft(proxy.state.ledger)
        try:
            (receipt,) = await proxy.services.api.commit([upload], proxy.caller.auth)
        except Conflict as lost:
            # No answer waits for the merge behind it, and resealing drafts again, too.
            if lost.reason != "segment_not_live" or attempt == ATTEMPTS - 1:
                raise
        else:
            await proxy.services.schemas.settle(proxy.caller, proxy.state, upload, receipt)
            return


def end_all(store: Store, folder: Path, **which: Any) -> None:
    async def act(proxy: Proxy) -> None:
        await commit(proxy, await sealed_again(proxy, **which))

    act_as_second(store, folder, act)


def pages(store: Store, after: Callable[[], None], **asked: Any) -> list[str]:
    """The ids of all answers, ``after`` being done behind the first page."""
    first = store.search(limit=5, **asked)
    after()
    found, cursor = [result["id"] for result in first["results"]], first["next_cursor"]
    while cursor is not None:
        page = store.search(limit=2, cursor=cursor, **asked)
        found += [result["id"] for result in page["results"]]
        cursor = page["next_cursor"]
    return found


@pytest.mark.parametrize("order", [[], ["n"], ["-name"]], ids=["stored", "number", "text"])
def test_pages_go_on_behind_a_commit_that_ends_all_groups(
    store: Store, named: list[str], folder: Path, order: list[str]
) -> None:
    asked: dict[str, Any] = {"order_by": order} if order else {}
    expected = pages(store, lambda: None, **asked)
    assert sorted(expected) == sorted(named)

    def after() -> None:
        end_all(store, folder, cuts=[1, 7])
        store.ingest([{"name": "later", "n": 5}])

    assert pages(store, after, **asked) == expected


def test_a_page_after_a_row_that_is_gone_gets_a_named_answer(
    store: Store, named: list[str], folder: Path
) -> None:
    first = store.search(limit=5, order_by=["n"])
    plain = store.search(limit=5)
    for record in named[4:6]:
        assert store.proxy("DELETE", f"/api/records/{record}/").status == 204
    end_all(store, folder)
    answer = store.ask(limit=5, order_by=["n"], cursor=first["next_cursor"])
    assert (answer.status, answer.json()["code"]) == (400, "cursor_gone")
    # In the order of storing a place is enough.
    rest = store.search(limit=99, cursor=plain["next_cursor"])["results"]
    assert [one["id"] for one in rest] == named[6:]


def test_a_row_of_an_ended_group_is_no_row_of_those_that_stand_for_it(
    store: Store, named: list[str], folder: Path, service: Service
) -> None:
    end_all(store, folder)
    with database_of(service) as database:
        groups = database.of_schema("record_group", ids.from_text(store.schema_id), "id")
        old, new = (
            database.run(
                "SELECT * FROM record_row WHERE group_id = %s AND ordinal = 0", group["id"]
            )[0]
            for group in (groups[0], groups[-1])
        )
        assert old["record_id"] == new["record_id"]
        database.exchange("record_row", old, new, "sealed")
    answer = store.ask(limit=5)
    assert (answer.status, answer.json()["code"]) == (422, "does_not_open")
