"""A running service with somebody between proxy and API who writes down what is asked for."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from bench.support import stack
from bench.watching import census
from bench.watching.census import Census, Kind
from bench.watching.knowledge import Flags, Seen
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.model import wire
from encrypted_records.model.records import ManifestDelta, PageRef, RowRef
from encrypted_records.proxy.search.cover import SIZES
from encrypted_records.sql.engine import Engine
from tests.support import jobs
from tests.support.front import Asked, Front, running_front
from tests.support.service import Service, call
from tests.support.store import Store, new_store

#: Bytes of a sealed field beside its padded text: format, tag and type.
_FRAME = 1 + 16 + 1


@dataclass
class Watched:
    """A store, and a front before its API that has seen all requests since the last search."""

    store: Store
    front: Front
    order: dict[tuple[bytes, int], int]
    held: Flags
    kind: Kind

    def seen(self, time: int) -> Seen:
        """What the API saw since this was last asked."""
        asked = list(self.front.asked)
        pages = [len(wire.decode_all(one.body, PageRef)) for one in asked if _is(one, "pages")]
        named = self.requests()
        rows = np.unique(np.concatenate(named)) if named else np.zeros(0, np.int64)
        size = _size(rows, self.held)
        self.held[rows] = True
        return Seen(rows, size, pages, [time])

    def requests(self) -> list[NDArray[np.int64]]:
        """The numbers of the rows that each request named since this was last asked."""
        asked, self.front.asked = self.front.asked, []
        named = [wire.decode_all(one.body, RowRef) for one in asked if _is(one, "rows")]
        return [np.array([self.order[ref.group, ref.ordinal] for ref in refs]) for refs in named]


def _is(asked: Asked, name: str) -> bool:
    return asked.path.partition("?")[0].endswith(f"/{name}/")


def _size(rows: NDArray[np.int64], held: Flags) -> int:
    """The largest stretches of which these rows are all that the proxy did not have."""
    for size in SIZES:
        stretch = np.unique(rows // size)
        whole = (stretch[:, None] * size + np.arange(size)).ravel()
        whole = whole[whole < len(held)]
        if np.array_equal(whole[~held[whole]], rows):
            return size
    return 1


@contextmanager
def running(folder: Path, found: Census) -> Iterator[Watched]:
    """A service of its own that stores the census, and is watched from then on."""
    with served(folder) as (service, front):
        yield watched(new_store(service, found.kind.definition), front, found)


@contextmanager
def served(folder: Path) -> Iterator[tuple[Service, Front]]:
    """A service of its own, and the front between its proxy and its API."""
    with (
        stack.running_api(folder, None) as (base_url, _),
        running_front(base_url) as front,
        stack.running_proxy(folder, front.url) as service,
    ):
        yield service, front


def watched(store: Store, front: Front, found: Census) -> Watched:
    """A store that a proxy behind ``front`` has filled with the census by one CSV job."""
    body = b"".join(census.upload(found.stored, found.kind, store.schema_id))
    jobs.completed(store, jobs.started(store, body, "text/csv"), within=stack.PATIENCE)
    stack.merge(store)
    order = _order(store)
    assert len(order) == len(found.stored)
    front.forget()
    return Watched(store, front, order, np.zeros(len(order), bool), found.kind)


def _order(store: Store) -> dict[tuple[bytes, int], int]:
    """The number of each row in the order of storing, as the log has it."""
    answer = store.api("GET", f"{store.schema}manifest/?since=0")
    rows: list[tuple[bytes, int]] = []
    for delta in wire.decode_all(answer.body, ManifestDelta):
        for entry in delta.entries:
            for group in wire.decode_commit_body(entry.commit).groups:
                rows += [(group.uid, ordinal) for ordinal in range(group.count)]
    return {row: at for at, row in enumerate(rows)}


def length_classes(watched: Watched) -> NDArray[np.int32]:
    """As :func:`.census.length_classes`, from what the API has of the stored rows."""
    base, auth = watched.store.service.base_url, watched.store.account.auth
    found = np.zeros((len(watched.order), len(watched.kind.strings)), np.int32)
    path: str | None = f"/api/records/?schema={watched.store.schema_id}&limit=1000"
    while path is not None:
        page = call("GET", base + path, auth=auth).json()
        for result in page["results"]:
            at = watched.order[bytes.fromhex(result["group"]), result["ordinal"]]
            for column, name in enumerate(watched.kind.strings):
                sealed = result["fields"][name]
                found[at, column] = len(sealed) * 3 // 4 - sealed.count("=") - _FRAME
        path = None if page["next"] is None else _path(page["next"])
    return found


def _path(url: str) -> str:
    split = urlsplit(url)
    return f"{split.path}?{split.query}"


@dataclass(frozen=True)
class Exported:
    """Requests for rows of one export, and how long it took; ``lines`` are its answer's."""

    requests: list[NDArray[np.int64]]
    seconds: float
    lines: list[bytes]


