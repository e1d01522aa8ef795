"""The OpenAPI document says every question that can be asked, as the code's own lists have it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from encrypted_records.client.proxy.jobs import OnConflict
from encrypted_records.http.openapi import link_to
from encrypted_records.model.aggregations import MEASURES
from encrypted_records.model.field_types import FORMATS
from encrypted_records.model.field_types.calendar import PERIODS
from encrypted_records.model.queries import FOLDING, MOST_EDITS, OPERATORS
from tests.support.service import Service, call

#: A comparison of each form, and what joins them.
QUESTIONS: list[dict[str, Any]] = [
    {"field": "email", "op": "contains", "value": "JONES.0004", "fold": True},
    {"field": "email", "op": "matches", "value": r"\AJ.*77@"},
    {"field": "email", "op": "near", "value": "smyth@exampl1.org", "within": 2},
    {"field": "email", "op": "in", "value": ["JONES.00001@EXAMPLE1.ORG", "nobody"], "fold": True},
    {"field": "city", "op": "like", "value": r"100\%"},
    {"field": "diary", "op": "has_phrase", "value": "no fever"},
    {"field": "age", "op": "between", "value": [20, 30]},
    {"field": "age", "op": "is_null"},
    {"not": {"field": "diary", "op": "has_words", "value": "day"}},
    {
        "and": [
            {"or": [{"field": "age", "op": "gt", "value": 85}, {"field": "age", "op": "is_null"}]},
            {"not": {"field": "note", "op": "ends_with", "value": "0"}},
        ]
    },
]

REFERENCE = Path(__file__).parents[2] / "docs" / "http-api.md"


@pytest.fixture(scope="module")
def document(service: Service) -> dict[str, Any]:
    account = service.new_account()
    found = call("GET", f"{service.proxy_url}/api/openapi.json", auth=account.auth)
    described: dict[str, Any] = found.json()
    return described


def parts(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["components"]["schemas"]
    return found


def operation(document: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = document["paths"][path][method]
    return found


def body(document: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    sent = operation(document, method, path)["requestBody"]["content"]["application/json"]
    found: dict[str, Any] = sent["schema"]
    return found


def fits(document: dict[str, Any], schema: dict[str, Any], value: Any) -> bool:
    whole = {**schema, "components": document["components"]}
    return jsonschema.Draft202012Validator(whole).is_valid(value)


def test_a_condition_has_every_operator_and_every_member_of_the_code(
    document: dict[str, Any],
) -> None:
    members = parts(document)["Condition"]["properties"]
    assert set(members["op"]["enum"]) == set(OPERATORS)
    assert set(members) == {"and", "or", "not", "field", "op", "value", "fold", "within", "of"}
    for operator in OPERATORS:
        assert re.search(rf"\b{operator}\b", members["value"]["description"]), operator
    assert members["fold"]["description"].endswith(", ".join(FOLDING))
    assert (members["within"]["minimum"], members["within"]["maximum"]) == (1, MOST_EDITS)
    selection = parts(document)["Selection"]
    assert (set(selection["required"]), set(selection["properties"])) == (
        {"schema", "field"},
        {"schema", "field", "where"},
    )


@pytest.mark.parametrize(
    "path",
    [
        "/api/records/search/",
        "/api/records/aggregate/",
        "/api/records/export/",
        "/api/records/explain/",
        "/api/records/why/",
        "/api/records/delete/",
        "/api/datasets/{id}/search/",
    ],
)
def test_every_question_takes_such_conditions(document: dict[str, Any], path: str) -> None:
    asked = body(document, "post", path)
    assert set(asked["properties"]) >= {"where", "filters"}
    of = {"schema": "visits", "field": "patient", "where": {"not": QUESTIONS[0]}}
    for where in (None, *QUESTIONS, {"field": "id", "op": "in", "of": of}):
        assert fits(document, asked["properties"]["where"], where), where
    comparison = {"field": "a", "op": "is_null"}
    refused: list[Any] = [
        *({"op": "same", "field": "a"}, {"of": {"schema": "b"}}, {"and": []}, {}),
        *({"field": "a"}, {"op": "is_null"}, {"not": comparison, "or": [comparison]}),
        {"and": [comparison], **comparison},
    ]
    for wrong in refused:
        assert not fits(document, asked["properties"]["where"], wrong), wrong


def test_every_example_of_the_reference_fits_the_document(document: dict[str, Any]) -> None:
    found = re.findall(r"```json\n(.*?)```", REFERENCE.read_text(), re.DOTALL)
    shown = ('"comparisons"', '"version"')  # what is answered, not asked
    asked = [
        json.loads(example)
        for example in found
        if '"op":' in example and not any(member in example for member in shown)
    ]
    assert len(asked) > 4
    for one in asked:
        if "measures" in one:
            schema = body(document, "post", "/api/records/aggregate/")
        elif "where" in one and "schema" not in one:
            schema = body(document, "post", "/api/datasets/{id}/search/")
        elif "where" in one:
            schema = body(document, "post", "/api/records/search/")
        else:
            schema = parts(document)["Condition"]
        text = json.dumps(one).replace("<id>", "2" * 22)
        assert fits(document, schema, json.loads(text)), one


def test_measures_have_every_operator_and_period_of_the_code(document: dict[str, Any]) -> None:
    members = parts(document)["Measure"]["properties"]
    assert members["op"]["enum"] == list(MEASURES)
    assert members["by"]["enum"] == list(PERIODS)
    assert set(members) == {"op", "field"}.union(
        *(measure.members for measure in MEASURES.values())
    )
    asked = body(document, "post", "/api/records/aggregate/")
    assert fits(document, asked["properties"]["group_by"], [{"field": "seen", "by": "month"}, "a"])


def test_definitions_have_formats_indexes_and_unique_fields(document: dict[str, Any]) -> None:
    assert body(document, "post", "/api/schemas/{id}/change/") == link_to("ChangeWanted")
    for wanted in ("ChangeWanted", "PreviewRequest"):
        assert parts(document)[wanted]["properties"]["schema"] == link_to("Definition")
    sent = parts(document)["Schema"]["properties"]["schema"]
    for definition in (parts(document)["Definition"], sent):
        assert definition["properties"]["formats"]["enum"] == ["enforced"]
        field = definition["properties"]["properties"]["additionalProperties"]["properties"]
        for name in FORMATS:
            assert re.search(rf"\b{name}\b", field["format"]["description"])
        assert field["x-index"]["items"]["enum"] == ["words"]
        assert "unique" in definition["properties"]


def test_upserts_are_described_with_what_finds_the_record(document: dict[str, Any]) -> None:
    (by,) = operation(document, "put", "/api/records/")["parameters"]
    assert (by["name"], by["in"], by["required"]) == ("by", "query", True)
    for path in ("/api/jobs/upload/", "/api/files/"):
        named = {
            parameter["name"]: parameter
            for parameter in operation(document, "post", path)["parameters"]
        }
        assert set(named["X-On-Conflict"]["schema"]["enum"]) == set(get_args(OnConflict))
    assert "by" in {
        parameter["name"]
        for parameter in operation(document, "post", "/api/jobs/upload/")["parameters"]
    }
