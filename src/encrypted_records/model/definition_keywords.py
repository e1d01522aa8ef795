"""The keywords of a definition: which are kept without effect, and which are refused.

JSON Schema treats an unknown keyword as an annotation, which makes no value valid or invalid. Such
keywords are kept (``faker``, ``unit``, ``x-owner``). A keyword that would change which values are
valid, and that is not enforced here, is refused, because its author relies on it.

The keyword ``unique`` at the root of a definition.

Keywords of ``format`` for a field whose definition enforces formats.

The keyword ``retention`` at the root of a definition: how long records stay.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from encrypted_records.model.definition import MAX_FIELD_NAME, FieldSpec
from encrypted_records.model.field_types import FORMATS, PLAIN, TYPES
from encrypted_records.model.field_types.base import FieldType, JsonType
from encrypted_records.model.retention import MAX_DAYS, Retention
from encrypted_records.model.rules import NumberRules, as_decimal

#: By draft of JSON Schema, from the first to 2020-12: all that change what is valid, or say where
#: more of the schema is.
_JSON_SCHEMA = frozenset(
    # drafts 0 to 3
    "divisibleBy disallow extends maxDecimal maximumCanEqual minimumCanEqual optional requires"
    # drafts 4 to 7
    " additionalItems additionalProperties allOf anyOf const contains dependencies else enum"
    " exclusiveMaximum exclusiveMinimum if items maxItems maxLength maxProperties maximum minItems"
    " minLength minProperties minimum multipleOf not oneOf pattern patternProperties properties"
    " propertyNames $ref required then type uniqueItems"
    # 2019-09 and 2020-12
    " dependentRequired dependentSchemas $dynamicRef maxContains minContains prefixItems"
    " $recursiveRef unevaluatedItems unevaluatedProperties".split()
)
#: Keywords of ours that are in no draft.
_OURS = frozenset({"precision", "padTo"})

ROOT = frozenset(
    "type properties required additionalProperties formats rounding unique retention".split()
)
_FIELD = frozenset({"type", "enum", "const"})
#: Says which further indexes a field has.
INDEX = "x-index"
STRING = _FIELD | {"minLength", "maxLength", "pattern", "padTo", INDEX}
NUMBER = _FIELD | {
    *("minimum", "maximum", "precision", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
}
#: Where formats are enforced, of a field that has one: its format says all that is valid.
FORMATTED = frozenset({"type", "format"})
BOOLEAN = FORMATTED | {"minimum", "maximum"}


def refuse(keyword: str, enforced: frozenset[str]) -> str | None:
    """The reason why ``keyword`` cannot be combined with those that are ``enforced``; None if it
    can.

    ``enforced`` is one of the sets above.
    """
    if keyword in enforced:
        return None
    if keyword in _JSON_SCHEMA or keyword in _OURS:
        where = "at the root" if enforced is ROOT else "for a field of this type"
        return f"not supported {where}, and it would change which values are valid"
    if keyword == INDEX:
        return "it is for string fields without an enforced format"
    meant = _SPELLINGS.get(_spell(keyword))
    if meant is None and enforced is ROOT:
        meant = _ROOT_SPELLINGS.get(_spell(keyword))
    if meant is not None:
        return f"did you mean {meant}?"
    return None


def _spell(keyword: str) -> str:
    return keyword.replace("_", "").replace("-", "").lower()


#: Every keyword by its letters alone. ``max_length`` is no annotation: who writes it means
#: ``maxLength``, and would not notice that nothing is enforced.
_SPELLINGS = {_spell(keyword): keyword for keyword in _JSON_SCHEMA | _OURS | {INDEX}}
#: At the root, where they are rules. In a field they are annotations, under any spelling.
_ROOT_SPELLINGS = {
    _spell(keyword): keyword for keyword in ("formats", "rounding", "unique", "retention")
}


def name_problem(name: str) -> str | None:
    """The mistake in the name of a field; None where it is right."""
    if not name or len(name) > MAX_FIELD_NAME:
        return f"must have 1 to {MAX_FIELD_NAME} characters"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        return "contains a control character or half of a surrogate pair"
    return None


#: Sets of a definition, and fields of a set.
MAX_SETS = 16
MAX_SET_FIELDS = 8

Sets = tuple[tuple[str, ...], ...]
#: What is wrong, and where below ``unique``.
Flaws = list[tuple[str, tuple[str, ...]]]


def read_sets(listed: Any, fields: Collection[str]) -> tuple[Sets, Flaws]:
    """The sets in their one order, and what is wrong with them."""
    if not isinstance(listed, list) or len(listed) > MAX_SETS:
        return (), [(f"expected an array of up to {MAX_SETS} arrays of field names", ())]
    flaws: Flaws = []
    sets: set[tuple[str, ...]] = set()
    for position, names in enumerate(listed):
        at = (str(position),)
        if not isinstance(names, list) or not 1 <= len(names) <= MAX_SET_FIELDS:
            flaws.append((f"expected an array of 1 to {MAX_SET_FIELDS} field names", at))
            continue
        unknown = [
            (*at, str(place))
            for place, name in enumerate(names)
            if not isinstance(name, str) or name not in fields
        ]
        flaws += [("names no field", path) for path in unknown]
        if unknown:
            continue
        unique = tuple(sorted(names))
        if len(set(unique)) < len(unique):
            flaws.append(("names a field twice", at))
        elif unique in sets:
            flaws.append(("occurs twice", at))
        sets.add(unique)
    return tuple(sorted(sets)), flaws


def find_format(body: Mapping[str, Any]) -> FieldType | None:
    """The type that the format of a field names."""
    named = body["format"]
    return FORMATS.get(named) if isinstance(named, str) else None


def find_keywords(kind: JsonType) -> frozenset[str]:
    """The keywords that a field with an enforced format may have."""
    return BOOLEAN if PLAIN[kind].is_number else FORMATTED


def find_flaws(kind: JsonType, body: Mapping[str, Any]) -> Iterator[str]:
    """Mistakes in the format of a field."""
    known = find_format(body)
    if known is None:
        shown = f", and not {body['format'][:40]}" if isinstance(body["format"], str) else ""
        yield f"enforced formats are {', '.join(FORMATS)}{shown}"
    elif kind != known.json_type:
        yield f"{known.name} is for fields of type {known.json_type}"


def make_spec(
    name: str, kind: JsonType, body: Mapping[str, Any], rules: NumberRules | None
) -> FieldSpec | str:
    """The field, of whose format :func:`find_flaws` found none; or what is wrong with its bounds.

    Args:
        rules: the bounds that the definition says.
    """
    own = FORMATS[body["format"]].bounds_in_definition
    if rules is not None and (rules.lowest, rules.highest) != own:
        assert own is not None
        return f"a {body['format']} has minimum {own[0]} and maximum {own[1]}"
    return FieldSpec(name, kind, number=rules, format=body["format"])


def read_retention(
    root: Mapping[str, Any], sound: Mapping[str, FieldSpec], names: Collection[str]
) -> tuple[Retention | None, Flaws]:
    """The rule, and what is wrong with it.

    Args:
        sound: the fields without a flaw, of those that the definition ``names``.
    """
    if "retention" not in root:
        return None, []
    body, flaws = root["retention"], list[tuple[str, tuple[str, ...]]]()
    if not isinstance(body, dict):
        return None, [("expected an object with days and, optionally, field", ())]
    flaws += [
        (("expected days and, optionally, field"), (key,))
        for key in body
        if key not in ("days", "field")
    ]
    days = as_decimal(body.get("days"))
    if days is None or not 1 <= days <= MAX_DAYS or days != int(days):
        flaws.append((f"expected an integer from 1 to {MAX_DAYS}", ("days",)))
    if "field" in body:
        flaws += [(detail, ("field",)) for detail in _flaws_of_field(body["field"], sound, names)]
    if flaws or days is None:
        return None, flaws
    return Retention(int(days), body.get("field")), []


def _flaws_of_field(
    name: object, sound: Mapping[str, FieldSpec], names: Collection[str]
) -> list[str]:
    if not isinstance(name, str) or name not in names:
        return ["names no field"]
    spec = sound.get(name)
    if spec is not None and not spec.field_type.is_moment:
        named = " or ".join(kind.name for kind in TYPES if kind.is_moment)
        return [f"expected a field of the enforced format {named}"]
    return []
