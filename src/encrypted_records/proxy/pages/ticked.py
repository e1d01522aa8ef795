"""Records that are ticked in the table: copied, exported, edited and deleted together.

- A tick names its record and has the fingerprint of the values that were shown. A record whose
  values have changed is neither deleted nor edited, and the page lists it.
- Between that comparison and the change itself the record's version is checked by the endpoint.
- One field of all ticked records is edited record by record. The progress is stored under a name in
  the form, so that a form that is sent again continues after the last edited record.
"""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import PlainTextResponse, Response

from encrypted_records import errors, runtime
from encrypted_records.model import record_formats, strict_json
from encrypted_records.proxy.pages import formatting as words
from encrypted_records.proxy.pages import record_table
from encrypted_records.proxy.pages.page import PAGE_HEADERS, Visit, page
from encrypted_records.proxy.pages.questions import SchemaQuestion, find_question, keep_question
from encrypted_records.proxy.pages.record_table import TICK, OpenRecord, fingerprint
from encrypted_records.proxy.pages.records import (
    PageMessage,
    RestorableRecords,
    UnchangedRecord,
    keep_deleted,
    typed_text,
    typed_value,
)

#: How often records are read again that are changed during their deletion.
_ATTEMPTS = 3
_IS_CHANGED = "changed since it was shown"
_IS_GONE = "deleted since it was shown"


@dataclass(frozen=True, slots=True)
class Tick:
    """A ticked record; ``number`` is that of its row, ``shown`` the fingerprint of its values."""

    name: str
    id: str
    shown: str
    number: int


@dataclass(frozen=True, slots=True)
class ReplacedValue:
    """A value that an edit has replaced, None if it was missing; and the version that the edit
    made.
    """

    tick: Tick
    value: Any = field(repr=False)
    etag: str


@dataclass(slots=True)
class BulkEdit:
    """The progress of one form's edit. A form that is sent again during the edit waits for
    ``lock``, and so does an undo in another tab.
    """

    name: str = ""
    value: Any = field(default=None, repr=False)
    total: int = 0
    done: dict[str, ReplacedValue] = field(default_factory=dict)
    #: records that have the value already
    same: set[str] = field(default_factory=set)
    left: dict[str, UnchangedRecord] = field(default_factory=dict)
    rounds: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    def begin(self, name: str, value: Any, total: int) -> None:
        """Continue the form's edit, or start over if it has stored nothing yet.

        Raises:
            InvalidQuery: the edit has stored another value.
        """
        if not self.done:
            self.name, self.value, self.total = name, value, total
            self.same.clear()
            self.left.clear()
        elif self.name != name or not _is_same(self.value, value):
            raise errors.InvalidQuery(
                "this form has stored another value before", hint="tick the records again"
            )

    @property
    def count(self) -> int:
        return len(self.done) + len(self.same) + len(self.left)


async def use_ticked(visit: Visit) -> Response:
    """Carry out the action of the button on the ticked records: ``copy`` returns the shown
    columns to a script, for a spreadsheet.
    """
    on = await find_question(visit)
    match visit.text("do"):
        case "undo":
            return await _undo(visit, on)
        case "delete":
            return await _delete(visit, on)
        case "edit":
            return _ask_for_value(visit, on)
        case "store":
            return await _store(visit, on)
    ticks = _ticks(visit, on)
    found = await record_table.open_records(visit, [tick.id for tick in ticks])
    if len(found) < len(ticks):
        raise errors.NotFound(
            "a ticked record was deleted since it was shown", hint="load the records again"
        )
    records = [found[tick.id].content for tick in ticks]
    name = on.schema.slug
    match visit.text("do"):
        case "copy":
            return PlainTextResponse(_as_table(records, on), headers=PAGE_HEADERS)
        case "csv":
            return visit.download(_as_csv(records, on), f"{name}.csv")
        case "ndjson":
            lines = b"".join(strict_json.encode(record) + b"\n" for record in records)
            return visit.download(lines, f"{name}.ndjson")
    raise errors.InvalidQuery("the page has no such button", hint="load the page again")


def _ticks(visit: Visit, on: SchemaQuestion) -> list[Tick]:
    """
    Raises:
        InvalidQuery: no record is ticked.
    """
    first = on.question.first
    ticks = [
        Tick(name, *_parted(value), first + int(name[1:]))
        for name, value in visit.form.items()
        if TICK.fullmatch(name)
    ]
    if not ticks:
        raise errors.InvalidQuery("no record is ticked", hint="tick records in the table first")
    # Each record once, even if the form repeats it.
    return list({tick.id: tick for tick in ticks}.values())


def _parted(value: str) -> tuple[str, str]:
    identifier, _, shown = value.partition(".")
    return identifier, shown


def _back(visit: Visit, on: SchemaQuestion) -> Response:
    keep_question(visit, on)
    return visit.go(f"/schemas/{visit.id}/search/{on.query}")


