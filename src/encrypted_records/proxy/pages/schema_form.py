"""The schema editor's form <-> a definition, with errors at its fields. Pure.

One row of the form is one field. Keywords without a column in the table (``enum``, ``pattern``,
``title``, ...) are carried in a hidden member of their row and are not changed. The endpoints judge
the meaning of the definition, with their own error texts.

An endpoint names a place in JSON by a pointer. People see a table with columns, so the error is
shown under the input that has to change, in the editor's terms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec

from encrypted_records.errors import ErsError, Flaw, InvalidDefinition
from encrypted_records.model import field_types, strict_json
from encrypted_records.model.field_types import BY_NAME, FORMATS, PLAIN
from encrypted_records.model.field_types.plain import TEXT
from encrypted_records.model.strict_json import escape_pointer
from encrypted_records.proxy.pages.formatting import plain, sentence

#: The number of records of an estimate until the user enters one.
EXPECTED_RECORDS = 100_000
NUMERIC = tuple(kind.name for kind in PLAIN.values() if kind.is_number)
#: JSON types, and enforced formats, which are separate types.
TYPES = tuple(BY_NAME)
#: Keywords that a field loses when its type changes.
_OF_TEXTS = frozenset({"padTo", "maxLength", "minLength", "pattern", "x-index"})
_OF_NUMBERS = frozenset({"multipleOf", "exclusiveMinimum", "exclusiveMaximum"})
#: Keywords that contain values, which the server can therefore read.
_VALUES = ("enum", "const", "default", "examples")
_NUMBERS = ("minimum", "maximum", "precision")
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?")


@dataclass(slots=True)
class FieldRow:
    """A field as a row of the table: text, as typed. ``more`` has its other keywords."""

    name: str = ""
    type: str = "string"
    minimum: str = ""
    maximum: str = ""
    precision: str = ""
    required: bool = False
    #: whether values must be unique across records
    unique: bool = False
    more: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    #: least and greatest value in a sample
    seen: str = ""
    #: errors by column
    errors: dict[str, str] = field(default_factory=dict)
    #: the name of the field in stored records, if it may be renamed
    was: str = ""
    #: whether its column of a file is not stored
    left_out: bool = False

    @property
    def is_numeric(self) -> bool:
        return self.type in NUMERIC

    @property
    def is_text(self) -> bool:
        return self.type in BY_NAME and BY_NAME[self.type].is_text

    @property
    def has_decimals(self) -> bool:
        return self.type in BY_NAME and BY_NAME[self.type].has_decimals

    @property
    def about(self) -> str:
        """The values of the field in words."""
        return BY_NAME[self.type].about if self.type in BY_NAME else TEXT.about

    @property
    def is_bounded(self) -> bool:
        """Whether its bounds differ from the defaults for numbers."""
        bound = str(field_types.WHOLE)
        return self.is_numeric and (self.minimum, self.maximum) != (f"-{bound}", bound)

    @property
    def rules(self) -> dict[str, Any]:
        """The type of the field as in a definition."""
        return FORMATS[self.type].propose() if self.type in FORMATS else {"type": self.type}

    @property
    def published(self) -> list[str]:
        """The values in the definition, which the server can read."""
        keyword_values = [self.more.get(keyword) for keyword in _VALUES]
        each = [
            value
            for listed_value in keyword_values
            for value in (listed_value if isinstance(listed_value, list) else [listed_value])
        ]
        return list(dict.fromkeys(plain(value) for value in each if value is not None))

    @property
    def pad(self) -> str:
        """Bytes that each text is padded to; empty for the default of its type."""
        return plain(self.more.get("padTo", ""))

    @property
    def has_words(self) -> bool:
        return "words" in self._index

    @property
    def _index(self) -> list[Any]:
        index = self.more.get("x-index", [])
        return list(index) if _is_list(index) else []

    @property
    def lines(self) -> str | None:
        """The allowed texts, one per line; None if lines cannot represent them."""
        listed = self.more.get("enum", [])
        is_listed = _is_list(listed) and all(
            isinstance(value, str) and value == value.strip() != "" and len(value.splitlines()) == 1
            for value in listed
        )
        return "\n".join(listed) if is_listed else None

    def take_text_rules(self, *, words: bool, pad: str, lines: str | None) -> None:
        """Take the values of a text field's controls; a text that is not a number is refused later.

        Args:
            lines: as :attr:`lines`.
        """
        if words != self.has_words:
            index = [kind for kind in self._index if kind != "words"] + ["words"] * words
            self._set("x-index", index)
        if pad != self.pad:
            is_whole = pad.isascii() and pad.isdecimal() and len(pad) < 10
            self._set("padTo", int(pad) if is_whole else pad)
        if lines is not None and self.lines is not None:
            listed = [line.strip() for line in lines.splitlines()]
            self._set("enum", list(dict.fromkeys(filter(None, listed))))

    def _set(self, keyword: str, value: Any) -> None:
        self.more = {key: kept for key, kept in self.more.items() if key != keyword}
        if value:
            self.more[keyword] = value

    @property
    def rest_of_more(self) -> str:
        """Other keywords of the field, except those that contain values or have a control."""
        shown = (*_VALUES, "padTo", "x-index") if self.type == TEXT.name else _VALUES
        others = {key: value for key, value in self.more.items() if key not in shown}
        return strict_json.encode(others).decode() if others else ""

    def take_values_out(self) -> None:
        """Remove all values from the definition; texts are padded instead of listed."""
        longest = max((len(value.encode()) for value in self.published), default=0)
        self.more = {key: value for key, value in self.more.items() if key not in _VALUES}
        if self.is_text:
            self.more = {**field_types.propose_text(longest), **self.more}
            del self.more["type"]

    def settle(self) -> None:
        """Give a field that has become a number the default bounds and decimals."""
        if self.is_numeric and not (self.minimum or self.maximum or self.precision):
            whole = not self.has_decimals
            given = (
                field_types.propose_whole_number()
                if whole
                else field_types.propose_decimal(1, 0) or {}
            )
            self.minimum, self.maximum = str(given["minimum"]), str(given["maximum"])
            self.precision = str(given.get("precision", ""))

    @property
    def kept(self) -> dict[str, Any]:
        """Other keywords of the field, without those of its previous type."""
        left = {*_OF_NUMBERS} if self.is_text else {*_OF_TEXTS}
        if self.type in FORMATS:
            left |= {*_OF_NUMBERS, "enum", "const"}
        elif any(isinstance(value, str) == self.is_numeric for value in self._listed):
            left |= {"enum", "const"}
        return {key: value for key, value in self.more.items() if key not in left}

    @property
    def _listed(self) -> list[Any]:
        listed = self.more.get("enum", [])
        all_of_it = [*(listed if _is_list(listed) else []), self.more.get("const")]
        return [value for value in all_of_it if value is not None]

    @property
    def more_json(self) -> str:
        return strict_json.encode(self.more).decode()


@dataclass(slots=True)
class SchemaDraft:
    """A schema that is being edited. ``rest`` has the keywords besides properties and required."""

    name: str = ""
    description: str = ""
    rows: list[FieldRow] = field(default_factory=list)
    rest: dict[str, Any] = field(default_factory=dict)
    records: int = EXPECTED_RECORDS
    errors: dict[str, str] = field(default_factory=dict)
    #: errors of no row, as sentences
    misplaced: list[str] = field(default_factory=list)
    #: the id of the first input with an error; empty if there is none
    first_invalid: str = ""

    @property
    def rest_json(self) -> str:
        return strict_json.encode(self.rest).decode()

    @property
    def json(self) -> str:
        """The definition for display: the result of :meth:`definition`, or all of it that
        parses.
        """
        body = strict_json.encode(self._definition([]))
        return msgspec.json.format(body, indent=2).decode()

    def definition(self) -> dict[str, Any]:
        """The definition in the table.

        Raises:
            InvalidDefinition: a bound is not a number, or two fields have the same name.
        """
        flaws: list[Flaw] = []
        definition = self._definition(flaws)
        if flaws:
            # All errors are reported at once.
            flaws += _missing(row for row in self.rows if not row.left_out)
            raise InvalidDefinition("the table cannot be read", flaws=tuple(flaws), hint="")
        return definition

    def _definition(self, flaws: list[Flaw]) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        for row in self.rows:
            if not row.name or row.left_out:
                continue
            if row.name in properties:
                flaws.append(Flaw("field_name", "two fields have this name", field=row.name))
            properties[row.name] = {**row.rules, **dict(_bounds(row, flaws)), **row.kept}
        rows = [row for row in self.rows if row.name and not row.left_out]
        required = [row.name for row in rows if row.required]
        sets = self.rest.get("unique", [])
        unique = [[row.name] for row in rows if row.unique] + (sets if _is_list(sets) else [])
        definition = {"type": "object", "properties": properties, **self.rest}
        if any(row.type in FORMATS for row in rows):
            definition["formats"] = "enforced"
        definition |= {"unique": unique} if unique else {}
        return definition | ({"required": required} if required else {})

    def take(self, definition: object) -> None:
        """Fill the table from a definition.

        Raises:
            InvalidDefinition: it cannot be shown in a table.
        """
        before = {row.name: row for row in self.rows}
        if not isinstance(definition, dict) or not isinstance(definition.get("properties"), dict):
            raise InvalidDefinition("a definition is an object with properties")
        required = definition.get("required", [])
        names = required if isinstance(required, list) else []
        enforced = definition.get("formats") == "enforced"
        sets = definition.get("unique", [])
        single = [names[0] for names in sets if _is_single(names)] if _is_list(sets) else []
        rows = []
        for name, rules in definition["properties"].items():
            if not isinstance(rules, dict):
                raise InvalidDefinition(
                    "a field is an object with a type",
                    flaws=(Flaw("invalid", "is not an object", field=name),),
                )
            least, most, places = (plain(rules[key]) if key in rules else "" for key in _NUMBERS)
            more = {key: value for key, value in rules.items() if key not in {"type", *_NUMBERS}}
            kind = str(rules.get("type", ""))
            known = FORMATS.get(str(rules.get("format")))
            if enforced and known is not None and known.json_type == kind:
                kind = more.pop("format")
                least = most = ""
            rows.append(
                FieldRow(name, kind, least, most, places, name in names, name in single, more)
            )
            if name in before:
                rows[-1].note, rows[-1].seen = before[name].note, before[name].seen
                rows[-1].was = before[name].was
        self.rows = rows
        self.rest = _other_keywords(definition)
        if enforced and any(row.type in FORMATS for row in rows):
            del self.rest["formats"]
        if _is_list(sets) and "unique" in self.rest:
            names_of_rows = {row.name for row in rows}
            left = [
                names for names in sets if not (_is_single(names) and names[0] in names_of_rows)
            ]
            self.rest["unique"] = left
            if not left:
                del self.rest["unique"]

    @property
    def publishes(self) -> bool:
        """Whether the server can read values of a field in the definition."""
        return any(row.published for row in self.rows)

    def follow(self, do: str) -> None:
        """Apply a button or control of a row: another type, or no list of values."""
        if do == "type":
            for row in self.rows:
                row.settle()
        number = do.removeprefix("unlist-")
        if number != do and number in map(str, range(len(self.rows))):
            self.rows[int(number)].take_values_out()

    def follow_rows(self, do: str) -> bool:
        """Add or remove a row for a button; returns whether it did."""
        number = do.removeprefix("remove-")
        if do == "add":
            self.rows.append(FieldRow())
        elif number != do and number in map(str, range(len(self.rows))):
            del self.rows[int(number)]
        else:
            return False
        return True

    def see(self, spreads: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over the least and the greatest number in rows."""
        for row in self.rows:
            spread = spreads.get(row.name, {})
            if row.is_numeric and spread.get("least") is not None:
                row.seen = f"{spread['least']} to {spread['most']}"

    def annotate(self, proposed: Iterable[Mapping[str, Any]]) -> None:
        """Take over the notes of a proposal about its fields."""
        notes = {field["name"]: field for field in proposed}
        for row in self.rows:
            note = notes.get(row.name, {})
            row.note = note.get("note") or ""
            row.seen = ""
            if note.get("least") is not None:
                # The range of the values in the sample is more useful than the note that the bounds
                # are a guess.
                row.note, row.seen = "", f"{note['least']} to {note['most']}"


