"""An upload is the input of a job, from its creation to the job's end."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from tests.proxy.tus.client import BYTES, FILES, Client, encoded
from tests.proxy.tus.test_expiration import change, let_time_pass
from tests.support.service import call
from tests.support.store import Store, new_schema

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["name"],
}


@pytest.fixture(scope="module")
def store(tus: Client) -> Store:
    assert tus.account is not None
    return Store(tus.service, tus.account, new_schema(tus.service, tus.account, DEFINITION))


def csv(store: Store, *rows: str) -> bytes:
    return "\n".join([f"name,age,schema_id:{store.schema_id}", *rows, ""]).encode()


def sent(tus: Client, data: bytes, **metadata: str) -> str:
    upload = tus.create(len(data), Upload_Metadata=encoded(**metadata))
    assert tus.patch(upload, 0, data).status == 204
    return upload


def names(store: Store) -> list[str]:
    return sorted(one["data"]["name"] for one in store.everything())


def test_a_job_is_uploading_until_the_last_byte_is_in(tus: Client, store: Store) -> None:
    mine, data = store.another_schema(DEFINITION), b""
    data = csv(mine, "Ada,3", "Grace,5")
    upload = tus.create(len(data), Upload_Metadata=encoded(filename="people.csv"))
    assert tus.job(upload) == {
        "status": "uploading",
        "processed": 0,
        "total": 0,
        "current_batch": 0,
        "total_batches": 0,
    }
    tus.patch(upload, 0, data[:-1])
    assert tus.job(upload)["status"] == "uploading"
    tus.patch(upload, len(data) - 1, data[-1:])
    assert tus.job(upload)["status"] != "uploading"
    assert tus.ended(upload) == {
        "status": "completed",
        "processed": 2,
        "total": 2,
        "current_batch": 1,
        "total_batches": 1,
    }
    assert names(mine) == ["Ada", "Grace"]
    head = tus.head(upload)
    assert head.headers["Upload-Offset"] == head.headers["Upload-Length"]


@pytest.mark.parametrize(
    ("filename", "filetype"),
    [
        ("people.json", None),
        ("people", "application/json"),
        ("people.csv", "application/json"),
        (None, "application/json; charset=utf-8"),
    ],
)
def test_the_format_is_that_of_the_type_or_else_of_the_name(
    tus: Client, store: Store, filename: str | None, filetype: str | None
) -> None:
    mine = store.another_schema(DEFINITION)
    data = json.dumps([{"schema": mine.schema, "data": {"name": "Ada"}}]).encode()
    said = {"filename": filename, "filetype": filetype}
    upload = sent(tus, data, **{key: value for key, value in said.items() if value is not None})
    assert tus.ended(upload)["status"] == "completed"
    assert names(mine) == ["Ada"]


@pytest.mark.parametrize("form", ["id", "path", "URL"])
def test_a_file_that_names_no_schema_is_of_the_one_in_the_metadata(
    tus: Client, store: Store, form: str
) -> None:
    mine = store.another_schema(DEFINITION)
    named = {"id": mine.schema_id, "path": mine.schema, "URL": tus.service.proxy_url + mine.schema}
    upload = sent(tus, b"name,age\nAda,3\n", filename="a.csv", schema=named[form])
    assert tus.ended(upload)["status"] == "completed"
    assert names(mine) == ["Ada"]


@pytest.mark.parametrize("by_header", [True, False])
def test_batch_size_and_the_fate_of_bad_rows_may_be_chosen(
    tus: Client, store: Store, by_header: bool
) -> None:
    mine = store.another_schema(DEFINITION)
    data = csv(mine, "Ada,3", "Grace,999", "Alan,4")
    headers = {"X_Batch_Size": "1", "X_On_Invalid": "skip"} if by_header else {}
    said = {} if by_header else {"batch_size": "1", "on_invalid": "skip"}
    upload = tus.create(
        len(data), Upload_Metadata=encoded(filename="people.csv", **said), **headers
    )
    tus.patch(upload, 0, data)
    payload = tus.ended(upload)
    assert payload["status"] == "completed"
    assert payload["total_batches"] == payload["total"] >= 2
    assert names(mine) == ["Ada", "Alan"]


@pytest.mark.parametrize(
    "said",
    [
        {"schema": "nonsense"},
        {"schema": "/api/datasets/x/"},
        {"batch_size": "0"},
        {"batch_size": "many"},
        {"on_invalid": "ignore"},
    ],
    ids=str,
)
def test_wishes_that_cannot_be_are_refused_at_the_creation(
    tus: Client, said: dict[str, str]
) -> None:
    metadata = encoded(filename="people.csv", **said)
    answer = tus.send("POST", FILES, {"Upload-Length": "5", "Upload-Metadata": metadata})
    assert answer.status == 400
    assert "Location" not in answer.headers


@pytest.mark.parametrize(
    ("data", "said", "words"),
    [
        (b"name\nAda\n", {}, "neither JSON nor CSV"),
        (b"name\nAda\n", {"filename": "people.xml"}, "neither JSON nor CSV"),
        (b"%PDF-1.7 ...", {"filename": "people.csv"}, "PDF"),
        (b"PK\x03\x04....", {"filename": "people.csv"}, "Excel"),
        (b'[{"data": {}}]', {"filetype": "text/csv"}, "begins like JSON"),
        (b"name\nAda\n", {"filetype": "application/json"}, "does not begin like JSON"),
        (b"", {"filename": "people.csv"}, ""),
        (b"", {"filename": "people.json"}, ""),
    ],
)
def test_a_file_that_cannot_be_one_fails_its_job_in_words_that_help(
    tus: Client, data: bytes, said: dict[str, str], words: str
) -> None:
    upload = tus.create(len(data), Upload_Metadata=encoded(**said))
    if data:
        assert tus.patch(upload, 0, data).status == 400
    payload = tus.ended(upload)
    assert payload["status"] == "failed"
    assert words in payload["error"]


def test_a_file_in_the_creation_is_a_job_at_once(tus: Client, store: Store) -> None:
    mine = store.another_schema(DEFINITION)
    data = csv(mine, "Ada,3")
    said = {"Upload-Length": str(len(data)), "Upload-Metadata": encoded(filename="people.csv")}
    answer = tus.send("POST", FILES, BYTES | said, data)
    assert answer.status == 201
    job = call("GET", answer.headers["X-Job-Status-Url"], auth=store.account.auth).json()
    assert job["status"] != "uploading"
    assert tus.ended(urlsplit(answer.headers["Location"]).path)["status"] == "completed"
    assert names(mine) == ["Ada"]


def test_a_complete_upload_whose_job_was_not_told_is_handed_over_when_asked_about(
    tus: Client, store: Store
) -> None:
    """As after a crash between the last byte and the job."""
    mine = store.another_schema(DEFINITION)
    data = csv(mine, "Ada,3")
    upload = tus.create(len(data) + 1, Upload_Metadata=encoded(filename="people.csv"))
    tus.patch(upload, 0, data)
    change(tus, upload, "length = offset")
    assert tus.job(upload)["status"] == "uploading"
    assert tus.offset(upload) == len(data)
    assert tus.ended(upload)["status"] == "completed"
    assert names(mine) == ["Ada"]


def test_many_questions_at_once_are_all_answered(tus: Client) -> None:
    upload = tus.create(10)
    tus.patch(upload, 0, b"hello")
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(tus.offset, [upload] * 40)) == {5}


def test_a_terminated_upload_cancels_its_job(tus: Client) -> None:
    upload = tus.create(10, Upload_Metadata=encoded(filename="people.csv"))
    tus.patch(upload, 0, b"name")
    assert tus.send("DELETE", upload).status == 204
    assert tus.job(upload)["status"] == "failed"
    assert "cancelled" in tus.job(upload)["error"]


def test_what_a_completed_job_has_stored_outlives_its_upload(tus: Client, store: Store) -> None:
    mine = store.another_schema(DEFINITION)
    upload = sent(tus, csv(mine, "Ada,3"), filename="people.csv")
    tus.ended(upload)
    assert tus.send("DELETE", upload).status == 204
    assert tus.job(upload)["status"] == "completed"
    assert names(mine) == ["Ada"]


def test_a_cancelled_job_ends_its_upload(tus: Client, store: Store) -> None:
    answer = tus.send("POST", FILES, {"Upload-Length": "10"})
    status = answer.headers["X-Job-Status-Url"]
    upload = urlsplit(answer.headers["Location"]).path
    tus.patch(upload, 0, b"name")
    assert call("DELETE", status, auth=store.account.auth).status == 204
    assert tus.head(upload).status == 410
    assert tus.patch(upload, 4, b"name").json()["code"] == "upload_without_job"


def test_an_expired_upload_fails_its_job(tus: Client) -> None:
    upload = tus.create(10, Upload_Metadata=encoded(filename="people.csv"))
    let_time_pass(tus, upload)
    assert tus.head(upload).status == 410
    payload = tus.job(upload)
    assert payload["status"] == "failed"
    assert "expired" in payload["error"]


def test_nothing_of_a_file_is_left_on_disk_when_its_job_has_ended(
    tus: Client, store: Store
) -> None:
    mine = store.another_schema(DEFINITION)
    data = csv(mine, "Ada,3")
    parts = [tus.create(len(part), Upload_Concat="partial") for part in (data[:9], data[9:])]
    for part, piece in zip(parts, (data[:9], data[9:]), strict=True):
        tus.patch(part, 0, piece)
    final = tus.create(
        Upload_Concat="final;" + " ".join(parts), Upload_Metadata=encoded(filename="people.csv")
    )
    assert tus.ended(final)["status"] == "completed"
    for part in parts:
        assert tus.send("DELETE", part).status == 204
    spool = tus.service.data_dir / "proxy" / "spool"
    assert tus.send("DELETE", final).status == 204
    ids = [upload.rpartition("/")[2] for upload in (*parts, final)]
    assert [path for path in spool.iterdir() if path.name.startswith(tuple(ids))] == []
    assert names(mine) == ["Ada"]
