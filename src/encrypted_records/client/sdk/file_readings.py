"""How the proxy reads a file, and what of that only a person can say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from encrypted_records.client.proxy.connection import convert
from encrypted_records.client.proxy.transport import explain
from encrypted_records.errors import Flaw, ReadingQuestion, ReadingRefused
from encrypted_records.model.field_types import type_in
from encrypted_records.model.field_types.plain import TEXT

#: By the reason for a question about a column: what the file leaves open, and how to say it.
_ASKED = {
    "date_format": ("days and months read both ways", '"format": "dd/mm/yyyy"'),
    "decimal": ("a mark is of thousands or of decimals", '"decimal": ","'),
    "null": ("several words may stand for nothing", '"null": ["..."]'),
}
_OTHER = ("reads in several ways", '"type": "text"')


class FieldReading(msgspec.Struct, frozen=True):
    """A column of the file and its field. ``examples`` are cells and what is stored of them;
    ``rewritten`` counts cells that are stored in another spelling of the same value, ``absent``
    those that hold nothing, ``words`` those of them that hold a word for nothing. All of them cover
    only the first rows of a long file."""

    name: str
    type: str
    note: str | None
    ask: str | None
    examples: list[tuple[str, str]]
    rewritten: int
    absent: int
    words: dict[str, int]


class FileReading(msgspec.Struct, frozen=True):
    """``reading`` is the recipe that the file is read by, ``schema`` a definition that takes it;
    ``above`` and ``below`` are lines that are left out, ``guessed`` members of the recipe that are
    likely and not certain, ``renamed`` fields by what their column is called, ``notes`` what else
    is worth saying, such as sheets that are not read."""

    reading: dict[str, Any]
    schema: dict[str, Any]
    sampled: int
    whole: bool
    fields: list[FieldReading]
    above: list[str]
    below: list[str]
    short_rows: int
    guessed: list[str]
    words: list[str]
    renamed: dict[str, str]
    notes: list[str] = []

    @property
    def recipe(self) -> bytes:
        return msgspec.json.encode(self.reading)


def reading_of(answer: Mapping[str, Any]) -> FileReading:
    """
    Raises:
        ApiFailed: it is not one.
        ReadingQuestion: it leaves open what only a person can say.
    """
    found: FileReading = convert(answer, FileReading)
    _require_sure(found)
    return found


def for_definition(answer: Mapping[str, Any], definition: Mapping[str, Any]) -> dict[str, Any]:
    """The answer for rows that go into fields that are there: texts stay as they are written, and
    nothing is asked of them."""
    texts = {name for name in definition["properties"] if type_in(definition, name) is TEXT}
    recipe = answer["reading"]
    columns = [
        {key: column[key] for key in ("source", "name")} if column["name"] in texts else column
        for column in recipe["columns"]
    ]
    fields = [
        {**field, "ask": None, "rewritten": 0} if field["name"] in texts else field
        for field in answer["fields"]
    ]
    return {**answer, "reading": {**recipe, "columns": columns}, "fields": fields}


def _require_sure(found: FileReading) -> None:
    flaws, said, columns = [], [], []
    for member in found.guessed:
        value = found.reading[member]
        flaws.append(Flaw("reading", f"{member} is a guess: {value}"))
        said.append(f'"{member}": {msgspec.json.encode(value).decode()}')
    for field in found.fields:
        if field.ask is not None:
            asked, answer = _ASKED.get(field.ask, _OTHER)
            flaws.append(Flaw("reading", asked, field=field.name))
            columns.append(f"{msgspec.json.encode(field.name).decode()}: {{{answer}}}")
    if columns:
        said.append(f'"columns": {{{", ".join(columns)}}}')
    if flaws:
        question = ReadingQuestion(
            "only you can say how this file is read",
            flaws=tuple(flaws),
            hint=f"nothing was stored; if it is right: reading={{{', '.join(said)}}}"
            + ('; {"type": "text"} keeps a column as it is written' if columns else ""),
        )
        question.reading = found
        raise explain(question)


def in_words_of_python(error: ReadingRefused) -> ReadingRefused:
    """The refusal of a file, with the members that a program gives instead of options."""
    members = [(flaw.pointer or "").strip("/") for flaw in error.flaws]
    said = [f'reading={{"{member}": ...}}' for member in members if member]
    hint = "; ".join([*filter(None, [error.hint]), *said])
    return explain(ReadingRefused(error.message, flaws=error.flaws, hint=hint))
