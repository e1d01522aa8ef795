"""One record: in full, added, edited, deleted."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from encrypted_records.errors import BadInput, Conflict, ErsError, Flaw, InvalidRecords
from encrypted_records.proxy.routes.web import words
from encrypted_records.proxy.routes.web.question import number
from encrypted_records.proxy.routes.web.visit import Visit, page


def _url(visit: Visit) -> str:
    return f"/api/records/{visit.id}/"


async def one(visit: Visit) -> Response:
    record = await visit.ask("GET", _url(visit))
    schema = await visit.ask("GET", record["schema"])
    return visit.render("record.html", record=record, schema=schema)


async def add(visit: Visit) -> Response:
    schema = await visit.ask("GET", f"/api/schemas/{visit.id}/")
    shown: dict[str, Any] = {"schema": schema, "record": None, "etag": ""}
    if not visit.sends:
        return visit.render("record_form.html", typed={}, **shown)
    try:
        data = _typed_data(visit, schema)
        given = {name: value for name, value in data.items() if value is not None}
        body = [{"schema": schema["url"], "data": given}]
        (made,) = await visit.ask("POST", "/api/records/ingest/", body)
    except BadInput as error:
        return visit.problem(error, "record_form.html", typed=_typed(visit, schema), **shown)
    return visit.go(f"/records/{made['id']}/")


async def edit(visit: Visit) -> Response:
    """Sends only the fields that were changed, for the version of the record that was shown."""
    answer = await visit.answer("GET", _url(visit))
    record = answer.json()
    schema = await visit.ask("GET", record["schema"])
    shown: dict[str, Any] = {"schema": schema, "record": record}
    if not visit.sends:
        typed = {name: words.plain(value) for name, value in record["data"].items()}
        etag = answer.header("etag")
        return visit.render("record_form.html", typed=typed, etag=etag, **shown)
    etag = visit.text("etag")
    try:
        changed = _typed_data(visit, schema, only_changed=True)
        if changed:
            matching = {"if-match": etag} if etag else {}
            await visit.answer("PATCH", _url(visit), {"data": changed}, headers=matching)
    except ErsError as error:
        typed = _typed(visit, schema)
        told = _changed_meanwhile() if error.reason == "precondition_failed" else error
        return visit.problem(told, "record_form.html", typed=typed, etag=etag, **shown)
    return visit.go(f"/records/{visit.id}/")


def _changed_meanwhile() -> ErsError:
    """What ``precondition_failed`` is to somebody who knows no ETags."""
    return Conflict(
        "somebody else has changed this record meanwhile",
        hint="your change is not stored; open the record again, and repeat it if it still fits",
    )


async def delete(visit: Visit) -> Response:
    record = await visit.ask("GET", _url(visit))
    search = f"/schemas/{record['schema'].split('/')[-2]}/search/"
    if not visit.sends:
        return visit.render(
            "delete.html",
            kind="record",
            thing={"name": "this record"},
            must_type=False,
            goes_with=[],
            back=f"/records/{visit.id}/",
            wrong=False,
        )
    await visit.ask("DELETE", _url(visit))
    return visit.go(search)


def _names(schema: dict[str, Any]) -> list[str]:
    return list(schema["schema"]["properties"])


def _typed(visit: Visit, schema: dict[str, Any]) -> dict[str, str]:
    """Text in the form by field name: fields are numbered there, as names may be anything."""
    return {name: visit.text(f"value-{n}") for n, name in enumerate(_names(schema))}


def _typed_data(
    visit: Visit, schema: dict[str, Any], *, only_changed: bool = False
) -> dict[str, Any]:
    """The form's text as values; a field left blank has none.

    Raises:
        InvalidRecords: something typed into a number's field is none.
    """
    flaws: list[Flaw] = []
    data: dict[str, Any] = {}
    for position, name in enumerate(_names(schema)):
        # Browsers send line ends as CRLF, whatever the text had.
        typed = visit.text(f"value-{position}").replace("\r\n", "\n")
        shown = visit.text(f"shown-{position}").replace("\r\n", "\n")
        if only_changed and typed == shown:
            continue
        if not typed.strip():
            data[name] = None
        elif schema["schema"]["properties"][name]["type"] == "string":
            data[name] = typed
        else:
            data[name] = number(typed, name, flaws)
    if flaws:
        raise InvalidRecords("the record cannot be read", flaws=tuple(flaws), hint="")
    return data


routes = [
    page("/schemas/{id}/add/", add, methods=("GET", "POST")),
    page("/records/{id}/", one),
    page("/records/{id}/edit/", edit, methods=("GET", "POST")),
    page("/records/{id}/delete/", delete, methods=("GET", "POST")),
]
