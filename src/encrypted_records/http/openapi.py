"""OpenAPI documents of both sides: shared parts, examples, and a reference page.

The page is static: it loads nothing and runs nothing, and its only style is allowed by its hash.

Examples are generated from the schemas, so they cannot contradict them. Each text is a sample that
fits the member's name and pattern, numbers are the least allowed, and optional members of a request
are left out.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from inspect import cleandoc
from typing import Any

import msgspec

from encrypted_records.http import problem
from encrypted_records.model.resources import SealedRecord

_EXAMPLE_ID = "2Ja9xQ4mTk7VbN3sRd5LpE"
_UUID = "0195f2c4-7c1e-7d43-9a55-3c1f0e6b2d18"
#: Samples by the name of a member.
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
    "id": _EXAMPLE_ID,
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
#: Samples for members that may be any object, by name.
_OBJECTS: dict[str, Any] = {
    "data": {"name": "Ada", "age": 36},
    "where": {"field": "age", "op": "between", "value": [30, 50]},
}
#: Optional members that an example of a request includes.
_SHOWN = ("where", "limit")
_COLLECTIONS = (
    *("schemas", "datasets", "organizations", "records", "users", "invitations", "files"),
    "webhooks",
)
#: Samples of texts; the first sample that fits a pattern is used.
_SAMPLES = (
    *(f"/api/{collection}/{_EXAMPLE_ID}/" for collection in _COLLECTIONS),
    f"/api/organizations/{_EXAMPLE_ID}/members/{_EXAMPLE_ID}/",
    f"/api/jobs/{_UUID}/",
    f"/api/ws/jobs/{_UUID}/",
    _EXAMPLE_ID,
    *("5b0e6a0c", "5b0e6a0c1d2f3e4a", "5b0e6a0c1d2f3e4a" * 2, "5b0e6a0c1d2f3e4a" * 4),
    *("patients", "2026-01-31", _UUID, "1", "A", "AAAA"),
)
#: In schemas nested more deeply, all optional members are left out.
_DEEPEST = 4

Schema = Mapping[str, Any]


class NoExample(LookupError):
    """No sample fits the pattern of a text."""


def add_examples(document: dict[str, Any]) -> None:
    """Add an example to each JSON body and answer that has none, in place."""
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
    """Example values of schemas.

    Args:
        parts: the schemas that others reference, by name.
        is_sent: whether clients send the values: then read-only and optional members are left out.
    """

    parts: Schema
    is_sent: bool

    def of(self, schema: Schema, name: str = "", depth: int = 0) -> Any:
        """An example value of a schema.

        Args:
            name: the name of the member with the value.
            depth: the nesting depth of the schema.

        Raises:
            NoExample: no sample fits a text of this schema.
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
        if name in _OBJECTS and not members and schema.get("additionalProperties", True) is True:
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


STATUSES = (400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 502, 503, 504, 507)
PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457. docs/errors.md explains every code.",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "hint": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["code", "detail"],
                "properties": {
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                    "pointer": {"type": "string"},
                    "parameter": {"type": "string"},
                    "header": {"type": "string"},
                    "row": {"type": "integer"},
                    "field": {"type": "string"},
                },
            },
        },
        "errors_total": {"type": "integer"},
        "from_api": {"type": "boolean"},
        "job_id": {"type": "string", "format": "uuid"},
    },
}


def link_to(part: str) -> dict[str, Any]:
    """A reference to a named part of the document."""
    return {"$ref": f"#/components/schemas/{part}"}


def parts_of(kind: type) -> dict[str, Any]:
    """The JSON Schemas of a structure and of those in it, by name.

    The first paragraph of a structure's docstring is its description, and those under
    ``Attributes:`` are of its members; inherited members have those of its bases. There are no
    other members.
    """
    _, made = msgspec.json.schema_components([kind], ref_template=link_to("{name}")["$ref"])
    # A $ of JavaScript is a \Z of Python.
    parts: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made).replace(rb"\\Z", b"$"))
    structures = _structures(msgspec.inspect.type_info(kind), {})
    for name, part in parts.items():
        part.pop("title")
        members = part.get("properties", {})
        if "enum" not in part:
            part["additionalProperties"] = False
        description = cleandoc(part.pop("description", "")).partition("Attributes:\n")[0]
        if description:
            part["description"] = _sentence(description.split("\n\n")[0])
        for base in reversed(structures[name].__mro__):
            described = cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
            for names, text in _MEMBERS.findall(described):
                for member in names.split(", "):
                    if "$ref" not in members[member]:
                        members[member]["description"] = _sentence(text)
        for member in members.values():
            if "$ref" in member:
                member.pop("type", None)
            _open_objects(member)
    return parts


def _structures(found: Any, known: dict[str, type]) -> dict[str, type]:
    """Add to ``known``, by name, the structures that a type consists of."""
    if (structure := getattr(found, "cls", None)) is not None:
        if structure.__name__ in known:
            return known
        known[structure.__name__] = structure
    if isinstance(found, tuple):
        parts: tuple[Any, ...] = found
    elif isinstance(found, msgspec.inspect.Type | msgspec.inspect.Field):
        parts = tuple(getattr(found, name) for name in found.__struct_fields__)
    else:
        parts = ()
    for part in parts:
        _structures(part, known)
    return known


