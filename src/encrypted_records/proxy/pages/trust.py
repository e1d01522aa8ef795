"""Trust: who has which data of a schema, with one record as plaintext and as stored at the server.

The server's side is real: the stored bytes of a record that was just read and decrypted, and the
requests that have left this proxy.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from encrypted_records.client.messages import Note
from encrypted_records.client.proxy.connection import ShownSchema
from encrypted_records.errors import ErsError, NotAuthenticated
from encrypted_records.proxy.pages.formatting import plain
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.schema_form import SchemaDraft

#: Bytes of an encrypted field that are shown, and characters of its plaintext.
SHOWN_BYTES = 20
SHOWN_CHARACTERS = 80
#: Maximum number of sent requests that are shown.
SHOWN_REQUESTS = 6


#: What the API sees in a request, by its method and path, besides the caller, the time and the
#: sizes; the first match counts.
_SEEN = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"\S+ /api/schemas/[^/]+/rows/", "numbers of rows, and no value"),
        (r"\S+ /api/schemas/[^/]+/pages/", "numbers of index pages, and no value"),
        (r"\S+ /api/schemas/[^/]+/names/", "numbers of blocks of rows"),
        (r"\S+ /api/schemas/[^/]+/digests/", "numbers of rows or segments whose digests are read"),
        (r"\S+ /api/schemas/[^/]+/manifest/", "how much of the schema's log this proxy has"),
        (r"GET /api/schemas/[^/]+/checkpoints/", "that the summary of the log is read"),
        (r"\S+ /api/schemas/[^/]+/checkpoints/", "a sealed summary of the log"),
        (r"\S+ /api/schemas/[^/]+/staging/", "sealed rows and index segments: number and sizes"),
        (r"\S+ /api/schemas/[^/]+/damage/", "that it is asked which rows are lost"),
        (r"GET /api/schemas/[^/]+/erasure/", "that it is asked which rows are erased"),
        (r"\S+ /api/schemas/[^/]+/erasure/", "that ended rows are to be erased at once"),
        (r"\S+ /api/schemas/[^/]+/holds/", "which versions of the log are read for long"),
        (r"\S+ /api/commits/", "sealed rows and index segments: number, sizes, which rows end"),
        (r"\S+ /api/jobs/", "the number of a job, and its sealed parts"),
        (r"\S+ /api/records/", "identifiers of records"),
        (r"\S+ /api/organizations/[^/]+/audit-log/", "that the audit log is read"),
        (
            r"\S+ /api/organizations/[^/]+/requests/",
            "requests for access: the member, the dataset and the right",
        ),
        (
            r"\S+ /api/(organizations/[^/]+/(members|invitations|roster|grants|answers|services)"
            r"|invitations)/",
            "members, invitations and signed entries about them",
        ),
        (
            r"\S+ /api/(accounts|csrf|tokens?|users)/",
            "your account, and what proves who you are",
        ),
        (r"GET /api/(datasets|organizations|schemas)/", "which names, fields and rights are read"),
        (r"DELETE /api/(datasets|organizations|schemas)/", "which of them is deleted"),
        (r"\S+ /api/(datasets|organizations|schemas)/", "the names and definitions that you store"),
        (r"\S+ /api/status/", "that somebody asks"),
    )
)


def describe_seen(note: Note) -> str:
    """Describe what the API sees in a sent request."""
    line = f"{note.method} {note.path}"
    return next((text for pattern, text in _SEEN if pattern.match(line)), "its path alone")


@dataclass(frozen=True, slots=True)
class ExampleCell:
    """A field of the example: its value as read with the keys, and as stored."""

    name: str
    value: str
    is_missing: bool
    start: str
    size: int


async def start(visit: Visit) -> Response:
    """Redirect to the newest schema with records."""
    schemas = await visit.every(ShownSchema)
    filled = [schema for schema in schemas if schema.key_id is not None]
    if not filled:
        return visit.render("trust.html", schema=None, **_NOTHING)
    newest = max(filled, key=lambda schema: schema.id)
    return visit.go(f"/schemas/{newest.id}/trust/")


_NOTHING: dict[str, Any] = {
    "others": [],
    "state": None,
    "cells": [],
    "stored": None,
    "record_id": "",
    "estimate": None,
    "question": None,
    "keyring": None,
    "access": None,
    "sent": [],
    "seen_of": describe_seen,
    "published": [],
}


async def show(visit: Visit) -> Response:
    # The requests of other pages, before this page adds its requests.
    before = list(visit.journal)
    schema = await visit.read(ShownSchema)
    keyring, access = await _keyring(visit), await visit.ask("GET", "/api/devices/")
    draft = SchemaDraft()
    draft.take(schema.definition)
    values = _NOTHING | {"schema": schema, "keyring": keyring, "access": access}
    values["published"] = [row for row in draft.rows if row.published]
    values["others"] = [
        schema_
        for schema_ in await visit.every(ShownSchema)
        if schema_.key_id is not None and schema_.id != schema.id
    ][:20]
    if schema.key_id is None:
        return visit.render("trust.html", **values)
    try:
        values["state"] = await visit.ask(
            "GET", "/api/records/status/", params={"schema": schema.url}
        )
        values |= await _example(visit, schema)
    except NotAuthenticated:
        raise
    except ErsError as error:
        return visit.problem(error, "trust.html", **values)
    values["sent"] = list(reversed(before or list(visit.journal)))[:SHOWN_REQUESTS]
    estimated = {"schema": schema.definition, "records": max(1, values["state"]["records"])}
    values["estimate"] = await visit.ask("POST", "/api/schemas/estimate/", estimated)
    return visit.render("trust.html", **values)


async def list_requests(visit: Visit) -> Response:
    """The last requests that have left this proxy for pages of this session."""
    sent = list(reversed(list(visit.journal)))
    return visit.render("requests.html", sent=sent, seen_of=describe_seen)


async def _keyring(visit: Visit) -> Any:
    try:
        return await visit.ask("GET", "/api/keyring/")
    except NotAuthenticated:
        raise
    except ErsError:  # none yet, or locked: its own page shows it
        return None


async def _example(visit: Visit, schema: ShownSchema) -> dict[str, Any]:
    """The example record, as plaintext and as stored."""
    found = await visit.ask("POST", "/api/records/search/", {"schema": schema.url, "limit": 1})
    if not found["results"]:
        return {}
    record = found["results"][0]
    # Requested with other rows, like a search: the API does not learn which row is shown here.
    (sealed,) = await visit.ask("POST", "/api/records/sealed/", {"ids": [record["id"]]})
    stored_bytes = {name: b64decode(text) for name, text in sealed["fields"].items()}
    cells = [
        ExampleCell(
            name=name,
            value=plain(record["data"].get(name))[:SHOWN_CHARACTERS],
            is_missing=name not in record["data"],
            start=stored_bytes[name][:SHOWN_BYTES].hex(),
            size=len(stored_bytes[name]),
        )
        for name in schema.definition["properties"]
        if name in stored_bytes
    ]
    stored = {name: sealed[name] for name in ("group", "ordinal", "key_id", "version")}
    stored["bytes"] = sum(cell.size for cell in cells)
    question = await _question(visit, schema, record["data"])
    return {"cells": cells, "stored": stored, "record_id": record["id"], "question": question}


async def _question(
    visit: Visit, schema: ShownSchema, data: Mapping[str, Any]
) -> dict[str, Any] | None:
    """A search for the first value of the record, and the requests to the API for it."""
    field = next((name for name in schema.definition["properties"] if name in data), None)
    if field is None:
        return None
    where = {"field": field, "op": "eq", "value": data[field]}
    body = {"schema": schema.url, "where": where, "limit": 10}
    cost = await visit.ask("POST", "/api/records/explain/", body)
    return {"field": field, "value": plain(data[field])[:SHOWN_CHARACTERS], "cost": cost}


routes = [
    page("/trust/", start),
    page("/requests/", list_requests),
    page("/schemas/{id}/trust/", show),
]
