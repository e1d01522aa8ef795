"""The conditions of ``ers record search``: from text to the JSON of ``where``.

::

    expression  = conjunction { "or" conjunction }
    conjunction = negation { "and" negation }
    negation    = "not" negation | "(" expression ")" | comparison
    comparison  = field ( "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) value [ "folded" ]
                | field [ "not" ] "in" "(" value { "," value } ")" [ "folded" ]
                | field [ "not" ] "in" "(" selection ")"
                | field [ "not" ] "between" value "and" value
                | field [ "not" ] text_test text [ "folded" ]
                | field [ "not" ] ( "~" | "matches" ) ( pattern | text ) [ "folded" ]
                | field [ "not" ] "near" text [ "within" number ] [ "folded" ]
                | field [ "not" ] "has" ( "words" | "phrase" ) text
                | field "is" [ "not" ] "null"
    selection   = "select" field "from" schema [ "where" expression ]
    schema      = name | "`" { any character, "``" for one } "`" | text
    text_test   = "prefix" | "starts" "with" | "ends" "with" | "contains" | "like"
    field       = name | "`" { any character, "``" for one } "`"
    name        = a letter or "_", then letters, digits, "_", "-", "."
    value       = number | date | text | "true" | "false"
    number      = a JSON number
    date        = 2026-01, 2026-01-31 or 2026-01-31T08:30:00Z, as in RFC 3339
    text        = in "..." or '...', with the escapes of JSON and \\' beside them
    pattern     = "/" { any character, "\\/" for one } "/"

Words of the language are those in either case; a field of such a name stands in back quotes.
``not`` binds closer than ``and``, ``and`` closer than ``or``. What a comparison means is the
service's affair (docs/http-api.md): this module knows no schema and checks no type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from encrypted_records.errors import InvalidQuery, Malformed
from encrypted_records.model import strict_json

TOKENS = re.compile(
    r"""(?P<space>\s+)
      | (?P<date>[0-9]{4}-[0-9]{2}
          (?:-[0-9]{2}(?:[Tt][0-9:.]+(?:[Zz]|[+-][0-9]{2}:[0-9]{2})?)?)?(?![\w.:-]))
      | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<pattern>/(?:[^/\\]|\\.)*/)
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<word>[^\W\d][\w.-]*)
      | (?P<sign><=|>=|==|!=|<>|[=<>(),~])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """``kind`` is a group of TOKENS, or ``end``. ``at`` counts characters from 0."""

    kind: str
    text: str
    at: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words


def as_json(token: Token) -> str:
    """A number or text as JSON has it: in double quotes, with the escapes that JSON knows."""
    if token.kind == "number":
        return token.text
    inner = re.sub(r"\\.|[\"\x00-\x1f]", _escape, token.text[1:-1], flags=re.DOTALL)
    return f'"{inner}"'


def _escape(match: re.Match[str]) -> str:
    if match[0] == r"\'":
        return "'"
    return match[0] if match[0].startswith("\\") else json.dumps(match[0])[1:-1]


def unreadable(text: str, at: int) -> tuple[str, str]:
    """The mistake at a place where no token begins, and what to do about it."""
    if text[at] in "\"'`/":
        return "a quote is not closed", rf"end it with {text[at]}"
    if text[at].isdigit() or text[at] in "+-.":
        numbers = "numbers are written as in JSON: 18, -2.5, 1e6"
        return "this is not a number or a date", _local_form(text, at) or numbers
    if text[at] in "&|!":
        return f"{text[at]} is not understood", "write and, or, not"
    return f"{text[at] if text[at].isprintable() else 'this'} is not understood", ""


_LOCAL_DATE = re.compile(r"(?<![\w.,/-])[0-9]{1,2}([./-])[0-9]{1,2}\1[0-9]{4}(?![\w/-])")
_LOCAL_NUMBER = re.compile(r"(?<![\w.,])-?(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]+),[0-9]+(?![\w.,])")


