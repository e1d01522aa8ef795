"""An API that watches does not see in which order a sorted export, or the pages of a sorted search,
show their records. ``python -m bench.observer --order-by`` attacks it with more records.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from encrypted_records.index.query import candidates as opening
from encrypted_records.model import wire
from encrypted_records.model.records import RowRef
from encrypted_records.proxy.search import export as exporting
from encrypted_records.proxy.search import row_fetcher
from encrypted_records.proxy.search.cover import MOST_HIDDEN, RANKED_SIZES, SIZES
from encrypted_records.proxy.search.row_fetcher import LEAST_WINDOW
from tests.proxy.test_watching import Watched, order_of
from tests.support import jobs
from tests.support.eventually import eventually
from tests.support.front import Asked, Front, Reply, running_front
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import ANSWER_SECONDS, Service
from tests.support.store import new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 10**6},
        "text": {"type": "string"},
    },
}
COUNT = 1500
#: No index key holds more: what begins so is opened to be sorted.
BEGINNING = "they begin alike for longer than an index key is: "
#: Nothing of a row that is asked for by its rank alone hides it among fewer.
HIDDEN_AMONG = 16
PATIENCE = 60


def number_at(place: int) -> int:
    """The number of the record that is stored there: numbers are in another order."""
    return place * 1237 % COUNT


@pytest.fixture(scope="module")
def proxy(
    service: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Front, Proxy]]:
    folder = tmp_path_factory.mktemp("ordered")
    with running_front(service.base_url) as front, running_proxy(front.url, folder) as proxy:
        yield front, proxy


def filled(service: Service, proxy: tuple[Front, Proxy], width: int = 0) -> Watched:
    """A schema of which the proxy has no row; one job has stored them."""
    front, own = proxy
    there = replace(service, proxy_url=own.url)
    store = new_store(there, DEFINITION)
    texts = [BEGINNING + f"{number_at(place):05}" + "x" * width for place in range(COUNT)]
    rows = [{"n": number_at(place), "text": texts[place]} for place in range(COUNT)]
    jobs.completed(store, jobs.started(store, jobs.as_csv(store, rows, ["n", "text"]), "text/csv"))
    front.forget()
    return Watched(front, own.url, store.account, store.schema)


@pytest.fixture
def watched(service: Service, proxy: tuple[Front, Proxy]) -> Watched:
    return filled(service, proxy)


def requests(watched: Watched) -> list[list[int]]:
    """Where the rows lie in the order of storing that each request named, and forget them."""
    asked = [one for one in watched.front.asked if "/rows/" in one.path]
    named = [wire.decode_all(one.body, RowRef) for one in asked]
    watched.front.forget()
    return [order_of(refs, watched) for refs in named]


def numbers_of(body: bytes) -> list[int]:
    return [json.loads(line)["data"]["n"] for line in body.splitlines()]


# --- exports --------------------------------------------------------------------------------------


def assert_as_stored(asked: list[list[int]]) -> None:
    """A window at a time, of which each is asked for in random order, in whole runs."""
    in_turn = [place for places in asked for place in places]
    for at, place in enumerate(in_turn):
        window = at // LEAST_WINDOW * LEAST_WINDOW
        assert window - SIZES[0] < place < window + LEAST_WINDOW + SIZES[0]
    assert sorted(in_turn) == [*range(COUNT)]


@pytest.mark.parametrize("order_by", ["-n", "text"])
def test_a_sorted_export_asks_for_rows_as_they_were_stored(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, order_by: str
) -> None:
    monkeypatch.setattr(row_fetcher, "MOST_OPENED", LEAST_WINDOW)
    monkeypatch.setattr(opening, "BATCH", LEAST_WINDOW)
    answer = watched.post("export", order_by=[order_by])
    assert_as_stored(requests(watched))
    assert numbers_of(answer.body) == sorted(range(COUNT), reverse=order_by == "-n")


def test_an_export_that_keeps_no_rows_asks_alike_in_every_order(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_fetcher, "MOST_OPENED", LEAST_WINDOW)
    monkeypatch.setattr(exporting, "MOST_OPENED", LEAST_WINDOW)
    for order_by in ([], ["n"], ["-n", "text"]):
        answer = watched.post("export", order_by=order_by)
        assert_as_stored(requests(watched))
        found = numbers_of(answer.body)
        assert len(found) == COUNT
        assert not order_by or found == sorted(found, reverse=order_by[0] == "-n")


# --- pages ----------------------------------------------------------------------------------------


def pages_of(watched: Watched, limit: int, **more: Any) -> Iterator[list[int]]:
    cursor = None
    while True:
        page = watched.post("search", limit=limit, cursor=cursor, **more).json()
        yield [result["data"]["n"] for result in page["results"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return


@pytest.mark.parametrize(("limit", "field"), [(60, "n"), (60, "-n"), (200, "n"), (60, "text")])
def test_what_a_page_of_a_sorted_search_asks_for_hardly_tells_what_it_shows(
    watched: Watched, limit: int, field: str
) -> None:
    shown: list[int] = []
    left = {*range(COUNT)}
    for at, page in enumerate(pages_of(watched, limit, order_by=[field])):
        asked = {number_at(place) for places in requests(watched) for place in places}
        # The first page is hidden as the rows of any search are, unless it is a large one.
        if at or limit > MOST_HIDDEN:
            assert len(asked & set(page)) * HIDDEN_AMONG <= len(asked) or asked == left
        left -= asked
        shown += page
    assert shown == sorted(range(COUNT), reverse=field == "-n")


def test_a_page_in_the_middle_of_an_order_is_hidden_as_a_later_one_is(watched: Watched) -> None:
    page = watched.numbers(order_by=["n"], offset=700, limit=40)
    asked = [place for places in requests(watched) for place in places]
    assert page == [*range(700, 740)]
    assert len(asked) >= 40 * HIDDEN_AMONG


def test_the_first_records_of_columns_are_asked_for_as_pages_of_a_search_are(
    watched: Watched,
) -> None:
    """SQL leaves the first ones out itself: so it has those of the page before once more."""
    order_by = [{"field": "n", "nulls": "last"}]
    for offset in (0, 60):
        answer = watched.post("columns", fields=["n"], order_by=order_by, limit=60, offset=offset)
        assert answer.status == 200
        asked = {number_at(place) for places in requests(watched) for place in places}
        assert not offset or len(asked & {*range(60, 120)}) * HIDDEN_AMONG <= len(asked)
        assert offset or len(asked) < COUNT // 2


def test_rows_that_are_asked_for_by_rank_come_with_their_whole_blocks(watched: Watched) -> None:
    watched.numbers(order_by=["n"], offset=3, limit=4)
    asked = [place for places in requests(watched) for place in places]
    size = RANKED_SIZES[0]
    blocks = {place // size for place in asked}
    whole = [place for block in blocks for place in range(block * size, (block + 1) * size)]
    assert sorted(asked) == sorted(place for place in whole if place < COUNT)
    assert len(blocks) == 8  # five rows of five blocks


# --- what a sorted export leaves ------------------------------------------------------------------


def scratch_files(proxy: Proxy) -> list[int]:
    """Descriptors of files without a name in the spool."""
    folder = str(proxy.services.spool.folder.resolve())
    found = []
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # of those that end meanwhile
            target = str(handle.readlink())
            if target.startswith(folder) and target.endswith(" (deleted)"):
                found.append(int(handle.name))
    return found


def wait_until_gone(proxy: Proxy) -> None:
    eventually(lambda: not scratch_files(proxy), "the scratch files are gone", PATIENCE)
    assert list(proxy.services.spool.folder.iterdir()) == []


def begun(watched: Watched) -> http.client.HTTPConnection:
    """A connection on which a sorted export was asked for."""
    connection = http.client.HTTPConnection(urlsplit(watched.proxy).netloc, timeout=ANSWER_SECONDS)
    headers = {"Authorization": watched.account.auth, "Content-Type": "application/json"}
    body = json.dumps({"schema": watched.schema, "order_by": ["n"]})
    connection.request("POST", "/api/records/export/", body, headers)
    return connection


def _leave_at_the_last_request(watched: Watched, proxy: Proxy) -> None:
    """Ask for a sorted export and go away while the API holds its answer to the last rows back."""
    held, go_on = threading.Event(), threading.Event()
    named = 0

    def hold(asked: Asked, reply: Reply) -> Reply:
        nonlocal named
        if "/rows/" in asked.path:
            named += len(wire.decode_all(asked.body, RowRef))
            if named == COUNT:
                held.set()
                go_on.wait(PATIENCE)
        return reply

    with watched.front.telling(hold):
        connection = begun(watched)
        assert held.wait(PATIENCE)
        assert scratch_files(proxy)
        connection.close()
        try:
            wait_until_gone(proxy)
        finally:
            go_on.set()


def test_rows_of_a_sorted_export_lie_sealed_on_disk_until_it_ends(
    service: Service, proxy: tuple[Front, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "IN_MEMORY_BYTES", 100_000)
    # More than sockets hold, so that the export is under way while its file is looked at.
    watched = filled(service, proxy, width=10_000)
    answer = begun(watched).getresponse()
    first = answer.readline()

    (handle,) = scratch_files(proxy[1])
    written = os.pread(handle, 1 << 30, 0)
    assert len(written) > COUNT * 10_000
    assert BEGINNING.encode() not in written
    assert b"x" * 20 not in written
    assert [path.name for path in proxy[1].services.spool.folder.iterdir()] == []

    assert numbers_of(first + answer.read()) == [*range(COUNT)]
    wait_until_gone(proxy[1])


@pytest.mark.parametrize("read", [False, True], ids=["while it fetches", "while it is read"])
def test_a_client_that_goes_away_leaves_nothing_of_a_sorted_export(
    service: Service, proxy: tuple[Front, Proxy], monkeypatch: pytest.MonkeyPatch, read: bool
) -> None:
    monkeypatch.setattr(exporting, "IN_MEMORY_BYTES", 100_000)
    watched = filled(service, proxy, width=10_000)
    if read:
        connection = begun(watched)
        assert connection.getresponse().readline()
        assert scratch_files(proxy[1])
        connection.close()
    else:
        _leave_at_the_last_request(watched, proxy[1])
    wait_until_gone(proxy[1])
