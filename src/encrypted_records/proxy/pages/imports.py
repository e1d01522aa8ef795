"""Import a file step by step, from a preview of its first rows to a schema with its records.

The visitor agrees on fields, name, cost and the data that the server will see; then dataset and
schema are made, and the file is sent. Nothing is stored before the last step. Only the beginning of
a file is analysed, whatever its length; with scripts, only the beginning is sent.

The proxy detects how the file is read, and users may change it: each control overrides one detected
property. The form carries all choices, so that a choice stays when another is made.
"""

from __future__ import annotations

import copy
import re
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec
from starlette.responses import Response

from encrypted_records.client.proxy.connection import ShownDataset
from encrypted_records.errors import BadInput, ErsError, InvalidRecords, ReadingRefused
from encrypted_records.model.field_types import BY_NAME
from encrypted_records.model.field_types.plain import TEXT
from encrypted_records.model.record_formats import Format
from encrypted_records.model.samples import Preview
from encrypted_records.proxy.pages.formatting import whole
from encrypted_records.proxy.pages.organizations import own_organizations
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.schema_form import (
    NUMERIC,
    TYPES,
    FieldRow,
    SchemaDraft,
    draft_of,
    place_errors,
)

CHARSETS = {
    "utf-8": "UTF-8",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16, big-endian",
    "cp1252": "Windows-1252, Western Europe",
    "cp1250": "Windows-1250, Central Europe",
    "cp1254": "Windows-1254, Turkish",
    "mac_roman": "Mac Roman",
    "cp1251": "Windows-1251, Cyrillic",
    "koi8_r": "KOI8-R, Cyrillic",
    "cp1253": "Windows-1253, Greek",
    "cp1255": "Windows-1255, Hebrew",
    "cp1256": "Windows-1256, Arabic",
    "cp932": "Shift JIS, Japanese",
    "gb18030": "GB 18030, Chinese",
    "cp949": "Windows-949, Korean",
    "big5": "Big5, Chinese",
}
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
DELIMITER_NAMES = {"comma": "commas", "semicolon": "semicolons", "tab": "tabs", "pipe": "pipes |"}
DECIMALS = {".": "a point: 1234.5", ",": "a comma: 1234,5"}
DATE_FORMATS = (
    *("yyyy-mm-dd", "yyyy/mm/dd", "yyyy.mm.dd", "yyyymmdd"),
    *("dd.mm.yyyy", "dd/mm/yyyy", "dd-mm-yyyy", "mm/dd/yyyy", "mm-dd-yyyy", "mm.dd.yyyy"),
    *("dd-mon-yyyy", "dd mon yyyy", "ddmonyyyy"),
    *("dd.mm.yy", "dd/mm/yy", "mm/dd/yy", "dd-mm-yy", "mm-dd-yy", "yy-mm-dd", "dd-mon-yy"),
    "yyyymmddhhmmss",  # for instants only
)
#: Defaults for members that a recipe leaves out of a column, and the type of a reading's column by
#: that of its field.
_PLAIN = {"type": "text", "format": "", "decimal": ".", "true": "", "false": ""}
#: Members about the whole file; changing them changes the columns.
_OF_COLUMNS = ("encoding", "delimiter", "header_row", "sheet")
#: The control on this page for each member of a reading that can be chosen.
_CONTROLS = {
    "delimiter": "choose the delimiter above",
    "encoding": "choose the charset above",
    "header_row": "enter the row with the column names above",
    "sheet": "enter the sheet or list with the records above",
    "columns": 'enter the word that means "no value", or leave the column as it is',
}


