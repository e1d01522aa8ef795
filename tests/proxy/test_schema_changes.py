"""A definition changes under records: what it takes is told first, and answers stay right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from encrypted_records.proxy.write.committer import ATTEMPTS
from tests.support.front import Asked, Front, Reply, nothing, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Account, Answer, Service, call
from tests.support.store import new_schema

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "size": {"type": "number", "minimum": 0, "maximum": 100, "precision": 1},
        "name": {"type": "string", "maxLength": 20},
        "note": {"type": "string"},
    },
}
ROWS: list[dict[str, Any]] = [
    {"size": 0, "name": "Ada"},
    {"size": 99.5, "name": "Bob", "note": "long"},
    {"size": 40.5, "name": "K\u00e9vin"},
    {"name": "Bob"},
]


@dataclass
class Place:
    proxy: str
    account: Account
    schema: str
    front: Front

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        return call(method, self.proxy + path, body, auth=self.account.auth)

    def ingest(self, *rows: dict[str, Any]) -> Answer:
        records = [{"schema": self.schema, "data": row} for row in rows]
        return self.call("POST", "/api/records/ingest/", records)

    def change(self, definition: Any, **members: Any) -> Answer:
        return self.call("POST", f"{self.schema}change/", {"schema": definition, **members})

    def plan(self, definition: Any, **members: Any) -> Any:
        answer = self.change(definition, dry_run=True, **members)
        assert answer.status == 200, answer.body
        assert not answer.json()["applied"]
        return answer.json()

    def found(self, where: Any, **members: Any) -> list[dict[str, Any]]:
        body = {"schema": self.schema, "where": where, **members}
        answer = self.call("POST", "/api/records/search/", body)
        assert answer.status == 200, answer.body
        return [result["data"] for result in answer.json()["results"]]


@pytest.fixture(scope="module")
def front(service: Service) -> Iterator[Front]:
    with running_front(service.base_url) as front:
        yield front


@pytest.fixture(scope="module")
def proxy(front: Front, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_proxy(front.url, tmp_path_factory.mktemp("changes")) as proxy:
        yield proxy.url


@pytest.fixture
def place(service: Service, front: Front, proxy: str) -> Place:
    account = service.new_account()
    place = Place(proxy, account, new_schema(service, account, DEFINITION), front)
    assert place.ingest(*ROWS).status == 201
    return place


def changed(**rules: dict[str, Any]) -> dict[str, Any]:
    definition: dict[str, Any] = json.loads(json.dumps(DEFINITION))
    for name, keywords in rules.items():
        definition["properties"].setdefault(name, {}).update(keywords)
    return definition


BY_SIZE = [{"field": "size"}]
WIDER = changed(size={"minimum": -50, "maximum": 1000, "precision": 3}, flag={"type": "string"})


def test_a_change_of_another_definition_than_the_present_one_is_refused(place: Place) -> None:
    theirs = changed(size={"maximum": 300})
    first = place.change(changed(size={"maximum": 200}), replaces=DEFINITION)
    assert (first.status, first.json().get("applied")) == (200, True), first
    for members in ({"dry_run": True}, {}):
        refused = place.change(theirs, replaces=DEFINITION, **members)
        assert (refused.status, refused.json()["code"]) == (412, "precondition_failed")
    # A request that is repeated, as its answer was lost, finds what it wanted.
    again = place.change(changed(size={"maximum": 200}), replaces=DEFINITION)
    assert (again.status, again.json()["takes"]) == (200, "nothing")
    assert place.change(theirs, replaces="a text").status == 400


def test_wider_bounds_hold_at_once_for_old_and_new_records(place: Place) -> None:
    held = place.found(None, limit=2)
    page = place.call(
        "POST", "/api/records/search/", {"schema": place.schema, "order_by": BY_SIZE, "limit": 2}
    ).json()
    plan = place.plan(WIDER)
    assert (plan["takes"], plan["possible"]) == ("commit", True)
    assert {(one["field"], one["code"]) for one in plan["changes"]} == {
        ("size", "bounds_widened"),
        ("flag", "field_added"),
    }
    assert place.change(WIDER).json()["applied"]
    assert place.ingest({"size": -49.125, "name": "New"}, {"size": 999, "flag": "x"}).status == 201
    assert place.found(None, limit=2) == held
    every = [*ROWS, {"size": -49.125, "name": "New"}, {"size": 999, "flag": "x"}]
    for op, value in (("lt", 40.5), ("le", 40.5), ("eq", 99.5), ("gt", 0), ("ge", -49.125)):
        compare = {
            "lt": float.__lt__,
            "le": float.__le__,
            "eq": float.__eq__,
            "gt": float.__gt__,
            "ge": float.__ge__,
        }[op]
        expected = [one for one in every if "size" in one and compare(float(one["size"]), value)]
        assert place.found({"field": "size", "op": op, "value": value}) == expected
    in_order = place.found(None, order_by=BY_SIZE)
    assert [one.get("size") for one in in_order] == [None, -49.125, 0, 40.5, 99.5, 999]
    body = {"schema": place.schema, "order_by": BY_SIZE, "limit": 2, "cursor": page["next_cursor"]}
    rest = place.call("POST", "/api/records/search/", body).json()
    assert [result["data"].get("size") for result in rest["results"]] == [40.5, 99.5]
    measures = [{"op": op, "field": "size"} for op in ("sum", "min", "max")]
    answer = place.call(
        "POST", "/api/records/aggregate/", {"schema": place.schema, "measures": measures}
    )
    assert b"1089.875" in answer.body
    assert place.call("POST", f"{place.schema}merge/").status == 200
    assert [one.get("size") for one in place.found(None, order_by=BY_SIZE)] == [
        one.get("size") for one in in_order
    ]


@pytest.mark.parametrize(
    ("rules", "code", "records"),
    [
        ({"size": {"maximum": 50}}, "rule_tightened", 1),
        ({"size": {"minimum": 1}}, "rule_tightened", 1),
        ({"size": {"multipleOf": 0.5, "exclusiveMinimum": 0}}, "rule_tightened", 1),
        ({"name": {"maxLength": 3}}, "rule_tightened", 1),
        ({"name": {"enum": ["Bob", "Ada"]}}, "rule_tightened", 1),
        ({"name": {"pattern": "^[AK]"}}, "rule_tightened", 2),
        ({"required": ["size"]}, "required_added", 1),
        ({"required": ["note"]}, "required_added", 3),
    ],
    ids=str,
)
def test_what_demands_more_is_refused_with_a_search_that_finds_what_is_in_the_way(
    place: Place, rules: dict[str, Any], code: str, records: int
) -> None:
    required = rules.get("required", [])
    definition = changed(**{name: one for name, one in rules.items() if name != "required"})
    definition["required"] = required
    plan = place.plan(definition)
    assert (plan["takes"], plan["possible"], plan["records"]) == ("proof", False, len(ROWS))
    [obstacle] = [one for one in plan["changes"] if one.get("records")]
    assert (obstacle["code"], obstacle["records"]) == (code, records)
    refused = place.call("PATCH", place.schema, {"schema": definition})
    assert (refused.status, refused.json()["code"]) == (409, "needs_reencryption")
    assert f"{records} stored" in refused.json()["detail"]
    # As words: ids may have these letters.
    assert not re.search(rb"\b(Ada|vin)\b", refused.body)
    found = place.found(obstacle["where"])
    assert len(found) == records
    where = {"schema": place.schema, "where": obstacle["where"]}
    path = f"/api/records/delete/?confirm={records}"
    assert place.call("POST", path, where).status == 200
    assert place.plan(definition)["possible"]
    assert place.change(definition).status == 200
    assert place.call("GET", place.schema).json()["schema"] == definition
    bad = place.ingest(next(row for row in ROWS if row in found))
    assert (bad.status, bad.json()["code"]) == (400, "invalid_records")


DATED = changed(
    size={"minimum": -50, "precision": 3},
    seen={"type": "string", "format": "date-time"},
    device={"type": "string", "format": "uuid"},
) | {"formats": "enforced"}
UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
LONG = "x" * 60
#: A set of fields, and records of which two have equal values, with what is stored or not.
DOUBLES: list[tuple[list[str], list[dict[str, Any]]]] = [
    (["size"], [{"size": 40.5}]),
    (["name"], [{"name": "Ke\u0301vin"}]),
    (["note"], [{"note": f"{LONG}a"}, {"note": f"{LONG}a"}, {"note": f"{LONG}b"}]),
    (["device"], [{"device": UUID}, {"device": UUID.upper()}]),
    (
        ["seen"],
        [
            {"seen": "2026-01-31T08:30:00+02:00"},
            {"seen": "2026-01-31T06:30:00Z"},
            {"seen": "2026-01-31T06:30:01Z"},
        ],
    ),
    (["name", "size"], [{"name": "Bob", "size": 99.5}, {"name": "Bob", "size": 1}]),
]


@pytest.mark.parametrize(("fields", "rows"), DOUBLES, ids=[str(one) for one, _ in DOUBLES])
def test_unique_fields_are_added_once_no_stored_records_are_equal(
    place: Place, fields: list[str], rows: list[dict[str, Any]]
) -> None:
    """Whatever bounds, spellings and segments equal values came in."""
    if fields == ["name"]:  # else another name is there twice, too
        where = {"field": "name", "op": "eq", "value": "Bob"}
        asked = {"schema": place.schema, "where": where}
        assert place.call("POST", "/api/records/delete/?confirm=2", asked).status == 200
    assert place.change(DATED).json()["takes"] == "commit"
    assert place.ingest(*rows).status == 201
    unique = DATED | {"unique": [fields]}
    plan = place.plan(unique)
    assert (plan["takes"], plan["possible"]) == ("proof", False)
    [obstacle] = plan["changes"]
    assert (obstacle["code"], obstacle["records"]) == ("unique_added", 2)
    found = place.found(obstacle["where"])
    assert len(found) == 2
    refused = place.call("PATCH", place.schema, {"schema": unique})
    assert (refused.status, refused.json()["code"]) == (409, "needs_reencryption")
    asked = {"schema": place.schema, "where": obstacle["where"]}
    assert place.call("POST", "/api/records/delete/?confirm=2", asked).status == 200
    assert place.plan(unique)["possible"]
    assert place.change(unique).json()["applied"]
    assert place.ingest(found[0]).status == 201
    again = place.ingest(found[1])
    assert (again.status, again.json()["code"]) == (409, "not_unique")


def test_unique_fields_stay_unique_under_another_name_and_grid(place: Place) -> None:
    assert place.change(DEFINITION | {"unique": [["note"], ["size"]]}).status == 200
    definition = changed(size={"minimum": -10, "maximum": 500, "precision": 2})
    definition["properties"]["remark"] = definition["properties"].pop("note")
    definition["unique"] = [["size"], ["remark"]]
    plan = place.change(definition, renames={"remark": "note"}).json()
    assert (plan["takes"], plan["applied"]) == ("commit", True)
    for row in ({"remark": "long"}, {"size": 40.5}, {"size": 40.501}):
        refused = place.ingest(row)
        assert (refused.status, refused.json()["code"]) == (409, "not_unique")
    assert place.ingest({"remark": "new", "size": 40.51}).status == 201
    dropped = {name: one for name, one in definition.items() if name != "unique"}
    codes = [one["code"] for one in place.change(dropped).json()["changes"]]
    assert codes == ["unique_removed", "unique_removed"]
    assert place.ingest({"remark": "long", "size": 40.5}).status == 201


def test_another_format_needs_all_records_sealed_again(place: Place) -> None:
    definition = DATED | {"properties": DATED["properties"] | {"name": DATED["properties"]["seen"]}}
    plan = place.plan(definition)
    assert (plan["takes"], plan["possible"]) == ("reseal", False)
    assert {(one["field"], one["code"]) for one in plan["changes"] if one["takes"] == "reseal"} == {
        ("name", "binding_changed")
    }


def test_a_renamed_field_keeps_its_values(place: Place) -> None:
    definition = changed()
    definition["properties"]["title"] = definition["properties"].pop("name")
    without = place.plan(definition)
    assert (without["takes"], without["possible"]) == ("reseal", False)
    assert place.change(definition).json()["code"] == "needs_reencryption"
    renames = {"title": "name"}
    assert place.plan(definition, renames=renames)["takes"] == "commit"
    assert place.change(definition, renames=renames).status == 200
    where = {"field": "title", "op": "eq", "value": "Ada"}
    assert place.found(where) == [{"size": 0, "title": "Ada"}]
    assert place.change(definition, renames={"no": "such"}).status == 400


def test_a_field_to_lose_that_there_is_not_is_named_and_nothing_is_changed(place: Place) -> None:
    definition = changed()
    del definition["properties"]["name"]
    answer = place.change(definition, drops=["nmae", "size"])
    assert answer.status == 400
    (flaw,) = answer.json()["errors"]
    assert (flaw["code"], flaw["pointer"]) == ("unknown_field", "/drops/0")
    assert "name" in flaw["detail"]
    assert place.plan(DEFINITION)["takes"] == "nothing"


@pytest.mark.parametrize("times", [1, 2 * ATTEMPTS])
def test_a_rule_is_compared_again_where_a_record_came_in_between(place: Place, times: int) -> None:
    """The commit says that it has seen all records; the API refuses it where it has not."""
    asked: list[str] = []
    problem = {"type": "x/log_conflict", "title": "x", "status": 409, "code": "log_conflict"}

    def refuse_some(one: Asked) -> Reply | None:
        if one.path != "/api/commits/":
            return None
        asked.append(one.path)
        headers = {"Content-Type": "application/problem+json"}
        return Reply(409, headers, json.dumps(problem).encode()) if len(asked) <= times else None

    place.front.invent = refuse_some
    answer = place.change(changed(size={"maximum": 99.5}))
    place.front.invent = nothing
    assert (answer.status, len(asked)) == (200, times + 1)
    assert place.ingest({"size": 99.75}).status == 400


@pytest.mark.parametrize(
    "body", [{}, {"schema": 1}, {"schema": {"type": "array"}}, {"schema": {}, "rename": {}}, []]
)
def test_nonsense_is_refused_by_name(place: Place, body: Any) -> None:
    answer = place.call("POST", f"{place.schema}change/", body)
    assert answer.status == 400, answer.body
    assert answer.json()["code"] in ("invalid_query", "invalid_definition")
