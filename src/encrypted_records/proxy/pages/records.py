"""The page of a record: show, add, edit, delete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import Response

from encrypted_records import errors, runtime
from encrypted_records.client.proxy.connection import ShownSchema
from encrypted_records.model.field_types import BY_NAME
from encrypted_records.proxy.pages import formatting as words
from encrypted_records.proxy.pages import record_table
from encrypted_records.proxy.pages.internal_client import ProxyAnswer
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.questions import find_shown
from encrypted_records.proxy.pages.record_table import Links, columns_of, write_rows
from encrypted_records.proxy.pages.search_form import is_listed, number, read_typed, types_of


def _url(visit: Visit) -> str:
    return f"/api/records/{visit.id}/"


async def show(visit: Visit) -> Response:
    """The record; with links to the previous and next record if it was found on a page of a search;
    with ``?sealed`` also as stored at the server.
    """
    record = await visit.ask("GET", _url(visit))
    schema = await visit.read(ShownSchema, record["schema"])
    name = visit.request.query_params.get("q", "")
    asks_sealed = "sealed" in visit.request.query_params
    sealed = await record_table.fetch_sealed(visit, [record["id"]]) if asks_sealed else {}
    found = visit.desk.find(("found", schema.id, name), tuple) or ()
    place = found.index(record["id"]) if record["id"] in found else -1
    query = _query(visit)
    joined = f"{query}&" if query else "?"
    done = visit.desk.take(("done", visit.id), str) or ""
    return visit.render(
        "record.html",
        record=record,
        done=done,
        row=await _row(visit, record, schema, name) if done and visit.is_for_part else "",
        undoable=visit.desk.find(("before", visit.id), Replaced),
        rounded=visit.desk.take(("rounded", visit.id), list) or [],
        schema=schema,
        sealed=sealed.get(record["id"], {}),
        query=query,
        suffix=f"{joined}sealed=yes" if asks_sealed else query,
        place=place + 1,
        many=len(found),
        previous=found[place - 1] if place > 0 else "",
        next=found[place + 1] if 0 <= place < len(found) - 1 else "",
    )


async def _row(
    visit: Visit, record: dict[str, Any], schema: ShownSchema, name: str
) -> Markup | str:
    """The record's row in the table that it was opened from."""
    shown = find_shown(visit, schema.id, name)
    sealed = await record_table.fetch_sealed(visit, [record["id"]]) if shown.sealed else {}
    definition = schema.definition
    columns = columns_of(definition, types_of(definition), shown.hidden)
    return write_rows([record], columns, sealed, Links("", ""), 1)


def _query(visit: Visit) -> str:
    """The query string that leads back to the question that found this record."""
    name = visit.request.query_params.get("q", "")
    return f"?q={quote(name)}" if name else ""


def _form(visit: Visit, *, once: str = "", **shown: Any) -> Response:
    """The form of a record. Errors of a field are shown next to it, and others above.

    Args:
        once: identifies the record that the form stores, so that sending it again stores nothing.
    """
    shown |= {"once": once, "types": types_of(shown["schema"].definition), "query": _query(visit)}
    flaws = () if visit.refusal is None else visit.refusal.flaws
    details = {flaw.field: flaw.detail for flaw in reversed(flaws)}
    wrong = {name: details[name] for name in _names(shown["schema"]) if name in details}
    if wrong and isinstance(visit.refusal, errors.InvalidRecords):
        visit.refusal = errors.InvalidRecords(
            "the record does not match the schema, so nothing was stored",
            flaws=tuple(flaw for flaw in flaws if flaw.field not in wrong),
            hint=f"correct the marked fields: {', '.join(wrong)}",
        )
    first = next(iter(wrong), "")
    return visit.render("record_form.html", wrong=wrong, first_wrong=first, **shown)


