"""A sample becomes a definition that takes the sample, and its cost is known beforehand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.service import Account, Answer, Service, call
from tests.support.store import Store, new_schema

EXAMPLES = Path(__file__).parents[2] / "examples"
CENSUS = (EXAMPLES / "census.csv").read_bytes()
DEFINITION = json.loads((EXAMPLES / "census.schema.json").read_text())


@pytest.fixture(scope="module")
def account(service: Service) -> Account:
    return service.new_account()


@pytest.fixture
def ask(service: Service, account: Account) -> Any:
    def post(path: str, body: bytes, kind: str = "application/json") -> Answer:
        url = f"{service.proxy_url}/api/schemas/{path}"
        return call("POST", url, body, auth=account.auth, headers={"Content-Type": kind})

    return post


def test_what_is_inferred_from_real_rows_takes_these_rows(
    service: Service, account: Account, ask: Any
) -> None:
    proposal = ask("infer/", CENSUS, "text/csv").json()

    assert proposal["sampled"] == 1000
    types = {name: field["type"] for name, field in proposal["schema"]["properties"].items()}
    assert types == {name: field["type"] for name, field in DEFINITION["properties"].items()}
    store = Store(service, account, new_schema(service, account, proposal["schema"]))
    first = dict(zip(*[line.split(",") for line in CENSUS.decode().splitlines()[:2]], strict=True))
    row = {name: int(cell) if types[name] == "integer" else cell for name, cell in first.items()}
    store.ingest([row])
    assert store.search()["results"][0]["data"] == row


def test_inferring_stores_nothing(service: Service, account: Account, ask: Any) -> None:
    def count() -> int:
        listed = call("GET", f"{service.base_url}/api/schemas/", auth=account.auth).json()
        return int(listed["count"])

    before = count()
    assert ask("infer/", b'[{"a": 1}]').status == 200
    assert count() == before


def test_a_sample_is_not_forwarded_when_the_path_lacks_its_slash(ask: Any) -> None:
    answer = ask("infer", b'[{"a": 1}]')

    assert (answer.status, answer.json()["code"]) == (404, "not_forwarded")


def test_a_sample_of_another_kind_is_refused(ask: Any) -> None:
    assert ask("infer/", b"<rows/>", "application/xml").status == 415


def test_an_estimate_comes_close_to_what_is_stored(
    service: Service, account: Account, ask: Any
) -> None:
    body = {"schema": DEFINITION, "records": 1_000_000}
    found = ask("estimate/", json.dumps(body).encode()).json()

    per_record = found["bytes_per_record"]
    assert found["bytes"] == pytest.approx(1_000_000 * per_record["total"], rel=0.001)
    assert found["seconds"] == pytest.approx(1_000_000 / found["records_per_second"], rel=0.01)
    assert {field["name"] for field in found["fields"]} == set(DEFINITION["properties"])
    store = Store(service, account, new_schema(service, account, DEFINITION))
    row = {"age": 1, "fnlwgt": 1, "education_num": 1, "capital_gain": 0, "capital_loss": 0}
    choices = {
        name: field["enum"][0]
        for name, field in DEFINITION["properties"].items()
        if "enum" in field
    }
    (record_id,) = store.ingest([row | {"hours_per_week": 1} | choices])
    sealed = store.api("GET", f"/api/records/{record_id}/").json()["fields"].values()
    # Base64 without its padding is four characters for three bytes.
    stored = sum(len(one.rstrip("=")) * 3 // 4 for one in sealed)
    assert per_record["sealed"] == pytest.approx(stored, rel=0.15)


def test_typical_lengths_of_strings_count(ask: Any) -> None:
    def sealed(length: int) -> int:
        definition = {"type": "object", "properties": {"education": {"type": "string"}}}
        asked = {"schema": definition, "records": 10, "string_bytes": {"education": length}}
        answer = ask("estimate/", json.dumps(asked).encode())
        return int(answer.json()["bytes_per_record"]["sealed"])

    assert sealed(100) - sealed(10) == 104 - 32


def test_a_sample_is_put_to_the_attack_on_lengths(ask: Any) -> None:
    """The whole census is more than is looked at in the proxy's own process."""
    bare = {
        "type": "object",
        "properties": {
            name: {"type": "string"} if field["type"] == "string" else field
            for name, field in DEFINITION["properties"].items()
        },
    }
    for definition, padded in ((DEFINITION, True), (bare, False)):
        sample = {"type": "text/csv", "text": CENSUS.decode()}
        body = {"schema": definition, "records": 1000, "sample": sample}
        found = ask("estimate/", json.dumps(body).encode()).json()

        assert (found["sample"]["rows"], found["sample"]["refused"]) == (1000, 0)
        told = {field["name"]: field["lengths"] for field in found["fields"]}
        assert set(told) == set(DEFINITION["properties"])
        assert all(one["attack"] == one["guess"] and one["bits"] == 0 for one in told.values())
        # Of the five values only one is longer than 15 bytes.
        assert told["race"]["padding"]["bytes"] == pytest.approx(16, abs=1)
        assert told["sex"]["padding"]["bytes"] == (0 if padded else 16)
        assert told["age"]["padding"] == {"bytes": 0, "percent": 0}
        total = sum(one["padding"]["bytes"] for one in told.values())
        assert found["sample"]["padding"]["bytes"] == pytest.approx(total, abs=1)


@pytest.mark.parametrize(
    "sample",
    [
        {"type": "text/csv", "text": "age\n-1\n-2\n"},
        {"type": "text/csv", "text": ""},
        {"type": "text/plain", "text": "age\n1\n2\n"},
        {"type": "application/json", "text": "{"},
        {"type": "text/csv", "text": "\ud800"},
        {"type": "text/csv"},
        "age",
    ],
    ids=str,
)
def test_a_sample_that_says_nothing_of_the_definition_is_refused(ask: Any, sample: Any) -> None:
    body = {"schema": DEFINITION, "records": 9, "sample": sample}
    assert ask("estimate/", json.dumps(body).encode()).status == 400


def test_no_value_is_proposed_for_a_definition_but_where_it_is_asked_for(ask: Any) -> None:
    shown = ask("infer/?enum=true", CENSUS, "text/csv").json()["schema"]["properties"]
    proposed = ask("infer/", CENSUS, "text/csv").json()["schema"]
    hidden = proposed["properties"]
    assert set(proposed) == {"type", "rounding", "properties"}
    assert shown["sex"] == {"type": "string", "enum": ["Female", "Male"]}
    assert hidden["sex"] == {"type": "string", "padTo": 31}
    assert not any("enum" in field for field in hidden.values())
    assert ask("infer/?enum=no", CENSUS, "text/csv").status == 400


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{}", b'{"schema": {}, "records": 0}', b'{"schema": {"type": "array"}, "records": 5}'],
)
def test_what_cannot_be_estimated_is_refused(ask: Any, body: bytes) -> None:
    assert ask("estimate/", body).status == 400
