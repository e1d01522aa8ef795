"""Raw values -> accepted values, with every error named by row and field, never by value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from encrypted_records.errors import Flaw
from encrypted_records.model.definition import SchemaDefinition, Value
from encrypted_records.model.field_types.base import ValueRefused
from encrypted_records.model.strict_json import escape_pointer

#: The list of errors of one record ends here. A field of a schema has one error at most.
MAX_ROW_ERRORS = 1000


def validate(
    definition: SchemaDefinition, raw: Mapping[str, Any], *, row: int, pointer: str
) -> tuple[dict[str, Value], list[Flaw]]:
    """Validate one record: its accepted values, without absent fields, and its first
    ``MAX_ROW_ERRORS`` errors.

    Args:
        raw: field name to value as parsed (numbers as int or Decimal).
        row: the record's number, from 1, for the errors.
        pointer: the position of its data in the request, for the errors.
    """
    data: dict[str, Value] = {}
    errors: list[Flaw] = []

    def refuse(name: str, code: str, detail: str) -> None:
        if len(errors) < MAX_ROW_ERRORS:
            errors.append(Flaw(code, detail, f"{pointer}/{escape_pointer(name)}", row, name))

    fields = definition.fields
    for name, sent in raw.items():
        spec = fields.get(name)
        if spec is None:
            refuse(name, "unknown_field", "the schema has no such field")
            continue
        try:
            value = spec.accept(sent)
        except ValueRefused as refused:
            refuse(name, refused.code, refused.detail)
            continue
        if value is not None:
            data[name] = value
    if not definition.required <= data.keys():
        for name in definition.fields:
            if name in definition.required and raw.get(name) is None:
                refuse(name, "required", "a required field is missing")
    return data, errors
