"""Records that are ticked in the table: copied, exported and deleted together."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import PlainTextResponse, Response

from encrypted_records import runtime
from encrypted_records.errors import InvalidQuery
from encrypted_records.model import csv_text, json_text
from encrypted_records.proxy.pages import formatting as words
from encrypted_records.proxy.pages import sealed_values
from encrypted_records.proxy.pages.cells import TICK
from encrypted_records.proxy.pages.headers import HEADERS
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.questions import SchemaQuestion, find_question, keep_question
from encrypted_records.proxy.pages.records import Gone, leave_gone


async def use_ticked(visit: Visit) -> Response:
    """Carry out the action of the button on the ticked records: ``copy`` returns the shown
    columns to a script, for a spreadsheet.
    """
    on = await find_question(visit)
    ids = [text for name, text in visit.form.items() if TICK.fullmatch(name)]
    if not ids:
        raise InvalidQuery("no record is ticked", hint="tick some in the table first")
    records = await sealed_values.open_records(visit, ids)
    name = on.schema["slug"]
    match visit.text("do"):
        case "copy":
            return PlainTextResponse(_as_table(records, on), headers=HEADERS)
        case "csv":
            return visit.download(_as_csv(records, on), f"{name}.csv")
        case "ndjson":
            lines = b"".join(json_text.encode(record) + b"\n" for record in records)
            return visit.download(lines, f"{name}.ndjson")
        case "delete":
            await visit.answer("DELETE", "/api/records/", params={"id": ids})
            once = str(runtime.uuid7())
            leave_gone(visit, Gone(once, [record["data"] for record in records], once))
            keep_question(visit, on)
            return visit.go(f"/schemas/{visit.id}/search/{on.query}")
    raise InvalidQuery("the page has no such button", hint="load the page again")


def _as_table(records: Sequence[Mapping[str, Any]], on: SchemaQuestion) -> str:
    """Shown columns, divided by tabs. A text that a spreadsheet would run as a formula gets an
    apostrophe."""
    names = [name for name in on.types if name not in on.question.hidden]
    written = io.StringIO()
    writer = csv.writer(written, delimiter="\t", lineterminator="\n")
    writer.writerow(csv_text.guard(name) for name in names)
    for record in records:
        values = [record["data"].get(name) for name in names]
        writer.writerow(
            csv_text.guard(value) if isinstance(value, str) else words.plain(value)
            for value in values
        )
    return written.getvalue()


def _as_csv(records: Sequence[Mapping[str, Any]], on: SchemaQuestion) -> bytes:
    required = on.schema["schema"].get("required", ())
    columns = csv_text.Columns.of(list(on.types), required, safe=False)
    return columns.header() + b"".join(columns.record(record["data"]) for record in records)


routes = [page("/schemas/{id}/ticked/", use_ticked, methods=("POST",))]
