"""An example for the body and the answer of every operation of an OpenAPI document.

Examples are made of the schemas, so they cannot contradict them: each text is one of a few samples
that its member's name and pattern admit, numbers are the least that are allowed, and optional
members of a request are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_ID = "2Ja9xQ4mTk7VbN3sRd5LpE"
_UUID = "0195f2c4-7c1e-7d43-9a55-3c1f0e6b2d18"
#: By the name of a member.
_BY_NAME: dict[str, str] = {
    "code": "slug_taken",
    "email": "ada@example.org",
    "field": "age",
    "name": "Patients",
    "op": "eq",
    "organization_name": "Acme",
    "password": "violet harbour 42",
    "password_confirm": "violet harbour 42",
    "old_password": "violet harbour 41",
    "slug": "patients",
    "id": _ID,
    "first_name": "Ada",
    "last_name": "Lovelace",
    "token": f"ersr1_{43 * '0'}",
    "secret": f"whsec_{43 * '0'}=",
}
_BY_FORMAT = {
    "date-time": "2026-01-31T08:30:00Z",
    "date": "2026-01-31",
    "email": "ada@example.org",
    "uuid": _UUID,
    "uri": "https://records.example.org/",
    "uri-reference": "/help/errors/slug_taken/",
    "binary": "",
    "byte": "",
}
#: By the name of a member that may be any object.
_OBJECTS: dict[str, Any] = {
    "data": {"name": "Ada", "age": 36},
    "where": {"field": "age", "op": "between", "value": [30, 50]},
}
#: Optional members of a request that its example has.
_SHOWN = ("where", "limit")
_COLLECTIONS = (
    *("schemas", "datasets", "organizations", "records", "users", "invitations", "files"),
    "webhooks",
)
#: Texts, the first of which that a pattern admits is taken.
_SAMPLES = (
    *(f"/api/{collection}/{_ID}/" for collection in _COLLECTIONS),
    f"/api/organizations/{_ID}/members/{_ID}/",
    f"/api/jobs/{_UUID}/",
    f"/api/ws/jobs/{_UUID}/",
    _ID,
    *("5b0e6a0c", "5b0e6a0c1d2f3e4a", "5b0e6a0c1d2f3e4a" * 2, "5b0e6a0c1d2f3e4a" * 4),
    *("patients", "2026-01-31", _UUID, "1", "A", "AAAA"),
)
#: Schemas within schemas: deeper than this, optional members are left out everywhere.
_DEEPEST = 4

Schema = Mapping[str, Any]


class NoExample(LookupError):
    """No sample has the pattern of a text."""


def add_examples(document: dict[str, Any]) -> None:
    """Give each JSON body and answer that has no example one, in place."""
    parts = document["components"]["schemas"]
    for methods in document["paths"].values():
        for operation in methods.values():
            if not isinstance(operation, dict):
                continue
            for content, is_sent in _contents(operation):
                if content.get("schema") and not {"example", "examples"} & content.keys():
                    content["example"] = Examples(parts, is_sent).of(content["schema"])


def _contents(operation: Schema) -> Iterator[tuple[dict[str, Any], bool]]:
    """The JSON contents of an operation, and whether the client sends them."""
    bodies = [(operation.get("requestBody", {}), True)]
    bodies += [
        (answer, False)
        for status, answer in operation["responses"].items()
        if status.startswith("2")
    ]
    for body, is_sent in bodies:
        for kind, content in body.get("content", {}).items():
            if kind == "application/json":
                yield content, is_sent


@dataclass(frozen=True, slots=True)
class Examples:
    """Values of schemas.

    Args:
        parts: the schemas that others link to, by name.
        is_sent: whether clients send the values: then read-only members, and optional ones, are
            left out.
    """

    parts: Schema
    is_sent: bool

    def of(self, schema: Schema, name: str = "", depth: int = 0) -> Any:
        """A value of a schema.

        Args:
            name: of the member that has the value.
            depth: how many schemas it is within.

        Raises:
            NoExample: none of the samples is a text of this schema.
        """
        if self.is_sent and name == "where":
            return _OBJECTS[name]
        if link := schema.get("$ref"):
            return self.of(self.parts[link.rpartition("/")[2]], name, depth + 1)
        for key in ("example", "const"):
            if key in schema:
                return schema[key]
        for key in ("examples", "enum"):
            if schema.get(key):
                return schema[key][0]
        return self._composed(schema, name, depth + 1)

    def _composed(self, schema: Schema, name: str, depth: int) -> Any:
        if several := schema.get("oneOf") or schema.get("anyOf"):
            return self.of(several[0], name, depth)
        if all_of := schema.get("allOf"):
            made = [self.of(part, name, depth) for part in all_of]
            return made[0] if len(made) == 1 else {k: v for part in made for k, v in part.items()}
        kind = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            kind = next(item for item in kind if item != "null")
        if kind == "object":
            return self._object(schema, name, depth)
        if kind == "array":
            least = schema.get("minItems", 0)
            if depth > _DEEPEST and not least:
                return []
            return [self.of(schema.get("items", {}), name, depth)] * max(least, 1)
        return _scalar(schema, kind, name)

    def _object(self, schema: Schema, name: str, depth: int) -> dict[str, Any]:
        members = schema.get("properties", {})
        if name in _OBJECTS and not members:
            return dict(_OBJECTS[name])
        return {
            member: self.of(inner, member, depth)
            for member, inner in members.items()
            if self._has(schema, member, depth)
        }

    def _has(self, schema: Schema, member: str, depth: int) -> bool:
        if schema["properties"][member].get("readOnly" if self.is_sent else "writeOnly"):
            return False
        if member in schema.get("required", ()):
            return True
        return member in _SHOWN if self.is_sent else depth <= _DEEPEST


def _scalar(schema: Schema, kind: str | None, name: str) -> Any:
    match kind:
        case "string":
            return _text(schema, name)
        case "integer" | "number":
            return max(schema.get("minimum", 1), 1) if schema.get("maximum", 1) >= 1 else 0
        case "boolean":
            return True
        case "null":
            return None
    return {}


def _text(schema: Schema, name: str) -> str:
    pattern = re.compile(schema.get("pattern", ""))
    wanted = [_BY_NAME.get(name), _BY_FORMAT.get(schema.get("format", "")), name or None, *_SAMPLES]
    if "format" in schema:
        wanted.insert(0, wanted.pop(1))
    least, most = schema.get("minLength", 0), schema.get("maxLength", 1 << 20)
    for sample in wanted:
        if sample is not None and least <= len(sample) <= most and pattern.search(sample):
            return sample
    raise NoExample(f"{name}: {schema}")
