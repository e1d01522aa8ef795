"""The page that uploads files into a schema.

With scripts, files go from the browser to /api/files/ by TUS; without scripts, a form sends one
file, which is forwarded as a stream.

On the page, columns whose headings are not fields are mapped to fields, or left out. The file is
sent unchanged except for its header: a new first line names the field of each column, and the
columns that are left out. So a file of any size needs no second copy.
"""

from __future__ import annotations

import csv
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import Response

from encrypted_records.client.proxy.connection import ShownSchema
from encrypted_records.errors import BadInput, Conflict, ErsError, ReadingRefused, UploadedBefore
from encrypted_records.model import record_formats
from encrypted_records.model.record_formats import Format
from encrypted_records.proxy.pages.imports import HEAD_BYTES, READINGS, is_read_whole, look
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.schema_form import SchemaDraft

#: Maximum columns of a header; no schema has as many fields.
MOST_COLUMNS = 1000


@dataclass(frozen=True, slots=True)
class Heading:
    """The first line of a file: the columns' names, and its length in characters."""

    names: tuple[str, ...]
    length: int

    @property
    def json(self) -> str:
        """For a form: identifies the file of its choices."""
        return msgspec.json.encode(self.names).decode()


def heading_of(start: str) -> Heading | None:
    """The heading of a file with this start; None if it cannot be read."""
    lines = _LineReader(start)
    try:
        names = next(csv.reader(lines, strict=True), [])
    except csv.Error:
        return None
    if names and names[-1].startswith(record_formats.SCHEMA_ENTRY):
        names.pop()
    if not any(names) or len(names) > MOST_COLUMNS:
        return None
    return Heading(tuple(names), lines.length)


class _LineReader(Iterator[str]):
    """Lines of a text, and the length of the lines that were taken."""

    def __init__(self, text: str) -> None:
        self._text = text.removeprefix("\ufeff")
        self._skipped = len(text) - len(self._text)
        self._at = 0

    @property
    def length(self) -> int:
        return self._skipped + self._at

    def __next__(self) -> str:
        end = self._text.find("\n", self._at) + 1 or len(self._text)
        if end == self._at:
            raise StopIteration
        line, self._at = self._text[self._at : end], end
        return line


def propose_fields(names: Sequence[str], fields: Collection[str]) -> list[str]:
    """The field of each column, empty if none matches: the field with the same name, or else with
    the same letters and digits. A field is proposed once.
    """
    proposed = [name if name in fields else "" for name in names]
    proposed = [name if name not in proposed[:at] else "" for at, name in enumerate(proposed)]
    by_letters: dict[str, str] = {}
    for field in fields:
        if field not in proposed:
            by_letters.setdefault(_letters(field), field)
    for at, name in enumerate(names):
        if not proposed[at] and _letters(name):
            proposed[at] = by_letters.pop(_letters(name), "")
    return proposed


