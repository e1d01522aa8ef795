"""Keywords of ``format`` for a field whose definition enforces formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from encrypted_records.model import definition_keywords as keywords
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.field_types import FORMATS, PLAIN
from encrypted_records.model.field_types.base import FieldType, JsonType
from encrypted_records.model.rules import NumberRules


def find_format(body: Mapping[str, Any]) -> FieldType | None:
    """The type that the format of a field names."""
    named = body["format"]
    return FORMATS.get(named) if isinstance(named, str) else None


def find_keywords(kind: JsonType) -> frozenset[str]:
    """The keywords that a field with an enforced format may have."""
    return keywords.BOOLEAN if PLAIN[kind].is_number else keywords.FORMATTED


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