async def _sort_out(
    visit: Visit, ticks: Sequence[Tick]
) -> tuple[list[tuple[Tick, OpenRecord]], list[UnchangedRecord]]:
    """The records whose values are unchanged since they were shown, and the others."""
    found = await record_table.open_records(visit, [tick.id for tick in ticks])
    same: list[tuple[Tick, OpenRecord]] = []
    left: list[UnchangedRecord] = []
    for tick in ticks:
        record = found.get(tick.id)
        if record is None:
            left.append(UnchangedRecord(tick.number, tick.id, _IS_GONE, is_gone=True))
        elif fingerprint(record.data) != tick.shown:
            left.append(UnchangedRecord(tick.number, tick.id, _IS_CHANGED))
        else:
            same.append((tick, record))
    return same, left


async def _delete(visit: Visit, on: SchemaQuestion) -> Response:
    """Delete the ticked records whose values are unchanged since they were shown, in one step.

    Raises:
        Conflict: they keep changing.
    """
    ticks = _ticks(visit, on)
    for _ in range(_ATTEMPTS):
        same, left = await _sort_out(visit, ticks)
        try:
            if same:
                named = [tick.id for tick, _ in same]
                versions = [str(record.version) for _, record in same]
                params = {"id": named, "version": versions}
                await visit.answer("DELETE", "/api/records/", params=params)
        except (errors.PreconditionFailed, errors.NotFound):
            continue
        if same:
            once = str(runtime.uuid7())
            keep_deleted(
                visit, RestorableRecords(once, [record.data for _, record in same], once), left=left
            )
        else:
            visit.desk.put(("said", visit.id), PageMessage("No record was deleted.", left=left))
        return _back(visit, on)
    raise errors.Conflict(
        "the ticked records keep changing, so none was deleted", hint="try again in a moment"
    )


def _field_of(visit: Visit, on: SchemaQuestion) -> tuple[int, str]:
    """The form's field, by its position in the schema.

    Raises:
        InvalidQuery: there is no such field.
    """
    for position, name in enumerate(on.types):
        if visit.text("field") == str(position):
            return position, name
    raise errors.InvalidQuery("there is no such field", hint="load the records again")


def _ask_for_value(
    visit: Visit, on: SchemaQuestion, error: errors.BadInput | None = None
) -> Response:
    """The form for the field, and then for the value; after a refusal, with the typed text and the
    reason.
    """
    ticks = _ticks(visit, on)
    position, name = _field_of(visit, on) if visit.text("field") else (0, "")
    keep_question(visit, on)
    flaws = [flaw for flaw in error.flaws if flaw.field == name] if error else []
    shown: dict[str, Any] = {
        "schema": on.schema,
        "question": on.question,
        "query": on.query,
        "q": on.name,
        "ticks": [(tick.name, visit.text(tick.name)) for tick in ticks],
        "position": position,
        "field": name,
        "types": on.types,
        "kind": on.types.get(name, ""),
        "typed": typed_text(visit, position, on.types[name]) if name else "",
        "once": visit.text("once") or str(runtime.uuid7()),
        "wrong": flaws[0].detail if flaws else "",
    }
    if error is not None and not flaws:
        return visit.problem(error, "ticked_edit.html", **shown)
    return visit.render("ticked_edit.html", 400 if flaws else 200, **shown)


async def _store(visit: Visit, on: SchemaQuestion) -> Response:
    """Give all ticked records the typed value in one field."""
    ticks = _ticks(visit, on)
    position, name = _field_of(visit, on)
    edit = visit.desk.item(("edit", visit.text("once")), BulkEdit)
    try:
        value = typed_value(visit, position, name, on.types[name])
        async with edit.lock:
            edit.begin(name, value, len(ticks))
            await _edit_each(visit, edit, [tick for tick in ticks if _is_open(edit, tick)])
    except errors.BadInput as error:
        return _ask_for_value(visit, on, error)
    text = f"{name} was changed in {words.format_count(len(edit.done), 'record')}."
    if edit.same:
        text += f" {words.format_count(len(edit.same), 'record')} had the value before."
    if edit.rounds:
        text += " It was rounded to the decimals that the schema keeps."
    undo = visit.text("once") if edit.done else ""
    left = sorted(edit.left.values(), key=lambda record: record.number)
    visit.desk.put(("said", visit.id), PageMessage(text, edit=undo, left=left))
    return _back(visit, on)


def _is_same(value: Any, other: Any) -> bool:
    """Whether both are the same value of the same type: 1 is neither 1.0 nor true."""
    return value == other and type(value) is type(other)


def _is_open(edit: BulkEdit, tick: Tick) -> bool:
    return not (tick.id in edit.done or tick.id in edit.same or tick.id in edit.left)


