"""The schema editor's form <-> a definition. Pure.

One row of the form is one field. Keywords that the table has no column for (``enum``, ``pattern``,
``title``, ...) travel in a hidden member of their row and come out unchanged. What the definition
means is not judged here: the endpoints do that, with their own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec

from encrypted_records.errors import ErsError, Flaw, InvalidDefinition
from encrypted_records.model import strict_json

#: What an estimate is made for until somebody says how many there will be.
EXPECTED_RECORDS = 100_000
TYPES = ("string", "integer", "number")
_NUMBERS = ("minimum", "maximum", "precision")
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?")
_encoder = msgspec.json.Encoder(decimal_format="number")


@dataclass(slots=True)
class Row:
    """A field as it stands in the table: text, as typed. ``more`` are its other keywords."""

    name: str = ""
    type: str = "string"
    minimum: str = ""
    maximum: str = ""
    precision: str = ""
    required: bool = False
    more: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def more_json(self) -> str:
        return _encoder.encode(self.more).decode()


@dataclass(slots=True)
class Draft:
    """A schema that is being edited. ``rest`` are keywords beside properties and required."""

    name: str = ""
    description: str = ""
    rows: list[Row] = field(default_factory=list)
    rest: dict[str, Any] = field(default_factory=dict)
    records: int = EXPECTED_RECORDS

    @property
    def rest_json(self) -> str:
        return _encoder.encode(self.rest).decode()

    @property
    def json(self) -> str:
        """The definition for reading: what :meth:`definition` gives, or all of it that parses."""
        body = _encoder.encode(self._definition([]))
        return msgspec.json.format(body, indent=2).decode()

    def definition(self) -> dict[str, Any]:
        """The definition that the table stands for.

        Raises:
            InvalidDefinition: a bound is no number, or two fields have one name.
        """
        flaws: list[Flaw] = []
        found = self._definition(flaws)
        if flaws:
            raise InvalidDefinition("the table cannot be read", flaws=tuple(flaws), hint="")
        return found

    def _definition(self, flaws: list[Flaw]) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        for row in self.rows:
            if not row.name:
                continue
            if row.name in properties:
                flaws.append(Flaw("invalid", "there are two fields of this name", field=row.name))
            properties[row.name] = {"type": row.type, **dict(_bounds(row, flaws)), **row.more}
        required = [row.name for row in self.rows if row.required and row.name]
        found = {"type": "object", "properties": properties, **self.rest}
        return found | ({"required": required} if required else {})

    def take(self, definition: object) -> None:
        """Let the table say what a definition says.

        Raises:
            InvalidDefinition: it is not even of the right form to be shown in a table.
        """
        notes = {row.name: row.note for row in self.rows}
        if not isinstance(definition, dict) or not isinstance(definition.get("properties"), dict):
            raise InvalidDefinition("a definition is an object with properties")
        required = definition.get("required", [])
        names = required if isinstance(required, list) else []
        rows = []
        for name, one in definition["properties"].items():
            if not isinstance(one, dict):
                raise InvalidDefinition(
                    "a field is an object with a type",
                    flaws=(Flaw("invalid", "is no object", field=name),),
                )
            known = {key: _text(one[key]) for key in _NUMBERS if key in one}
            more = {key: value for key, value in one.items() if key not in {"type", *_NUMBERS}}
            kind = str(one.get("type", ""))
            rows.append(Row(name, kind, required=name in names, more=more, **known))
            rows[-1].note = notes.get(name, "")
        self.rows = rows
        kept = {"type", "properties", "required"}
        self.rest = {key: value for key, value in definition.items() if key not in kept}

    def annotate(self, notes: Mapping[str, str]) -> None:
        for row in self.rows:
            row.note = notes.get(row.name, "")


def _bounds(row: Row, flaws: list[Flaw]) -> Iterator[tuple[str, int | Decimal]]:
    for key in _NUMBERS:
        typed = getattr(row, key).strip().replace("\N{MINUS SIGN}", "-")
        # A field that became a string keeps no bounds; an integer no decimals.
        if not typed or row.type == "string" or (row.type == "integer" and key == "precision"):
            continue
        if not _NUMBER.fullmatch(typed):
            flaws.append(Flaw("invalid", f"the {key} is no number", field=row.name))
        elif "." in typed:
            yield key, Decimal(typed)
        else:
            yield key, int(typed)


def _text(value: object) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def draft_of(form: Mapping[str, str]) -> Draft:
    """What the form holds. JSON that was edited beside the table goes before the table.

    Raises:
        Malformed, InvalidDefinition: the edited JSON cannot be shown in a table.
    """
    draft = Draft(
        name=form.get("name", ""),
        description=form.get("description", ""),
        rest=_object(form.get("rest", "")),
        records=_count(form.get("records", "")),
    )
    numbers = [int(key[6:]) for key in form if re.fullmatch(r"field-[0-9]{1,4}", key)]
    for number in sorted(set(numbers)):

        def typed(name: str, at: int = number) -> str:
            return form.get(f"{name}-{at}", "").strip()

        draft.rows.append(
            Row(
                typed("field"),
                typed("type") or "string",
                typed("minimum"),
                typed("maximum"),
                typed("precision"),
                required=bool(typed("required")),
                more=_object(form.get(f"more-{number}", "")),
                note=typed("note"),
            )
        )
    edited, shown = form.get("json", ""), form.get("json-shown", "")
    if edited.split() != shown.split():
        draft.take(strict_json.loads(edited.encode()))
    return draft


def _object(text: str) -> dict[str, Any]:
    """A hidden member that this page wrote; nothing, when somebody else did."""
    try:
        found = strict_json.loads((text or "{}").encode())
    except ErsError:
        return {}
    return found if isinstance(found, dict) else {}


def _count(typed: str) -> int:
    digits = re.sub(r"[\s,._']", "", typed)
    known = digits.isascii() and digits.isdecimal() and 0 < len(digits) <= 12
    return max(1, int(digits)) if known else EXPECTED_RECORDS
