"""Conditions and measures as the OpenAPI document has them.

A condition is one object with all members of all its forms, and beside them it is said which go
together: it holds conditions itself, and makers of clients make no type of a choice between objects
that holds itself.
"""

from __future__ import annotations

from encrypted_records.http.openapi import link_to
from encrypted_records.model.aggregations import (
    MAX_BINS,
    MAX_LIMIT,
    MAX_PERCENTILES,
    MEASURES,
)
from encrypted_records.model.field_types.calendar import PERIODS
from encrypted_records.model.queries import FOLDING, MAX_IN_VALUES, MOST_EDITS, OPERATORS
from encrypted_records.proxy.api.json_schema import (
    FLAG,
    PARTS,
    TEXT,
    Part,
    array_of,
    object_of,
    one_of,
)

_CONDITION: Part = link_to("Condition")
#: Operators that combine conditions.
_WORDS = ("and", "or", "not")
#: The value that each operator takes.
_VALUES = {
    "eq, ne, lt, le, gt, ge": "a single value",
    "between": "an array of two",
    "in": f"an array of 1 to {MAX_IN_VALUES}, or nothing if of is given",
    "prefix, contains, ends_with, near": "a text",
    "like": "a text in which % stands for any text and _ for one character",
    "matches": "a pattern of RE2",
    "has_words, has_phrase": "a text of words",
    "is_null": "true, false or nothing",
}

PARTS |= {
    "Condition": {
        "type": "object",
        "description": "A comparison, or one of and, or, not (docs/http-api.md, Search)",
        "oneOf": [
            {
                "required": ["field", "op"],
                "not": {"anyOf": [{"required": [word]} for word in _WORDS]},
            },
            *({"required": [word], "maxProperties": 1} for word in _WORDS),
        ],
        "properties": {
            "and": array_of(_CONDITION, minItems=1),
            "or": array_of(_CONDITION, minItems=1),
            "not": _CONDITION,
            "field": TEXT,
            "op": one_of(*OPERATORS),
            "value": {
                "description": "; ".join((f"for {op}: {what}") for op, what in _VALUES.items())
            },
            "fold": FLAG
            | {
                "description": (
                    f"Whether differences in spelling are ignored; for {', '.join(FOLDING)}"
                )
            },
            "within": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_EDITS,
                "description": "For near: the number of edits allowed",
            },
            "of": {"$ref": "#/components/schemas/Selection"},
        },
        "additionalProperties": False,
    },
    "Selection": object_of({"schema": TEXT, "field": TEXT}, where=_CONDITION)
    | {
        "description": (
            "For in: the values of a field in those records of another schema that match where"
        )
    },
    "Measure": object_of(
        {"op": one_of(*MEASURES)},
        field=TEXT,
        p={"description": f"For percentile: a number from 0 to 100, or up to {MAX_PERCENTILES}"},
        bins={"type": "integer", "minimum": 1, "maximum": MAX_BINS},
        bounds=array_of({}, minItems=2, maxItems=MAX_BINS + 1),
        by=one_of(*PERIODS),
        limit={"type": "integer", "minimum": 0, "maximum": MAX_LIMIT},
        order=one_of("value", "-value", "count", "-count"),
    ),
}
WHERE: Part = {"oneOf": [_CONDITION, {"type": "null"}]}
_FILTERED = {
    "description": (
        "Value that the field must equal; for numbers also a text such as 40, 40~45 or >=40"
    )
}
FILTER = object_of({"label": TEXT, "value": _FILTERED})
MEASURE: Part = link_to("Measure")
#: The order of search results.
ORDER = array_of({"oneOf": [TEXT, object_of({"field": TEXT}, descending=FLAG)]})
#: The same, with the place of records without a value.
RANKING = array_of(
    {
        "oneOf": [
            TEXT,
            object_of({"field": TEXT}, descending=FLAG, nulls={"enum": ["first", "last"]}),
        ]
    }
)
