"""What is declared to be in another charset is stored as it says, or refused, on both hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.proxy.tus.client import Client, encoded
from tests.support.jobs import completed, ended, flaws, started, upload
from tests.support.service import Service, call
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "number": {"type": "integer", "minimum": 0, "maximum": 10**6},
    },
    "required": ["name"],
}
CODECS = {"iso-8859-1": "latin-1", "windows-1252": "cp1252", "utf-16": "utf-16"}
each_charset = pytest.mark.parametrize("charset", CODECS)


@pytest.fixture(scope="module")
def account(services: Callable[[str], Service]) -> Store:
    return new_store(services("sqlite"), DEFINITION)


@pytest.fixture
def store(account: Store) -> Store:
    return account.another_schema(DEFINITION)


def csv(store: Store, charset: str, *names: str) -> bytes:
    lines = [f"name,number,schema_id:{store.schema_id}"]
    lines += [f"{name},{number}" for number, name in enumerate(names)]
    return "\n".join([*lines, ""]).encode(CODECS[charset])


def names(store: Store) -> list[str]:
    return sorted(one["data"]["name"] for one in store.everything())


@each_charset
def test_a_job_stores_what_its_charset_says(store: Store, charset: str) -> None:
    """These letters in ISO-8859-1 are the UTF-8 of another one."""
    body = csv(store, charset, "Ã©", "Zoë")
    completed(store, started(store, body, f"text/csv; charset={charset}"))
    assert names(store) == ["Zoë", "Ã©"]


@each_charset
@pytest.mark.parametrize("in_type", [True, False])
def test_so_does_a_resumable_upload(store: Store, charset: str, in_type: bool) -> None:
    tus = Client(store.service, store.account)
    data = csv(store, charset, "Ã©", "Zoë")
    said = (
        {"filetype": f"text/csv; charset={charset}"}
        if in_type
        else {"filename": "x.csv", "charset": charset}
    )
    path = tus.create(len(data), Upload_Metadata=encoded(**said))
    middle = len(data) // 2 | 1  # within a character of UTF-16
    assert tus.patch(path, 0, data[:middle]).status == 204
    assert tus.patch(path, middle, data[middle:]).status == 204
    assert tus.ended(path)["status"] == "completed"
    assert names(store) == ["Zoë", "Ã©"]


@pytest.mark.parametrize("charset", ["iso-8859-1", "utf-16"])
def test_every_row_of_a_file_of_many_chunks_is_stored_once(store: Store, charset: str) -> None:
    """Each chunk is found in the file as it was sent."""
    wide = "" if charset == "iso-8859-1" else "€"
    rows = [f"é{number:05}{wide}{'ß' * 9000}" for number in range(700)]
    path = started(store, csv(store, charset, *rows), f"text/csv; charset={charset}")
    completed(store, path)
    assert names(store) == sorted(rows)


def test_a_byte_that_the_charset_does_not_have_is_a_bad_row_and_may_be_skipped(
    store: Store,
) -> None:
    body = csv(store, "windows-1252", "Ada", "é", "Zoë").replace("é".encode("cp1252"), b"\x81")
    kind = "text/csv; charset=windows-1252"
    path = started(store, body, kind)
    assert ended(store, path)["status"] == "failed"
    assert flaws(store, path) == [(2, None, "csv_row")]
    completed(store, started(store, body, kind, X_On_Invalid="skip"))
    assert names(store) == ["Ada", "Zoë"]


@pytest.mark.parametrize("kind", ["text/csv; charset=ebcdic", "application/json; charset=latin1"])
def test_a_job_in_a_charset_that_is_not_read_is_refused(store: Store, kind: str) -> None:
    answer = upload(store, b"[]", kind)
    assert (answer.status, answer.json()["code"]) == (415, "unsupported_charset")


def test_so_is_a_resumable_upload_at_its_creation(store: Store) -> None:
    tus = Client(store.service, store.account)
    for said in ({"charset": "ebcdic"}, {"filetype": "application/json; charset=utf-16"}):
        metadata = encoded(filename="x.csv", **said)
        answer = tus.send(
            "POST", "/api/files/", {"Upload-Length": "5", "Upload-Metadata": metadata}
        )
        assert (answer.status, answer.json()["code"]) == (415, "unsupported_charset")


@pytest.mark.parametrize("at", ["proxy", "API"])
@pytest.mark.parametrize(
    "path", ["/api/records/ingest/", "/api/records/search/", "/api/datasets/", "/api/schemas/"]
)
def test_json_that_declares_another_charset_is_refused_on_both_hosts(
    store: Store, at: str, path: str
) -> None:
    if at == "API" and path.startswith("/api/records/"):
        pytest.skip("these are the proxy's")
    host = store.service.proxy_url if at == "proxy" else store.service.base_url
    kind = {"Content-Type": "application/json; charset=iso-8859-1"}
    answer = call("POST", host + path, b"{}", auth=store.account.auth, headers=kind)
    assert (answer.status, answer.json()["code"]) == (415, "unsupported_charset")


def test_a_sample_is_read_in_its_charset(store: Store) -> None:
    answer = call(
        "POST",
        f"{store.service.proxy_url}/api/schemas/infer/",
        "größe\n1\n".encode("utf-16"),
        auth=store.account.auth,
        headers={"Content-Type": "text/csv; charset=utf-16"},
    )
    assert list(answer.json()["schema"]["properties"]) == ["größe"]