def _letters(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def chosen_fields(
    form: Mapping[str, str], heading: Heading, fields: Collection[str]
) -> list[str] | None:
    """The form's choice of fields for these columns, empty for columns that are left out; None if
    the form is for another file, or has no choice.
    """
    if form.get("heading") != heading.json:
        return None
    picked = [form.get(f"column-{at}", "") for at in range(len(heading.names))]
    return [name if name in fields else "" for name in picked]


def header_line(fields: Sequence[str]) -> str:
    """The header of a file whose columns have these fields, empty for columns that are left out;
    with its line end.
    """
    names = [name or f"{record_formats.LEFT_OUT}{number}" for number, name in enumerate(fields, 1)]
    return record_formats.csv_line(names).decode()


def with_header(text: str, heading: Heading, fields: Sequence[str]) -> str:
    """The text of a file with another header."""
    return header_line(fields) + text[heading.length :]


# --- pages ----------------------------------------------------------------------------------------

#: Bytes of a further file that are analysed, and of a file that is read whole.
LOOKED_AT_BYTES, WHOLE_BYTES = 8 << 20, 15 << 20


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """The assignment of a file's columns to fields; empty for columns that are left out."""

    heading: Heading
    fields: list[str]
    #: required fields without a column
    lacking: list[str]
    #: whether the visitor has made this choice, for this file
    chosen: bool

    @property
    def exact(self) -> bool:
        """Whether the file can be sent unchanged."""
        return list(self.heading.names) == self.fields and not self.lacking

    @property
    def header(self) -> str:
        """The header that the file is sent with; empty for its own header."""
        return "" if self.exact else header_line(self.fields)


class _Unmapped(BadInput):
    """The columns of a file have to be mapped to fields first."""

    def __init__(self, mapping: ColumnMapping) -> None:
        super().__init__(
            "the columns of this file are not those of the schema",
            hint="assign the columns to fields below, and choose the file again",
        )
        self.mapping = mapping


async def upload(visit: Visit) -> Response:
    schema = await visit.read(ShownSchema)
    if visit.sends and visit.text("do") == "next":
        return await _send_next(visit)
    if visit.sends and visit.text("do") != "preview":
        return await _send(visit, schema.definition)
    refused = visit.refusal
    if isinstance(refused, UploadedBefore):
        hint = "to store its records a second time, choose it again and tick the box below"
        visit.refusal = UploadedBefore.by(refused.job_id, refused.message, hint=hint)
    shown: dict[str, Any] = {
        "schema": schema,
        "repeated": isinstance(refused, UploadedBefore),
        "preview": None,
        "mapping": refused.mapping if isinstance(refused, _Unmapped) else None,
        "looked": False,
        "kept": await _kept_reading(visit),
    }
    return await _preview(visit, shown) if visit.sends else visit.render("upload.html", **shown)


async def _preview(visit: Visit, shown: dict[str, Any]) -> Response:
    """The first rows of the chosen file before the upload, with errors."""
    sample = visit.text("sample")
    definition = shown["schema"].definition
    draft = SchemaDraft()
    draft.take(definition)
    kind = Format.of_file(visit.text("file"), sample.lstrip()[:1].encode())
    heading = heading_of(sample) if kind is Format.CSV else None
    shown |= {"draft": draft, "looked": True}
    if heading is not None:
        mapping = shown["mapping"] = _mapping_of(visit, heading, definition)
        if mapping.header:
            sample = with_header(sample, heading, mapping.fields)
    try:
        shown["preview"] = await look(visit, definition, sample, kind)
    except BadInput as error:
        return visit.problem(error, "upload.html", **shown)
    return visit.render("upload.html", **shown)


def _mapping_of(visit: Visit, heading: Heading, definition: Any) -> ColumnMapping:
    """The mapping chosen in the form, or else the mapping suggested by names."""
    names = definition["properties"]
    picked = chosen_fields(visit.form, heading, names)
    fields = propose_fields(heading.names, names) if picked is None else picked
    required = definition.get("required", [])
    lacking = [name for name in required if name not in fields]
    return ColumnMapping(heading, fields, lacking, chosen=picked is not None)


async def _send(visit: Visit, definition: Any) -> Response:
    """Start a job for the chosen file.

    Raises:
        BadInput: no file was chosen, or a file of another kind; or its columns are not mapped to
            fields.
        UploadedBefore: the file was uploaded before, and a repetition was not requested.
    """
    form = visit.sent_file
    if form is None or not form.filename:
        raise BadInput("no file was chosen", hint="choose one and try again")
    reading = visit.desk.find((READINGS, visit.id), str)  # detected by the import
    kind = Format.CSV if reading else Format.of_name(form.filename)
    if kind is None:
        raise BadInput(
            "this file is not one of .csv, .json, .ndjson and .jsonl",
            hint="save it as one of these, and choose the new file",
        )
    body = form.file()
    if kind is Format.CSV and not reading:
        body = await _under_its_header(visit, body, definition)
    return await _become_job(visit, form.filename, body, kind.media_type, reading)


async def _become_job(
    visit: Visit, name: str, body: AsyncIterator[bytes], media_type: str, reading: str | None
) -> Response:
    metadata = {"filename": name[:400], "on_repeat": "allow" if visit.text("again") else "refuse"}
    if reading:
        metadata["reading"] = reading
    headers = {
        "content-type": media_type,
        "x-on-invalid": "skip" if visit.text("skip") else "fail",
        "upload-metadata": ",".join(
            f"{name} {b64encode(text.encode()).decode()}" for name, text in metadata.items()
        ),
    }
    answer = await visit.answer(
        "POST", "/api/jobs/upload/", body, params={"schema": visit.id}, headers=headers
    )
    return visit.go(f"/jobs/{answer.header('x-job-id')}/")


async def _kept_reading(visit: Visit) -> bool:
    """Whether a reading is kept for the schema, even if it cannot be decrypted."""
    try:
        await visit.ask("GET", f"/api/schemas/{visit.id}/reading/")
    except Conflict:
        return True  # the next file's preview shows the remedy
    except ErsError:
        return False
    return True


async def _send_next(visit: Visit) -> Response:
    """Start a job for the chosen file, read in the same way as the previous file.

    Raises:
        BadInput: no file was chosen, no reading is kept, or the file differs from the previous
            one in a way that may change values.
        UploadedBefore: the file was uploaded before, and a repetition was not requested.
    """
    form = visit.sent_file
    if form is None or not form.filename:
        raise BadInput("no file was chosen", hint="choose one and try again")
    pieces = form.file()
    start = bytearray()
    is_complete = True
    async for piece in pieces:
        start += piece
        if len(start) > _most_of(start):
            is_complete = False
            break
    headers = {"content-type": "application/octet-stream"}
    headers |= {} if is_complete else {"x-file-size": str(len(start) + 1)}
    params = {"schema": visit.id}
    answer = await visit.answer(
        "POST", "/api/readings/detect/", bytes(start), params=params, headers=headers
    )
    found = answer.json()
    if not found["kept"]:  # a detected reading was not reviewed
        raise ReadingRefused(
            "no reading is kept for this schema any more",
            hint="nothing was stored; ers import FILE --schema SCHEMA shows how the file is read",
        )
    open_ones = [
        difference["detail"] for difference in found["differences"] if not difference["taken"]
    ]
    if open_ones:
        raise ReadingRefused(
            f"this file differs from the previous file: {'; '.join(open_ones)}",
            hint="nothing was stored; ers import FILE --schema SCHEMA names the options that"
            " accept it",
        )
    recipe = msgspec.json.encode(found["reading"]).decode()
    body = _joined([bytes(start)], pieces)
    return await _become_job(visit, form.filename, body, "application/octet-stream", recipe)


def _most_of(start: bytes | bytearray) -> int:
    """Number of bytes of a file that are analysed; all bytes of a workbook, or of one JSON
    object.
    """
    return WHOLE_BYTES if is_read_whole(start) else LOOKED_AT_BYTES


async def _under_its_header(
    visit: Visit, file: AsyncIterator[bytes], definition: Any
) -> AsyncIterator[bytes]:
    """The file, with the header from the form's choices if they are for this file.

    Raises:
        _Unmapped: some columns are not fields, and no choice was made.
    """
    start = bytearray()
    async for piece in file:
        start += piece
        if len(start) >= HEAD_BYTES:
            break
    pieces = [bytes(start)]
    heading = heading_of(_readable(start[:HEAD_BYTES]))
    if heading is not None:
        mapping = _mapping_of(visit, heading, definition)
        if not mapping.exact and not mapping.chosen:
            raise _Unmapped(mapping)
        if mapping.header:
            marked = len(start) - len(start.removeprefix(b"\xef\xbb\xbf"))
            first = start[marked:].decode(errors="ignore")[: heading.length]
            pieces = [mapping.header.encode(), bytes(start[marked + len(first.encode()) :])]
    return _joined(pieces, file)


def _readable(start: bytes | bytearray) -> str:
    """The text up to its truncated or invalid end; empty if its first line is incomplete."""
    try:
        text = start.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        text = start[: error.start].decode("utf-8-sig", errors="ignore")
        return text if "\n" in text else ""
    return text


async def _joined(pieces: list[bytes], later_pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
    async for piece in later_pieces:
        yield piece


routes = [page("/schemas/{id}/upload/", upload, methods=("GET", "POST"), files=True)]
