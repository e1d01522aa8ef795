"""Each file as people have it is stored with every cell, by command, Python, HTTP and page."""

from __future__ import annotations

import json
import secrets
from base64 import b64encode
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest

from encrypted_records import Client
from encrypted_records.errors import ReadingQuestion
from encrypted_records.model.samples import FileReading
from tests.cli.command import Ers
from tests.proxy.test_file_pages import made, send
from tests.support import jobs
from tests.support.eventually import eventually
from tests.support.mutated_files import EXPECTED, FILES, KEPT_AS_TEXT
from tests.support.page_visits import Browser, logged_in
from tests.support.service import Account, Service, call
from tests.support.store import Store, new_schema

#: A question, a guess of another alphabet, a container, and lines: what a way has to hand on.
#: tests/ingest/test_reading.py reads the cells of every file, by the same reader.
OF_EACH_KIND = ("ambiguous-dates.csv", "excel-ja-sjis.csv", "title.xlsx", "lines.ndjson")


def is_meant(found: Any, wanted: str | None) -> bool:
    """Whether a cell is stored as its author meant it, who has written it as canonical text."""
    match found:
        case None:
            return wanted is None
        case bool():
            return wanted == str(found).lower()
        case int() | float() | Decimal():
            return wanted is not None and Decimal(str(found)) == Decimal(wanted)
    return wanted is not None and found.replace("Z", "+00:00") in (
        wanted,
        wanted.replace("Z", "+00:00"),
    )


def check(name: str, records: Sequence[dict[str, Any]]) -> None:
    """Hold what is stored of a file against its expected table: the same rows, in any order."""
    expected = EXPECTED[name]
    names = [column["name"] for column in expected["columns"]]
    left = list(records)
    assert len(left) == len(expected["rows"])
    for cells in expected["rows"]:
        wanted = {
            field: cell
            for field, cell in zip(names, cells, strict=True)
            if (name, field) not in KEPT_AS_TEXT
        }
        same = [
            at
            for at, record in enumerate(left)
            if all(is_meant(record.get(field), cell) for field, cell in wanted.items())
        ]
        assert same, (wanted, left[:2])
        left.pop(same[0])


def by_http(service: Service, account: Account, body: bytes) -> str:
    """The id of the schema that takes a file by plain requests."""
    url = f"{service.proxy_url}/api/readings/detect/"
    headers = {"Content-Type": "application/octet-stream"}
    answer = call("POST", url, body, auth=account.auth, headers=headers)
    assert answer.status == 200, answer.body
    found = answer.json()
    store = Store(service, account, new_schema(service, account, found["schema"]))
    reading = b64encode(json.dumps(found["reading"]).encode()).decode()
    job = jobs.started(
        store,
        body,
        "application/octet-stream",
        query=f"?schema={store.schema_id}",
        Upload_Metadata=f"reading {reading}",
    )
    assert jobs.ended(store, job)["status"] == "completed"
    return store.schema_id


@pytest.fixture(scope="module")
def client(running: Service, account: Account) -> Iterator[Client]:
    with Client(running.proxy_url, email=account.email, password=account.password) as client:
        yield client


@pytest.fixture(scope="module")
def browser(running: Service, account: Account) -> Browser:
    return logged_in(running, account)


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_every_cell_of_a_file_is_stored_as_its_author_meant_it_on_every_way(
    ers: Ers, running: Service, account: Account, client: Client, browser: Browser, name: str
) -> None:
    path, body = FILES / name, (FILES / name).read_bytes()
    dataset = client.create_dataset(f"Ways {secrets.token_hex(4)}")
    flags: list[str] = []
    try:
        done = dataset.import_file(path, name="python")
    except ReadingQuestion as question:
        found = question.reading
        assert isinstance(found, FileReading)
        said: dict[str, Any] = {member: found.reading[member] for member in found.guessed}
        for member, value in said.items():
            flags += [f"--{member}", str(value)]
        asked = {field.name: {"type": "text"} for field in found.fields if field.ask}
        said |= {"columns": asked} if asked else {}
        done = dataset.import_file(path, name="python", reading=said)
    ers.done("import", path, "--dataset", dataset.slug, "--name", "ers", "--yes", *flags)
    # All schemas are never listed: there are four more with each file.
    paged = client.schema(made(browser, name, body))
    assert send(browser, f"/schemas/{paged.id}/upload/", name, body, do="next").status == 200
    eventually(lambda: paged.count() == len(EXPECTED[name]["rows"]) or None)
    plain = client.schema(by_http(running, account, body))
    for schema in (done.schema, client.schema("ers", dataset=dataset.slug), paged, plain):
        check(name, [dict(record.data) for record in schema.search()])
