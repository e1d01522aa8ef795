"""An export holds every record of a search, or shows that it does not."""

from __future__ import annotations

import csv
import http.client
import io
import json
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import pytest

from encrypted_records.index.query.candidates import BATCH
from encrypted_records.ingest.blocks import RawRecord, RecordStart
from encrypted_records.ingest.parsing import CsvParser, read_header, read_numbers
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import from_text
from encrypted_records.proxy.search.row_fetcher import LEAST_WINDOW
from tests.e2e.database import database_of
from tests.support.jobs import completed, started
from tests.support.service import ANSWER_SECONDS, Service, call
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 2**60},
        "x": {"type": "number", "minimum": -5, "maximum": 5, "precision": 3},
    },
}
NASTY = ["", " ", "a,b", 'say "hi"', "two\nlines", "cr\r\nlf", "é\u0301", "=1+1", "\t", "\\N"]
COUNT = 2 * BATCH + 200


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number in range(COUNT):
        row = {"text": f"{NASTY[number % 10]}", "n": (number * 7919) % 1000, "x": number / 1000}
        found.append({name: value for name, value in row.items() if (number + len(name)) % 6})
    return found


@pytest.fixture(scope="module")
def store(service: Service) -> Store:
    made = new_store(service, DEFINITION)
    made.ingest(rows())
    return made


def exported(store: Store, *, headers: dict[str, str] | None = None, **body: Any) -> Any:
    return call(
        "POST",
        f"{store.service.proxy_url}/api/records/export/",
        {"schema": store.schema, **body},
        auth=store.account.auth,
        headers=headers,
    )


def lines(answer: Any) -> list[Any]:
    assert answer.status == 200, answer.body
    return [json.loads(line, parse_float=Decimal) for line in answer.body.splitlines()]


def test_every_record_is_exported_in_the_order_of_storage(store: Store) -> None:
    answer = exported(store)

    assert answer.headers["Content-Type"] == "application/x-ndjson"
    assert lines(answer) == store.everything()
    assert len(lines(answer)) == COUNT


