"""What an API that watches requests sees of questions: as little as docs/LEAKAGE.md says."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.client.api import KnownState
from encrypted_records.crypto.keys import CoverKey
from encrypted_records.model import wire
from encrypted_records.model.records import RowRef
from encrypted_records.proxy.search import cover as stretches
from encrypted_records.proxy.search import row_fetcher as rows_of
from tests.support.front import Front, running_front
from tests.support.proxies import running_proxy
from tests.support.second_proxy import second_proxy, with_keyrings
from tests.support.service import Account, Answer, Service, call
from tests.support.store import new_schema, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 10**6},
    },
}


@dataclass
class Watched:
    """An account's schema behind a proxy of its own, whose requests a front writes down."""

    front: Front
    proxy: str
    account: Account
    schema: str

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        return call(method, self.proxy + path, body, auth=self.account.auth)

    def post(self, name: str, **body: Any) -> Answer:
        return self.call("POST", f"/api/records/{name}/", {"schema": self.schema, **body})

    def ingest(self, data: Sequence[dict[str, Any]]) -> list[str]:
        records = [{"schema": self.schema, "data": one} for one in data]
        answer = self.call("POST", "/api/records/ingest/", records)
        assert answer.status == 201, answer.body
        return [one["id"] for one in answer.json()]

    def numbers(self, where: Any = None, **more: Any) -> list[int]:
        """Those of the records found."""
        answer = self.post("search", where=where, **more)
        assert answer.status == 200, answer.body
        return [result["data"]["n"] for result in answer.json()["results"]]

    def seen(self) -> list[str]:
        """The last parts of the paths asked for since this was last asked, and forget them."""
        asked = [
            one.path.partition("?")[0].rstrip("/").rpartition("/")[2] for one in self.front.asked
        ]
        self.front.forget()
        return asked

    def rows(self) -> list[RowRef]:
        """The rows asked for since this was last asked, and forget them."""
        asked = [one for one in self.front.asked if "/rows/" in one.path]
        self.front.forget()
        return [ref for one in asked for ref in wire.decode_all(one.body, RowRef)]


def watched_on(service: Service, front: Front, proxy: str) -> Watched:
    account = service.new_account()
    return Watched(front, proxy, account, new_schema(service, account, DEFINITION))


@pytest.fixture(scope="module")
def fronted(
    service: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Front, str]]:
    folder = tmp_path_factory.mktemp("watched")
    with running_front(service.base_url) as front, running_proxy(front.url, folder) as proxy:
        yield front, proxy.url


@pytest.fixture
def watched(service: Service, fronted: tuple[Front, str]) -> Watched:
    """Three groups of a hundred rows, of which the proxy has asked for none."""
    found = watched_on(service, *fronted)
    for start in range(0, 300, 100):
        found.ingest([{"name": f"name {n}", "n": n} for n in range(start, start + 100)])
    found.front.forget()
    return found


def at(n: int) -> dict[str, Any]:
    return {"field": "n", "op": "eq", "value": n}


def order_of(refs: Sequence[RowRef], watched: Watched) -> list[int]:
    """Where the rows lie in the order of storing, as the log tells an API."""
    address = f"{watched.front.url}{watched.schema}manifest/?since=0"
    answer = call("GET", address, auth=watched.account.auth)
    groups = [
        group
        for delta in wire.decode(answer.body)
        for entry in delta.entries  # type: ignore[attr-defined] # it is a ManifestDelta
        for group in wire.decode_commit_body(entry.commit).groups
    ]
    starts, start = {}, 0
    for group in groups:
        starts[group.uid] = start
        start += group.count
    return sorted(starts[ref.group] + ref.ordinal for ref in refs)


# --- the same question again -------------------------------------------------------------------

