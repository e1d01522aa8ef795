"""Half of a surrogate pair is legal JSON and no text: it is refused by name wherever it is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.proxy.test_reference import prepared
from tests.support.jobs import completed, ended, flaws, started
from tests.support.service import Account, Service, call
from tests.support.store import Store, new_store

HALF = "cut \ud800"
UNICODE = "unicode"
#: Members of a request are followed so deep; no document nests deeper without repeating itself.
_DEEPEST = 6
#: Paths whose records are checked row by row, after their form.
_BY_ROW = {"/api/records/ingest/", "/api/records/", "/api/schemas/infer/"}
#: Rows of a job are checked when its answer is gone.
_LATER = {"/api/jobs/upload/"}

DEFINITION = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "i": {"type": "integer", "minimum": 0, "maximum": 9},
        "note": {"type": "string", "pattern": "^[a-z]*$"},
    },
}


class Document:
    """An OpenAPI document, and a request with half a pair for each text that it describes."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.paths: dict[str, Any] = document["paths"]
        self._parts = document.get("components", {}).get("schemas", {})

    def requests(self) -> Iterator[tuple[str, str, str, Any]]:
        """Method, path, pointer to the text, and a body."""
        for path, operations in self.paths.items():
            for method, operation in operations.items():
                content = operation.get("requestBody", {}).get("content", {})
                if "application/json" in content:
                    described = content["application/json"]["schema"]
                    for pointer, body in self._with_half(described, 0):
                        yield method.upper(), path, pointer, body

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in schema:
            schema = self._parts[schema["$ref"].rpartition("/")[2]]
        return schema

    def _with_half(self, schema: dict[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
        schema = self._resolved(schema)
        if depth > _DEEPEST:
            return
        for choice in ("oneOf", "anyOf", "allOf"):
            for option in schema.get(choice, ()):
                yield from self._with_half(option, depth + 1)
        kinds = schema.get("type", "object")
        if "string" in kinds:
            yield "", HALF
        if "array" in kinds:
            for pointer, item in self._with_half(schema.get("items", {}), depth + 1):
                yield f"/0{pointer}", [item]
        if "object" in kinds:
            members = schema.get("properties", {})
            whole = {name: self._example(one, depth + 1) for name, one in members.items()}
            for name, one in members.items():
                for pointer, value in self._with_half(one, depth + 1):
                    yield f"/{name}{pointer}", whole | {name: value}
            if not members:
                yield "/any", {"any": HALF}

    def _example(self, schema: dict[str, Any], depth: int) -> Any:
        schema = self._resolved(schema)
        for choice in ("oneOf", "anyOf", "allOf"):
            if choice in schema and depth <= _DEEPEST:
                return self._example(schema[choice][0], depth + 1)
        if "enum" in schema:
            return schema["enum"][0]
        kind = schema.get("type", "object")
        kind = kind if isinstance(kind, str) else kind[0]
        if kind == "array":
            return [self._example(schema.get("items", {}), depth + 1)] if depth <= _DEEPEST else []
        if kind == "object" and depth <= _DEEPEST:
            members = schema.get("properties", {})
            return {name: self._example(one, depth + 1) for name, one in members.items()}
        return {"string": "text", "integer": 1, "number": 1, "boolean": False}.get(kind)


@pytest.fixture(scope="module")
def sqlite(services: Callable[[str], Service]) -> Service:
    return services("sqlite")  # the database makes no difference: no such text comes so far


@pytest.fixture(scope="module")
def account(sqlite: Service) -> Account:
    return sqlite.new_account()


@pytest.mark.parametrize("side", ["proxy", "API"])
def test_each_text_of_each_request_that_a_side_describes_is_refused_by_name(
    sqlite: Service, account: Account, side: str
) -> None:
    base = sqlite.proxy_url if side == "proxy" else sqlite.base_url
    known = prepared(sqlite, account)
    own = call("GET", f"{base}/api/users/self/", auth=account.auth).json()
    described = call("GET", f"{base}/api/openapi.json", auth=account.auth).json()
    asked, wrong = 0, []
    for method, path, pointer, body in Document(described).requests():
        if path in _LATER:
            continue
        named = known.get(path.split("/")[2], known["datasets"])
        target = re.sub(r"{\w+}", named, path.replace("{user_id}", own["id"]))
        headers = sqlite.door if side == "proxy" else {}
        answer = call(method, base + target, body, auth=account.auth, headers=headers)
        asked += 1
        if not (400 <= answer.status < 500 and _names(answer.json(), path, pointer)):
            wrong.append(f"{method} {path} {pointer}: {answer.status} {answer.body[:300]!r}")
    assert not wrong, "\n".join(wrong)
    assert asked > {"proxy": 150, "API": 60}[side]


def _names(problem: dict[str, Any], path: str, pointer: str) -> bool:
    """Whether a problem document says which text it is."""
    if path in _BY_ROW:  # the form of its first record may be wrong, too
        return problem["code"] in ("invalid_records", "unknown_reference")
    found = [(one["code"], one["pointer"]) for one in problem.get("errors", ())]
    return problem["code"] == "malformed" and found == [(UNICODE, pointer)]


@pytest.fixture(scope="module")
def store(sqlite: Service) -> Store:
    return new_store(sqlite, DEFINITION)


@pytest.mark.parametrize(
    ("form", "data", "field", "code"),
    [
        ("json", {"s": HALF}, "s", UNICODE),
        ("ndjson", {"note": HALF}, "note", UNICODE),
        ("json", {"i": [HALF]}, "i", "type"),
        ("ndjson", {"unknown": HALF}, "unknown", "unknown_field"),
    ],
)
def test_a_job_names_the_row_and_the_field_and_stores_the_others_where_that_is_asked_for(
    store: Store, form: str, data: dict[str, Any], field: str, code: str
) -> None:
    fresh = store.another_schema(DEFINITION)
    records = [{"schema": fresh.schema, "data": one} for one in ({"s": "a"}, data, {"s": "b"})]
    if form == "json":
        body, kind = json.dumps(records).encode(), "application/json"
    else:
        body, kind = "\n".join(map(json.dumps, records)).encode(), "application/x-ndjson"
    refused = started(fresh, body, kind)
    assert "invalid_records" in ended(fresh, refused)["error"]
    assert flaws(fresh, refused) == [(2, field, code)]
    skipping = started(fresh, body, kind, X_On_Invalid="skip")
    completed(fresh, skipping)
    assert flaws(fresh, skipping) == [(2, field, code)]
    assert sorted(one["data"]["s"] for one in fresh.everything()) == ["a", "b"]


def test_a_preview_shows_the_row_and_names_the_field(store: Store) -> None:
    sample = json.dumps([{"data": {"s": HALF}}])
    asked = {"schema": DEFINITION, "format": "json", "sample": sample}
    answer = store.proxy("POST", "/api/schemas/preview/", asked)
    assert answer.status == 200, answer.body
    found = answer.json()
    assert found["rows"][0]["cells"][0] == "cut \ufffd"
    assert [(error["row"], error["field"], error["code"]) for error in found["errors"]] == [
        (1, "s", UNICODE)
    ]