#: Members under ``Attributes:`` of a docstring, and what it says of them.
_MEMBERS = re.compile(r"^ {4}(\w[\w, ]*): (.*(?:\n {5,}.*)*)", re.MULTILINE)
#: Python's words and marks in a docstring.
_ROLE = re.compile(r":\w+:`[~.]*([\w.]+)`|``")


def _sentence(text: str) -> str:
    words = re.sub(r"\bNone\b", "null", _ROLE.sub(r"\1", " ".join(text.split())))
    # The name of a member, or a value, keeps its spelling.
    return words if text.lstrip().startswith("``") else words[:1].upper() + words[1:]


def _open_objects(part: dict[str, Any]) -> None:
    """State of objects that they may have any members: type generators take an object without this
    statement for an empty object.
    """
    if part.get("type") == "object":
        part.setdefault("additionalProperties", True)
    for inner in (*part.get("anyOf", ()), part.get("items"), part.get("additionalProperties")):
        if isinstance(inner, dict):
            _open_objects(inner)


_SEALED_RECORD = parts_of(SealedRecord)["SealedRecord"]
#: Parts that operations of both sides reference, by name.
PARTS: dict[str, dict[str, Any]] = {
    "Problem": PROBLEM,
    "SealedRecord": _SEALED_RECORD,
    # In a list, if the request asked for ``dead``.
    "ListedRecord": _SEALED_RECORD
    | {"properties": {**_SEALED_RECORD["properties"], "dead": {"type": "boolean"}}},
}
#: A record at the API, by itself and in a list.
SEALED_RECORD, LISTED_RECORD = link_to("SealedRecord"), link_to("ListedRecord")

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 14px/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .75rem; border: 1px solid #8886; border-radius: .4rem; }
summary { cursor: pointer; padding: .3rem 0; }
summary code { font-weight: 600; }
details { border-bottom: 1px solid #8883; }
details > :not(summary) { margin-left: 1.2rem; }
table { border-collapse: collapse; }
td, th { text-align: left; padding: .1rem 1rem .1rem 0; vertical-align: top; }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)


def problem_response(status: int) -> dict[str, Any]:
    """A response of an OpenAPI document: a problem with that status."""
    return {
        "description": problem.title_of(status),
        "content": {problem.MEDIA_TYPE: {"schema": link_to("Problem")}},
    }


def page(document: Mapping[str, Any]) -> str:
    """An OpenAPI document as HTML."""
    info = document["info"]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(info['title'])}</title><style>{_STYLE}</style></head><body><main>",
            f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
            f"<p>{escape(info.get('description', ''))}</p>",
            "<p>For programs: <code>/api/openapi.json</code> (OpenAPI"
            f" {escape(document['openapi'])}).</p>",
            *_operations(document),
            "<h2>Parts</h2>",
            *(
                f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
                f"{_json(schema)}</details>"
                for name, schema in sorted(document["components"].get("schemas", {}).items())
            ),
            "</main></body></html>",
        ]
    )


def _operations(document: Mapping[str, Any]) -> Iterator[str]:
    group = ""
    for path, methods in sorted(document["paths"].items()):
        first = path.split("/")[2]
        if first != group:
            group = first
            yield f"<h2>{escape(group)}</h2>"
        for method, operation in methods.items():
            yield _operation(method, path, operation)


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    about = operation.get("description") or operation.get("summary") or ""
    parts = [
        f"<details><summary><code>{method.upper()} {escape(path)}</code> {escape(about)}</summary>",
        "" if operation.get("security") else "<p>Needs no credentials.</p>",
    ]
    parameters = operation.get("parameters", [])
    if parameters:
        rows = "".join(
            f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{escape(parameter['in'])}</td>"
            f"<td>{escape(parameter.get('description', ''))}</td></tr>"
            for parameter in parameters
        )
        parts.append(f"<h4>Parameters</h4><table>{rows}</table>")
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<h4>Body: <code>{escape(kind)}</code></h4>{_json(content.get('schema'))}")
    parts.append("<h4>Answers</h4>")
    for status, response in sorted(operation["responses"].items()):
        kinds = response.get("content", {})
        shown = "".join(_json(content.get("schema")) for content in kinds.values())
        text = response.get("description") or response.get("$ref", "").rpartition("/")[2]
        parts.append(f"<p><code>{escape(status)}</code> {escape(text)}</p>{shown}")
    return "".join([*parts, "</details>"])


def _json(schema: Any) -> str:
    if not schema:
        return ""
    link = schema.get("$ref", "").rpartition("/")[2]
    if link:
        return f'<p><a href="#{escape(link)}"><code>{escape(link)}</code></a></p>'
    return f"<pre>{escape(json.dumps(schema, indent=2))}</pre>"
