"""The reading of a file, as the page of an import shows it and lets users change it. Pure.

The proxy finds a reading; each control says one thing of it that goes before what was found. All
that was said so far travels with the form, so that a choice stays when another one is made.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from encrypted_records.errors import ErsError, ReadingRefused
from encrypted_records.model.field_types import BY_NAME
from encrypted_records.model.field_types.plain import TEXT
from encrypted_records.proxy.pages.schema_form import NUMERIC, FieldRow, SchemaDraft

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
    "yyyymmddhhmmss",  # of moments alone
)
#: The type of a reading's column, by that of the field which it goes into.
#: Members of a column that a recipe leaves out.
_PLAIN = {"type": "text", "format": "", "decimal": ".", "true": "", "false": ""}
#: Members about the whole file; changing them makes other columns.
_OF_COLUMNS = ("encoding", "delimiter", "header_row", "sheet")
#: Where this page lets members of what can be said be said.
_CONTROLS = {
    "delimiter": "choose the delimiter above",
    "encoding": "choose the charset above",
    "header_row": "enter the row with the column names above",
    "sheet": "enter the sheet or list with the records above",
    "columns": 'enter the word that means "no value", or leave the column as it is',
}


@dataclass
class ReadingForm:
    """A file and its reading. ``said`` are the visitor's choices; ``answer`` is the proxy's result
    for them, None if the file cannot be read. ``wanted`` are types that were just chosen, by row
    number.
    """

    said: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] | None = None
    before: dict[str, Any] | None = None
    wanted: dict[int, str] = field(default_factory=dict)
    #: the container that the first bytes show
    likely: str = "csv"

    @property
    def recipe(self) -> dict[str, Any]:
        return {} if self.answer is None else self.answer["reading"]

    @property
    def said_json(self) -> str:
        return msgspec.json.encode(self.said).decode()

    @property
    def recipe_json(self) -> str:
        return msgspec.json.encode(self.recipe).decode() if self.answer else ""

    @property
    def delimiter(self) -> str:
        mark = self.recipe.get("delimiter", self.said.get("delimiter", ""))
        return next((name for name, character in DELIMITERS.items() if character == mark), "")

    @property
    def encoding(self) -> str:
        return str(self.recipe.get("encoding", self.said.get("encoding", "")))

    @property
    def header_row(self) -> str:
        return str(self.recipe.get("header_row", self.said.get("header_row", "")))

    @property
    def sheet(self) -> str:
        return str(self.recipe.get("sheet") or self.said.get("sheet") or "")

    @property
    def container(self) -> str:
        return str(self.recipe.get("container", self.likely))

    @property
    def is_local(self) -> bool:
        """Whether the file has local times without a time zone, or the visitor has chosen a
        zone.
        """
        columns = self.recipe.get("columns", [])
        return "time_zone" in self.said or any(column.get("type") == "local" for column in columns)

    def columns(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Each column of the recipe, with members that it leaves out, and what was found of it."""
        if self.answer is None:
            return []
        columns = [{**_PLAIN, **column} for column in self.recipe["columns"]]
        return list(zip(columns, self.answer["fields"], strict=True))

    def of_draft(self, draft: SchemaDraft) -> dict[str, Any]:
        """The recipe under the names that the fields have by now; what is left out has none."""
        columns = [
            {**column, "name": None if row.left_out else row.name or None}
            for column, row in zip(self.recipe["columns"], draft.rows, strict=True)
        ]
        return {**self.recipe, "columns": columns}

    def settle(self, typed: SchemaDraft | None) -> SchemaDraft:
        """The fields for what was found: those that were typed, where their columns are read as
        before."""
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
    """Replace all of a field except the choices that were made in addition to its type."""
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
    """The reading that the form says; earlier words hold until it says something else."""
    before = _object(form.get("reading", ""), _Recipe)
    said = said_before(form)
    reading = ReadingForm(copy.deepcopy(said), None, before)
    known = before or {}
    new = dict(_of_file(form, known))
    others = any(name in new and new[name] != known.get(name) for name in _OF_COLUMNS)
    if others:
        reading.said.pop("columns", None)
    for name, value in new.items():
        if value is None:
            reading.said.pop(name, None)
        elif value != known.get(name):
            reading.said[name] = value
    for number, column in enumerate([] if others else known.get("columns", [])):
        own = dict(_of_column(form, number, column, reading))
        if own:
            columns = reading.said.setdefault("columns", {})
            columns[column["name"]] = {**_kept(columns.get(column["name"], {}), own), **own}
    return reading


