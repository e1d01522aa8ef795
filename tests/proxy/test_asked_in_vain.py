"""A question that is put again asks for all that it asked for before.

Were others drawn by chance beside what it needs, what its requests have in common would be what is
needed; and an API has many ways to have a question put again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.merge_policy import CrowdSizes, Tier
from encrypted_records.model import wire
from encrypted_records.model.records import Page, PageRef, RowRef, SealedRow, StoredRow
from encrypted_records.proxy.process import ROW_CHECKS
from encrypted_records.proxy.search import cover, row_fetcher
from tests.proxy.lies import each, flipped, instead, of, on
from tests.support.front import Asked, Front, Lie, Reply, running_front
from tests.support.held_back import is_for_pages, is_for_rows
from tests.support.proxies import Proxy, running_proxy
from tests.support.second_proxy import Proxy as Second
from tests.support.second_proxy import act_as_second, with_keyrings
from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 10**6},
    },
}
ROWS = 600
#: In five stretches of which others lie between: a request has eight.
WANTED = [103, 190, 290, 420, 560]
#: A segment of pages, so that its columns have more than a hundred.
PAGED = SegmentLimits(mini=0, entries=5)
MINI = SegmentLimits()
#: A few groups that follow one another become one.
SIZES = CrowdSizes(few=3, small=(64,), rows=64, groups=64)
#: Any draw may be the same once, and not so often.
TIMES = 4

M = TypeVar("M", RowRef, PageRef)


@dataclass
class Watched:
    front: Front
    proxy: Proxy
    store: Store

    def ask(self, wanted: list[int]) -> Answer:
        where = {"field": "n", "op": "in", "value": wanted}
        body = {"schema": self.store.schema, "where": where, "limit": 1000}
        auth = self.store.account.auth
        return call("POST", f"{self.proxy.url}/api/records/search/", body, auth=auth)

    def find(self, wanted: list[int]) -> list[int]:
        answer = self.ask(wanted)
        assert answer.status == 200, answer.body
        return sorted(result["data"]["n"] for result in answer.json()["results"])

    def snapshot(self) -> Snapshot:
        """The newest that the proxy knows."""
        (state,) = self.proxy.services.schemas.in_use()
        return state.ledger.snapshot()

    def settle(self) -> None:
        """Have the proxy look at all that came."""
        self.proxy.settle(ROW_CHECKS)

    def requests(self, is_one: Callable[[Asked], bool], kind: type[M]) -> list[frozenset[M]]:
        """What each request named since this was last asked, and forget them."""
        asked = [one.body for one in self.front.asked if is_one(one)]
        self.front.forget()
        return [frozenset(wire.decode_all(body, kind)) for body in asked]

    def rows(self) -> list[frozenset[RowRef]]:
        return self.requests(is_for_rows, RowRef)

    def pages(self) -> list[frozenset[PageRef]]:
        return self.requests(is_for_pages, PageRef)


@pytest.fixture
def watched(service: Service, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Watched]:
    """A proxy that has the log, the first 64 rows, and no page."""
    store = new_store(service, DEFINITION)
    store.ingest([{"n": 10**6}])

    async def fill(proxy: Second) -> None:
        records = [{"name": f"name {n}", "n": n} for n in range(ROWS)]
        await proxy.ingest(records, request.param)

    act_as_second(store, with_keyrings(service, tmp_path / "filling"), fill)
    own = with_keyrings(service, tmp_path / "own")
    with running_front(service.base_url) as front, running_proxy(front.url, own) as proxy:
        found = Watched(front, proxy, store)
        assert found.find([10**6]) == [10**6]  # it knows by now how wide rows are
        front.forget()
        yield found


mini = pytest.mark.parametrize("watched", [MINI], indirect=True, ids=["mini"])
paged = pytest.mark.parametrize("watched", [PAGED], indirect=True, ids=["paged"])


def _spoilt(row: StoredRow) -> StoredRow:
    fields = [flipped(field, len(field) - 1) for field in row.row.fields]
    return StoredRow(row.group, row.ordinal, SealedRow(row.row.record_id, row.row.version, fields))


def _other_page(page: Page) -> Page:
    return Page(page.segment, page.number, flipped(page.data, 9))


def no_answer(part: str) -> Lie:
    def lie(asked: Asked, reply: Reply) -> Reply | None:
        return None if f"/{part}/" in asked.path else reply

    return lie


FAILED_ROWS: dict[str, Lie] = {
    "no answer": no_answer("rows"),
    "other rows": on(["rows"], each(StoredRow, _spoilt)),
    "rows are missing": on(["rows"], of(StoredRow, lambda rows: rows[1:])),
}
FAILED_PAGES: dict[str, Lie] = {
    "an error": instead(["pages"], 500, b""),
    "other pages": on(["pages"], each(Page, _other_page)),
}


@mini
@pytest.mark.parametrize("name", ["no answer", "rows are missing"])
def test_a_question_whose_rows_did_not_come_asks_for_the_same_ones(
    watched: Watched, name: str
) -> None:
    with watched.front.telling(FAILED_ROWS[name]):
        for _ in range(TIMES):
            assert watched.ask(WANTED).status >= 400
    assert watched.find(WANTED) == WANTED
    asked = watched.rows()
    assert len(asked) > TIMES
    assert set(asked) == {asked[0]}
    assert len(asked[0]) == 8 * cover.SIZES[0]
    # And it is forgotten then: what they are needed for next has other ones beside it.
    assert not watched.proxy.services.rows._retry_sets._requests


@paged
@pytest.mark.parametrize("name", ["an error", "other pages"])
def test_a_question_whose_pages_did_not_come_asks_for_the_same_ones(
    watched: Watched, name: str
) -> None:
    assert watched.find([20]) == [20]  # it has the directory
    watched.pages()
    with watched.front.telling(FAILED_PAGES[name]):
        for _ in range(TIMES):
            assert watched.ask(WANTED).status >= 400
    assert watched.find(WANTED) == WANTED
    asked = watched.pages()
    # After pages that do not open, the log is read again, and the segment of the first record.
    asked = [one for one in asked if len(one) > 1]
    assert len(asked) > (1 if name == "other pages" else TIMES)
    assert set(asked) == {asked[0]}
    assert len(asked[0]) == 8
    assert not watched.proxy.services.pager._retry_sets._requests


@paged
def test_what_came_meanwhile_is_not_asked_for_again(watched: Watched) -> None:
    assert watched.find([20]) == [20]
    watched.front.forget()
    with watched.front.telling(instead(["pages"], 500, b"")):
        assert watched.ask(WANTED).status >= 400
    (first,) = {*watched.pages()}
    assert watched.find(WANTED[:1]) == WANTED[:1]
    (second,) = watched.pages()
    # What the second needed was of the first, and so it asked for all of that.
    assert second == first
    assert watched.find(WANTED) == WANTED
    assert watched.pages() == []


@paged
def test_no_page_is_asked_for_twice_be_it_needed_or_beside(watched: Watched) -> None:
    for n in range(0, ROWS - 20, 23):
        assert watched.find([n, n + 7, n + 14]) == [n, n + 7, n + 14]
    asked = watched.pages()
    assert len(asked) > 10
    assert sum(map(len, asked)) == len(frozenset().union(*asked))


@mini
def test_a_question_that_shares_nothing_with_it_has_a_draw_of_its_own(watched: Watched) -> None:
    with watched.front.telling(instead(["rows"], 500, b"")):
        assert watched.ask(WANTED).status >= 400
        (first,) = {*watched.rows()}
        snapshot = watched.snapshot()
        runs = {snapshot.number(ref) // cover.SIZES[0] for ref in first}
        others = [run * cover.SIZES[0] for run in range(5, 36) if run not in runs]
        assert watched.ask(others[::5][:5]).status >= 400
        (second,) = {*watched.rows()}
    assert not first <= second
    assert len(second) == len(first)


@mini
def test_who_needs_what_was_asked_for_beside_another_asks_for_all_of_that(
    watched: Watched,
) -> None:
    """What both requests name would be what the second question needs."""
    with watched.front.telling(instead(["rows"], 500, b"")):
        assert watched.ask(WANTED).status >= 400
        (first,) = {*watched.rows()}
        snapshot = watched.snapshot()
        needed = {(n + 1) // cover.SIZES[0] for n in WANTED}
        beside = {snapshot.number(ref) for ref in first}
        (one, *_) = [n for n in beside if n // cover.SIZES[0] not in needed]
        assert watched.ask([one - 1]).status >= 400
        (second,) = {*watched.rows()}
    assert second == first


@mini
def test_while_the_log_moves_on_a_question_asks_for_what_it_asked_for_and_more(
    watched: Watched,
) -> None:
    """The new record is needed, too. Seven others are asked for beside it."""
    store = watched.store
    first_time = iter([True])

    def change(asked: Asked) -> Reply | None:
        if is_for_rows(asked) and next(first_time, False):
            store.ingest([{"n": WANTED[0]}])
        return None

    watched.front.invent = change
    assert watched.find(WANTED) == sorted([*WANTED, WANTED[0]])
    first, second = watched.rows()
    assert first < second
    assert len(first) == 8 * cover.SIZES[0]
    # The newest stretch is not full.
    assert 15 * cover.SIZES[0] < len(second) <= 16 * cover.SIZES[0]


@mini
def test_rows_that_became_another_group_meanwhile_are_asked_for_there(
    watched: Watched, service: Service, tmp_path: Path
) -> None:
    """The API knows where each of them went."""
    single = [*range(2000, 2040)]
    watched.store.ingest([{"n": n} for n in single], at_once=1)
    wanted = [*WANTED, *single[:2]]
    assert watched.find([10**5]) == []  # it knows of them
    watched.front.forget()
    with watched.front.telling(instead(["rows"], 500, b"")):
        assert watched.ask(wanted).status >= 400
        (first,) = {*watched.rows()}
        before = watched.snapshot()
    before = watched.snapshot()

    async def compact(beside: Second) -> int:
        merger = beside.merger(Tier(64, 2), sizes=SIZES)
        while await merger.merge_next(beside.caller, beside.state):
            pass
        return await merger.compact_next(beside.caller, beside.state)

    own = with_keyrings(service, tmp_path / "beside")
    assert act_as_second(watched.store, own, compact) >= len(single)
    assert watched.find(wanted) == wanted
    second, third = watched.rows()
    now = watched.snapshot()
    assert second == first
    assert third != first
    assert {now.number(ref) for ref in third} == {before.number(ref) for ref in first}


@mini
def test_of_an_answer_in_which_a_row_was_altered_the_same_rows_are_asked_for_again(
    watched: Watched,
) -> None:
    """Of what came before it nothing is asked for again, and be it stored beside it."""
    near = [n + 2 * cover.SIZES[0] for n in WANTED]
    assert watched.find(near) == near
    watched.settle()
    (before,) = watched.rows()

    def alter_one(rows: list[StoredRow]) -> list[StoredRow]:
        # Stretches lie together, of which none is needed as a whole.
        at = next(at for at, row in enumerate(rows) if row.ordinal not in WANTED)
        return [_spoilt(row) if n == at else row for n, row in enumerate(rows)]

    with watched.front.telling(on(["rows"], of(StoredRow, alter_one))):
        assert watched.find(WANTED) == WANTED
        watched.settle()
    (first,) = watched.rows()
    refused = watched.ask(WANTED)
    assert (refused.status, refused.json()["code"]) == (422, "row_altered")
    assert watched.find(WANTED) == WANTED
    assert watched.rows() == [first]
    assert watched.find(near) == near
    assert watched.rows() == []
    assert not before & first


@mini
def test_rows_that_turned_out_to_be_wide_are_not_asked_for_beside_others_again(
    watched: Watched,
) -> None:
    """Where the width is not known, many are named; and half of them come before it is."""
    wide = watched.store.another_schema(DEFINITION)
    wide.ingest([{"name": secrets.token_hex(1 << 15), "n": n} for n in range(80)], at_once=10)
    watched.store = wide
    with watched.front.telling(FAILED_ROWS["other rows"]):
        assert watched.ask([20]).status >= 400
        assert len(watched.rows()[0]) == row_fetcher.FIRST_ROWS
    assert watched.find([20]) == [20]
    assert sum(map(len, watched.rows())) <= row_fetcher.BESIDE_BYTES >> 16


@mini
def test_a_row_that_is_found_altered_before_it_is_checked_is_asked_for_with_its_answer(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks again at once would have others beside it."""
    checks = watched.proxy.services.rows._checks
    check, held = checks._authenticate, asyncio.Event()

    async def wait(*arguments: Any) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(held.wait(), 1)
        await check(*arguments)

    monkeypatch.setattr(checks, "_authenticate", wait)
    spoilt: set[int] = set()

    def alter_one(rows: list[StoredRow]) -> list[StoredRow]:
        at = next(at for at, row in enumerate(rows) if row.ordinal not in WANTED)
        spoilt.add(rows[at].ordinal)
        return [_spoilt(row) if n == at else row for n, row in enumerate(rows)]

    with watched.front.telling(on(["rows"], of(StoredRow, alter_one))):
        assert watched.find(WANTED) == WANTED
    (first,) = watched.rows()
    refused = watched.ask([*spoilt])
    assert (refused.status, refused.json()["code"]) == (422, "row_altered")
    while watched.ask([*spoilt]).status != 200:
        pass
    assert watched.rows() == [first]
