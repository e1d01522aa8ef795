"""Building blocks of the OpenAPI document: JSON Schemas, parameters, bodies, answers, conditions.

A condition is one object with all members of all its forms, and a list of the valid combinations:
it contains conditions itself, and client generators make no type of a recursive choice between
objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from encrypted_records.http.openapi import link_to, parts_of
from encrypted_records.model import ids, resources
from encrypted_records.model.aggregations import MAX_BINS, MAX_PERCENTILES, MEASURES
from encrypted_records.model.aggregations import MAX_LIMIT as MAX_LISTED_VALUES
from encrypted_records.model.field_types.calendar import PERIODS
from encrypted_records.model.queries import FOLDING, MAX_IN_VALUES, MAX_LIMIT, MOST_EDITS, OPERATORS

#: A piece of an OpenAPI document.
Part = dict[str, Any]

JSON = "application/json"
NDJSON = "application/x-ndjson"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"

TEXT: Part = {"type": "string"}
TEXT_OR_NULL: Part = {"type": ["string", "null"]}
NUMBER: Part = {"type": "integer", "minimum": 0}
FLAG: Part = {"type": "boolean"}
#: An object with any members. Type generators take an object without this statement for an empty
#: object.
OBJECT: Part = {"type": "object", "additionalProperties": True}
URL: Part = {"type": "string", "format": "uri"}
UUID: Part = {"type": "string", "format": "uuid"}
BINARY: Part = {"type": "string", "format": "binary"}
NAMES: Part = {"type": "array", "items": TEXT}
ID: Part = {"type": "string", "pattern": f"^{ids.PATTERN}$"}
#: The path of a record in answers.
RECORD_PATH: Part = {"type": "string", "pattern": f"^/api/records/{ids.PATTERN}/$"}
#: A schema, named by its path or by a URL of this proxy.
SCHEMA_REFERENCE: Part = {
    "type": "string",
    "pattern": f"^(https?://[^/]+)?/api/schemas/{ids.PATTERN}/$",
}


def name_in(collection: str) -> Part:
    """A dataset or schema in a request."""
    return {
        "type": "string",
        "pattern": f"^((https?://[^/]+)?/api/{collection}/{ids.SLUG}/|{ids.SLUG})$",
        "description": f"Id, slug or path of a {collection.removesuffix('s')}",
        "examples": [f"/api/{collection}/2Ja9xQ4mTk7VbN3sRd5LpE/", "patients"],
    }


#: A dataset or schema in a path.
ID_OR_SLUG: Part = {"type": "string", "pattern": f"^{ids.SLUG}$"}
SCHEMA_NAME, DATASET_NAME = name_in("schemas"), name_in("datasets")

#: Parts of the document that its operations link to, by name.
PARTS: dict[str, Part] = {}


def named(name: str, part: Part) -> Part:
    """A link to a part, which has its own name in the document."""
    PARTS[name] = part
    return link_to(name)


#: A schema's definition, and the same in a body, as its sender has written it.
DEFINITION = named("Definition", resources.DEFINITION)
RawDefinition = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema=DEFINITION)]


def shape(kind: type) -> Part:
    """A link to the JSON Schema of a body or an answer, made from its structure.

    Raises:
        ValueError: another part of the document has the name of a contained structure.
    """
    for name, part in parts_of(kind).items():
        if PARTS.setdefault(name, part) != part:
            raise ValueError(f"two parts of the OpenAPI document are called {name}")
    return link_to(kind.__name__)


#: A text that its reader refuses by name if it is empty.
NonEmpty = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1})]


def or_null(part: Part) -> Part:
    return {"anyOf": [part, {"type": "null"}]}


def text_of(least: int, most: int) -> Part:
    """A string whose length is between these bounds, in characters."""
    return {"type": "string", "minLength": least, "maxLength": most}


def enum_of(*values: str | int) -> Part:
    """One of these strings, or of these integers.

    A single value is an ``enum`` too: client generators support ``const`` less well.
    """
    return {"type": "string" if isinstance(values[0], str) else "integer", "enum": list(values)}


def object_of(required: Mapping[str, Part], **optional: Part) -> Part:
    """An object with these members, optionally the ``optional`` members, and no others."""
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **optional},
        "additionalProperties": False,
    }


def array_of(items: Part, **limits: int) -> Part:
    return {"type": "array", "items": items, **limits}


def page_of(results: Part, **more: Part) -> Part:
    """One page of a list."""
    members = {"count": NUMBER, "next": TEXT_OR_NULL, "previous": TEXT_OR_NULL}
    return object_of(members | {"results": array_of(results)} | more)


#: Members that select the form of a file.
FILE_FORM = {
    "format": enum_of("ndjson", "csv"),
    "safe_cells": FLAG
    | {"description": ("CSV only: escape cells that a spreadsheet would run as formulas")},
    "with_schema_id": FLAG | {"description": "CSV only: end the header with schema_id:<id>"},
}


# --- parameters --------------------------------------------------------------------------------


def parameter(
    where: str, name: str, schema: Part, description: str = "", *, required: bool = False
) -> Part:
    described = {"name": name, "in": where, "required": required, "schema": schema}
    return described | ({"description": description} if description else {})


def path_parameter(name: str, collection: str) -> Part:
    """A path parameter for a dataset or schema."""
    described = f"Id or slug of the {collection.removesuffix('s')}"
    return parameter("path", name, ID_OR_SLUG, described, required=True)


LIMIT = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}
_OFFSET = NUMBER | {"maximum": 2**31}
PAGING = (parameter("query", "limit", LIMIT), parameter("query", "offset", _OFFSET))
SCHEMA_PARAMETER = parameter(
    "query", "schema", SCHEMA_NAME, "Id, slug or path of a schema", required=True
)


# --- bodies and answers ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The body of a request: its JSON Schema by media type."""

    content: Mapping[str, Part]
    required: bool = True

    def describe(self) -> Part:
        content = {kind: {"schema": schema} for kind, schema in self.content.items()}
        return {"required": self.required, "content": content}