def _local_form(text: str, at: int) -> str:
    """How the date or number at a place is written, if it is in the form of a country; or ""."""
    for match in _LOCAL_DATE.finditer(text):
        if match.start() <= at < match.end():
            return "dates are written year-month-day: 2026-01-31"
    for match in _LOCAL_NUMBER.finditer(text):
        if match.start() <= at < match.end():
            number = match[0].replace(".", "").replace(",", ".")
            return f"numbers have a decimal point, and no mark of thousands: {number}"
    return ""


#: A condition as docs/http-api.md has it, or an expression such as ``age >= 18``.
Where = Mapping[str, Any] | str | None

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
_SIGNS = {op: sign for sign, op in _COMPARISONS.items() if sign not in ("==", "<>")}
_PHRASES = {
    "prefix": "starts with",
    "ends_with": "ends with",
    "has_words": "has words",
    "has_phrase": "has phrase",
}
_NAME = re.compile(r"[^\W\d][\w.-]*")
PERIODS = ("year", "month", "week", "day")
_PERIOD = re.compile(rf"(?P<by>{'|'.join(PERIODS)})\((?P<field>.+)\)", re.DOTALL | re.IGNORECASE)
WORDS = frozenset("and or not in between prefix starts with is null".split())
#: The words with which a comparison begins.
_TESTS = frozenset(
    "in between prefix starts ends contains like matches near has has_words has_phrase".split()
)
#: Deeper nesting is refused by every service, long before it would exhaust the stack here.
MAX_NESTING = 100


class NotUnderstood(InvalidQuery):
    """An expression that ends to make sense at character ``at``, from 0; ``what`` says why in one
    line, without the expression."""

    def __init__(self, problem: str, text: str, at: int, hint: str) -> None:
        # Escapes would move the caret; it must stand below the character that it means.
        line = "".join(
            " " if character.isspace() or not character.isprintable() else character
            for character in text
        )
        pointed = f"{problem}, at character {at + 1} of the expression"
        super().__init__(f"{pointed}\n  {line}\n  {' ' * at}^", hint=hint)
        self.what, self.at = problem, at


def parse(text: str) -> dict[str, Any]:
    """The ``where`` that an expression says. Numbers are ``int`` or ``Decimal``.

    Raises:
        NotUnderstood: it is no expression; the message points at the place.
    """
    return _ConditionParser(text).parse()


def parse_with_places(text: str) -> tuple[dict[str, Any], list[int]]:
    """Parse like :func:`parse`; also returns the index of the character at which each comparison
    begins, in their order.

    Raises:
        NotUnderstood: as for :func:`parse`.
    """
    parser = _ConditionParser(text)
    return parser.parse(), parser.places


def write(where: Mapping[str, Any]) -> str:
    """The expression that says a ``where``: :func:`parse` reads a condition of the same meaning.

    Args:
        where: a condition that has comparisons, as :func:`parse` returns them.
    """
    where = _unwrap(where)
    for word in ("and", "or"):
        if word in where:
            return f" {word} ".join(map(_write_part, where[word]))
    if "not" not in where:
        return _write_comparison(where)
    inner = _unwrap(where["not"])
    return _write_comparison(inner, "not ") if "field" in inner else f"not ({write(inner)})"


def _unwrap(where: Mapping[str, Any]) -> Mapping[str, Any]:
    """A condition without the "and" or "or" of a single part."""
    for word in ("and", "or"):
        if word in where and len(where[word]) == 1:
            return _unwrap(where[word][0])
    return where


def _write_part(where: Mapping[str, Any]) -> str:
    where = _unwrap(where)
    return f"({write(where)})" if where.keys() & {"and", "or"} else write(where)


def write_field(name: str) -> str:
    """A field's name as an expression has it."""
    plain = _NAME.fullmatch(name) and name.lower() not in WORDS
    return name if plain else f"`{name.replace('`', '``')}`"


