"""The conditions of ``ers record search``: from text to the JSON of ``where``.

::

    expression  = conjunction { "or" conjunction }
    conjunction = negation { "and" negation }
    negation    = "not" negation | "(" expression ")" | comparison
    comparison  = field ( "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) value
                | field [ "not" ] "in" "(" value { "," value } ")"
                | field [ "not" ] "between" value "and" value
                | field [ "not" ] ( "prefix" | "starts" "with" ) text
                | field "is" [ "not" ] "null"
    field       = name | "`" { any character, "``" for one } "`"
    name        = a letter or "_", then letters, digits, "_", "-", "."
    value       = number | text
    number      = a JSON number
    text        = in "..." or '...', with the escapes of JSON and \\' beside them

Words of the language are those in either case; a field of such a name stands in back quotes.
``not`` binds closer than ``and``, ``and`` closer than ``or``. What a comparison means is the
service's affair (docs/http-api.md): this module knows no schema and checks no type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from encrypted_records.errors import InvalidSetting, Malformed
from encrypted_records.model import strict_json

_COMPARISONS = {
    "=": "eq",
    "==": "eq",
    "!=": "ne",
    "<>": "ne",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
}
WORDS = frozenset("and or not in between prefix starts with is null".split())
#: Deeper nesting is refused by every service, long before it would exhaust the stack here.
MAX_NESTING = 100

_TOKENS = re.compile(
    r"""(?P<space>\s+)
      | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<word>[^\W\d][\w.-]*)
      | (?P<sign><=|>=|==|!=|<>|[=<>(),])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Token:
    """``kind`` is a group of _TOKENS, or ``end``. ``at`` counts characters from 0."""

    kind: str
    text: str
    at: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words


def parse(text: str) -> dict[str, Any]:
    """The ``where`` that an expression says. Numbers are ``int`` or ``Decimal``.

    Raises:
        InvalidSetting: it is no expression; the message points at the place.
    """
    return _Parser(text).whole()


def parse_measure(text: str) -> dict[str, Any]:
    """The measure that a text such as ``percentile(age, 50, 90)`` says.

    Numbers are the ``p`` of percentile, the ``limit`` of distinct, and of histogram the number of
    ``bins`` or, where there are several, its ``bounds``.

    Raises:
        InvalidSetting: it is no measure; the message points at the place.
    """
    return _Parser(text).measure()


