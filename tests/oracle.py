"""What a search means, decided on plain records with fractions: the slow and obvious way.

Written from the rules of the search grammar and not from the package, which it does not import.
Fields are the JSON bodies of a definition with numbers as Decimal; records are what their owners
sent, before any rounding; ``where`` is the JSON of a request.

The rules: a comparison on an absent field is false; ``ne`` is the negation of ``eq``, so absent
fields match it; ``not`` negates. Stored numbers are rounded half to even to their field's
precision, and so are the operands of eq, ne and in; the operands of ranges are taken exactly.
Strings are compared by code point after NFC, and where ``fold`` is asked for, after folding.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

Field = Mapping[str, Any]


def rounded(field: Field, value: Any) -> Fraction:
    """The number that a field keeps of ``value``; Python rounds fractions half to even."""
    scale = 10 ** int(field.get("precision", 0))
    return Fraction(round(Fraction(value) * scale), scale)


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def holds(where: Any, record: Mapping[str, Any], fields: Mapping[str, Field]) -> bool:
    """Whether ``record`` belongs to the answer."""
    if where is None:
        return True
    if "and" in where:
        return all(holds(part, record, fields) for part in where["and"])
    if "or" in where:
        return any(holds(part, record, fields) for part in where["or"])
    if "not" in where:
        return not holds(where["not"], record, fields)
    op, operand = where["op"], where.get("value")
    field, sent = fields[where["field"]], record.get(where["field"])
    if op in TEXT or asked_to_fold(where):
        passes = sent is not None and _passes(op, str(sent), operand, where)
        return not passes if op == "ne" else passes
    if op == "is_null":
        return (sent is None) == (operand is not False)
    if op == "ne":
        return not _equals(field, sent, operand)
    if op == "eq":
        return _equals(field, sent, operand)
    if op == "in":
        return any(_equals(field, sent, one) for one in operand)
    return sent is not None and _compares(op, field, sent, operand)


TEXT = ("contains", "ends_with", "like", "matches", "near", "has_words", "has_phrase")
#: Scripts that are written without spaces, whose characters are words.
_ALONE = [
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3000, 0x30FF), (0x31F0, 0x31FF)),
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),
]


def asked_to_fold(where: Mapping[str, Any]) -> bool:
    return bool(where.get("fold"))


def fold(text: str) -> str:
    """NFKC, casefold, without marks."""
    parts = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    kept = "".join(part for part in parts if unicodedata.category(part) != "Mn")
    return unicodedata.normalize("NFC", kept)


def words(text: str) -> list[str]:
    """Letters, marks and digits that stand together; some of them alone."""
    found: list[str] = []
    inside = False
    for one in fold(text):
        if unicodedata.category(one)[0] not in "LMN":
            inside = False
        elif any(low <= ord(one) <= high for low, high in _ALONE):
            inside = False
            found.append(one)
        elif inside:
            found[-1] += one
        else:
            inside = True
            found.append(one)
    return found


def edits(one: str, other: str) -> int:
    """Characters to insert, remove or replace, by the table that everybody learns."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, right in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (left != right))
    return row[-1]


def _passes(op: str, sent: str, operand: Any, where: Mapping[str, Any]) -> bool:
    def read(text: str) -> str:
        return fold(nfc(text)) if asked_to_fold(where) else nfc(text)

    if op in ("has_words", "has_phrase"):
        held, wanted_words = words(sent), words(operand)
        if op == "has_words":
            return set(wanted_words) <= set(held)
        size = len(wanted_words)
        return any(held[at : at + size] == wanted_words for at in range(len(held)))
    text = read(sent)
    if op == "in":
        return text in {read(one) for one in operand}
    if op in ("eq", "ne"):
        return text == read(operand)
    if op == "near":
        return edits(read(operand), text) <= int(where.get("within", 1))
    if op == "like":
        return _like(
            [
                "=" + read(one.removeprefix("\\")) if one not in ("%", "_") else one
                for one in re.findall(r"\\.|[%_]|[^\\%_]+", nfc(operand))
            ],
            text,
        )
    if op == "matches":
        # Of patterns that mean the same to Python's engine, but for the end of a text.
        return re.search(read(operand).replace("$", r"\Z"), text) is not None
    wanted: str = read(operand)
    if op == "prefix":
        return text.startswith(wanted)
    return wanted in text if op == "contains" else text.endswith(wanted)


def _like(pieces: list[str], text: str) -> bool:
    if not pieces:
        return not text
    first, rest = pieces[0], pieces[1:]
    if first == "%":
        return any(_like(rest, text[at:]) for at in range(len(text) + 1))
    if first == "_":
        return bool(text) and _like(rest, text[1:])
    literal = first[1:]
    return text.startswith(literal) and _like(rest, text[len(literal) :])


def _equals(field: Field, sent: Any, operand: Any) -> bool:
    if sent is None:
        return False
    if field["type"] == "string":
        return nfc(sent) == nfc(operand)
    return rounded(field, sent) == rounded(field, operand)


def _compares(op: str, field: Field, sent: Any, operand: Any) -> bool:
    if op == "prefix":
        return nfc(sent).startswith(nfc(operand))
    if op == "between":
        return _compares("ge", field, sent, operand[0]) and _compares("le", field, sent, operand[1])
    stored: Any
    bound: Any
    if field["type"] == "string":
        stored, bound = nfc(sent), nfc(operand)
    else:
        stored, bound = rounded(field, sent), Fraction(operand)
    return bool(
        {"lt": stored < bound, "le": stored <= bound, "gt": stored > bound, "ge": stored >= bound}[
            op
        ]
    )


def in_order(
    order_by: list[str], records: list[dict[str, Any]], fields: Mapping[str, Field]
) -> list[int]:
    """The numbers of the records in the order that is asked for.

    Absent comes first, last where the order descends; what is equal stays as it was.
    """
    numbers = list(range(len(records)))
    for asked in reversed(order_by):
        name, descending = asked.removeprefix("-"), asked.startswith("-")

        def key(number: int, name: str = name) -> tuple[bool, Any]:
            value = records[number].get(name)
            if value is None:
                return False, 0
            text = fields[name]["type"] == "string"
            return True, nfc(value) if text else rounded(fields[name], value)

        # Python's sort keeps equal ones in their order, also when it is reversed.
        numbers.sort(key=key, reverse=descending)
    return numbers
