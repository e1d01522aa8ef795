"""Every operation with a JSON body or answer has an example, which its own schema admits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from encrypted_records.http.openapi import Examples, NoExample
from encrypted_records.proxy.api.openapi import join
from tests.support.service import Service, call

JSON = "application/json"


def contents(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    succeeded = [one for status, one in operation["responses"].items() if status[0] == "2"]
    for body in (operation.get("requestBody", {}), *succeeded):
        if body.get("content", {}).get(JSON, {}).get("schema"):
            yield body["content"][JSON]


@pytest.mark.parametrize("side", ["proxy", "api"])
def test_every_example_is_there_and_of_its_schema(service: Service, side: str) -> None:
    url = service.proxy_url if side == "proxy" else service.base_url
    document = call("GET", f"{url}/api/openapi.json").json()
    parts = {"components": document["components"]}
    described = [
        (f"{method} {path}", content)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for content in contents(operation)
    ]
    assert len(described) > 70
    assert [name for name, one in described if not {"example", "examples"} & one.keys()] == []
    wrong = [
        (name, error.message)
        for name, one in described
        if "example" in one
        for error in Draft202012Validator({**one["schema"], **parts}).iter_errors(one["example"])
    ]
    assert wrong == []


def test_a_text_of_which_there_is_no_sample_is_named() -> None:
    code = {"type": "string", "pattern": "^@{9}$"}
    schema = {"type": "object", "required": ["code"], "properties": {"code": code}}
    with pytest.raises(NoExample, match="code"):
        Examples({}, is_sent=True).of(schema)


def test_a_proxy_follows_no_link_of_an_apis_document() -> None:
    loop = {"$ref": "#/components/schemas/Loop"}
    answers = {"200": {"content": {JSON: {"schema": loop}}}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "API", "version": "1"},
        "components": {"responses": {}, "schemas": {"Loop": loop}},
        "paths": {"/api/datasets/": {"get": {"tags": ["datasets"], "responses": answers}}},
    }
    joined = join(document, [])["paths"]["/api/datasets/"]["get"]
    assert joined["responses"]["200"] == {"content": {JSON: {"schema": loop}}}
