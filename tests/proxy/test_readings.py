"""Readings of files over HTTP: kept for a schema, used for the next file, told of by its job."""

from __future__ import annotations

import base64
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model import credentials
from tests.support.jobs import completed, ended, started
from tests.support.proxies import running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "rounding": "refuse",
    "properties": {
        "Nr": {"type": "string"},
        "Umsatz": {"type": "number", "minimum": 0, "maximum": 1000000, "precision": 2},
    },
}
JANUARY = b"Nr;Umsatz\n0001;1.234,50\n0002;12,25\n0003;vertraulich-xyz\n0004;\n"


@pytest.fixture
def store(service: Service) -> Store:
    return new_store(service, DEFINITION)


def detect(store: Store, body: bytes, said: Any = None, query: str = "") -> Answer:
    headers = {
        credentials.DEVICE_HEADER: store.device.text,
        "Content-Type": "application/octet-stream",
    }
    if said is not None:
        headers["X-Reading"] = base64.b64encode(json.dumps(said).encode()).decode()
    url = f"{store.service.proxy_url}/api/readings/detect/{query}"
    return call("POST", url, body, auth=store.account.auth, headers=headers)


def sent(store: Store, body: bytes, reading: Any, **headers: Any) -> str:
    told = base64.b64encode(json.dumps(reading).encode()).decode()
    return started(
        *(store, body, "text/csv"),
        query=f"?schema={store.schema_id}",
        Upload_Metadata=f"reading {told}",
        **headers,
    )


def test_a_reading_is_kept_sealed_for_its_owner_and_reads_the_next_file(store: Store) -> None:
    path, query = f"{store.schema}reading/", f"?schema={store.schema_id}"
    assert store.proxy("GET", path).status == 404
    said = {"columns": {"Umsatz": {"null": ["vertraulich-xyz"]}}}
    answer = detect(store, JANUARY, said, query)
    assert (answer.status, answer.json()["kept"]) == (200, False)
    reading = answer.json()["reading"]
    assert [column.get("type", "text") for column in reading["columns"]] == ["text", "number"]
    assert store.proxy("PUT", path, reading).status == 204
    assert store.proxy("GET", path).json() == reading
    files = [one for one in store.service.data_dir.rglob("*") if one.is_file()]
    assert [file for file in files if b"vertraulich-xyz" in file.read_bytes()] == []

    february = b"Umsatz;Nr\n1.500;0005\n"
    found = detect(store, february, query=query).json()
    assert (found["kept"], [difference["kind"] for difference in found["differences"]]) == (
        True,
        ["order"],
    )
    completed(store, sent(store, february, found["reading"]))
    march = b"Nr;Umsatz\n0006;1,500.25\n"
    (difference,) = detect(store, march, query=query).json()["differences"]
    assert (difference["taken"], difference["say"]) == (
        False,
        {"columns": {"Umsatz": {"decimal": "."}}},
    )
    found = detect(store, march, difference["say"], query).json()
    assert found["differences"] == []
    completed(store, sent(store, march, found["reading"]))

    other = Store(store.service, store.service.new_account(), store.schema)
    assert other.proxy("GET", path).status == 404
    assert other.proxy("PUT", path, reading).status == 404
    assert store.proxy("DELETE", path).status == 204
    assert store.proxy("GET", path).status == 404


def test_a_reading_that_does_not_fit_the_schema_is_not_kept(store: Store) -> None:
    path = f"{store.schema}reading/"
    refused: tuple[Any, ...] = (
        {"columns": [{"source": "a", "name": "a"}]},
        {"columns": []},
        {"columns": [{"source": "Nr", "name": "Nr"}], "more": 1},
        [],
    )
    for wrong in refused:
        answer = store.proxy("PUT", path, wrong)
        assert (answer.status, answer.json()["code"]) == (400, "reading"), wrong
    headers = {credentials.DEVICE_HEADER: store.device.text, "Content-Type": "text/plain"}
    url = f"{store.service.proxy_url}{path}"
    answer = call("PUT", url, b"{}", auth=store.account.auth, headers=headers)
    assert (answer.status, answer.json()["code"]) == (415, "unsupported_media_type")
    assert store.proxy("GET", path).status == 404


def test_a_kept_reading_that_the_keyring_does_not_open_is_said_with_a_way_out(store: Store) -> None:
    path, query = f"{store.schema}reading/", f"?schema={store.schema_id}"
    reading = detect(store, JANUARY, query=query).json()["reading"]
    assert store.proxy("PUT", path, reading).status == 204
    (file,) = store.service.data_dir.rglob("questions.sqlite3")
    with closing(sqlite3.connect(file)) as database, database:  # as another keyring has sealed it
        database.execute("UPDATE reading SET sealed = zeroblob(600)")
    for answer in (detect(store, JANUARY, query=query), store.proxy("GET", path)):
        assert (answer.status, answer.json()["code"]) == (409, "reading_lost")
        assert "--reading none --keep" in answer.json()["hint"]
    assert detect(store, JANUARY, query=f"{query}&kept=false").status == 200
    assert store.proxy("PUT", path, reading).status == 204
    assert detect(store, JANUARY, query=query).json()["kept"] is True


