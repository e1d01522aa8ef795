"""A file that was stored before is known again, by this proxy alone; what a job stored can go."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model.ids import from_text
from tests.proxy.tus.client import FILES, Client, encoded
from tests.proxy.tus.test_jobs import DEFINITION, csv
from tests.support.front import running_front
from tests.support.proxies import running_proxy
from tests.support.service import Answer, Service
from tests.support.store import Store, new_schema, new_store

VALUE = "Grace Hopper of ward 7f3a91"
NAME = "wages of the ward 7f3a91.csv"


@pytest.fixture
def store(tus: Client) -> Store:
    assert tus.account is not None
    return Store(tus.service, tus.account, new_schema(tus.service, tus.account, DEFINITION))


def said_of(data: bytes, **more: str) -> dict[str, str]:
    ends = hashlib.sha256(data[: 1 << 16] + data[-(1 << 16) :]).hexdigest()
    return {"filename": NAME, "changed": "1700000000000", "ends": ends} | more


def asked(tus: Client, store: Store, data: bytes, **metadata: str) -> Answer:
    sent = {"schema": store.schema, "on_repeat": "refuse"} | metadata
    headers = {"Upload-Length": str(len(data)), "Upload-Metadata": encoded(**sent)}
    return tus.send("POST", FILES, headers)


def stored(tus: Client, store: Store, data: bytes, **metadata: str) -> str:
    """The job of a file that was sent, and stored."""
    upload = tus.create(
        len(data), Upload_Metadata=encoded(**{"schema": store.schema} | said_of(data) | metadata)
    )
    assert tus.patch(upload, 0, data).status == 204
    assert tus.ended(upload)["status"] == "completed"
    return str(uuid.UUID(bytes=from_text(upload.rpartition("/")[2])))


def about(store: Store, job: str) -> dict[str, Any]:
    answer = store.proxy("GET", f"/api/jobs/{job}/about/")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


def test_a_file_that_was_stored_is_refused_where_that_is_asked_for(
    tus: Client, store: Store
) -> None:
    data = csv(store, "Ada,3", "Grace,5")
    stored(tus, store, data)

    answer = asked(tus, store, data, **said_of(data))

    assert (answer.status, answer.json()["code"]) == (409, "uploaded_before")
    assert re.search(r" at 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ: 2 records$", answer.json()["detail"])
    # A copy under another name; and one of which only name and time are known.
    assert asked(tus, store, data, **said_of(data, filename="copy.csv")).status == 409
    assert asked(tus, store, data, filename=NAME, changed="1700000000000").status == 409
    assert len(store.everything()) == 2


def test_rows_that_were_skipped_do_not_count_as_stored(tus: Client, store: Store) -> None:
    data = csv(store, "Ada,3", "Grace,many")
    about = encoded(schema=store.schema, **said_of(data))
    upload = tus.create(len(data), Upload_Metadata=about, X_On_Invalid="skip")
    tus.patch(upload, 0, data)
    assert tus.ended(upload)["status"] == "completed"

    answer = asked(tus, store, data, **said_of(data))
    assert (answer.status, answer.json()["detail"][-10:]) == (409, ": 1 record")


def test_another_file_is_no_repetition(tus: Client, store: Store) -> None:
    data = csv(store, "Ada,3", "Grace,5")
    stored(tus, store, data)

    other = data.replace(b"Ada", b"Eve")
    assert asked(tus, store, other, **said_of(other)).status == 201
    assert asked(tus, store, data + b"Alan,1\n", **said_of(data + b"Alan,1\n")).status == 201
    assert asked(tus, store, data, filename=NAME, changed="1700000000001").status == 201
    assert asked(tus, store, data, filename="another.csv").status == 201
    # Into another schema, and where nothing was asked for.
    elsewhere = store.another_schema(DEFINITION)
    assert asked(tus, elsewhere, data, **said_of(data)).status == 201
    assert asked(tus, store, data, **said_of(data, on_repeat="allow")).status == 201


def test_a_stranger_learns_nothing_of_it(tus: Client, stranger: Client, store: Store) -> None:
    data = csv(store, "Ada,3")
    job = stored(tus, store, data)
    assert stranger.account is not None
    theirs = Store(
        stranger.service,
        stranger.account,
        new_schema(stranger.service, stranger.account, DEFINITION),
    )

    assert asked(stranger, theirs, data, **said_of(data)).status == 201
    for path in ("about/", "records/", "bad-rows/"):
        assert theirs.proxy("GET", f"/api/jobs/{job}/{path}").status == 404
    assert theirs.proxy("DELETE", f"/api/jobs/{job}/records/?confirm=1").status == 404
    assert len(store.everything()) == 1


def test_a_body_of_one_piece_is_known_again_and_leaves_no_job(tus: Client, store: Store) -> None:
    data = csv(store, "Ada,3")
    stored(tus, store, data)
    before = store.proxy("GET", "/api/jobs/").json()["count"]
    headers = {
        "Content-Type": "text/csv",
        "Upload-Metadata": encoded(filename=NAME, on_repeat="refuse"),
    }

    path = f"/api/jobs/upload/?schema={store.schema_id}"
    answer = tus.send("POST", path, headers, data)

    assert (answer.status, answer.json()["code"]) == (409, "uploaded_before")
    assert store.proxy("GET", "/api/jobs/").json()["count"] == before


def test_a_job_says_what_it_is_and_when(tus: Client, store: Store) -> None:
    data = csv(store, "Ada,3", "Grace,5")
    job = stored(tus, store, data)

    found = about(store, job)

    assert (found["file"], found["size"], found["bad_rows"]) == (NAME, len(data), 0)
    assert found["schemas"] == [store.schema_id]
    times = [found[name] for name in ("created", "received", "checked", "finished")]
    assert times == sorted(times)
    assert found["undone"] is None
    listed = store.proxy("GET", f"/api/jobs/?schema={store.schema_id}").json()
    assert [result["job_id"] for result in listed["results"]] == [job]
    other = store.another_schema(DEFINITION)
    assert store.proxy("GET", f"/api/jobs/?schema={other.schema_id}").json()["count"] == 0


def test_what_a_job_stored_is_deleted_and_nothing_else(tus: Client, store: Store) -> None:
    (mine,) = store.ingest([{"name": "Alan"}])
    job = stored(tus, store, csv(store, "Ada,3", "Grace,5", "Eve,1"))
    changed = next(one for one in store.everything() if one["data"]["name"] == "Eve")
    path = f"/api/records/{changed['id']}/"
    assert store.proxy("PATCH", path, {"data": {"age": 2}}).status == 200
    records = f"/api/jobs/{job}/records/"

    assert store.proxy("GET", records).json() == {"count": 2}
    refused = store.proxy("DELETE", f"{records}?confirm=3")
    assert (refused.status, refused.json()["code"]) == (409, "confirm_count")
    assert len(store.everything()) == 4
    assert store.proxy("DELETE", f"{records}?confirm=2").json() == {"deleted": 2}

    assert set(store.found()) == {mine, changed["id"]}
    assert about(store, job)["undone"] is not None
    assert store.proxy("GET", records).json() == {"count": 0}


def test_a_file_whose_records_were_deleted_is_new_again(tus: Client, store: Store) -> None:
    data = csv(store, "Ada,3")
    job = stored(tus, store, data)
    assert asked(tus, store, data, **said_of(data)).status == 409

    assert store.proxy("DELETE", f"/api/jobs/{job}/records/?confirm=1").status == 200

    assert asked(tus, store, data, **said_of(data)).status == 201


def test_neither_the_api_nor_a_file_of_the_proxy_gets_the_name_or_a_bad_row(
    services: Callable[[str], Service], tmp_path: Path
) -> None:
    service = services("sqlite")
    with running_front(service.base_url) as front, running_proxy(front.url, tmp_path) as proxy:
        there = Service(
            service.process, service.base_url, proxy.url, service.data_dir, service.log_file
        )
        store = new_store(there, DEFINITION)
        client = Client(there, store.account)
        data = csv(store, "Ada,3", f"{VALUE},99")
        upload = client.create(
            len(data), Upload_Metadata=encoded(**said_of(data, on_invalid="skip"))
        )
        assert client.patch(upload, 0, data).status == 204
        assert client.ended(upload)["status"] == "completed"
        job = str(uuid.UUID(bytes=from_text(upload.rpartition("/")[2])))
        rows = store.proxy("GET", f"/api/jobs/{job}/bad-rows/").json()["results"]
        assert rows == [{"row": 2, "data": {"name": VALUE, "age": "99"}}]
        ends = said_of(data)["ends"]
        assert about(store, job)["file"] == NAME
        traffic = [repr((one.path, dict(one.headers), one.body)) for one in front.asked]
        assert traffic
        for secret in (NAME, ends, VALUE):
            assert not [one for one in traffic if secret in one]
            files = [path for path in tmp_path.rglob("*") if path.is_file()]
            assert not [path for path in files if secret.encode() in path.read_bytes()]