def write_value(value: object) -> str:
    """A value as an expression has it: texts in double quotes, but for dates."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return f"{value:f}" if isinstance(value, Decimal) else str(value)
    token = TOKENS.fullmatch(value)
    is_date = token is not None and token.lastgroup == "date"
    return value if is_date else json.dumps(value, ensure_ascii=False)


def _write_comparison(where: Mapping[str, Any], negation: str = "") -> str:
    name, op = write_field(where["field"]), where["op"]
    value: Any = where.get("value")
    if op == "is_null":
        text = f"{name} is {'not null' if value is False else 'null'}"
        return f"not {text}" if negation else text
    if op in _SIGNS:
        test = f"{_SIGNS[op]} {write_value(value)}"
        name, negation = f"{negation}{name}", ""
    elif "of" in where:
        of = where["of"]
        inner = f" where {write(of['where'])}" if of.get("where") else ""
        source = _write_schema(of["schema"])
        test = f"in (select {write_field(of['field'])} from {source}{inner})"  # noqa: S608 # no SQL
    elif op == "between":
        test = "between {} and {}".format(*map(write_value, value))
    elif op == "in":
        test = f"in ({', '.join(map(write_value, value))})"
    else:
        test = f"{_PHRASES.get(op, op)} {write_value(value)}"
    if "within" in where:
        test += f" within {where['within']}"
    return f"{name} {negation}{test}{' folded' if where.get('fold') else ''}"


def _write_schema(name: str) -> str:
    return name if _NAME.fullmatch(name) else write_value(name)


def parse_measure(text: str) -> dict[str, Any]:
    """The measure that a text such as ``percentile(age, 50, 90)`` says.

    Numbers are the ``p`` of percentile, the ``limit`` of distinct, and of histogram the number of
    ``bins`` or, where there are several, its ``bounds``; a histogram's bins may also be periods:
    ``histogram(seen, month)``.

    Raises:
        InvalidQuery: it is no measure; the message points at the place.
    """
    return _ConditionParser(text).measure()


def parse_group(text: str, known: Collection[str] = ()) -> str | dict[str, str]:
    """A field to group by, or ``month(seen)``, which is a field by a period.

    Args:
        known: names of fields, which no period is read from.
    """
    match = _PERIOD.fullmatch(text)
    if match is None or text in known:
        return text
    return {"field": match["field"].strip(), "by": match["by"].lower()}


def fields_of(where: Mapping[str, Any]) -> list[str]:
    """The fields that a condition compares, in its order."""
    if "field" in where:
        return [where["field"]]
    (inner,) = where.values()
    parts = inner if isinstance(inner, list) else [inner]
    return [name for part in parts for name in fields_of(part)]


class _ConditionParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self.split())
        self.next = 0
        self.nesting = 0
        self.places: list[int] = []

    def split(self) -> list[Token]:
        tokens: list[Token] = []
        at = 0
        while at < len(self.text):
            match = TOKENS.match(self.text, at)
            if match is None:
                raise self.problem(at, *unreadable(self.text, at))
            kind = match.lastgroup
            assert kind is not None
            if kind != "space":
                tokens.append(Token(kind, match[0], at))
            at = match.end()
        return [*tokens, Token("end", "", len(self.text))]

    def problem(self, at: int, problem: str, hint: str = "") -> NotUnderstood:
        return NotUnderstood(problem, self.text, at, hint)

    @property
    def token(self) -> Token:
        return self.tokens[self.next]

    def take(self) -> Token:
        token = self.token
        self.next += 1
        return token

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

    def parse(self) -> dict[str, Any]:
        if self.token.kind == "end":
            raise self.problem(0, "the expression is empty", "leave it out to have all records")
        condition = self.expression()
        if self.token.kind != "end":
            hint = _local_form(self.text, self.token.at)
            if self.token.text == ")":
                hint = ") has no ( before it"
            hint = hint or "join conditions by and, or"
            raise self.problem(self.token.at, "expected the end, and, or or", hint)
        return condition

    def measure(self) -> dict[str, Any]:
        op = self.take()
        if op.kind != "word":
            raise self.problem(op.at, "expected a measure", "such as count, avg(age)")
        measure: dict[str, Any] = {"op": op.text.lower()}
        if self.takes_sign("("):
            measure["field"] = self.field()
            numbers = []
            if self.token.kind == "sign" and self.tokens[self.next + 1].is_word(*PERIODS):
                self.expect_sign(",", "after the field")
                measure["by"] = self.take().text.lower()
            while self.takes_sign(","):
                numbers.append(self.value(op))
            self.expect_sign(")", "after the field and numbers of a measure")
            measure |= self.parse_numbers(op, numbers)
        if self.token.kind != "end":
            raise self.problem(self.token.at, "expected the end of the measure")
        return measure

    def parse_numbers(self, op: Token, numbers: list[Any]) -> dict[str, Any]:
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
        raise self.problem(op.at, f"{op.text} takes a field, and not these numbers")

    def expression(self) -> dict[str, Any]:
        return self.join("or", lambda: self.join("and", self.negation))

    def join(self, word: str, part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        parts = [part()]
        while self.takes_word(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else {word: parts}

    def negation(self) -> dict[str, Any]:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise self.problem(self.token.at, f"nested more than {MAX_NESTING} levels")
        if self.takes_word("not"):
            condition: dict[str, Any] = {"not": self.negation()}
        elif self.takes_sign("("):
            condition = self.expression()
            self.expect_sign(")", "after the conditions in parentheses")
        else:
            condition = self.comparison()
        self.nesting -= 1
        return condition

    def comparison(self) -> dict[str, Any]:
        self.places.append(self.token.at)
        name = self.field()
        operator = self.take()
        if operator.kind == "sign" and operator.text in _COMPARISONS:
            op = _COMPARISONS[operator.text]
            return {"field": name, "op": op, "value": self.value(operator), **self.folding()}
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
        elif operator.kind == "word" or operator.text == "(":
            self.check_one_word(self.places[-1], operator)
        condition = {"field": name, **self.parse_word(operator, negated=negated)}
        return {"not": condition} if negated else condition

    def check_one_word(self, at: int, second: Token) -> None:
        """
        Raises:
            NotUnderstood: the name at ``at`` is not in back quotes, and goes on before a sign.
        """
        if second.is_word(*_TESTS):
            return
        sign = next(
            (
                token
                for token in self.tokens[self.next :]
                if (token.kind == "sign" and token.text in _COMPARISONS) or token.is_word(*WORDS)
            ),
            None,
        )
        if sign is not None and sign.kind == "sign":
            name = self.text[at : sign.at].strip()
            hint = f"put names that are not plain words in back quotes: `{name}`"
            raise self.problem(second.at, "expected a comparison after the field", hint)

    def parse_word(self, operator: Token, *, negated: bool) -> dict[str, Any]:
        """The rest of a comparison after its field, from the operator on."""
        if operator.is_word("in"):
            return self.parse_in()
        if operator.is_word("between"):
            low = self.value(operator)
            if not self.takes_word("and"):
                raise self.problem(self.token.at, "expected and, then the upper bound")
            return {"op": "between", "value": [low, self.value(operator)]}
        if (op := self.text_test(operator)) is not None:
            test: dict[str, Any] = {"op": op, "value": self.value(operator)}
            if op == "near" and self.takes_word("within"):
                test["within"] = self.value(operator)
            return test | self.folding()
        after = "not" if negated else "the field"
        words = (
            "in, between, prefix, contains, ends with, like, matches, near, has words, has phrase"
        )
        more = words if negated else f"=, !=, <, <=, >, >=, ~, {words}, is"
        raise self.problem(
            operator.at, f"expected a comparison after {after}", f"comparisons are {more}"
        )

    def text_test(self, operator: Token) -> str | None:
        """The ``op`` of a test of a text; None of another comparison."""
        if operator.is_word("contains", "like", "matches", "near", "prefix"):
            return operator.text.lower()
        if operator.is_word("has_words", "has_phrase"):
            return operator.text.lower()
        if operator.is_word("has") and self.token.is_word("words", "phrase"):
            return f"has_{self.take().text.lower()}"
        if operator.kind == "sign" and operator.text == "~":
            return "matches"
        if operator.is_word("starts", "ends") and self.takes_word("with"):
            return "prefix" if operator.is_word("starts") else "ends_with"
        return None

    def folding(self) -> dict[str, Any]:
        return {"fold": True} if self.takes_word("folded") else {}

    def field(self) -> str:
        token = self.take()
        if token.kind == "quoted":
            return token.text[1:-1].replace("``", "`")
        if token.kind != "word":
            hint = "put names that are not plain words in back quotes: `date of birth`"
            raise self.problem(token.at, "expected the name of a field", hint)
        if token.text.lower() in WORDS:
            hint = f"put a field of this name in back quotes: `{token.text}`"
            raise self.problem(token.at, f"expected the name of a field, found {token.text}", hint)
        return token.text

    def parse_in(self) -> dict[str, Any]:
        self.expect_sign("(", "after in")
        if self.takes_word("select"):
            return {"op": "in", "of": self.selection()}
        return {"op": "in", "value": self.values(), **self.folding()}

    def selection(self) -> dict[str, Any]:
        """The values of a field of another schema; ``select`` is taken already."""
        name = self.field()
        if not self.takes_word("from"):
            raise self.problem(self.token.at, "expected from, then the name of a schema")
        selected: dict[str, Any] = {"schema": self.schema(), "field": name}
        if self.takes_word("where"):
            selected["where"] = self.expression()
        self.expect_sign(")", "after the selection")
        return selected

    def schema(self) -> str:
        token = self.token
        if token.kind == "text":
            return str(self.value(token))
        if token.kind in ("word", "quoted"):
            self.take()
            return token.text if token.kind == "word" else token.text[1:-1].replace("``", "`")
        raise self.problem(token.at, "expected the name of a schema, its id or its path")

    def values(self) -> list[Any]:
        values = [self.value(self.token)]
        while self.takes_sign(","):
            values.append(self.value(self.token))
        self.expect_sign(")", "after the values")
        return values

    def value(self, after: Token) -> int | Decimal | str | bool:
        token = self.take()
        if token.kind == "date":
            return token.text
        if token.is_word("true", "false"):
            return token.text.lower() == "true"
        if token.kind in ("number", "text"):
            try:
                return strict_json.loads(as_json(token))  # type: ignore[no-any-return] # one of these
            except Malformed as error:
                kind = "a number" if token.kind == "number" else "a text"
                raise self.problem(token.at, f"this cannot be {kind}", error.message) from None
        if token.kind == "pattern":
            if after.is_word("matches") or after.text == "~":
                return token.text[1:-1].replace("\\/", "/")
            raise self.problem(
                token.at, "a pattern follows ~ or matches", "put text in quotes: 'a'"
            )
        if token.is_word("null"):
            raise self.problem(token.at, "null is not a value", "ask for absent fields by: is null")
        if token.kind in ("word", "quoted"):
            raise self.problem(token.at, "expected a value", "put text in quotes: 'Rome'")
        raise self.problem(token.at, f"expected a value after {after.text}")


def list_fields(where: Mapping[str, Any] | None) -> str:
    """The names of the fields that a condition compares; none of one that is no condition."""
    try:
        return ", ".join(dict.fromkeys(fields_of(where or {"and": []})))
    except (TypeError, ValueError, AttributeError):
        return ""


def condition(where: Where) -> Mapping[str, Any] | None:
    """
    Raises:
        BadInput: it is an expression that cannot be understood.
    """
    return parse(where) if isinstance(where, str) else where
