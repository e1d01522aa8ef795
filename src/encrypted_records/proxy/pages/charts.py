"""Pictures and completions of fields, which the records page and the overview load separately.

The overview has a picture of every field for the filtered records; the most frequent values are
completions. A heat map shows two fields against each other: how many records have both, from
aggregates of the index. It groups texts by their most common values, and numbers by intervals of
equal width.

A line of the condition language is completed at its caret. :data:`_NEXT` says which words and signs
lead from one place of the grammar to the next; an invalid line gets no completions, and an error
when it is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from starlette.responses import Response

from encrypted_records.client.sdk.condition_language import (
    TOKENS,
    NotUnderstood,
    Token,
    write_field,
    write_value,
)
from encrypted_records.errors import BadInput, ErsError, NotFound
from encrypted_records.http import problem as problems
from encrypted_records.model.field_types import BY_NAME
from encrypted_records.model.field_types.plain import step_of
from encrypted_records.proxy.pages import formatting as words
from encrypted_records.proxy.pages.formatting import plain
from encrypted_records.proxy.pages.page import Visit, moved, page
from encrypted_records.proxy.pages.pictures import Bar, Picture, draw_picture, draw_suggestions
from encrypted_records.proxy.pages.questions import (
    SchemaQuestion,
    answer_question,
    find_question,
    keep_question,
    measure,
    show_answer,
)
from encrypted_records.proxy.pages.search_form import is_dated, is_listed, is_text

MOST_OPTIONS = 8
_FIELD, _VALUE = "a field", "a value"
#: Place in the grammar -> words, signs and kinds of tokens -> the place after each.
_NEXT: Mapping[str, Mapping[str, str]] = {
    "field": {"not": "field", "(": "field", _FIELD: "operator"},
    "operator": {
        "not": "operator",
        "is": "null",
        "in": "list",
        "between": "low",
        "starts": "with",
        "ends": "with",
        "has": "words",
        "prefix": "beginning",
        **dict.fromkeys(("contains", "like", "matches", "near", "~"), "text"),
        **dict.fromkeys(("=", "==", "!=", "<>", "<", "<=", ">", ">="), "value"),
    },
    "null": {"not": "null", "null": "joined"},
    "with": {"with": "beginning"},
    "words": {"words": "text", "phrase": "text"},
    "list": {"(": "item"},
    "item": {_VALUE: "more"},
    "more": {",": "item", ")": "joined"},
    "low": {_VALUE: "band"},
    "band": {"and": "high"},
    "high": {_VALUE: "joined"},
    "value": {_VALUE: "joined"},
    "beginning": {_VALUE: "joined"},
    "text": {_VALUE: "joined"},
    "number": {_VALUE: "joined"},
    "joined": {
        "and": "field",
        "or": "field",
        ")": "joined",
        "folded": "joined",
        "within": "number",
    },
}
_EQUAL = (("=", "is"), ("!=", "is not"), ("in (", "is one of"))
_ORDERED = (
    (">=", "at least"),
    ("<=", "at most"),
    (">", "above"),
    ("<", "below"),
    ("between", "from … to …"),
)
_TEXTS = (
    ("contains", "anywhere in it"),
    ("starts with", "at its beginning"),
    ("ends with", "at its end"),
    ("has words", "all of some words"),
    ("has phrase", "words in a row"),
    ("near", "with a typo"),
    ("like", "with % and _"),
    ("matches", "a pattern"),
)
_ABSENT = (("is null", "is missing"), ("is not null", "is not missing"))
#: The offered comparisons, by the operator set of a field's type.
_OPERATORS: Mapping[str, Sequence[tuple[str, str]]] = {
    "text": (*_EQUAL, *_TEXTS, *_ABSENT),
    "same": (*_EQUAL, *_ABSENT),
    **dict.fromkeys(("number", "time", "length"), (*_ORDERED, *_EQUAL, *_ABSENT)),
}
#: Places in the grammar -> the words of the language that follow, each with an explanation.
_WORDS: Mapping[str, Sequence[tuple[str, str]]] = {
    "null": (("null", "is missing"), ("not null", "is not missing")),
    "with": (("with", ""),),
    "words": (("words", "all of some words"), ("phrase", "words in a row")),
    "list": (("(", ""),),
    "more": ((",", "one more value"), (")", "the end of the list")),
    "band": (("and", "then the upper end"),),
    "joined": (("and", "both must be true"), ("or", "one must be true")),
}
_VALUES = ("value", "item", "low", "high", "beginning")


@dataclass(frozen=True, slots=True)
class Option:
    """``text`` is inserted into the line; ``shown`` is displayed, with the explanation ``note``."""

    text: str
    shown: str
    note: str


@dataclass(frozen=True, slots=True)
class Completion:
    """The completions from the character ``at`` of the line, replacing ``typed``.

    ``field`` is the field of a value; ``hint`` names the kind of value that it takes.
    """

    place: str
    at: int
    typed: str
    field: str = ""
    options: tuple[Option, ...] = ()
    hint: str = ""
    #: whether the index has the values
    asks_index: bool = False

    def with_values(self, bars: Iterable[Bar]) -> tuple[Option, ...]:
        """The options, and values of the index with their numbers of records."""
        found = (_option_of(bar.label, f"{bar.count:,}") for bar in bars)
        return self.options + tuple(found)[:MOST_OPTIONS]


def complete_line(
    text: str, types: Mapping[str, str], properties: Mapping[str, Mapping[str, Any]]
) -> Completion:
    """The completion at the end of ``text``, the line up to the caret.

    Args:
        types: types of the schema's fields, as in :func:`.search_form.types_of`.
        properties: the fields in the definition.
    """
    tokens, at, typed = _split(text)
    place, field = "field", ""
    for token in tokens:
        steps = _NEXT[place]
        word = token.text.lower()
        kind = _VALUE if _is_value(token) else _FIELD
        if word not in steps and (kind not in steps or token.kind == "sign"):
            return Completion("", at, typed)
        if word not in steps and place == "field":
            field = _name_of(token)
        place = steps.get(word, steps.get(kind, ""))
    done = Completion(place, at, typed)
    kind = types.get(field, "")
    if place == "field":
        return replace(done, options=_fields(typed, types))
    if place in _VALUES and kind:
        return _values(replace(done, field=field), kind, properties[field])
    words = (
        _OPERATORS[BY_NAME[kind].phrases] if place == "operator" and kind else _WORDS.get(place, ())
    )
    if place == "joined" and kind and is_text(kind):
        words = (*words, ("folded", "in any spelling"))
    beginning = typed.lower()
    options = [
        Option(word if word.endswith("(") else f"{word} ", word, note)
        for word, note in words
        if word.startswith(beginning)
    ]
    return replace(done, options=tuple(options))


def _split(text: str) -> tuple[list[Token], int, str]:
    """The tokens before the token at the caret, the position of that token, and its text so far."""
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = TOKENS.match(text, at)
        if match is None:
            # An unclosed quote, or part of a number.
            return tokens, at, text[at + 1 :] if text[at] in "\"'`" else text[at:]
        if match.lastgroup not in (None, "space"):
            tokens.append(Token(str(match.lastgroup), match[0], at))
        at = match.end()
    if tokens and tokens[-1].kind in ("word", "number", "date"):
        last = tokens[-1]
        if last.at + len(last.text) == len(text):
            return tokens[:-1], last.at, last.text
    return tokens, len(text), ""


def _is_value(token: Token) -> bool:
    return token.kind in ("text", "number", "date", "pattern") or token.is_word("true", "false")


def _name_of(token: Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text


def _fields(typed: str, types: Mapping[str, str]) -> tuple[Option, ...]:
    """The fields whose names contain the typed text; names that begin with it come first."""
    wanted = typed.casefold()
    found = [name for name in types if wanted in name.casefold()]
    found.sort(key=lambda name: not name.casefold().startswith(wanted))
    return tuple(
        Option(f"{write_field(name)} ", name, BY_NAME[types[name]].said)
        for name in found[:MOST_OPTIONS]
    )


def _values(done: Completion, kind: str, spec: Mapping[str, Any]) -> Completion:
    """If the definition lists the values, no request is sent to the index."""
    known: Sequence[object] | None = spec.get("enum")
    field_type = BY_NAME[kind]
    if field_type.is_boolean:
        known = (True, False)
    if known is not None:
        wanted = done.typed.casefold()
        listed = [value for value in known if plain(value).casefold().startswith(wanted)]
        shown = tuple(
            Option(f"{write_value(value)} ", plain(value), "") for value in listed[:MOST_OPTIONS]
        )
        return replace(done, options=shown)
    if field_type.is_number:
        ends = (plain(spec[end]) for end in ("minimum", "maximum") if end in spec)
        return replace(done, hint=f"a number, {' to '.join(ends)}")
    if is_dated(kind):
        return replace(done, hint="a day, such as 2026-01-31; a month, 2026-01; or a year")
    return replace(done, asks_index=field_type.is_text)


def _option_of(value: str, note: str) -> Option:
    return Option(f"{write_value(value)} ", words.shortened(value), note)


# --- two fields against each other ----------------------------------------------------------------

TOP_VALUES = 8
BINS = 8
#: Number of shades of a cell, besides none.
SHADES = 8


@dataclass(frozen=True, slots=True)
class Stretch:
    """A row or column of the heat map: a text, or the numbers from ``low`` (inclusive) to ``above``
    (exclusive).
    """

    label: str
    value: str | None = None
    low: Any = None
    above: Any = None

    def condition(self, name: str) -> dict[str, Any]:
        if self.value is not None:
            return {"field": name, "op": "eq", "value": self.value}
        return {
            "and": [
                {"field": name, "op": "ge", "value": self.low},
                {"field": name, "op": "lt", "value": self.above},
            ]
        }


@dataclass(frozen=True, slots=True)
class Cell:
    """``shade`` is from 0, for no records, to :data:`SHADES`, for the maximum."""

    count: int
    shade: int
    share: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    down: str
    across: str
    columns: list[str]
    rows: list[tuple[str, list[Cell]]]


async def draw_heat_map(visit: Visit, on: SchemaQuestion, down: str, across: str) -> HeatMap:
    """
    Raises:
        BadInput: a field against itself.
        ErsError: as /api/records/aggregate/ does.
    """
    if down == across:
        raise BadInput("these are the same field", hint="choose two")
    where = on.question.where(on.types)
    rows = await _divide(visit, on, down, where)
    columns = await _divide(visit, on, across, where)
    counts = [await _count(visit, on, where, row.condition(down), across, columns) for row in rows]
    most = max((count for line in counts for count in line), default=0)
    total = sum(count for line in counts for count in line)
    lines = [
        (row.label, [_cell(count, most, total) for count in line])
        for row, line in zip(rows, counts, strict=True)
    ]
    return HeatMap(down, across, [column.label for column in columns], lines)


def _cell(count: int, most: int, total: int) -> Cell:
    shade = -(-SHADES * count // most) if most else 0
    return Cell(count, shade, words.percent(count, total))


async def _divide(visit: Visit, on: SchemaQuestion, name: str, where: Any) -> list[Stretch]:
    """The rows or columns of a field."""
    if is_listed(on.types[name]):
        values = {"op": "distinct", "field": name, "limit": TOP_VALUES, "order": "-count"}
        (found,) = await measure(visit, on, where, values)
        return [
            Stretch(words.plain(value["value"]) or "(empty)", value["value"])
            for value in found["values"] or []
        ]
    (found,) = await measure(visit, on, where, {"op": "histogram", "field": name, "bins": BINS})
    bins = found["bins"] or []
    lows = [bin_["from"] for bin_ in bins]
    above = [*lows[1:], bins[-1]["to"] + _step(on, name)] if bins else []
    return [
        Stretch(_label(bin_), low=low, above=end)
        for bin_, low, end in zip(bins, lows, above, strict=True)
    ]


def _label(bin_: dict[str, Any]) -> str:
    ends = [words.grouped(bin_[end]) for end in ("from", "to")]
    return "\N{EN DASH}".join(dict.fromkeys(ends))


def _step(on: SchemaQuestion, name: str) -> Decimal | int:
    """The smallest difference between two values of a number field."""
    spec = on.schema.definition["properties"][name]
    return step_of(spec)


async def _count(
    visit: Visit,
    on: SchemaQuestion,
    where: Any,
    condition: dict[str, Any],
    across: str,
    columns: Sequence[Stretch],
) -> list[int]:
    """The number of one row's records in each of the columns."""
    both = condition if where is None else {"and": [where, condition]}
    if is_listed(on.types[across]):
        values = [column.value for column in columns]
        among = {"and": [both, {"field": across, "op": "in", "value": values}]}
        top = {"op": "distinct", "field": across, "limit": len(values), "order": "-count"}
        (found,) = await measure(visit, on, among, top)
        counts = {value["value"]: int(value["count"]) for value in found["values"] or []}
        return [counts.get(value, 0) for value in values]
    bounds = [*(column.low for column in columns), columns[-1].above]
    bins = {"op": "histogram", "field": across, "bounds": bounds}
    (found,) = await measure(visit, on, both, bins)
    return [int(bin_["count"]) for bin_ in found["bins"]]


