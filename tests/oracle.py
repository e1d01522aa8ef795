"""What a search means, decided on plain records with fractions: the slow and obvious way.

Written from the rules of the search grammar and not from the package, which it does not import.
Fields are the JSON bodies of a definition with numbers as Decimal; records are what their owners
sent, before any rounding; ``where`` is the JSON of a request.

The rules: a comparison on an absent field is false; ``ne`` is the negation of ``eq``, so absent
fields match it; ``not`` negates. Stored numbers are rounded half to even to their field's
precision, and so are the operands of eq, ne and in; the operands of ranges are taken exactly.
Strings are compared by code point after NFC.
"""

from __future__ import annotations

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
    if op == "is_null":
        return (sent is None) == (operand is not False)
    if op == "ne":
        return not _equals(field, sent, operand)
    if op == "eq":
        return _equals(field, sent, operand)
    if op == "in":
        return any(_equals(field, sent, one) for one in operand)
    return sent is not None and _compares(op, field, sent, operand)


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