def test_an_export_is_of_any_search_and_in_any_order(store: Store) -> None:
    where = {"field": "n", "op": "lt", "value": 700}
    order_by = ["-n", "text"]
    pages: list[Any] = []
    cursor = None
    while True:
        page = store.search(where, order_by=order_by, limit=1000, cursor=cursor, fields=["n"])
        pages += page["results"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(pages) > BATCH
    assert lines(exported(store, where=where, order_by=order_by, fields=["n"])) == pages


@pytest.mark.parametrize("headers", [{}, {"Accept": "text/csv"}])
def test_a_csv_export_can_be_uploaded_again(store: Store, headers: dict[str, str]) -> None:
    body = {} if headers else {"format": "csv"}
    answer = exported(store, headers=headers, **body)

    assert answer.headers["Content-Type"].startswith("text/csv")
    header = read_header(answer.body, final=True)
    assert header is not None
    assert (header.names, header.schema) == (("text", "n", "x"), None)
    parser = CsvParser(header, RecordStart(header.size, 1))
    blocks = [*parser.feed(answer.body[header.size :]), *parser.finish()]
    definition = parse_definition(json.dumps(DEFINITION))
    records = [record for block in blocks for record in block.records]
    good = [record for record in records if isinstance(record, RawRecord)]
    assert good == records
    found = [read_numbers(definition, record.data) for record in good]
    assert found == [record["data"] for record in store.everything()]


def test_a_csv_export_for_spreadsheets_changes_formulas_and_nothing_else(store: Store) -> None:
    plain = list(csv.reader(io.StringIO(exported(store, format="csv").body.decode(), newline="")))
    answer = exported(store, format="csv", safe_cells=True)
    safe = list(csv.reader(io.StringIO(answer.body.decode(), newline="")))
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert safe[0] == plain[0]
    changed = {row[0]: other[0] for row, other in zip(plain, safe, strict=True) if row != other}
    assert changed == {"=1+1": "'=1+1", "\t": "'\t"}
    assert [row[1:] for row in safe] == [row[1:] for row in plain]


def test_the_header_names_the_schema_only_where_that_is_asked_for(store: Store) -> None:
    where = {"field": "n", "op": "eq", "value": 1}
    plain = exported(store, where=where, format="csv").body
    named = exported(store, where=where, format="csv", with_schema_id=True).body
    assert plain.startswith(b"text,n,x\r\n")
    assert named == plain.replace(b"\r\n", f",schema_id:{store.schema_id}\r\n".encode(), 1)


def test_an_absent_value_alone_in_its_row_stays_a_row(service: Service) -> None:
    definition = {"type": "object", "properties": {"a": {"type": "string"}}}
    store = new_store(service, definition)
    store.ingest([{"a": "x"}, {}, {"a": ""}])
    body = exported(store, format="csv").body
    assert body.splitlines() == [b"a,leave_out:", b"x,", b",", b'"",']
    again = store.another_schema(definition)
    completed(again, started(again, body, "text/csv", query=f"?schema={again.schema_id}"))
    assert [one["data"] for one in again.everything()] == [{"a": "x"}, {}, {"a": ""}]
    full = store.another_schema(definition | {"required": ["a"]})
    full.ingest([{"a": "x"}])
    assert exported(full, format="csv").body == b"a\r\nx\r\n"


def test_an_empty_export_is_empty_and_csv_has_its_header(store: Store) -> None:
    where = {"field": "n", "op": "gt", "value": 10**9}
    assert exported(store, where=where).body == b""
    assert exported(store, where=where, format="csv").body.count(b"\r\n") == 1


@pytest.mark.parametrize(
    "body",
    [
        {"limit": 5},
        {"cursor": None},
        {"count": True},
        {"format": "xml"},
        {"format": 1},
        {"safe_cells": True},
        {"with_schema_id": True},
        {"format": "csv", "with_schema_id": 1},
        {"format": "csv", "safe_cells": "yes"},
        {"format": "csv", "safe_cells": None},
    ],
)
def test_an_export_that_cannot_be_made_is_refused_before_it_begins(
    store: Store, body: dict[str, Any]
) -> None:
    answer = exported(store, **body)
    assert (answer.status, answer.json()["code"]) == (400, "invalid_query")


def raw(store: Store, body: dict[str, Any]) -> tuple[int, bytes, bool]:
    """Status, what came of the body, and whether it was whole."""
    address = urlsplit(store.service.proxy_url)
    connection = http.client.HTTPConnection(
        address.hostname or "", address.port, timeout=ANSWER_SECONDS
    )
    headers = {"Authorization": store.account.auth, "Content-Type": "application/json"}
    asked = json.dumps({"schema": store.schema, **body})
    try:
        connection.request("POST", "/api/records/export/", asked, headers)
        answer = connection.getresponse()
        try:
            return answer.status, answer.read(), True
        except http.client.IncompleteRead as error:
            return answer.status, error.partial, False
    finally:
        connection.close()


@pytest.mark.parametrize("form", ["ndjson", "csv"])
def test_an_export_that_fails_on_its_way_does_not_end_like_a_whole_one(
    service: Service, form: str
) -> None:
    store = new_store(service, DEFINITION)
    store.ingest([{"n": number} for number in range(LEAST_WINDOW + 100)])
    with database_of(service) as database:
        groups = database.of_schema("record_group", from_text(store.schema_id), "id")
        (last,) = database.run(
            "SELECT * FROM record_row WHERE group_id = %s AND ordinal = 77", groups[-1]["id"]
        )
        sealed = bytes(last["sealed"])
        database.change("record_row", last, sealed=sealed[:-1] + bytes([sealed[-1] ^ 1]))

    status, body, whole = raw(store, {"format": form})

    assert (status, whole) == (200, False)
    rows = body.splitlines()
    if form == "ndjson":
        assert len(rows) == LEAST_WINDOW + 1
        assert json.loads(rows[-1])["error"]["code"] == "does_not_open"
    else:
        assert len(rows) == LEAST_WINDOW + 1
    early = raw(store, {"format": form, "order_by": ["-n"]})
    assert (early[0], json.loads(early[1])["code"], early[2]) == (422, "does_not_open", True)
