"""Sections 2 and 7.4: canonical numbers, bindings, and the digest of a definition."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import date
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

Field = dict[Any, Any]

_ROOMY = Context(prec=5000)
#: where a loaded field has its id; no keyword
_ID = object()


@dataclass(frozen=True)
class Definition:
    """The JSON of a definition, its numbers as Decimals."""

    fields: dict[str, Field]
    required: frozenset[str]
    #: the id of the next field that is added
    next: int
    #: whether formats make types; where they do not, no field here has one
    formats: bool = False
    unique: tuple[tuple[str, ...], ...] = ()
    #: days, and maybe the name of a field
    retention: tuple[int, str | None] | None = None
    #: whether a value that is no point of its grid is refused
    exact: bool = False


def load(text: str) -> Definition:
    """A definition that has no commit: its fields have the ids 1, 2, ... by their names."""
    root = json.loads(text, parse_int=Decimal, parse_float=Decimal)
    fields: dict[str, Field] = root["properties"]
    enforced = root.get("formats") == "enforced"
    for number, name in enumerate(sorted(fields), 1):
        kept = {key: one for key, one in fields[name].items() if enforced or key != "format"}
        fields[name] = {**kept, _ID: number}
    unique = tuple(sorted(tuple(sorted(names)) for names in root.get("unique", [])))
    required = frozenset(root.get("required", []))
    rule = root.get("retention")
    stay = None if rule is None else (int(rule["days"]), rule.get("field"))
    rounding = root.get("rounding", "half-even")
    assert rounding in ("half-even", "refuse")
    exact = rounding == "refuse"
    return Definition(fields, required, len(fields) + 1, enforced, unique, stay, exact)


def load_field(text: str) -> Field:
    field: Field = json.loads(text, parse_int=Decimal, parse_float=Decimal)
    return field


def follow(text: str, before: Definition, renamed: dict[str, str] | None = None) -> Definition:
    """A definition that takes the place of another: known names keep their ids, and new names of
    ``renamed`` have those of the old ones."""
    new = load(text)
    old_name = {
        name: (renamed or {}).get(name, name)
        for name in new.fields
        if name in (renamed or {}) or name not in (renamed or {}).values()
    }
    ids = {
        name: field_id(before.fields[old]) for name, old in old_name.items() if old in before.fields
    }
    names = sorted(set(new.fields) - set(ids))
    ids |= {name: before.next + at for at, name in enumerate(names)}
    fields = {name: {**field, _ID: ids[name]} for name, field in new.fields.items()}
    return replace(new, fields=fields, next=before.next + len(names))


def field_id(field: Field) -> int:
    return int(field[_ID])


def ids(definition: Definition) -> list[int]:
    return [field_id(field) for field in definition.fields.values()]


def columns(definition: Definition) -> dict[str, Field]:
    """Each field, and behind it the column of its words, if there is one."""
    found: dict[str, Field] = {}
    for name, field in definition.fields.items():
        found[name] = field
        if "x-index" in field:
            found[f"words of {name}"] = {"type": "words", "of": name, _ID: field_id(field)}
    return found


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
    if "format" in field:
        parts += ["format", field["format"]]
    elif field["type"] == "words":
        parts = ["string", "words"]
    elif field["type"] != "string":
        parts += [canonical(field["minimum"]), canonical(field["maximum"]), str(precision(field))]
    return hashlib.sha256(lengths(*(part.encode() for part in parts))).digest()


def canonical_text(definition: Definition) -> bytes:
    fields = ",".join(f"{_string(name)}:{_field(one)}" for name, one in definition.fields.items())
    required = ",".join(_string(name) for name in sorted(definition.required))
    sets = ",".join("[" + ",".join(map(_string, names)) + "]" for names in definition.unique)
    members = [
        '"type":"object"',
        *(['"formats":"enforced"'] if definition.formats else []),
        *(['"rounding":"refuse"'] if definition.exact else []),
        f'"properties":{{{fields}}}',
        f'"required":[{required}]',
        *([f'"unique":[{sets}]'] if sets else []),
        *_retention(definition),
    ]
    schema = "{" + ",".join(members) + "}"
    ids = ",".join(str(field_id(field)) for field in definition.fields.values())
    return f'{{"next":{definition.next},"ids":[{ids}],"schema":{schema}}}'.encode()


def _retention(definition: Definition) -> list[str]:
    if definition.retention is None:
        return []
    days, field = definition.retention
    named = [] if field is None else [f'"field":{_string(field)}']
    return ['"retention":{' + ",".join([f'"days":{days}', *named]) + "}"]


def digest(definition: Definition) -> bytes:
    return hashlib.sha256(canonical_text(definition)).digest()


def _field(field: Field) -> str:
    members = [("type", _string(field["type"]))]
    if "format" in field:
        members.append(("format", _string(field["format"])))
    if field["type"] != "string":
        numbers = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]
        members += [(number, canonical(field[number])) for number in numbers if number in field]
        if field["type"] == "number":
            members.insert(3, ("precision", str(precision(field))))
    for keyword in ("minLength", "maxLength"):
        if keyword in field:
            members.append((keyword, str(int(field[keyword]))))
    if "pattern" in field:
        members.append(("pattern", _string(field["pattern"])))
    if "padTo" in field:
        members.append(("padTo", str(int(field["padTo"]))))
    allowed = allowed_values(field)
    if allowed is not None:
        quoted = field["type"] == "string"
        spelled = sorted(_string(one) if quoted else one for one in allowed)
        members.append(("enum", "[" + (",".join(spelled) or "null") + "]"))
    if "x-index" in field:
        members.append(("x-index", '["words"]'))
    return "{" + ",".join(f'"{keyword}":{value}' for keyword, value in members) + "}"


def _string(text: str) -> str:
    """RFC 8785, section 3.2.2.2."""
    short = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: "\\"}
    return (
        '"'
        + "".join(
            "\\" + short[ord(one)]
            if ord(one) in short
            else f"\\u{ord(one):04x}"
            if ord(one) < 32
            else one
            for one in text
        )
        + '"'
    )


def allowed_values(field: Field) -> set[str] | None:
    """What ``enum`` and ``const`` both leave, spelled canonically; None where neither is given."""
    lists = ([field["enum"]] if "enum" in field else []) + (
        [[field["const"]]] if "const" in field else []
    )
    if not lists:
        return None
    spelled = [
        {
            value if isinstance(value, str) else canonical(value)
            for value in values
            if value is not None
        }
        for values in lists
    ]
    return set.intersection(*spelled)


def grid(field: Field) -> tuple[int, int]:
    """The lowest and the highest point within the bounds, computed with fractions."""
    days = date.max.toordinal()
    of_format = {"date": days, "time": 86400 * 10**6, "date-time": days * 86400 * 10**6}
    of_format["local-date-time"] = of_format["date-time"]
    if field.get("format") == "duration":
        return -(10**8) * 86400 * 10**6, 10**8 * 86400 * 10**6
    if field.get("format") in of_format:
        return 0, of_format[field["format"]] - 1
    scale = 10 ** precision(field)
    low, high = Fraction(field["minimum"]) * scale, Fraction(field["maximum"]) * scale
    return low.__ceil__(), high.__floor__()


def to_point(field: Field, value: Decimal) -> int:
    """Python rounds fractions half to even, as section 3 asks."""
    scale: int = 10 ** precision(field)
    return round(Fraction(value) * scale)


def from_point(field: Field, point: int) -> Decimal:
    return Decimal(point).scaleb(-precision(field), _ROOMY)


def rebase(own: Field, shown: Field, key: int) -> int:
    """Section 6.4: a key of the first field's grid on that of the second."""
    finer: int = 10 ** (precision(shown) - precision(own))
    return (key + grid(own)[0]) * finer - grid(shown)[0]