def fields_of(where: Mapping[str, Any]) -> list[str]:
    """The fields that a condition compares, in its order."""
    if "field" in where:
        return [where["field"]]
    (inner,) = where.values()
    parts = inner if isinstance(inner, list) else [inner]
    return [name for part in parts for name in fields_of(part)]


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self.split())
        self.next = 0
        self.nesting = 0

    def split(self) -> list[_Token]:
        found: list[_Token] = []
        at = 0
        while at < len(self.text):
            match = _TOKENS.match(self.text, at)
            if match is None:
                raise self.problem(at, *_unreadable(self.text, at))
            kind = match.lastgroup
            assert kind is not None
            if kind != "space":
                found.append(_Token(kind, match[0], at))
            at = match.end()
        return [*found, _Token("end", "", len(self.text))]

    def problem(self, at: int, what: str, hint: str = "") -> InvalidSetting:
        # Escapes would move the caret; it must stand below the character that it means.
        line = "".join(" " if one.isspace() or not one.isprintable() else one for one in self.text)
        return InvalidSetting(
            f"{what}, at character {at + 1} of the expression\n  {line}\n  {' ' * at}^", hint=hint
        )

    @property
    def token(self) -> _Token:
        return self.tokens[self.next]

    def take(self) -> _Token:
        found = self.token
        self.next += 1
        return found

    def takes_word(self, *words: str) -> bool:
        if self.token.is_word(*words):
            self.next += 1
            return True
        return False

    def takes_sign(self, sign: str) -> bool:
        if self.token.kind == "sign" and self.token.text == sign:
            self.next += 1
            return True
        return False

    def expect_sign(self, sign: str, where: str) -> None:
        if not self.takes_sign(sign):
            raise self.problem(self.token.at, f"expected {sign} {where}")

    def whole(self) -> dict[str, Any]:
        if self.token.kind == "end":
            raise self.problem(0, "the expression is empty", "leave it out to have all records")
        found = self.expression()
        if self.token.kind != "end":
            hint = (
                ") has no ( before it" if self.token.text == ")" else "join conditions by and, or"
            )
            raise self.problem(self.token.at, "expected the end, and, or or", hint)
        return found

    def measure(self) -> dict[str, Any]:
        op = self.take()
        if op.kind != "word":
            raise self.problem(op.at, "expected a measure", "such as count, avg(age)")
        found: dict[str, Any] = {"op": op.text.lower()}
        if self.takes_sign("("):
            found["field"] = self.field()
            numbers = []
            while self.takes_sign(","):
                numbers.append(self.value(op))
            self.expect_sign(")", "after the field and numbers of a measure")
            found |= self.numbered(op, numbers)
        if self.token.kind != "end":
            raise self.problem(self.token.at, "expected the end of the measure")
        return found

    def numbered(self, op: _Token, numbers: list[Any]) -> dict[str, Any]:
        match op.text.lower(), numbers:
            case _, []:
                return {}
            case "percentile", _:
                return {"p": numbers}
            case "distinct", [limit]:
                return {"limit": limit}
            case "histogram", [bins]:
                return {"bins": bins}
            case "histogram", _:
                return {"bounds": numbers}
        raise self.problem(op.at, f"{op.text} takes a field and no such numbers")

    def expression(self) -> dict[str, Any]:
        return self.joined("or", lambda: self.joined("and", self.negation))

    def joined(self, word: str, part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        parts = [part()]
        while self.takes_word(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else {word: parts}

    def negation(self) -> dict[str, Any]:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise self.problem(self.token.at, f"nested more than {MAX_NESTING} levels")
        if self.takes_word("not"):
            found: dict[str, Any] = {"not": self.negation()}
        elif self.takes_sign("("):
            found = self.expression()
            self.expect_sign(")", "after the conditions in parentheses")
        else:
            found = self.comparison()
        self.nesting -= 1
        return found

    def comparison(self) -> dict[str, Any]:
        name = self.field()
        operator = self.take()
        if operator.kind == "sign" and operator.text in _COMPARISONS:
            return {"field": name, "op": _COMPARISONS[operator.text], "value": self.value(operator)}
        if operator.is_word("is"):
            present = self.takes_word("not")
            if not self.takes_word("null"):
                raise self.problem(
                    self.token.at, "expected null", f"compare values by =: {name} = ..."
                )
            return {"field": name, "op": "is_null", "value": not present}
        negated = operator.is_word("not")
        if negated:
            operator = self.take()
        found = {"field": name, **self.worded(operator, negated=negated)}
        return {"not": found} if negated else found

    def worded(self, operator: _Token, *, negated: bool) -> dict[str, Any]:
        """What follows a field, from the word that compares on."""
        if operator.is_word("in"):
            return {"op": "in", "value": self.values()}
        if operator.is_word("between"):
            low = self.value(operator)
            if not self.takes_word("and"):
                raise self.problem(self.token.at, "expected and, then the upper bound")
            return {"op": "between", "value": [low, self.value(operator)]}
        if operator.is_word("prefix") or (operator.is_word("starts") and self.takes_word("with")):
            return {"op": "prefix", "value": self.value(operator)}
        after = "not" if negated else "the field"
        more = "in, between, prefix" if negated else "=, !=, <, <=, >, >=, in, between, prefix, is"
        raise self.problem(
            operator.at, f"expected a comparison after {after}", f"comparisons are {more}"
        )

    def field(self) -> str:
        token = self.take()
        if token.kind == "quoted":
            return token.text[1:-1].replace("``", "`")
        if token.kind != "word":
            hint = "a field's name that is no plain word stands in back quotes: `date of birth`"
            raise self.problem(token.at, "expected the name of a field", hint)
        if token.text.lower() in WORDS:
            hint = f"a field of this name stands in back quotes: `{token.text}`"
            raise self.problem(token.at, f"expected the name of a field, found {token.text}", hint)
        return token.text

    def values(self) -> list[Any]:
        self.expect_sign("(", "after in")
        found = [self.value(self.token)]
        while self.takes_sign(","):
            found.append(self.value(self.token))
        self.expect_sign(")", "after the values")
        return found

    def value(self, after: _Token) -> int | Decimal | str:
        token = self.take()
        if token.kind in ("number", "text"):
            try:
                return strict_json.loads(_as_json(token))  # type: ignore[no-any-return] # one of these
            except Malformed as error:
                what = "a number" if token.kind == "number" else "a text"
                raise self.problem(token.at, f"this cannot be {what}", error.message) from None
        if token.is_word("null"):
            raise self.problem(token.at, "null is no value", "ask for absent fields by: is null")
        if token.kind in ("word", "quoted"):
            raise self.problem(token.at, "expected a value", "text stands in quotes: 'Rome'")
        raise self.problem(token.at, f"expected a value after {after.text}")


def _as_json(token: _Token) -> str:
    """A number or text as JSON has it: in double quotes, with the escapes that JSON knows."""
    if token.kind == "number":
        return token.text
    inner = re.sub(r"\\.|[\"\x00-\x1f]", _escape, token.text[1:-1], flags=re.DOTALL)
    return f'"{inner}"'


def _escape(found: re.Match[str]) -> str:
    if found[0] == r"\'":
        return "'"
    return found[0] if found[0].startswith("\\") else json.dumps(found[0])[1:-1]


def _unreadable(text: str, at: int) -> tuple[str, str]:
    """What is wrong where no token begins, and what to do about it."""
    if text[at] in "\"'`":
        return "a quote is not closed", rf"end it with {text[at]}"
    if text[at].isdigit() or text[at] in "+-.":
        return "this is no number", "numbers are written as in JSON: 18, -2.5, 1e6"
    if text[at] in "&|!":
        return f"{text[at]} is not understood", "write and, or, not"
    return f"{text[at] if text[at].isprintable() else 'this'} is not understood", ""