# --- pages ----------------------------------------------------------------------------------------


async def overview(visit: Visit) -> Response:
    return await answer_question(visit, await find_question(visit), "overview", _show)


async def _show(visit: Visit, on: SchemaQuestion, misread: NotUnderstood | None = None) -> Response:
    """The frames of all pictures; with ``?all``, which is used without scripts, also the
    pictures.
    """
    total = None
    pictures: dict[str, Picture] = {}
    problem = misread or on.down
    try:
        if problem is None:
            (counted,) = await measure(visit, on, on.question.where(on.types))
            total = counted["value"]
            if "all" in visit.request.query_params:
                pictures = {name: await draw_picture(visit, on, name) for name in on.types}
    except ErsError as error:
        problem = error
    return show_answer(
        visit,
        "overview.html",
        problem,
        schema=on.schema,
        types=on.types,
        question=on.question,
        query=on.query,
        q=on.name,
        misread=misread,
        total=total,
        pictures=pictures,
    )


async def facet(visit: Visit) -> Response:
    """The picture of a field, as a fragment of a page: small for the records page, or large."""
    on = await find_question(visit)
    name = _field(visit, on)
    shown: dict[str, Any] = {"schema": on.schema, "large": visit.text("large") == "yes"}
    try:
        drawn = await draw_picture(visit, on, name)
    except ErsError as error:
        return _refuse(visit, error)
    return visit.render("facet.html", chart=drawn, failed=None, **shown)