async def _edit_each(visit: Visit, edit: BulkEdit, ticks: Sequence[Tick]) -> None:
    """Change record by record, only if the version is the compared version.

    Raises:
        InvalidRecords: the value is invalid for all records; nothing was changed.
        ErsError: an error that concerns not only one record; ``edit`` has the progress before it.
    """
    same, left = await _sort_out(visit, ticks)
    edit.left |= {record.id: record for record in left}
    for tick, record in same:
        before = record.data.get(edit.name)
        if _is_same(before, edit.value):
            edit.same.add(tick.id)
            continue
        try:
            stored = await _patch(visit, tick, edit.name, edit.value, f'"{record.version}"')
        except errors.InvalidRecords as error:
            # The value is the same for all: if the first record refuses it, all records would.
            if not edit.done:
                raise
            why = next((flaw.detail for flaw in error.flaws), error.message)
            edit.left[tick.id] = UnchangedRecord(tick.number, tick.id, why)
        except errors.PreconditionFailed:
            edit.left[tick.id] = UnchangedRecord(tick.number, tick.id, _IS_CHANGED)
        except errors.NotFound:
            edit.left[tick.id] = UnchangedRecord(tick.number, tick.id, _IS_GONE, is_gone=True)
        except errors.Conflict as error:
            edit.left[tick.id] = UnchangedRecord(tick.number, tick.id, error.message)
        else:
            edit.done[tick.id] = ReplacedValue(tick, before, stored.header("etag"))
            edit.rounds = edit.rounds or bool(stored.json().get("rounded"))


async def _patch(visit: Visit, tick: Tick, name: str, value: Any, etag: str) -> Any:
    path, body = f"/api/records/{tick.id}/", {"data": {name: value}}
    return await visit.answer("PATCH", path, body, headers={"if-match": etag})


async def _undo(visit: Visit, on: SchemaQuestion) -> Response:
    """Restore the former values of an edit, except in records that were changed since.

    Raises:
        NotFound: it was undone, or belongs to a session that has ended.
    """
    edit = visit.desk.find(("edit", visit.text("edit")), BulkEdit)
    if edit is None:
        raise _nothing_to_undo()
    async with edit.lock:
        if not edit.done:
            raise _nothing_to_undo()
        back, left = await _undo_each(visit, edit)
    visit.desk.take(("edit", visit.text("edit")), BulkEdit)
    text = f"{edit.name} is as it was before in {words.format_count(back, 'record')}."
    visit.desk.put(("said", visit.id), PageMessage(text, left=left))
    return _back(visit, on)


def _nothing_to_undo() -> errors.NotFound:
    return errors.NotFound("there is nothing to undo here", hint="edit the records instead")


async def _undo_each(visit: Visit, edit: BulkEdit) -> tuple[int, list[UnchangedRecord]]:
    """The number of restored records, and the records that were not restored."""
    back, left = 0, []
    for replaced in list(edit.done.values()):
        tick = replaced.tick
        try:
            await _patch(visit, tick, edit.name, replaced.value, replaced.etag)
            back += 1
        except errors.PreconditionFailed:
            left.append(UnchangedRecord(tick.number, tick.id, "changed since it was edited"))
        except errors.NotFound:
            left.append(
                UnchangedRecord(tick.number, tick.id, "deleted since it was edited", is_gone=True)
            )
        except (errors.InvalidRecords, errors.Conflict) as error:
            left.append(UnchangedRecord(tick.number, tick.id, error.message))
        del edit.done[tick.id]
    return back, left


async def progress(visit: Visit) -> Response:
    """The number of records that an edit has processed, for the form's script."""
    edit = visit.desk.find(("edit", visit.request.query_params.get("once", "")), BulkEdit)
    return PlainTextResponse(f"{edit.count} {edit.total}" if edit else "", headers=PAGE_HEADERS)


def _as_table(records: Sequence[Mapping[str, Any]], on: SchemaQuestion) -> str:
    """Shown columns, separated by tabs. A text that a spreadsheet would run as a formula gets an
    apostrophe.
    """
    names = [name for name in on.types if name not in on.question.hidden]
    written = io.StringIO()
    writer = csv.writer(written, delimiter="\t", lineterminator="\n")
    writer.writerow(record_formats.guard_formula(name) for name in names)
    for record in records:
        values = [record["data"].get(name) for name in names]
        writer.writerow(
            record_formats.guard_formula(value) if isinstance(value, str) else words.plain(value)
            for value in values
        )
    return written.getvalue()


def _as_csv(records: Sequence[Mapping[str, Any]], on: SchemaQuestion) -> bytes:
    required = on.schema.definition.get("required", ())
    columns = record_formats.CsvColumns.of(list(on.types), required, safe=False)
    return columns.header() + b"".join(columns.record(record["data"]) for record in records)


routes = [
    page("/schemas/{id}/ticked/", use_ticked, methods=("POST",)),
    page("/schemas/{id}/ticked/progress/", progress, part=True),
]
