"""What ``format`` may say of a field where the definition enforces formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from encrypted_records.model import definition_keywords as keywords
from encrypted_records.model.definition import FieldSpec, FieldType
from encrypted_records.model.formats import JSON_TYPES, Format
from encrypted_records.model.rules import NumberRules


def find_keywords(kind: FieldType) -> frozenset[str]:
    """The keywords that a field with an enforced format may have."""
    return keywords.FORMATTED if kind == "string" else keywords.BOOLEAN


def find_flaws(kind: FieldType, body: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the format of a field."""
    named = body["format"]
    known = JSON_TYPES.get(cast(Format, named)) if isinstance(named, str) else None
    if known is None:
        yield f"enforced formats are {', '.join(JSON_TYPES)}"
    elif kind != known:
        yield f"{named} is for fields of type {known}"


def make_spec(
    name: str, kind: FieldType, body: Mapping[str, Any], rules: NumberRules | None
) -> FieldSpec | str:
    """The field, of whose format :func:`find_flaws` found none; or what is wrong with its bounds.

    Args:
        rules: of a boolean.
    """
    if rules is not None and (rules.lowest, rules.highest) != (0, 1):
        return "a boolean has minimum 0 and maximum 1"
    return FieldSpec(name, kind, number=rules, format=cast(Format, body["format"]))