async def add(visit: Visit) -> Response:
    schema = await visit.read(ShownSchema)
    # A form that is sent again because its answer was lost must not store a second record.
    once = visit.text("once")
    if visit.sends:
        data = _typed_data(visit, schema)
        given = {name: value for name, value in data.items() if value is not None}
        body = [{"schema": schema.url, "data": given}]
        headers = {"idempotency-key": once or str(runtime.uuid7())}
        stored = await visit.answer("POST", "/api/records/ingest/", body, headers=headers)
        (made,) = stored.json()
        return _go_to(visit, made["id"], made, "stored")
    if not once or getattr(visit.refusal, "reason", "") == "invalid_idempotency_key":
        once = str(runtime.uuid7())
    typed = _typed_texts(visit, schema)
    return _form(visit, schema=schema, record=None, etag="", versions={}, typed=typed, once=once)


def _go_to(visit: Visit, record_id: str, stored: dict[str, Any], done: str) -> Response:
    """Redirect to the record, whose page shows what was done and which values were rounded."""
    visit.desk.put(("done", record_id), done)
    if stored.get("rounded"):
        visit.desk.put(("rounded", record_id), stored["rounded"])
    return visit.go(f"/records/{record_id}/{_query(visit)}")


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of a field that another user, or both, have changed: as text, empty if missing.

    ``kept``: the visitor has not changed it.
    """

    before: str
    now: str
    typed: str
    kept: bool


@dataclass(frozen=True, slots=True)
class Replaced:
    """The values that an edit replaced, by field, None for missing; ``etag`` is the record's new
    entity tag."""

    data: dict[str, Any] = field(repr=False)
    etag: str


@dataclass(frozen=True, slots=True)
class RestorableRecords:
    """Deleted records, which can be stored again; ``once`` identifies the new records."""

    id: str
    data: Sequence[dict[str, Any]] = field(repr=False)
    once: str


@dataclass(frozen=True, slots=True)
class UnchangedRecord:
    """A record that was left unchanged, and why; ``number`` is that of its row when it was ticked.
    A record that ``is_gone`` cannot be opened.
    """

    number: int
    id: str
    why: str
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class PageMessage:
    """A message that the records page shows once; ``gone`` is the id of deleted records that can be
    stored again, ``edit`` that of a change that can be undone, ``left`` are the records that were
    left unchanged.
    """

    text: str
    gone: str = ""
    edit: str = ""
    left: Sequence[UnchangedRecord] = ()


def keep_deleted(
    visit: Visit, gone: RestorableRecords, schema: str = "", left: Sequence[UnchangedRecord] = ()
) -> None:
    """Keep a schema's deleted records for the undo button, and show a message on the page."""
    # Under its own name: another tab may show the button of an earlier deletion.
    visit.desk.put(("gone", schema or visit.id, gone.id), gone)
    subject = "The record was" if len(gone.data) == 1 else f"{len(gone.data)} records were"
    visit.desk.put(
        ("said", schema or visit.id), PageMessage(f"{subject} deleted.", gone.id, left=left)
    )


async def edit(visit: Visit) -> Response:
    """Send only the changed fields, for the version of the record that was shown.

    If another user has changed the record meanwhile, the form is shown again for the current
    record, with the typed values and both versions of each field that differs.
    """
    answer = await visit.answer("GET", _url(visit))
    record = answer.json()
    schema = await visit.read(ShownSchema, record["schema"])
    shown: dict[str, Any] = {"schema": schema, "record": record, "versions": {}}
    if not visit.sends:
        etag = answer.header("etag")
        return _form(visit, typed=_stored(record), etag=etag, **shown)
    etag = visit.text("etag")
    typed = _typed_texts(visit, schema)
    try:
        changed = _typed_data(visit, schema, only_changed=True)
        if changed:
            matching = {"if-match": etag} if etag else {}
            stored = await visit.answer("PATCH", _url(visit), {"data": changed}, headers=matching)
            before = {name: record["data"].get(name) for name in changed}
            kept = Replaced(before, stored.header("etag"))
            visit.desk.put(("before", visit.id), kept)
            return _go_to(visit, visit.id, stored.json(), "saved")
    except errors.PreconditionFailed:
        answer = await visit.answer("GET", _url(visit))
        shown["record"] = answer.json()
        return _show_conflict(visit, answer.header("etag"), shown, typed)
    except errors.ErsError as error:
        before = {name: visit.text(f"shown-{n}") for n, name in enumerate(_names(schema))}
        shown["record"] = {**record, "data": {n: text for n, text in before.items() if text}}
        visit.refusal = error
        return _form(visit, typed=typed, etag=etag, **shown)
    return visit.go(f"/records/{visit.id}/{_query(visit)}")


