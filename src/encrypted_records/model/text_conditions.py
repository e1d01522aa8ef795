"""The grammar of comparisons that test a text: from a request's JSON to a predicate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from encrypted_records.errors import Flaw, InvalidQuery
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.folding import folded
from encrypted_records.model.predicates import Not, Predicate, TextIn, TextPrefix
from encrypted_records.model.text_tests import (
    MAX_PATTERN,
    How,
    TextTest,
    fold_pattern,
    like_source,
    parse_like,
)
from encrypted_records.model.words import words_of

#: Operators that only texts have.
TEXT_OPERATORS = ("contains", "ends_with", "like", "matches", "near", "has_words", "has_phrase")
#: Operators that take ``fold``.
FOLDING = ("eq", "ne", "in", "prefix", "contains", "ends_with", "like", "matches", "near")
#: Words that one ``has_words`` or ``has_phrase`` asks for.
MAX_WORDS = 64
#: Edits that ``near`` allows.
MOST_EDITS = 2

#: Reads a text operand, of which the pointer is given, as it is compared.
ReadText = Callable[[Any, str], str]


def _refuse(code: str, detail: str, pointer: str) -> InvalidQuery:
    return InvalidQuery("the search is not valid", flaws=(Flaw(code, detail, pointer=pointer),))


def is_text_test(asked: Mapping[str, Any]) -> bool:
    """Whether a comparison is one that :func:`read_text_test` reads."""
    return asked.get("op") in TEXT_OPERATORS or "fold" in asked or "within" in asked


def read_text_test(
    asked: Mapping[str, Any], spec: FieldSpec, pointer: str, *, most: int, read: ReadText
) -> Predicate | None:
    """
    Args:
        most: values that ``in`` may have.

    Returns:
        None where ``fold`` is false and the operator one that compares without it.

    Raises:
        InvalidQuery: with a pointer to the error.
    """
    op, value = asked.get("op"), asked.get("value")
    fold = _fold(asked, pointer)
    within = _within(asked, pointer)
    if spec.kind is not KeyKind.TEXT and (fold or op in TEXT_OPERATORS):
        what = op if op in TEXT_OPERATORS else "fold"
        where = "op" if op in TEXT_OPERATORS else "fold"
        detail = (
            f"{what} is for strings without an enforced format, and this is {spec.field_type.name}"
        )
        raise _refuse("op", detail, f"{pointer}/{where}")
    if op not in TEXT_OPERATORS and not fold:
        return None

    def text(operand: Any, at: str) -> str:
        plain = read(operand, at)
        return folded(plain) if fold else plain

    def test(how: How, *texts: str) -> TextTest:
        return TextTest(spec.name, how, texts, fold)

    at = f"{pointer}/value"
    match op:
        case "eq":
            return test("one_of", text(value, at))
        case "ne":
            return Not(test("one_of", text(value, at)))
        case "in":
            if not isinstance(value, list) or not 1 <= len(value) <= most:
                raise _refuse("type", f"expected an array of 1 to {most} values", at)
            texts = (text(item, f"{at}/{place}") for place, item in enumerate(value))
            return test("one_of", *dict.fromkeys(texts))
        case "prefix" | "contains" | "ends_with":
            return test(op, text(value, at))
        case "near":
            return TextTest(spec.name, "near", (text(value, at),), fold, within)
        case "has_words" | "has_phrase":
            return _words(spec.name, op, read(value, at), at)
        case "like":
            return _like(spec.name, read(value, at), at, fold=fold)
        case _:
            return test("matches", _pattern(read(value, at), at, fold=fold))


def _fold(asked: Mapping[str, Any], pointer: str) -> bool:
    fold = asked.get("fold", False)
    if not isinstance(fold, bool):
        raise _refuse("type", "expected true or false", f"{pointer}/fold")
    if fold and asked.get("op") not in FOLDING:
        raise _refuse("op", f"fold is for {', '.join(FOLDING)}", f"{pointer}/fold")
    return fold


def _within(asked: Mapping[str, Any], pointer: str) -> int:
    within = asked.get("within", 1)
    if "within" in asked and asked.get("op") != "near":
        raise _refuse("op", "within is for near", f"{pointer}/within")
    if isinstance(within, bool) or within not in range(1, MOST_EDITS + 1):
        raise _refuse("within", f"expected 1 to {MOST_EDITS} edits", f"{pointer}/within")
    return int(within)


def _words(field: str, op: How, text: str, pointer: str) -> TextTest:
    words = words_of(folded(text))
    if op == "has_words" or len(words) == 1:
        op, words = "has_words", list(dict.fromkeys(words))
    if not 1 <= len(words) <= MAX_WORDS:
        detail = f"expected a text of 1 to {MAX_WORDS} words, and this one has {len(words)}"
        raise _refuse("words", detail, pointer)
    return TextTest(field, op, tuple(words), fold=True)


def _pattern(source: str, pointer: str, *, fold: bool) -> str:
    if len(source.encode()) > MAX_PATTERN:
        raise _refuse("pattern", f"a pattern has at most {MAX_PATTERN} bytes", pointer)
    if fold:
        source = fold_pattern(source)
    _compile(TextTest("", "matches", (source,), fold), pointer)
    return source


def _compile(test: TextTest, pointer: str) -> None:
    import re2  # noqa: PLC0415 - a client without a side does without it

    try:
        test.fits("")
        test.by_line()
    except re2.error as error:
        # RE2 says what is wrong, and in which part of the pattern.
        reason = error.args[0] if error.args else "not in the syntax of RE2"
        told = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise _refuse("pattern", f"not a pattern in the syntax of RE2: {told}", pointer) from None


def _like(field: str, asked: str, pointer: str, *, fold: bool) -> Predicate:
    if len(asked.encode()) > MAX_PATTERN:
        raise _refuse("pattern", f"a pattern has at most {MAX_PATTERN} bytes", pointer)
    try:
        parts = parse_like(asked)
    except ValueError:
        detail = "a backslash must be followed by %, _ or another backslash: \\%, \\_, \\\\"
        raise _refuse("pattern", detail, pointer) from None
    if fold:
        parts = [f"={folded(part[1:])}" if part.startswith("=") else part for part in parts]
    match [part.startswith("=") or part for part in parts], parts:
        case [], _:
            return _plain("one_of", field, "", fold=fold)
        case [True], [text]:
            return _plain("one_of", field, text[1:], fold=fold)
        case [True, "%"], [text, _]:
            return _plain("prefix", field, text[1:], fold=fold)
        case ["%", True], [_, text]:
            return TextTest(field, "ends_with", (text[1:],), fold)
        case ["%", True, "%"], [_, text, _]:
            return TextTest(field, "contains", (text[1:],), fold)
    test = TextTest(field, "like", (like_source(parts),), fold)
    _compile(test, pointer)
    return test


def _plain(how: How, field: str, text: str, *, fold: bool) -> Predicate:
    """The predicate that the order of keys decides, where nothing is folded."""
    if fold:
        return TextTest(field, how, (text,), fold)
    return TextPrefix(field, text) if how == "prefix" else TextIn(field, frozenset({text}))
