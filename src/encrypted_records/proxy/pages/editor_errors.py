"""Puts what is wrong with a definition at the fields of the editor, in the editor's words. Pure.

An endpoint names a place in JSON by a pointer. People see a table with columns, and the sentence
belongs under the input that has to change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from encrypted_records.errors import Flaw
from encrypted_records.proxy.pages.formatting import sentence
from encrypted_records.proxy.pages.schema_form import SchemaDraft

#: The inputs of a row, by the last part of a pointer.
_INPUTS = ("type", "minimum", "maximum", "precision")
_POINTER = re.compile(r"(?:/schema)?/(properties|required)/([^/]*)(?:/([^/]*))?.*")
_WORDS = {
    ("missing_keyword", "minimum"): "Numbers need a minimum.",
    ("missing_keyword", "maximum"): "Numbers need a maximum.",
    ("missing_keyword", "precision"): "Enter how many decimals are kept, such as 2.",
    ("domain", "maximum"): "The range is too wide for so many decimals: narrow it, or keep fewer.",
    ("binding_changed", "type"): "The type is part of the keys and cannot be changed.",
    ("binding_changed", "precision"): (
        "Stored values have more decimals than that, so the number of decimals stays."
    ),
}
_BY_DETAIL = {
    "expected a number": "This is not a number.",
    "above maximum": "The minimum is above the maximum.",
    "must be an integer": "This must be a whole number.",
    "no number of that precision lies within them": (
        "No number with so many decimals lies between these bounds."
    ),
}


def place_errors(draft: SchemaDraft, flaws: Iterable[Flaw]) -> list[str]:
    """Give each row of ``draft`` its errors; what belongs to no row is returned as sentences."""
    rows = {row.name: row for row in draft.rows if row.name}
    rest: list[str] = []
    for flaw in flaws:
        name, column = _place_of(flaw)
        row = rows.get(name)
        if row is not None and column == "removed":
            row = None
        if row is not None:
            row.errors.setdefault(column, _words(flaw, column))
        elif column == "removed" or name:
            rest.append(f"{name}: {flaw.detail}")
        elif flaw.pointer in ("/name", "/description"):
            draft.errors[flaw.pointer[1:]] = sentence(flaw.detail)
        else:
            rest.append(flaw.detail)
    return rest


def _place_of(flaw: Flaw) -> tuple[str, str]:
    """The field and the column that a flaw is about; empty where it is about none."""
    match = _POINTER.fullmatch(flaw.pointer or "")
    if match is None:
        return flaw.field or "", "name"
    part, token, keyword = match.groups()
    name = token.replace("~1", "/").replace("~0", "~")
    if part == "required":
        return name, "required"
    if flaw.code == "field_removed":
        return name, "removed"
    if keyword is None:
        return name, "name"
    return name, keyword if keyword in _INPUTS else "more"


def _words(flaw: Flaw, column: str) -> str:
    return _WORDS.get((flaw.code, column)) or _BY_DETAIL.get(flaw.detail) or sentence(flaw.detail)


def first_invalid(draft: SchemaDraft) -> str:
    """The id of the first input with an error; empty where there is none."""
    for number, row in enumerate(draft.rows):
        for column in ("name", *_INPUTS, "required"):
            if column in row.errors:
                return f"{'field' if column == 'name' else column}-{number}"
    return ""