def _show_conflict(
    visit: Visit, etag: str, shown: dict[str, Any], typed: dict[str, str]
) -> Response:
    stored = _stored(shown["record"])
    versions: dict[str, Versions] = {}
    merged: dict[str, str] = {}
    for position, name in enumerate(_names(shown["schema"])):
        before = visit.text(f"shown-{position}").replace("\r\n", "\n")
        mine = typed[name]
        now = stored.get(name, "")
        kept = mine == before
        merged[name] = now if kept else typed[name]
        if now not in (before, mine):
            versions[name] = Versions(before, now, mine, kept)
    visit.refusal = errors.Conflict(
        "somebody else has changed this record in the meantime",
        hint="your changes are not stored yet, and not lost: compare them, then save yours, or"
        " keep the stored values",
    )
    return _form(visit, typed=merged, etag=etag, **shown | {"versions": versions})


def _stored(record: dict[str, Any]) -> dict[str, str]:
    return {name: words.plain(value) for name, value in record["data"].items()}


async def undo(visit: Visit) -> Response:
    """Restore the values that the form's edit replaced, if the record was not changed since, here
    or elsewhere.
    """
    before = visit.desk.find(("before", visit.id), Replaced)
    if before is None:
        raise errors.NotFound("there is nothing to undo here", hint="edit the record instead")
    changed = _changed_since("undone", "load the page again, and edit the record")
    if visit.text("etag") != before.etag:
        raise changed
    matching = {"if-match": before.etag}
    try:
        await visit.answer("PATCH", _url(visit), {"data": before.data}, headers=matching)
    except errors.PreconditionFailed:
        raise changed from None
    visit.desk.take(("before", visit.id), Replaced)
    visit.desk.put(("done", visit.id), "as it was before")
    return visit.go(f"/records/{visit.id}/{_query(visit)}")


def _changed_since(kept: str, hint: str) -> errors.Conflict:
    return errors.Conflict(
        f"somebody has changed this record since, so nothing was {kept}", hint=hint
    )


async def delete(visit: Visit) -> Response:
    """Delete the version that the page has shown. If the record was changed since, the page shows
    the current record.
    """
    answer = await visit.answer("GET", _url(visit))
    record, etag = answer.json(), answer.header("etag")
    if not visit.sends:
        return await _confirm_delete(visit, answer)
    changed = _changed_since("deleted", "delete the current record, or keep it")
    if visit.text("etag", etag) != etag:
        raise changed
    schema = record["schema"].split("/")[-2]
    how = {"erase": "true"} if visit.text("erase") else None
    try:
        await visit.answer("DELETE", _url(visit), params=how, headers={"if-match": etag})
    except errors.PreconditionFailed:
        raise changed from None
    if how is None:
        keep_deleted(
            visit, RestorableRecords(record["id"], [record["data"]], str(runtime.uuid7())), schema
        )
    else:
        visit.desk.put(("said", schema), PageMessage("The record was deleted."))
    return visit.go(f"/schemas/{schema}/search/{_query(visit)}")


async def _confirm_delete(visit: Visit, answer: ProxyAnswer) -> Response:
    """Show what the deletion removes, for the version in the form."""
    record = answer.json()
    tried = {"erase": "true", "dry_run": "true"}
    costs = (await visit.ask("DELETE", _url(visit), params=tried))["costs"]
    return visit.render(
        "delete.html",
        kind="record",
        cost=sum(cost["rows"] for cost in costs),
        thing={"name": "this record", "data": record["data"]},
        etag=answer.header("etag"),
        goes_with=[],
        back=f"/records/{visit.id}/{_query(visit)}",
        wrong=False,
    )


