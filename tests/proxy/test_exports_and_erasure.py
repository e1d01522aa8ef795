"""A running export and an erasure: the one is not disturbed, the other waits, and says for whom."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from encrypted_records.model import credentials, ids
from encrypted_records.proxy.process import ROW_CHECKS
from tests.e2e.database import database_of
from tests.support.erasures import seen_through
from tests.support.eventually import eventually
from tests.support.jobs import as_csv, completed, started
from tests.support.proxies import running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import ANSWER_SECONDS, Service, call
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 10**6},
        "text": {"type": "string"},
    },
}
#: More rows than an export keeps, and more bytes than sockets hold.
MANY, WIDE = 4200, 5000
#: More rows than a segment has that is whole in memory, and never on disk.
PAGED = 5000


@pytest.fixture(scope="module")
def service(services: Callable[[str], Service]) -> Service:
    return services("sqlite")


def filled(service: Service, count: int, text: Callable[[int], str]) -> Store:
    """A store with so many records, by one job."""
    store = new_store(service, DEFINITION)
    rows = [{"n": at, "text": text(at)} for at in range(count)]
    job = started(store, as_csv(store, rows, ["n", "text"]), "text/csv")
    completed(store, job)
    return store


@pytest.fixture(scope="module")
def store(service: Service) -> Store:
    return filled(service, MANY, lambda at: f"{at:05}" * (WIDE // 5))


@contextmanager
def exporting(store: Store) -> Iterator[http.client.HTTPResponse]:
    """An export of all records in their order of storing, of which nothing was read yet."""
    host = store.service.proxy_url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=ANSWER_SECONDS)
    connection.connect()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    headers = {
        "Authorization": store.account.auth,
        "Content-Type": "application/json",
        credentials.DEVICE_HEADER: store.device.text,
    }
    body = json.dumps({"schema": store.schema, "format": "ndjson"})
    connection.request("POST", "/api/records/export/", body, headers)
    answer = connection.getresponse()
    assert answer.status == 200
    yield answer
    connection.close()


def last(store: Store) -> str:
    found = store.search({"field": "n", "op": "ge", "value": 0}, order_by=["-n"], limit=1)
    record: str = found["results"][0]["id"]
    return record


def test_an_erasure_waits_for_an_export_which_has_every_record(store: Store) -> None:
    gone, count = last(store), len(store.everything())
    with exporting(store) as answer:
        held = store.api("GET", f"{store.schema}holds/").json()
        assert [one["reason"] for one in held] == ["export"]
        erased = store.proxy("DELETE", f"/api/records/{gone}/?erase=true")
        assert erased.status == 202, erased.body
        [own] = erased.json()["schemas"]
        assert (own["gone"], own["left"]["rows"]) == (False, 1)
        assert [hold["email"] for hold in own["left"]["holds"]] == [store.account.email]
        lines = answer.read().splitlines()
    assert len(lines) == count
    assert json.loads(lines[-1])["id"] == gone
    eventually(lambda: not store.api("GET", f"{store.schema}holds/").json(), "the hold has ended")
    erased = store.proxy("POST", f"{store.schema}erasure/")
    assert seen_through(store, erased)["gone"]


def test_an_export_whose_hold_has_ended_says_what_became_of_it(store: Store) -> None:
    gone = last(store)
    with exporting(store) as answer:
        with database_of(store.service) as database:
            database.run(
                "UPDATE hold SET renewed = '2020-01-01 00:00:00' WHERE schema_id = %s",
                ids.from_text(store.schema_id),
            )
        erased = store.proxy("DELETE", f"/api/records/{gone}/?erase=true")
        assert seen_through(store, erased)["gone"]
        with pytest.raises(http.client.IncompleteRead):
            answer.read()
    said = "a download was interrupted: a record of the export was deleted and erased while it ran"
    assert said in store.service.log
    assert len(store.everything()) == len(set(store.found()))


def kept(path: Path) -> set[bytes]:
    """Of what a proxy keeps pages and rows on disk: uids of segments, ids of schemas."""
    with closing(sqlite3.connect(path)) as database:
        return {bytes(one) for (one,) in database.execute("SELECT DISTINCT segment FROM page")}


def test_another_proxy_drops_pages_and_rows_when_the_log_tells_of_their_end(
    service: Service, tmp_path: Path
) -> None:
    store = filled(service, PAGED, lambda at: f"text {at}")
    gone = last(store)
    sealed = store.proxy("GET", f"/api/records/{gone}/?sealed=true").json()["fields"]
    trace = base64.b64decode(sealed["n"])[2:-2]
    folder = with_keyrings(store.service, tmp_path)
    schema = ids.from_text(store.schema_id)
    with running_proxy(store.service.base_url, folder) as other:

        def found() -> list[str]:
            where = {"field": "n", "op": "ge", "value": PAGED - 20}
            answer = call(
                "POST",
                f"{other.url}/api/records/search/",
                {"schema": store.schema, "where": where},
                auth=store.account.auth,
                headers=other.door,
            )
            assert answer.status == 200, answer.body
            other.settle(ROW_CHECKS)
            return [result["id"] for result in answer.json()["results"]]

        def files_with_trace() -> list[str]:
            every = (folder / "proxy").glob("pages.sqlite3*")
            return [path.name for path in every if trace in path.read_bytes()]

        before = found()
        file = folder / "proxy" / "pages.sqlite3"
        assert gone in before
        assert len(kept(file)) > 1  # pages, and rows
        assert files_with_trace()
        erased = store.proxy("DELETE", f"/api/records/{gone}/?erase=true")
        assert seen_through(store, erased)["gone"]
        assert found() == [one for one in before if one != gone]
        other.services.stores.pages.drop_unused()  # which it does each minute
        (state,) = other.services.schemas.in_use()
        live = {segment.uid for segment in state.ledger.snapshot().segments}
        assert kept(file) <= live | {schema}
        assert not files_with_trace()