def said_before(form: Mapping[str, str]) -> dict[str, Any]:
    """The words that earlier forms said about the reading."""
    return _object(form.get("said", ""), _Said) or {}


def _kept(before: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Earlier words about a column, unless its type has changed."""
    return {} if "type" in own and own["type"] != before.get("type") else before


def _of_file(form: Mapping[str, str], known: Mapping[str, Any]) -> list[tuple[str, Any]]:
    said: list[tuple[str, Any]] = []
    if form.get("encoding") in CHARSETS:
        said.append(("encoding", form["encoding"]))
    if form.get("delimiter") in DELIMITERS:
        said.append(("delimiter", DELIMITERS[form["delimiter"]]))
    for name in ("header_row", "below"):
        typed = form.get(name, "").strip()
        if typed.isascii() and typed.isdecimal() and len(typed) < 5:
            said.append((name, int(typed)))
    if sheet := form.get("sheet", "").strip():
        said.append(("sheet", sheet))
    if "time_zone" in form:
        said.append(("time_zone", form["time_zone"].strip() or None))
    return said


def _of_column(
    form: Mapping[str, str], number: int, column: Mapping[str, Any], reading: ReadingForm
) -> list[tuple[str, Any]]:
    said: list[tuple[str, Any]] = []
    kind = form.get(f"type-{number}", "").strip()
    is_new = kind != form.get(f"kind-{number}", kind)
    if is_new:
        reading.wanted[number] = kind
        said.append(("type", (kind in BY_NAME and BY_NAME[kind].reading) or TEXT.reading))
        if kind in BY_NAME and BY_NAME[kind].is_boolean:
            both = form.get(f"two-{number}", "").replace("\r\n", "\n")  # as browsers send it
            words = [word for word in both.split("\n") if word]
            if len(words) == 2:
                said += [("false", words[0]), ("true", words[1])]
    for name in ("format", "decimal", "true", "false"):
        typed = form.get(f"{name}-{number}", "").strip()
        if typed and typed != column.get(name, "." if name == "decimal" else "") and not is_new:
            said.append((name, typed))
    if said and said[0][0] in ("true", "false"):
        # Both words belong together, even if only one was changed.
        said = [(name, form.get(f"{name}-{number}", "").strip()) for name in ("true", "false")]
    if word := form.get(f"null-{number}", "").strip():
        said.append(("null", [*column.get("null", []), word]))
    return said


class _Column(msgspec.Struct):
    source: str
    name: str
    null: list[str] = []


class _Recipe(msgspec.Struct):
    """The members of a hidden recipe that this page relies on."""

    columns: list[_Column]


class _Said(msgspec.Struct):
    """The members of earlier words that this page relies on."""

    columns: dict[str, dict[str, Any]] = {}


def _object(text: str, kind: type[_Recipe | _Said]) -> dict[str, Any] | None:
    """Parse a hidden form value that this page wrote; None if it was tampered with."""
    try:
        value: dict[str, Any] = msgspec.json.decode(text.encode() or b"null")
        msgspec.convert(value, kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value


def in_words_of_the_page(error: ErsError) -> ErsError:
    """The refusal of a file, with the control that mends it."""
    if error.reason != "reading":
        return error
    members = [(flaw.pointer or "").strip("/") for flaw in error.flaws]
    hints = [_CONTROLS[member] for member in members if member in _CONTROLS] or [error.hint]
    return ReadingRefused(error.message, hint="; ".join(hints))