@dataclass
class ReadingForm:
    """A file and its reading. ``choices`` are the visitor's; ``answer`` is the proxy's result for
    them, None if the file cannot be read. ``wanted`` are types that were just chosen, by row
    number.
    """

    choices: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] | None = None
    before: dict[str, Any] | None = None
    wanted: dict[int, str] = field(default_factory=dict)
    #: the container format that the first bytes show
    likely: str = "csv"

    @property
    def recipe(self) -> dict[str, Any]:
        return {} if self.answer is None else self.answer["reading"]

    @property
    def choices_json(self) -> str:
        return msgspec.json.encode(self.choices).decode()

    @property
    def recipe_json(self) -> str:
        return msgspec.json.encode(self.recipe).decode() if self.answer else ""

    @property
    def delimiter(self) -> str:
        mark = self.recipe.get("delimiter", self.choices.get("delimiter", ""))
        return next((name for name, character in DELIMITERS.items() if character == mark), "")

    @property
    def encoding(self) -> str:
        return str(self.recipe.get("encoding", self.choices.get("encoding", "")))

    @property
    def header_row(self) -> str:
        return str(self.recipe.get("header_row", self.choices.get("header_row", "")))

    @property
    def sheet(self) -> str:
        return str(self.recipe.get("sheet") or self.choices.get("sheet") or "")

    @property
    def container(self) -> str:
        return str(self.recipe.get("container", self.likely))

    @property
    def is_local(self) -> bool:
        """Whether the file has local times without a time zone, or the visitor has chosen a
        zone.
        """
        columns = self.recipe.get("columns", [])
        return "time_zone" in self.choices or any(
            column.get("type") == "local" for column in columns
        )

    def columns(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Each column of the recipe, with defaults for missing members, and the detected
        properties.
        """
        if self.answer is None:
            return []
        columns = [{**_PLAIN, **column} for column in self.recipe["columns"]]
        return list(zip(columns, self.answer["fields"], strict=True))

    def of_draft(self, draft: SchemaDraft) -> dict[str, Any]:
        """The recipe with the current names of the fields; columns that are left out have no
        name.
        """
        columns = [
            {**column, "name": None if row.left_out else row.name or None}
            for column, row in zip(self.recipe["columns"], draft.rows, strict=True)
        ]
        return {**self.recipe, "columns": columns}

    def settle(self, typed: SchemaDraft | None) -> SchemaDraft:
        """The fields for the detected columns; typed fields are kept if their columns are read as
        before.
        """
        assert self.answer is not None
        made = SchemaDraft()
        made.take(self.answer["schema"])
        made.annotate(self.answer["fields"])
        now = self.recipe["columns"]
        old = [] if self.before is None else self.before["columns"]
        if typed is None or len(typed.rows) != len(now) or _sources(old) != _sources(now):
            return made
        for number, (row, proposed) in enumerate(zip(typed.rows, made.rows, strict=True)):
            wanted = self.wanted.get(number)
            if old[number] != now[number]:
                _replace(row, proposed)
                if wanted is not None and wanted in NUMERIC and row.is_numeric:
                    _become(row, wanted)
            elif wanted is not None:
                _become(row, wanted)
            row.note = proposed.note
        typed.rest = made.rest | typed.rest
        return typed


def _become(row: FieldRow, kind: str) -> None:
    if row.type != kind or not row.minimum:
        row.type, row.minimum, row.maximum, row.precision = kind, "", "", ""
    row.settle()


def _replace(row: FieldRow, by: FieldRow) -> None:
    """Replace a field except the choices that were made in addition to its type."""
    row.type, row.minimum, row.maximum, row.precision = (
        by.type,
        by.minimum,
        by.maximum,
        by.precision,
    )
    row.more, row.seen, row.errors = by.more, by.seen, {}


def _sources(columns: list[dict[str, Any]]) -> list[str]:
    return [column["source"] for column in columns]


def reading_of(form: Mapping[str, str]) -> ReadingForm:
    """The reading in the form; earlier choices hold until they are changed."""
    before = _object(form.get("reading", ""), _HiddenRecipe)
    choices = earlier_choices(form)
    reading = ReadingForm(copy.deepcopy(choices), None, before)
    known = before or {}
    new = dict(_of_file(form, known))
    others = any(name in new and new[name] != known.get(name) for name in _OF_COLUMNS)
    if others:
        reading.choices.pop("columns", None)
    for name, value in new.items():
        if value is None:
            reading.choices.pop(name, None)
        elif value != known.get(name):
            reading.choices[name] = value
    for number, column in enumerate([] if others else known.get("columns", [])):
        column_choices = dict(_of_column(form, number, column, reading))
        if column_choices:
            columns = reading.choices.setdefault("columns", {})
            columns[column["name"]] = {
                **_kept_members(columns.get(column["name"], {}), column_choices),
                **column_choices,
            }
    return reading


def earlier_choices(form: Mapping[str, str]) -> dict[str, Any]:
    """The choices about the reading in earlier forms."""
    return _object(form.get("said", ""), _EarlierChoices) or {}


def _kept_members(before: dict[str, Any], column_choices: dict[str, Any]) -> dict[str, Any]:
    """Earlier choices for a column, unless its type has changed."""
    return (
        {} if "type" in column_choices and column_choices["type"] != before.get("type") else before
    )


def _of_file(form: Mapping[str, str], known: Mapping[str, Any]) -> list[tuple[str, Any]]:
    choices: list[tuple[str, Any]] = []
    if form.get("encoding") in CHARSETS:
        choices.append(("encoding", form["encoding"]))
    if form.get("delimiter") in DELIMITERS:
        choices.append(("delimiter", DELIMITERS[form["delimiter"]]))
    for name in ("header_row", "below"):
        if (typed := whole(form.get(name, "").strip(), 4)) is not None:
            choices.append((name, typed))
    if sheet := form.get("sheet", "").strip():
        choices.append(("sheet", sheet))
    if "time_zone" in form:
        choices.append(("time_zone", form["time_zone"].strip() or None))
    return choices


def _of_column(
    form: Mapping[str, str], number: int, column: Mapping[str, Any], reading: ReadingForm
) -> list[tuple[str, Any]]:
    choices: list[tuple[str, Any]] = []
    kind = form.get(f"type-{number}", "").strip()
    is_new = kind != form.get(f"kind-{number}", kind)
    if is_new:
        reading.wanted[number] = kind
        choices.append(("type", (kind in BY_NAME and BY_NAME[kind].reading) or TEXT.reading))
        if kind in BY_NAME and BY_NAME[kind].is_boolean:
            both = form.get(f"two-{number}", "").replace("\r\n", "\n")  # as browsers send it
            words = [word for word in both.split("\n") if word]
            if len(words) == 2:
                choices += [("false", words[0]), ("true", words[1])]
    for name in ("format", "decimal", "true", "false"):
        typed = form.get(f"{name}-{number}", "").strip()
        if typed and typed != column.get(name, "." if name == "decimal" else "") and not is_new:
            choices.append((name, typed))
    if choices and choices[0][0] in ("true", "false"):
        # Both words belong together, even if only one was changed.
        choices = [(name, form.get(f"{name}-{number}", "").strip()) for name in ("true", "false")]
    if word := form.get(f"null-{number}", "").strip():
        choices.append(("null", [*column.get("null", []), word]))
    return choices


class _RecipeColumn(msgspec.Struct):
    source: str
    name: str
    null: list[str] = []


class _HiddenRecipe(msgspec.Struct):
    """The members of a hidden recipe that this page relies on."""

    columns: list[_RecipeColumn]


class _EarlierChoices(msgspec.Struct):
    """The members of earlier choices that this page relies on."""

    columns: dict[str, dict[str, Any]] = {}


def _object(text: str, kind: type[_HiddenRecipe | _EarlierChoices]) -> dict[str, Any] | None:
    """Parse a hidden form value that this page wrote; None if it was tampered with."""
    try:
        value: dict[str, Any] = msgspec.json.decode(text.encode() or b"null")
        msgspec.convert(value, kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value


def in_words_of_the_page(error: ErsError) -> ErsError:
    """The refusal of a file, with the control that corrects it."""
    if error.reason != "reading":
        return error
    members = [(flaw.pointer or "").strip("/") for flaw in error.flaws]
    hints = [_CONTROLS[member] for member in members if member in _CONTROLS] or [error.hint]
    return ReadingRefused(error.message, hint="; ".join(hints))


# --- the steps ------------------------------------------------------------------------------------

SHOWN_ROWS = 20
#: Bytes of a file that are analysed, as in the pages' scripts.
HEAD_BYTES = 512 << 10
#: Bytes of a workbook or a JSON object, which are read whole, as in the pages' scripts.
WHOLE_BYTES = 5 << 19
#: Bytes of a file's head that a page without scripts carries along.
KEPT_BYTES = 32 << 10
#: Controls for any file; the other fields belong to the analysed file.
_OF_ANY_FILE = ("csrf", "dataset", "new_dataset", "organization", "skip")
#: Key of a session's readings by schema, for files that are uploaded later on another page.
READINGS = "readings"
_AS_IT_IS: Mapping[str, Any] = MappingProxyType({})
_BOM = b"\xef\xbb\xbf"


@dataclass
class ImportPlan:
    """The plan of an import as the page shows it. ``estimate`` and ``preview`` are answers of
    endpoints.
    """

    draft: SchemaDraft
    #: the file's first bytes
    head: bytes
    file: str
    size: int
    sampled: int = 0
    preview: dict[str, Any] | None = None
    estimate: dict[str, Any] | None = None
    reading: ReadingForm = field(default_factory=ReadingForm)

    @property
    def is_whole(self) -> bool:
        """Whether the head is all of the file."""
        return self.size <= len(self.head)

    @property
    def recipe_json(self) -> str:
        """The reading of the file as JSON, for its upload; empty if it was not detected."""
        if self.reading.answer is None:
            return ""
        return msgspec.json.encode(self.reading.of_draft(self.draft)).decode()


async def start(visit: Visit) -> Response:
    if not visit.sends:
        return await _show(visit, None)
    pasted = visit.text("sample").encode()
    head = pasted or _decoded(visit.text("head"))
    plan = ImportPlan(
        SchemaDraft(), head, visit.text("file"), len(pasted) or (whole(visit.text("size"), 15) or 0)
    )
    if visit.sent_file is not None and visit.sent_file.filename:
        plan.head, plan.size = await _head(visit.sent_file.file())
        plan.file = visit.sent_file.filename
        visit.form = {name: visit.text(name) for name in _OF_ANY_FILE if name in visit.form}
    try:
        await _work_out(visit, plan)
        if visit.text("do") == "make" and visit.refusal is None:
            _require_valid(visit, plan)
            return await _make(visit, plan)
    except ErsError as error:
        visit.refusal = in_words_of_the_page(error)
        place_errors(plan.draft, error.flaws)
    return await _show(visit, plan)


async def _work_out(visit: Visit, plan: ImportPlan) -> None:
    """Fill the plan: proposed or typed fields, the first rows, the cost.

    Raises:
        BadInput: the file, or the definition, cannot be used.
    """
    if not plan.head.strip():
        raise BadInput("there are no rows to preview", hint="choose a file, or paste some rows")
    await _read(visit, plan)
    plan.draft.records = _records(plan)
    definition = plan.draft.definition()
    body = {"schema": definition, "records": plan.draft.records, "string_bytes": {}}
    plan.estimate = await visit.ask("POST", "/api/schemas/estimate/", body)
    read = {"reading": plan.reading.of_draft(plan.draft), "whole": plan.is_whole}
    sample = b64encode(plan.head).decode()
    plan.preview = await look(visit, definition, sample, Format.CSV, read)
    plan.draft.see(plan.preview["spreads"])


def _require_valid(visit: Visit, plan: ImportPlan) -> None:
    """
    Raises:
        InvalidRecords: some of the first rows are invalid, and are not to be skipped.
    """
    if plan.preview is None or visit.text("skip"):
        return
    seen = msgspec.convert(
        {name: plan.preview[name] for name in Preview.__struct_fields__}, Preview
    )
    if seen.bad_rows:
        first = seen.errors[0]
        others = ", or choose another type or form for the column" if seen.unread else ""
        where = f"row {first.row}" + (f", {first.field}" if first.field else "")
        raise InvalidRecords(
            f"{seen.refusal}; {where}: {first.detail}",
            hint=f'choose "Store the valid rows even if others are invalid"{others}',
        )


async def _read(visit: Visit, plan: ImportPlan) -> None:
    """Detect how a file is read, except for the visitor's choices.

    Raises:
        BadInput: the file cannot be read.
    """
    reading = plan.reading = reading_of(visit.form)
    reading.likely = _container_of(plan.head)
    typed = draft_of(visit.form) if any(name.startswith("field-") for name in visit.form) else None
    if typed is not None:
        typed.follow(visit.text("do"))
        plan.draft = typed
    try:
        reading.answer = await _detect(visit, plan, reading.choices)
    except BadInput as error:
        if reading.before is None or typed is None:
            raise
        # The table stays as it was, with the error of the choice.
        reading.choices, wanted = earlier_choices(visit.form), list(reading.wanted)
        reading.wanted = {}
        reading.answer = await _detect(visit, plan, reading.choices)
        wanted = [number for number in wanted if number < len(typed.rows)]
        for number in wanted:
            typed.rows[number].type = visit.text(f"kind-{number}")
        plan.draft = reading.settle(typed)
        visit.refusal = in_words_of_the_page(error)
        for number in wanted:
            if number < len(plan.draft.rows):
                plan.draft.rows[number].errors["type"] = visit.refusal.message
    else:
        plan.draft = reading.settle(typed)
    if typed is None:
        plan.draft.name = visit.text("name") or name_of(plan.file)
    plan.sampled = reading.answer["sampled"]


async def _detect(visit: Visit, plan: ImportPlan, choices: dict[str, Any]) -> dict[str, Any]:
    headers = {"content-type": "application/octet-stream", "x-file-size": str(plan.size)}
    if choices:
        headers["x-reading"] = b64encode(msgspec.json.encode(choices)).decode()
    answer = await visit.answer("POST", "/api/readings/detect/", plan.head, headers=headers)
    found: dict[str, Any] = answer.json()
    return found


async def look(
    visit: Visit, definition: Any, sample: str, kind: Format, read: Mapping[str, Any] = _AS_IT_IS
) -> dict[str, Any]:
    """The first rows, and their invalid cells, by row and field.

    Args:
        read: the recipe for the sample, and whether the sample is the whole file.

    Raises:
        BadInput: nothing can be read, or the columns differ.
    """
    body = {"schema": definition, "sample": sample, "format": kind.value, "rows": SHOWN_ROWS}
    body |= read
    preview: dict[str, Any] = await visit.ask("POST", "/api/schemas/preview/", body)
    wrong: dict[int, dict[str | None, str]] = {}
    for flaw in preview["errors"]:
        wrong.setdefault(flaw["row"], {})[flaw["field"]] = flaw["detail"]
    spreads = {field["name"]: field for field in preview["fields"]}
    return preview | {"wrong": wrong, "spreads": spreads}


async def _make(visit: Visit, plan: ImportPlan) -> Response:
    """Make dataset and schema; the page's script or the next form sends the file.

    Raises:
        BadInput, Conflict: a name that cannot be used.
    """
    dataset = visit.text("dataset")
    if not dataset:
        organization = visit.text("organization")
        sent = {"name": visit.text("new_dataset").strip(), "organization": organization}
        dataset = (await visit.ask("POST", "/api/datasets/", sent))["url"]
        visit.form = {**visit.form, "dataset": dataset}
    schema = await visit.ask(
        "POST",
        "/api/schemas/",
        {
            "name": plan.draft.name.strip(),
            "dataset": dataset,
            "schema": plan.draft.definition(),
        },
    )
    # Kept for the files of later months; the rows of this file are being uploaded.
    recipe = plan.reading.of_draft(plan.draft)
    await visit.ask("PUT", f"/api/schemas/{schema['id']}/reading/", recipe)
    if "hx-request" in visit.request.headers:
        return visit.render(
            "import.html",
            plan=None,
            made=schema,
            skip=visit.text("skip"),
            reading=plan.recipe_json,
            kept="",
            pasted="",
        )
    visit.desk.put((READINGS, schema["id"]), plan.recipe_json)
    return visit.go(f"/schemas/{schema['id']}/upload/")


async def _show(visit: Visit, plan: ImportPlan | None) -> Response:
    datasets = await visit.every(ShownDataset)
    organizations = await own_organizations(visit)
    newest = max(datasets, key=lambda dataset: dataset.id, default=None)
    chosen = newest.url if newest else ""
    return visit.render(
        "import.html",
        datasets=datasets,
        organizations=organizations,
        dataset=visit.text("dataset", chosen),
        new_dataset=visit.text("new_dataset") or (plan.draft.name if plan else ""),
        made=None,
        plan=plan,
        types=TYPES,
        charsets=CHARSETS,
        delimiters=DELIMITER_NAMES,
        date_formats={form: form for form in DATE_FORMATS},
        decimals=DECIMALS,
        # A page with scripts keeps the file's head itself.
        kept="" if plan is None or "hx-request" in visit.request.headers else _kept(visit, plan),
        pasted=visit.text("sample") if plan else "",
    )


def name_of(file: str) -> str:
    """A schema's name from a file's name: without the extension, and with separators replaced by
    spaces.

    It is a proposal: the server sees a name only when it is stored.
    """
    stem = re.sub(
        r"\.(csv|tsv|tab|txt|json|ndjson|jsonl|xlsx|xlsm|ods)$", "", file, flags=re.IGNORECASE
    )
    name = re.sub(r"[\s_]+", " ", stem).strip()[:100]
    return name[:1].upper() + name[1:]


def _records(plan: ImportPlan) -> int:
    """The estimated number of records in the file: those in its head, extrapolated to its size."""
    if plan.is_whole:
        return max(1, plan.sampled)
    return max(1, round(plan.size / len(plan.head) * plan.sampled))


async def _head(pieces: AsyncIterator[bytes]) -> tuple[bytes, int]:
    """The first bytes of a file in a form, and its size. The rest is not kept."""
    head = bytearray()
    size = 0
    async for piece in pieces:
        size += len(piece)
        most = WHOLE_BYTES if is_read_whole(head or piece) else HEAD_BYTES
        head += piece[: max(0, most - len(head))]
    return bytes(head), size


def _kept(visit: Visit, plan: ImportPlan) -> str:
    """The file's head for a hidden field of a page without scripts, which cannot keep it
    elsewhere.
    """
    kept = plan.head if is_read_whole(plan.head) else plan.head[:KEPT_BYTES]
    return "" if visit.text("sample") else urlsafe_b64encode(kept).decode()


def is_read_whole(start: bytes | bytearray) -> bool:
    """Whether a file's head may not be enough to detect how it is read: a workbook, or a JSON
    object, which has the records in a member unless it is one of many lines.
    """
    return start.startswith(b"PK") or start.removeprefix(_BOM).lstrip()[:1] == b"{"


def _container_of(start: bytes) -> str:
    if start.startswith(b"PK"):
        return "workbook"
    return "json" if start.removeprefix(_BOM).lstrip()[:1] in (b"{", b"[") else "csv"


def _decoded(text: str) -> bytes:
    """Decode a hidden form value that this page or its script wrote; empty if it was tampered
    with.
    """
    try:
        return urlsafe_b64decode(text.encode())
    except (ValueError, UnicodeError):
        return b""


routes = [page("/import/", start, methods=("GET", "POST"), files=True)]
