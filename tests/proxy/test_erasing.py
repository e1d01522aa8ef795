"""What is deleted with erase=true is in no file afterwards: database, log, objects, caches."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import psycopg
import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model.records import ManifestDelta, Page, PageRef, Segment
from tests.support import postgres
from tests.support.erasures import MOST_SECONDS, seen_through
from tests.support.eventually import eventually
from tests.support.page_visits import logged_in
from tests.support.proxies import running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Service, call
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "email": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
}
#: Bytes that are looked for together, and how far they are from the next.
PIECE, APART = 40, 400
FRAMES = {"Content-Type": wire.MEDIA_TYPE}


@pytest.fixture
def store(service: Service) -> Store:
    return new_store(service, DEFINITION)


def people(count: int) -> list[dict[str, Any]]:
    return [
        {"name": f"person {at}", "email": f"{at}@example.org", "age": at % 150}
        for at in range(count)
    ]


def sealed_fields(store: Store, record: str) -> list[bytes]:
    """A record's ciphertexts, without their ends."""
    answer = store.proxy("GET", f"/api/records/{record}/?sealed=true")
    assert answer.status == 200, answer.body
    return [base64.b64decode(field)[2:-2] for field in answer.json()["fields"].values()]


def index_bytes(store: Store) -> list[bytes]:
    """Pieces of pages and headers of the segments that live: files may cut them anywhere."""
    path = f"{store.service.base_url}/api/schemas/{store.schema_id}/"
    answer = call("GET", f"{path}manifest/?since=0", auth=store.account.auth)
    deltas = wire.decode_all(answer.body, ManifestDelta)
    live: dict[bytes, Segment] = {}
    for delta in deltas:
        for entry in delta.entries:
            body = wire.decode_commit_body(entry.commit)
            live |= {segment.uid: segment for segment in body.segments}
            for uid in body.replaced:
                del live[uid]
    headers = [
        header.data for delta in deltas for header in delta.headers if header.segment in live
    ]
    refs = [PageRef(one.uid, number) for one in live.values() for number in range(one.pages)]
    pages = wire.decode_all(
        call(
            "POST",
            f"{path}pages/",
            wire.encode(refs),
            auth=store.account.auth,
            headers=FRAMES,
        ).body,
        Page,
    )
    assert headers and pages
    whole = [*headers, *(page.data for page in pages)]
    return [one[at : at + PIECE] for one in whole for at in range(2, len(one) - PIECE, APART)]


def in_files(store: Store, needles: list[bytes]) -> set[bytes]:
    """Those of these that some file of either side contains."""
    folders = [store.service.data_dir]
    if store.service.database_url is not None:
        folders.append(_vacuumed(store.service.database_url))
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    contents = [path.read_bytes() for path in files]
    return {needle for needle in needles if any(needle in data for data in contents)}