QUESTIONS: dict[str, dict[str, Any]] = {
    "one": {"where": at(7)},
    "some": {"where": {"field": "n", "op": "between", "value": [20, 60]}, "count": True},
    "prefix": {"where": {"field": "name", "op": "prefix", "value": "name 1"}, "limit": 20},
    "sorted": {"order_by": ["-name"], "limit": 5},
    "all": {"limit": 1000},
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_that_was_asked_before_asks_for_no_rows_and_no_pages(
    watched: Watched, name: str
) -> None:
    first = watched.numbers(**QUESTIONS[name])
    assert "rows" in watched.seen()
    assert watched.numbers(**QUESTIONS[name]) == first
    # That the state is still the present one, the API is asked all the same.
    assert watched.seen() == ["manifest"]


def test_an_export_that_fits_a_window_asks_for_no_rows_again(watched: Watched) -> None:
    first = watched.post("export", order_by=["-n"]).body
    assert "rows" in watched.seen()
    assert watched.post("export", order_by=["-n"]).body == first
    assert watched.seen() == ["manifest"]


def test_what_one_question_brought_another_does_not_ask_for(watched: Watched) -> None:
    assert watched.numbers(at(100)) == [100]
    had = set(watched.rows())
    assert watched.numbers({"field": "n", "op": "le", "value": 299}, limit=1000) == [*range(300)]
    then = watched.rows()
    assert len(then) == len(set(then)) == 300 - len(had)
    assert had.isdisjoint(then)


def test_a_record_that_a_search_found_is_read_without_naming_it(watched: Watched) -> None:
    found = watched.post("search", where=at(5)).json()["results"][0]
    watched.seen()
    answer = watched.call("GET", f"/api/records/{found['id']}/")
    assert (answer.status, answer.json()["data"]) == (200, found["data"])
    assert watched.seen() == ["manifest"]
    # A change names it, and what is read then is what it became.
    path = f"/api/records/{found['id']}/"
    assert watched.call("PATCH", path, {"data": {"name": "new"}}).status == 200
    assert watched.call("GET", path).json()["data"] == {"name": "new", "n": 5}
    assert watched.call("DELETE", path).status == 204
    assert watched.call("GET", path).status == 404


def test_a_record_of_somebody_else_is_not_there_however_often_it_was_read(
    watched: Watched, service: Service
) -> None:
    found = watched.post("search", where=at(5)).json()["results"][0]
    stranger = Watched(watched.front, watched.proxy, service.new_account(), watched.schema)
    answer = stranger.call("GET", f"/api/records/{found['id']}/")
    assert (answer.status, answer.json()["code"]) == (404, "not_found")


def test_the_same_question_twice_at_once_is_one_to_the_api(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, DEFINITION)
    store.ingest([{"name": f"name {n}", "n": n} for n in range(100)])

    async def twice() -> None:
        async with second_proxy(store, with_keyrings(service, tmp_path)) as proxy:
            asked: list[RowRef] = []
            original = proxy.services.api.rows

            async def rows(
                schema: bytes,
                wanted: Sequence[RowRef],
                auth: str,
                *,
                known: KnownState | None = None,
            ) -> Any:
                asked.extend(wanted)
                return await original(schema, wanted, auth, known=known)

            proxy.services.api.rows = rows  # type: ignore[method-assign]
            body = {"where": at(50)}
            answers = await asyncio.gather(
                *(proxy.services.search.ask(proxy.caller, proxy.state.id, body) for _ in range(5))
            )
            assert [[row.data["n"] for row in answer.records] for answer in answers] == [[50]] * 5
            assert len(asked) == len(set(asked))

    asyncio.run(twice())


# --- what a new question shows -----------------------------------------------------------------


def stretches_of(places: Sequence[int], size: int, stored: int) -> set[int]:
    """The stretches that these rows are, all of each."""
    numbers = {place // size for place in places}
    whole = [place for number in numbers for place in range(number * size, (number + 1) * size)]
    assert sorted(places) == sorted(place for place in whole if place < stored)
    return numbers


def test_rows_are_asked_for_in_aligned_stretches_across_groups(watched: Watched) -> None:
    assert watched.numbers(at(99)) == [99]
    found = stretches_of(order_of(watched.rows(), watched), stretches.SIZES[0], 300)
    assert 99 // stretches.SIZES[0] in found
    assert len(found) == stretches.LEAST


@pytest.mark.parametrize("count", [2, 5, 9, 16])
def test_stretches_are_as_many_as_a_power_of_two(watched: Watched, count: int) -> None:
    wanted = [n * 17 for n in range(count)]
    assert watched.numbers({"field": "n", "op": "in", "value": wanted}) == wanted
    found = stretches_of(order_of(watched.rows(), watched), stretches.SIZES[0], 300)
    assert {n // stretches.SIZES[0] for n in wanted} <= found
    # All that there are, where a power of two is more.
    assert len(found) == min(max(4, 1 << (count - 1).bit_length()), 19)


def test_rows_come_in_no_order_that_shows(watched: Watched) -> None:
    watched.numbers(at(99))
    asked = watched.rows()
    assert asked != sorted(asked, key=lambda ref: (ref.group, ref.ordinal))


def test_a_deleted_record_is_not_asked_for_with_its_neighbours(watched: Watched) -> None:
    found = watched.post("search", where=at(200)).json()["results"][0]
    watched.call("DELETE", f"/api/records/{found['id']}/")
    fresh = watched.ingest([{"name": "x", "n": 1000 + n} for n in range(40)])
    watched.call("DELETE", f"/api/records/{fresh[7]}/")
    watched.front.forget()
    assert watched.numbers(at(1008)) == [1008]
    asked = order_of(watched.rows(), watched)
    assert 308 in asked
    assert 307 not in asked


# --- the choice of rows, by itself -------------------------------------------------------------


def draw_of(question: int) -> stretches.Draw:
    """What draws for a question."""
    return partial(CoverKey(bytes(32)).draw, question.to_bytes(32, "big"))


def test_few_rows_are_hidden_in_large_stretches_and_many_in_small_ones() -> None:
    far_apart = [n * 1000 for n in range(200)]
    sizes = [
        stretches.choose_cover(far_apart[:count], 10**6, draw_of(count)).size
        for count in (1, 32, 33, 128, 129, 200)
    ]
    assert sizes == [16, 16, 4, 4, 1, 1]
    for count in range(1, 200):
        made = stretches.choose_cover(far_apart[:count], 10**6, draw_of(count))
        assert made.total * made.size <= stretches.MOST
        assert made.total.bit_count() == 1
        assert made.needed == {n // made.size for n in far_apart[:count]}


def test_more_rows_than_a_request_grows_to_are_asked_for_alone() -> None:
    made = stretches.choose_cover(range(0, 5130, 10), 10**6, draw_of(1))
    assert (made.size, made.total, made.others) == (1, 513, ())


def test_what_is_beside_lies_between_what_is_needed_or_next_to_it() -> None:
    made = stretches.choose_cover([160, 16 * 500], 10**6, draw_of(1))
    inside = [other for other in made.others if 10 < other < 500]
    assert made.others[: len(inside)] == inside
    assert set(made.others[len(inside) :]) <= {*range(501, 540), *range(10)}
    drawn = {
        stretches.choose_cover([160, 16 * 500], 10**6, draw_of(one)).others[0] for one in range(50)
    }
    assert len(drawn) > 5


@pytest.mark.parametrize("last", [20, 500])
def test_the_same_stretches_are_beside_the_same_question_whenever_it_is_drawn(last: int) -> None:
    needed = [160, 200, 16 * last]
    first, again, later = (
        stretches.choose_cover(needed, stored, draw_of(1)).others
        for stored in (16 * last + 1, 16 * last + 1, 10**6)
    )
    inside = [one for one in first if 10 < one < last]
    assert first == again
    # What was stored since lies behind what matches.
    assert [one for one in later if 10 < one < last] == inside
    others = stretches.choose_cover(needed, 10**6, draw_of(2)).others
    assert [other for other in others if 10 < other < last] != inside


def test_no_stretch_lies_outside_of_what_is_stored() -> None:
    for stored in (1, 15, 16, 17, 100):
        made = stretches.choose_cover([stored - 1], stored, draw_of(stored))
        ends = -(-stored // made.size)
        assert all(0 <= one < ends for one in (*made.needed, *made.others))
        assert not made.needed & set(made.others)


# --- wide rows ---------------------------------------------------------------------------------


def test_wide_rows_are_asked_for_alone_once_that_is_known(
    service: Service, fronted: tuple[Front, str]
) -> None:
    wide = watched_on(service, *fronted)
    for n in range(0, 40, 8):
        wide.ingest([{"name": secrets.token_hex(1 << 19), "n": n + one} for one in range(8)])
    wide.front.forget()
    assert wide.numbers(at(20)) == [20]
    # Before it is known, of the 40 that narrow rows would have been so many.
    assert len(wide.rows()) <= rows_of.FIRST_ROWS + 1
    assert wide.numbers(at(21)) == [21]
    assert len(wide.rows()) == 1


def test_rows_of_some_kilobytes_are_asked_for_with_fewer_others(
    service: Service, fronted: tuple[Front, str]
) -> None:
    wide = watched_on(service, *fronted)
    for n in range(0, 200, 50):
        wide.ingest([{"name": secrets.token_hex(1 << 14), "n": n + one} for one in range(50)])
    wide.front.forget()
    assert wide.numbers(at(40)) == [40]
    wide.front.forget()
    assert wide.numbers(at(120)) == [120]
    asked = wide.rows()
    assert 1 < len(asked) <= rows_of.BESIDE_BYTES >> 15
