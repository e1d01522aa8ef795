"""Completions in a line of the condition language. Pure.

The line is read up to the caret. :data:`_NEXT` says which words and signs lead from one place of
the grammar to the next; an invalid line gets no completions, and an error when it is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from encrypted_records.client.sdk.condition_language import TOKENS, Token, write_field, write_value
from encrypted_records.model.field_types import BY_NAME
from encrypted_records.proxy.pages.formatting import plain
from encrypted_records.proxy.pages.pictures import Bar
from encrypted_records.proxy.pages.search_form import is_dated, is_text

MOST_OPTIONS = 8
#: Characters of a value that are shown.
SHOWN_OF_VALUE = 80
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
    """``text`` is inserted into the line; ``shown`` is displayed, with the explanation ``said``."""

    text: str
    shown: str
    said: str


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
        Option(word if word.endswith("(") else f"{word} ", word, said)
        for word, said in words
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
    """If the definition lists the values, the index is not asked."""
    known: Sequence[object] | None = spec.get("enum")
    own = BY_NAME[kind]
    if own.is_boolean:
        known = (True, False)
    if known is not None:
        wanted = done.typed.casefold()
        listed = [value for value in known if plain(value).casefold().startswith(wanted)]
        shown = tuple(
            Option(f"{write_value(value)} ", plain(value), "") for value in listed[:MOST_OPTIONS]
        )
        return replace(done, options=shown)
    if own.is_number:
        ends = (plain(spec[end]) for end in ("minimum", "maximum") if end in spec)
        return replace(done, hint=f"a number, {' to '.join(ends)}")
    if is_dated(kind):
        return replace(done, hint="a day, such as 2026-01-31; a month, 2026-01; or a year")
    return replace(done, asks_index=own.is_text)


def _option_of(value: str, said: str) -> Option:
    shown = value if len(value) <= SHOWN_OF_VALUE else f"{value[:SHOWN_OF_VALUE]}…"
    return Option(f"{write_value(value)} ", shown, said)