def json_body(schema: Part | type, *, required: bool = True) -> RequestBody:
    return RequestBody({JSON: _part_of(schema)}, required)


def json_answer(
    schema: Part | type,
    *,
    description: str = "See docs/http-api.md",
    **headers: Part,
) -> Part:
    return answer_of_kinds({JSON: _part_of(schema)}, description=description, **headers)


def _part_of(schema: Part | type) -> Part:
    return shape(schema) if isinstance(schema, type) else schema


def answer_of_kinds(schemas: Mapping[str, Part], *, description: str, **headers: Part) -> Part:
    """An answer in one of several media types."""
    content = {kind: {"schema": schema} for kind, schema in schemas.items()}
    return empty_answer(description, **headers) | {"content": content}


def empty_answer(description: str, **headers: Part) -> Part:
    """An answer with these headers; ``Upload_Offset`` stands for ``Upload-Offset``."""
    named = {name.replace("_", "-"): {"schema": schema} for name, schema in headers.items()}
    return {"description": description} | ({"headers": named} if named else {})


# --- conditions and measures ----------------------------------------------------------------------

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
            "op": enum_of(*OPERATORS),
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
        {"op": enum_of(*MEASURES)},
        field=TEXT,
        p={"description": f"For percentile: a number from 0 to 100, or up to {MAX_PERCENTILES}"},
        bins={"type": "integer", "minimum": 1, "maximum": MAX_BINS},
        bounds=array_of({}, minItems=2, maxItems=MAX_BINS + 1),
        by=enum_of(*PERIODS),
        limit={"type": "integer", "minimum": 0, "maximum": MAX_LISTED_VALUES},
        order=enum_of("value", "-value", "count", "-count"),
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
#: The same, with the position of records without a value.
RANKING = array_of(
    {
        "oneOf": [
            TEXT,
            object_of({"field": TEXT}, descending=FLAG, nulls={"enum": ["first", "last"]}),
        ]
    }
)