def _vacuumed(url: str) -> Path:
    """PostgreSQL's tables, after what docs/operations.md tells operators to do."""
    with psycopg.connect(url, autocommit=True) as connection:
        postgres.vacuum(connection)
        row = connection.execute(
            "SELECT current_setting('data_directory'), oid FROM pg_database"
            " WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return Path(row[0]) / "base" / str(row[1])


def test_a_record_that_is_deleted_with_erase_is_in_no_file_of_either_side(store: Store) -> None:
    ids_ = store.ingest(people(30))
    gone, left = ids_[7], ids_[8]
    needles = sealed_fields(store, gone)
    assert len(store.everything()) == 30  # so that the proxy keeps rows and pages
    pieces = index_bytes(store)
    traces = [*needles, ids.from_text(gone)]
    assert in_files(store, [*traces, *pieces]) > set(traces)
    every = [*traces, *pieces]
    tried = store.proxy("DELETE", f"/api/records/{gone}/?erase=true&dry_run=true")
    assert tried.status == 200, tried.body
    assert store.proxy("DELETE", f"/api/records/{gone}/?dry_run=true").json() == tried.json()
    [cost] = tried.json()["costs"]
    assert cost == {"schema": store.schema, "segments": 1, "rows": 30}
    assert gone in store.found()
    answer = store.proxy("DELETE", f"/api/records/{gone}/?erase=true")
    receipt = seen_through(store, answer)
    assert (receipt["deleted"], receipt["gone"]) == (1, True)
    [own] = receipt["schemas"]
    assert (own["merged_rows"], own["left"]["rows"], own["left"]["segments"]) == (29, 0, 0)
    own_of_left = set(sealed_fields(store, left))
    assert in_files(store, [*every, *own_of_left]) == own_of_left
    assert sorted(store.found()) == sorted(one for one in ids_ if one != gone)
    assert store.proxy("GET", f"/api/records/{gone}/").status == 404


def test_the_last_record_of_a_schema_can_be_erased(store: Store) -> None:
    [only] = store.ingest(people(1))
    every = [*sealed_fields(store, only), *index_bytes(store)]
    answer = store.proxy("DELETE", f"/api/records/{only}/?erase=true")
    assert seen_through(store, answer)["gone"]
    assert not in_files(store, every)
    assert store.found() == []
    assert len(store.ingest(people(3))) == len(store.found()) == 3


@pytest.mark.parametrize("whole", ["schema", "dataset"])
def test_a_proxy_that_deletes_a_schema_keeps_no_copy_of_its_records(
    store: Store, tmp_path: Path, whole: str
) -> None:
    rows = sealed_fields(store, store.ingest(people(30))[7])
    path = store.schema
    if whole == "dataset":
        path = store.proxy("GET", path).json()["dataset"]

    def kept() -> set[bytes]:
        files = [one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()]
        return {row for row in rows if any(row in data for data in files)}

    with_keyrings(store.service, tmp_path)
    for deletes in (False, True):
        with running_proxy(store.service.base_url, tmp_path) as proxy:
            asked = {"schema": store.schema, "limit": 100}
            found = call("POST", f"{proxy.url}/api/records/search/", asked, auth=store.account.auth)
            assert len(found.json()["results"]) == 30
            proxy.settle()
            if deletes:
                gone = f"{proxy.url}{path}?cascade=true"
                deleted = call("DELETE", gone, auth=store.account.auth)
                assert deleted.status == 204, deleted.body
        assert kept() == (set() if deletes else set(rows))


def test_what_changes_replaced_goes_with_an_erasure_of_the_schema(store: Store) -> None:
    one, *_ = store.ingest(people(30))
    before = sealed_fields(store, one)
    changed = store.proxy("PATCH", f"/api/records/{one}/", {"data": {"age": 149}})
    assert changed.status == 200, changed.body
    path = f"/api/schemas/{store.schema_id}/erasure/"
    looked = store.proxy("GET", path).json()
    assert (looked["api"]["rows"], looked["index"]["rows"]) == (1, 1)
    assert in_files(store, before)
    answer = store.proxy("POST", path)
    assert seen_through(store, answer)["gone"]
    assert not in_files(store, before)
    looked = store.proxy("GET", path).json()
    assert (looked["api"]["rows"], looked["index"]["rows"]) == (0, 0)
    [found] = store.everything({"field": "age", "op": "eq", "value": 149})
    assert found["id"] == one


def test_a_person_is_erased_in_every_schema_of_the_dataset_that_has_the_field(
    store: Store,
) -> None:
    dataset = store.proxy("GET", f"/api/schemas/{store.schema_id}/").json()["dataset"]
    named: list[Store] = [store]
    for name, fields in (("visits", ("email", "age")), ("prices", ("age",))):
        properties = {field: DEFINITION["properties"][field] for field in fields}  # type: ignore[index]
        made = store.proxy(
            "POST",
            "/api/schemas/",
            {
                "name": name,
                "dataset": dataset,
                "schema": {"type": "object", "properties": properties},
            },
        )
        assert made.status == 201, made.body
        named.append(Store(store.service, store.account, made.json()["url"], store.device))
    first, second, third = named
    first.ingest(people(5))
    second.ingest([{"email": "3@example.org", "age": age} for age in (1, 2)])
    second.ingest([{"email": "4@example.org", "age": 3}])
    third.ingest([{"age": 3}])
    [gone] = first.found({"field": "email", "op": "eq", "value": "3@example.org"})
    needles = sealed_fields(first, gone)
    path = f"{dataset}erase/"
    body = {"field": "email", "value": "3@example.org"}
    asked = store.proxy("POST", path, body)
    assert (asked.status, asked.json()["code"]) == (409, "confirm_count")
    assert "confirm=3" in asked.json()["hint"]
    assert store.proxy("POST", f"{path}?confirm=2", body).status == 409
    counted = store.proxy("POST", f"{path}?dry_run=true", body).json()
    assert (counted["records"], len(counted["counts"])) == (3, 2)
    assert len(first.found()) == 5
    done = store.proxy("POST", f"{path}?confirm=3", body)
    receipt = seen_through(store, done)
    assert (receipt["deleted"], receipt["gone"]) == (3, True)
    assert {count["schema"]: count["records"] for count in receipt["counts"]} == {
        first.schema: 1,
        second.schema: 2,
    }
    assert all(len(schema["log_digest"]) == 64 for schema in receipt["schemas"])
    assert "3@example.org" not in done.body.decode()
    assert not in_files(store, needles)
    assert (len(first.found()), len(second.found()), len(third.found())) == (4, 1, 1)
    wrong = store.proxy("POST", f"{path}?confirm=0", {"field": "colour", "value": "red"})
    assert (wrong.status, wrong.json()["code"]) == (400, "unknown_field")


def test_the_page_that_deletes_a_record_erases_it_where_that_is_chosen(store: Store) -> None:
    gone, *rest = store.ingest(people(30))
    traces = sealed_fields(store, gone)
    browser = logged_in(store.service, store.account)
    asked = browser.visit(f"/records/{gone}/delete/").body.decode()
    assert "Erase it now: 30 rows of the index are rewritten" in asked
    assert browser.visit(f"/records/{gone}/delete/", erase="yes").status == 200
    # The page may have been answered before.
    eventually(lambda: not in_files(store, traces), "no trace is left", MOST_SECONDS)
    assert sorted(store.found()) == sorted(rest)
