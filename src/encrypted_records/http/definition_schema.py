"""A definition as the OpenAPI documents of both sides have it."""

from __future__ import annotations

from typing import Any

from encrypted_records.model.definition_keywords import MAX_SET_FIELDS, MAX_SETS
from encrypted_records.model.field_types import FORMATS, PLAIN

_NAMES: dict[str, Any] = {"type": "array", "items": {"type": "string"}}

#: A JSON Schema of the keywords that are understood; others describe, and are kept.
DEFINITION: dict[str, Any] = {
    "type": "object",
    "description": "A JSON Schema (docs/http-api.md, Definitions)",
    "example": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
        },
        "required": ["name"],
    },
    "required": ["type", "properties"],
    "properties": {
        "type": {"type": "string", "enum": ["object"]},
        "properties": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {
                "type": "object",
                "required": ["type"],
                "properties": {
                    "type": {"type": "string", "enum": list(PLAIN)},
                    "format": {
                        "description": (
                            "With enforced formats, each of these is a type of its own:"
                            f" {', '.join(FORMATS)}"
                        ),
                    },
                    "x-index": {
                        "type": "array",
                        "items": {"type": "string", "enum": ["words"]},
                        "description": "For texts: an index of their words",
                    },
                },
                "additionalProperties": True,
            },
        },
        "required": _NAMES,
        "formats": {"type": "string", "enum": ["enforced"]},
        "rounding": {
            "type": "string",
            "enum": ["half-even", "refuse"],
            "description": "Handling of numbers with more decimals than their field keeps",
        },
        "unique": {
            "type": "array",
            "maxItems": MAX_SETS,
            "items": _NAMES | {"minItems": 1, "maxItems": MAX_SET_FIELDS},
            "description": (
                "Sets of fields; no two records have the same values in all fields of a set"
            ),
        },
    },
    "additionalProperties": True,
}