def exported(watched: Watched, order_by: Sequence[str] = ()) -> Exported:
    """What is seen of an export of everything."""
    store = watched.store
    body = {"schema": store.schema, "order_by": list(order_by)}
    watched.requests()
    began = time.perf_counter()
    answer = call(
        "POST", f"{store.service.proxy_url}/api/records/export/", body, auth=store.account.auth
    )
    seconds = time.perf_counter() - began
    assert answer.status == 200, answer.body
    lines = answer.body.splitlines()
    assert len(lines) == len(watched.order)
    return Exported(watched.requests(), seconds, lines)


def paged(
    watched: Watched, order_by: Sequence[str], limit: int
) -> Iterator[list[NDArray[np.int64]]]:
    """What is seen of each page of a sorted search of everything."""
    watched.requests()
    cursor, shown = None, 0
    while True:
        page = watched.store.search(order_by=list(order_by), limit=limit, cursor=cursor)
        yield watched.requests()
        shown += len(page["results"])
        cursor = page["next_cursor"]
        if cursor is None:
            assert shown == len(watched.order)
            return


def searched(watched: Watched, found: Census, draws: Sequence[int]) -> list[Seen]:
    """What is seen of the searches, one after another, each of whose answers is right."""
    proxy = urlsplit(watched.store.service.proxy_url)
    connection = http.client.HTTPConnection(proxy.netloc, timeout=60)
    headers = {"Content-Type": "application/json", "Authorization": watched.store.account.auth}
    counts = {at: int(found.matches(found.questions[at]).sum()) for at in set(draws)}
    events = []
    for number, at in enumerate(draws):
        where = found.kind.condition(found.questions[at])
        body = json.dumps({"schema": watched.store.schema, "where": where})
        connection.request("POST", "/api/records/search/", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        results = json.loads(text)["results"]
        assert len(results) == min(100, counts[at])
        if where["op"] == "eq" and where["field"] not in found.kind.parts:
            assert all(result["data"][where["field"]] == where["value"] for result in results)
        events.append(watched.seen(number))
    connection.close()
    return events


async def selected(watched: Watched, found: Census, draws: Sequence[int]) -> list[Seen]:
    """What is seen of the same questions as statements of SQL, each of whose answers is right."""
    store, events = watched.store, []
    client = ProxyClient(
        store.service.proxy_url, email=store.account.email, password=store.account.password
    )
    async with client, Engine(client) as engine:
        (table,) = [table for table in engine.tables() if table.schema == store.schema]
        for number, at in enumerate(draws):
            where = found.kind.condition(found.questions[at])
            assert where["op"] == "eq", where
            asked = f'FROM {table.qualified} SELECT * WHERE "{where["field"]}" = $1'
            async with await engine.execute(asked, [where["value"]]) as result:
                rows = (await result.table()).num_rows
            assert rows == int(found.matches(found.questions[at]).sum())
            events.append(watched.seen(number))
    return events