async def complete(visit: Visit) -> Response:
    """Completions for the line, with values from the index.

    The cached schema is used, so that typing sends the API no more than a search for the beginning
    of a value.
    """
    on = await find_question(visit, early=True, asks=False)
    caret = visit.text("caret")
    text = visit.text("ask")
    if caret.isdecimal():
        text = text[: int(caret[:9])]
    found = complete_line(text, on.types, on.schema.definition["properties"])
    values: list[Bar] = []
    if found.field and found.asks_index:
        try:
            values = (await draw_suggestions(visit, on, found.field, found.typed)).bars
        except ErsError as error:
            return _refuse(visit, error)
    return visit.render("completions.html", found=found, options=found.with_values(values))


async def pair(visit: Visit) -> Response:
    """Two fields of the filtered records against each other, as a page and as a part of a page."""
    on = await find_question(visit)
    keep_question(visit, on)
    down, across = (_field_at(on, visit.text(name)) for name in ("down", "across"))
    shown: dict[str, Any] = {
        "schema": on.schema,
        "query": on.query,
        "parts": on.question.says(on.types),
    }
    try:
        return visit.render("pair.html", map=await draw_heat_map(visit, on, down, across), **shown)
    except ErsError as error:
        return visit.problem(error, "pair.html", map=None, **shown)


def _field(visit: Visit, on: SchemaQuestion) -> str:
    return _field_at(on, visit.part("position"))


def _field_at(on: SchemaQuestion, position: str) -> str:
    for at, name in enumerate(on.types):
        if position == str(at):
            return name
    raise NotFound("there is no such field")


def _refuse(visit: Visit, error: ErsError) -> Response:
    """The error instead of the picture; other pictures stay."""
    return visit.render("facet.html", problems.status_of(error), chart=None, failed=error)


routes = [
    moved("/schemas/{id}/look/", "/schemas/{id}/overview/"),
    page("/schemas/{id}/overview/", overview, methods=("GET", "POST"), changes=False),
    page("/schemas/{id}/pair/", pair, methods=("POST",), changes=False),
    page("/schemas/{id}/facet/{position}/", facet, methods=("POST",), changes=False, part=True),
    page("/schemas/{id}/complete/", complete, methods=("POST",), changes=False, part=True),
]