def _other_keywords(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a definition that are not in its rows."""
    rows = {"type", "properties", "required"}
    return {key: value for key, value in definition.items() if key not in rows}


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_single(value: object) -> bool:
    """Whether this is a set of one field."""
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], str)


def _bounds(row: FieldRow, flaws: list[Flaw]) -> Iterator[tuple[str, int | Decimal]]:
    for key in _NUMBERS:
        typed = getattr(row, key).strip().replace("\N{MINUS SIGN}", "-")
        # A field that became a string keeps no bounds; an integer no decimals.
        if not typed or not row.is_numeric or (not row.has_decimals and key == "precision"):
            continue
        if not _NUMBER.fullmatch(typed):
            pointer = f"/properties/{escape_pointer(row.name)}/{key}"
            flaws.append(Flaw("keyword", "expected a number", pointer, field=row.name))
        elif "." in typed:
            yield key, Decimal(typed)
        else:
            yield key, int(typed)


def _missing(rows: Iterable[FieldRow]) -> Iterator[Flaw]:
    for row in rows:
        for key in _NUMBERS:
            needed = row.has_decimals or (row.is_numeric and key != "precision")
            if row.name and needed and not getattr(row, key).strip():
                pointer = f"/properties/{escape_pointer(row.name)}/{key}"
                yield Flaw("missing_keyword", f"{key} is required here", pointer, field=row.name)


def draft_of(form: Mapping[str, str]) -> SchemaDraft:
    """The draft in the form. JSON that was edited next to the table takes precedence over the
    table.

    Raises:
        Malformed, InvalidDefinition: the edited JSON cannot be shown in a table.
    """
    draft = SchemaDraft(
        name=form.get("name", ""),
        description=form.get("description", ""),
        rest=_other_keywords(_object(form.get("rest", ""))),
        records=_count(form.get("records", "")),
    )
    numbers = [int(key[6:]) for key in form if re.fullmatch(r"field-[0-9]{1,4}", key)]
    for number in sorted(set(numbers)):

        def typed(name: str, at: int = number) -> str:
            return form.get(f"{name}-{at}", "").strip()

        draft.rows.append(
            FieldRow(
                typed("field"),
                typed("type") or "string",
                typed("minimum"),
                typed("maximum"),
                typed("precision"),
                required=bool(typed("required")),
                unique=bool(typed("unique")),
                more=_object(form.get(f"more-{number}", "")),
                note=typed("note"),
                seen=typed("seen"),
                was=typed("was"),
                left_out=bool(typed("out")),
            )
        )
        if typed("text"):
            draft.rows[-1].take_text_rules(
                words=bool(typed("words")), pad=typed("pad"), lines=form.get(f"values-{number}")
            )
    edited, shown = form.get("json", ""), form.get("json-shown", "")
    if edited.split() != shown.split():
        draft.take(strict_json.loads(edited.encode()))
    return draft


def _object(text: str) -> dict[str, Any]:
    """Parse a hidden form value that this page wrote; empty if it was tampered with."""
    try:
        value = strict_json.loads((text or "{}").encode())
    except ErsError:
        return {}
    return value if isinstance(value, dict) else {}


def _count(typed: str) -> int:
    digits = re.sub(r"[\s,._']", "", typed)
    known = digits.isascii() and digits.isdecimal() and 0 < len(digits) <= 12
    return max(1, int(digits)) if known else EXPECTED_RECORDS


# --- errors at fields -----------------------------------------------------------------------------

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


def place_errors(draft: SchemaDraft, flaws: Iterable[Flaw]) -> None:
    """Give each row of ``draft`` its errors."""
    rows = {row.name: row for row in draft.rows if row.name}
    for flaw in flaws:
        name, column = _place_of(flaw)
        row = rows.get(name)
        if row is not None and column == "removed":
            row = None
        if row is not None:
            row.errors.setdefault(column, _words(flaw, column))
        elif column == "removed" or name:
            draft.misplaced.append(f"{name}: {flaw.detail}")
        elif flaw.pointer in ("/name", "/description"):
            draft.errors[flaw.pointer[1:]] = sentence(flaw.detail)
        else:
            draft.misplaced.append(flaw.detail)
    wrong = (
        f"{'field' if column == 'name' else column}-{number}"
        for number, row in enumerate(draft.rows)
        for column in ("name", *_INPUTS, "required")
        if column in row.errors
    )
    draft.first_invalid = next(wrong, "")


def _place_of(flaw: Flaw) -> tuple[str, str]:
    """The field and the column of a flaw; empty if it concerns none."""
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