def test_a_job_tells_what_became_of_the_cells_of_its_file(store: Store) -> None:
    body = b"above\nNr;Umsatz\n" + JANUARY.partition(b"\n")[2] + b"0005;A17\n0006;1;2\n"
    reading = {
        "columns": [
            {"source": "Nr", "name": "Nr"},
            {
                "source": "Umsatz",
                "name": "Umsatz",
                "type": "number",
                "decimal": ",",
                "thousands": ".",
                "null": ["vertraulich-xyz"],
            },
        ],
        "delimiter": ";",
        "header_row": 2,
        "above": 1,
    }
    path = sent(store, body, reading, X_On_Invalid="skip")
    completed(store, path)
    report = store.proxy("GET", f"{path}reading/").json()
    assert report["reading"]["header_row"] == 2
    assert {
        name: report[name] for name in ("rows", "bad_rows", "short_rows", "above", "below")
    } == {
        "rows": 6,
        "bad_rows": 2,
        "short_rows": 0,
        "above": 1,
        "below": 0,
    }
    assert report["rewritten"] == {"Umsatz": 2}
    assert report["absent"] == {"Umsatz": {"vertraulich-xyz": 1, "": 1}}
    assert [(one["row"], one["field"]) for one in report["unread"]] == [(5, "Umsatz"), (6, None)]
    assert "A17" not in json.dumps(report["unread"])

    plain = started(*(store, b"Nr,Umsatz\n1,1\n", "text/csv"), query=f"?schema={store.schema_id}")
    completed(store, plain)
    assert store.proxy("GET", f"{plain}reading/").status == 404


def test_decimals_are_rounded_only_if_the_reading_says_so(store: Store) -> None:
    body = b"Nr,Umsatz\n1,1.125\n"
    for rounds, state in ((False, "failed"), (True, "completed")):
        found = detect(store, body, {"round": rounds}, f"?schema={store.schema_id}").json()
        path = sent(store, body, found["reading"])
        assert ended(store, path)["status"] == state
        report = store.proxy("GET", f"{path}reading/").json()
        assert report["rounded"] == ({"Umsatz": 1} if rounds else {})


def change(store: Store, properties: Any, **members: Any) -> None:
    body = {"schema": DEFINITION | {"properties": properties}, **members}
    answer = store.proxy("POST", f"{store.schema}change/", body)
    assert answer.status == 200, answer.body


def test_a_kept_reading_has_the_new_name_of_a_renamed_field(store: Store) -> None:
    path, query = f"{store.schema}reading/", f"?schema={store.schema_id}"
    store.ingest([{"Nr": "0000", "Umsatz": 1}])
    body = JANUARY.replace(b"vertraulich-xyz", b"7,50")
    reading = detect(store, body, query=query).json()["reading"]
    assert store.proxy("PUT", path, reading).status == 204
    number, turnover = DEFINITION["properties"].values()
    change(store, {"Nr": number, "Betrag": turnover}, renames={"Betrag": "Umsatz"})
    assert [column["name"] for column in store.proxy("GET", path).json()["columns"]] == [
        "Nr",
        "Betrag",
    ]
    found = detect(store, body, query=query).json()
    assert (found["kept"], found["differences"]) == (True, [])
    completed(store, sent(store, body, found["reading"]))
    assert [one["data"].get("Betrag") for one in store.everything()] == [
        1,
        1234.5,
        12.25,
        7.5,
        None,
    ]


def test_a_field_that_another_proxy_has_added_is_read_from_files_at_once(
    store: Store, tmp_path: Path
) -> None:
    """Only the current definition may refuse a column."""
    store.ingest([{"Nr": "0000"}])
    with running_proxy(store.service.base_url, with_keyrings(store.service, tmp_path)) as proxy:
        other = replace(store, service=replace(store.service, proxy_url=proxy.url))
        query, properties = f"?schema={store.schema_id}", dict(DEFINITION["properties"])
        assert len(other.everything()) == 1  # it has the definition of before in memory

        def add(name: str) -> None:
            properties[name] = {"type": "string"}
            change(store, properties)

        add("Akte")
        completed(other, started(other, b"Nr,Akte\n1,a\n", "text/csv", query=query))
        add("Ort")
        reading = detect(other, b"Nr;Ort\n0001;Bern\n", query=query).json()["reading"]
        add("Land")
        country = {**reading["columns"][1], "source": "Land", "name": "Land"}
        more = {**reading, "columns": [*reading["columns"], country]}
        assert other.proxy("PUT", f"{store.schema}reading/", more).status == 204
        assert other.proxy("PUT", f"{store.schema}reading/", reading).status == 204
        add("Kreis")
        answer = detect(other, b"Nr;Ort;Kreis\n0001;Bern;3\n", query=query).json()
        assert [one["say"] for one in answer["differences"]] == [
            {"columns": {"Kreis": {"name": "Kreis"}}}
        ]
