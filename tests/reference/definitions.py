"""Sections 2 and 7.4: canonical numbers, bindings, and the digest of a definition."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

Field = dict[str, Any]

_ROOMY = Context(prec=5000)


@dataclass(frozen=True)
class Definition:
    """The JSON of a definition, its numbers as Decimals."""

    fields: dict[str, Field]
    required: frozenset[str]


def load(text: str) -> Definition:
    root = json.loads(text, parse_int=Decimal, parse_float=Decimal)
    return Definition(root["properties"], frozenset(root.get("required", [])))


def u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def lengths(*parts: bytes) -> bytes:
    return b"".join(u32(len(part)) + part for part in parts)


def canonical(number: Decimal) -> str:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    whole = int("".join(map(str, digits)))
    if whole == 0:
        return "0"
    while exponent < 0 and whole % 10 == 0:
        whole, exponent = whole // 10, exponent + 1
    if exponent >= 0:
        text = str(whole * 10**exponent)
    else:
        text = str(whole).rjust(1 - exponent, "0")
        text = f"{text[:exponent]}.{text[exponent:]}"
    return ("-" if sign else "") + text


def precision(field: Field) -> int:
    return int(field["precision"]) if field["type"] == "number" else 0


def binding(field: Field) -> bytes:
    parts = [field["type"]]
    if field["type"] != "string":
        parts += [canonical(field["minimum"]), canonical(field["maximum"]), str(precision(field))]
    return hashlib.sha256(lengths(*(part.encode() for part in parts))).digest()


def digest(definition: Definition) -> bytes:
    encoded: list[bytes] = []
    for name in sorted(definition.fields):
        field = definition.fields[name]
        encoded += [name.encode(), binding(field), str(name in definition.required).encode()]
        if field["type"] != "string":
            for keyword in ("exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
                encoded.append(canonical(field[keyword]).encode() if keyword in field else b"-")
        for keyword in ("minLength", "maxLength"):
            encoded.append(f"={int(field[keyword])}".encode() if keyword in field else b"-")
        encoded.append(("=" + field["pattern"]).encode() if "pattern" in field else b"-")
        allowed = _allowed(field)
        encoded.append(b"-" if allowed is None else str(len(allowed)).encode())
        encoded += sorted(value.encode() for value in allowed or ())
    return hashlib.sha256(lengths(*encoded)).digest()


def _allowed(field: Field) -> set[str] | None:
    """What ``enum`` and ``const`` both leave, spelled canonically; None where neither is given."""
    lists = ([field["enum"]] if "enum" in field else []) + (
        [[field["const"]]] if "const" in field else []
    )
    if not lists:
        return None
    spelled = [
        {one if isinstance(one, str) else canonical(one) for one in values if one is not None}
        for values in lists
    ]
    return set.intersection(*spelled)


def grid(field: Field) -> tuple[int, int]:
    """The lowest and the highest point within the bounds, computed with fractions."""
    scale = 10 ** precision(field)
    low, high = Fraction(field["minimum"]) * scale, Fraction(field["maximum"]) * scale
    return low.__ceil__(), high.__floor__()


def to_point(field: Field, value: Decimal) -> int:
    """Python rounds fractions half to even, as section 3 asks."""
    return round(Fraction(value) * 10 ** precision(field))


def from_point(field: Field, point: int) -> Decimal:
    return Decimal(point).scaleb(-precision(field), _ROOMY)