async def put_back(visit: Visit) -> Response:
    """Store deleted records as new records; only once, however often the form is sent."""
    name = ("gone", visit.id, visit.text("record"))
    gone = visit.desk.find(name, RestorableRecords)
    if gone is None:
        raise errors.NotFound("there is nothing to store again here")
    body = [{"schema": f"/api/schemas/{visit.id}/", "data": data} for data in gone.data]
    headers = {"idempotency-key": gone.once}
    stored = await visit.answer("POST", "/api/records/ingest/", body, headers=headers)
    made, *others = stored.json()
    visit.desk.take(name, RestorableRecords)
    if others:
        visit.desk.put(
            ("said", visit.id), PageMessage(f"{1 + len(others)} records were stored again.")
        )
        return visit.go(f"/schemas/{visit.id}/search/{_query(visit)}")
    return _go_to(visit, made["id"], made, "stored again")


def _names(schema: ShownSchema) -> list[str]:
    return list(schema.definition["properties"])


def _typed_texts(visit: Visit, schema: ShownSchema) -> dict[str, str]:
    """The form's texts by field name: the form numbers the fields, because names may be
    arbitrary.
    """
    types = types_of(schema.definition)
    return {name: typed_text(visit, n, types[name]) for n, name in enumerate(_names(schema))}


def typed_text(visit: Visit, position: int, kind: str) -> str:
    """The text typed for a field of a type. Line ends are normalized (browsers send CRLF), and
    dates with times get the seconds that browsers omit if they are 0.
    """
    typed = visit.text(f"value-{position}").replace("\r\n", "\n")
    offset = visit.text(f"offset-value-{position}")
    is_timed = offset or BY_NAME[kind].control.html == "datetime-local"
    return words.instant_of(typed, offset) if is_timed else typed


def _typed_data(visit: Visit, schema: ShownSchema, *, only_changed: bool = False) -> dict[str, Any]:
    """The form's text as values; a blank field has no value.

    Raises:
        InvalidRecords: a field of numbers contains other text.
    """
    flaws: list[errors.Flaw] = []
    data: dict[str, Any] = {}
    types = types_of(schema.definition)
    for position, name in enumerate(_names(schema)):
        typed = typed_text(visit, position, types[name])
        shown = visit.text(f"shown-{position}").replace("\r\n", "\n")
        if only_changed and typed == shown:
            continue
        data[name] = _value_of(typed, name, types[name], flaws)
    if flaws:
        raise errors.InvalidRecords("the record cannot be read", flaws=tuple(flaws), hint="")
    return data


def typed_value(visit: Visit, position: int, name: str, kind: str) -> Any:
    """The value of one field in the form; None if it was left blank.

    Raises:
        InvalidRecords: a field of numbers contains other text.
    """
    flaws: list[errors.Flaw] = []
    value = _value_of(typed_text(visit, position, kind), name, kind, flaws)
    if flaws:
        raise errors.InvalidRecords("the value cannot be read", flaws=tuple(flaws), hint="")
    return value


def _value_of(typed: str, name: str, kind: str, flaws: list[errors.Flaw]) -> Any:
    if not typed.strip():
        return None
    return read_typed(kind, typed, name, flaws) if is_listed(kind) else number(typed, name, flaws)


routes = [
    page("/schemas/{id}/add/", add, methods=("GET", "POST")),
    page("/records/{id}/", show),
    page("/records/{id}/edit/", edit, methods=("GET", "POST")),
    page("/schemas/{id}/put-back/", put_back, methods=("POST",)),
    page("/records/{id}/undo/", undo, methods=("POST",)),
    page("/records/{id}/delete/", delete, methods=("GET", "POST")),
]
