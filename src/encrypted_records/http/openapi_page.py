"""The reference of both sides' endpoints: parts of an OpenAPI document, and a page made of one.

The page is for reading: it loads nothing, runs nothing, and its one style is named by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from encrypted_records.http import problem
from encrypted_records.model import ids

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
        "job_id": {"type": "string", "format": "uuid"},
    },
}
_ID = {"type": "string", "pattern": f"^{ids.PATTERN}$"}
_HEX = {"type": "string", "pattern": "^([0-9a-f]{2})+$"}
_COUNT = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
_SEALED_RECORD: dict[str, Any] = {
    "type": "object",
    "required": [
        *("id", "url", "schema", "version", "group", "ordinal", "key_id", "key_version", "fields"),
    ],
    "properties": {
        "id": _ID,
        "url": {"type": "string", "pattern": f"^/api/records/{ids.PATTERN}/$"},
        "schema": {"type": "string", "pattern": f"^/api/schemas/{ids.PATTERN}/$"},
        "version": _COUNT,
        "group": _HEX,
        "ordinal": _COUNT,
        "key_id": _HEX,
        "key_version": _COUNT,
        "fields": {
            "type": "object",
            "description": "Ciphertexts in Base64, by field",
            "additionalProperties": {"type": "string", "contentEncoding": "base64"},
        },
    },
    "additionalProperties": False,
}
#: Parts that both sides' operations link to, by name.
PARTS: dict[str, dict[str, Any]] = {
    "Problem": PROBLEM,
    "SealedRecord": _SEALED_RECORD,
    # In a list, which may have been asked to say what is dead.
    "ListedRecord": _SEALED_RECORD
    | {"properties": {**_SEALED_RECORD["properties"], "dead": {"type": "boolean"}}},
}


def link_to(part: str) -> dict[str, Any]:
    """A link to a named part of the document."""
    return {"$ref": f"#/components/schemas/{part}"}


#: A record as the API has it, by itself and in a list.
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
    said = operation.get("description") or operation.get("summary") or ""
    parts = [
        f"<details><summary><code>{method.upper()} {escape(path)}</code> {escape(said)}</summary>",
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
        told = response.get("description") or response.get("$ref", "").rpartition("/")[2]
        parts.append(f"<p><code>{escape(status)}</code> {escape(told)}</p>{shown}")
    return "".join([*parts, "</details>"])


def _json(schema: Any) -> str:
    if not schema:
        return ""
    link = schema.get("$ref", "").rpartition("/")[2]
    if link:
        return f'<p><a href="#{escape(link)}"><code>{escape(link)}</code></a></p>'
    return f"<pre>{escape(json.dumps(schema, indent=2))}</pre>"
