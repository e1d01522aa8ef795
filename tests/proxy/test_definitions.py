"""The definition of a schema with records is the one that its log holds, whatever an API serves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from encrypted_records.model import wire
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.records import ManifestDelta
from tests.support.eventually import eventually
from tests.support.front import Asked, Front, Lie, Reply, nothing, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Account, Answer, Service, call
from tests.support.store import new_schema

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "salary": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
        "name": {"type": "string"},
        "note": {"type": "string"},
    },
}
ROW = {"salary": 73519, "name": "Ada", "note": "old"}
#: Rules that the stored row keeps, and rules that it breaks.
RULES: list[dict[str, Any]] = [
    {"salary": {"exclusiveMaximum": 500_000}},
    {"salary": {"exclusiveMaximum": 50_000}},
    {"salary": {"exclusiveMinimum": 50_000}},
    {"salary": {"exclusiveMinimum": 500_000}},
    {"salary": {"multipleOf": 73519}},
    {"salary": {"multipleOf": 73520}},
    {"salary": {"enum": [1, 2]}},
    {"name": {"pattern": "^A"}},
    {"name": {"pattern": "^B"}},
    {"name": {"enum": ["Ada"]}},
    {"name": {"enum": ["Bob"]}},
    {"name": {"maxLength": 3}},
    {"name": {"maxLength": 2}},
]


@dataclass
class Place:
    front: Front
    proxy: str
    account: Account
    schema: str
    folder: Path

    service: Service

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        auth = self.account.auth
        return call(method, self.proxy + path, body, auth=auth, headers=headers)

    def ingest(self, *rows: dict[str, Any]) -> Answer:
        records = [{"schema": self.schema, "data": row} for row in rows]
        return self.call("POST", "/api/records/ingest/", records)

    def define(self, definition: dict[str, Any], method: str = "PATCH") -> Answer:
        return self.call(method, self.schema, {"schema": definition})

    def anew(self, definition: dict[str, Any]) -> Place:
        """Another schema, with a record."""
        mine = replace(self, schema=new_schema(self.service, self.account, definition))
        assert mine.ingest(ROW).status == 201
        return mine


@pytest.fixture(scope="module")
def place(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("definitions")
    account = service.new_account()
    schema = new_schema(service, account, DEFINITION)
    with running_front(service.base_url) as front, running_proxy(front.url, folder) as proxy:
        place = Place(front, proxy.url, account, schema, folder, service)
        assert place.ingest(ROW).status == 201
        yield place


def changed(rules: dict[str, Any]) -> dict[str, Any]:
    definition = json.loads(json.dumps(DEFINITION))
    for name, keywords in rules.items():
        definition["properties"][name] |= keywords
    return definition  # type: ignore[no-any-return]


def serving(definition: dict[str, Any], *, stated: bool) -> Lie:
    """An API that shows another definition; ``stated``: beside the log, too."""
    text = json.dumps(definition)
    digest = parse_definition(text).digest

    def lie(asked: Asked, reply: Reply) -> Reply:
        if reply.headers.get("Content-Type", "").startswith("application/json"):
            body = json.loads(reply.body)
            if isinstance(body, dict) and "schema" in body and "dataset" in body:
                return reply.with_body(json.dumps(body | {"schema": definition}).encode())
        if stated and reply.body.startswith(b"ERS1"):
            return reply.with_body(
                wire.encode(
                    msgspec.structs.replace(one, definition=digest)
                    if isinstance(one, ManifestDelta)
                    else one
                    for one in wire.decode(reply.body)
                )
            )
        return reply

    return lie


def outcome(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json().get("code", "") if answer.status >= 400 else ""


@pytest.mark.parametrize("stated", [False, True])
def test_no_definition_that_an_api_serves_tells_of_a_stored_value(
    place: Place, *, stated: bool
) -> None:
    """Whether something is sent to the API must not depend on a value: a bit each time."""
    identifier = place.ingest(ROW).json()[0]["id"]
    seen: dict[str, set[Any]] = {"changed": set(), "stored": set(), "job": set()}
    for number, rules in enumerate(RULES):
        with place.front.telling(serving(changed(rules), stated=stated)):
            answer = place.call(
                "PATCH", f"/api/records/{identifier}/", {"data": {"note": f"note {number}"}}
            )
            seen["changed"].add(outcome(answer))
            seen["stored"].add(outcome(place.ingest(ROW)))
            if number % 4 < 2:
                seen["job"].add(_upload(place))
    assert {name: len(found) for name, found in seen.items()} == dict.fromkeys(seen, 1), seen
    assert seen["changed"] == ({(422, "log_broken")} if stated else {(200, "")})


def _upload(place: Place) -> tuple[Any, ...]:
    body = f"salary,name,note,schema_id:{place.schema.split('/')[-2]}\n73519,Ada,x\n1,Bob,y\n"
    answer = place.call(
        "POST",
        "/api/jobs/upload/",
        body.encode(),
        **{"Content-Type": "text/csv", "X-On-Invalid": "skip"},
    )
    if answer.status != 201:
        return outcome(answer)

    def look() -> dict[str, Any]:
        found: dict[str, Any] = place.call("GET", f"/api/jobs/{answer.json()['job_id']}/").json()
        return found

    eventually(lambda: look()["status"] in ("completed", "failed"), "the job ends")
    job = look()
    return tuple((name, job[name]) for name in sorted(job) if name not in ("id", "job_id"))


@pytest.mark.parametrize("stated", [False, True])
def test_a_proxy_that_has_seen_nothing_believes_the_log_as_well(
    place: Place, tmp_path: Path, service: Service, *, stated: bool
) -> None:
    seen = set()
    for number, rules in enumerate(RULES[:2]):
        folder = tmp_path / str(number)
        shutil.copytree(place.folder / "proxy", folder / "proxy")
        (folder / "proxy" / "heads.sqlite3").unlink()
        (folder / "proxy" / "ledgers.sqlite3").unlink(missing_ok=True)
        with (
            place.front.telling(serving(changed(rules), stated=stated)),
            running_proxy(place.front.url, folder) as proxy,
        ):
            fresh = Place(place.front, proxy.url, place.account, place.schema, folder, service)
            seen.add(outcome(fresh.ingest(ROW)))
    assert seen == ({(422, "log_broken")} if stated else {(201, "")})


LOOSER = {
    **DEFINITION,
    "title": "People",
    "properties": {
        "since": {"type": "integer", "minimum": 1900, "maximum": 2100, "title": "Since"},
        **DEFINITION["properties"],
    },
}


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_a_definition_is_changed_through_the_proxy_and_comes_back_as_sent(
    place: Place, method: str, service: Service
) -> None:
    mine = place.anew(DEFINITION)
    body: dict[str, Any] = {"schema": LOOSER}
    if method == "PUT":
        shown = mine.call("GET", mine.schema).json()
        body |= {"name": shown["name"], "dataset": shown["dataset"]}
    direct = call("PATCH", service.base_url + mine.schema, body, auth=mine.account.auth)
    assert (direct.status, direct.json()["code"]) == (409, "through_a_proxy")
    answer = mine.call(method, mine.schema, body)
    assert (answer.status, answer.json()["schema"]) == (200, LOOSER), answer.body
    assert mine.ingest(ROW | {"since": 2001}).status == 201
    where = {"field": "since", "op": "is_null"}
    found = mine.call("POST", "/api/records/search/", {"schema": mine.schema, "where": where})
    assert [result["data"] for result in found.json()["results"]] == [ROW]
    assert mine.define(LOOSER).status == 200


def test_what_stored_records_forbid_is_refused_before_it_is_committed(place: Place) -> None:
    other = changed({})
    other["properties"]["salary"] = {"type": "string"}
    answer = place.define(other)
    assert (answer.status, answer.json()["code"]) == (409, "needs_reencryption")
    pointers = [error["pointer"] for error in answer.json()["errors"]]
    assert pointers == ["/schema/properties/salary/type"]
    nonsense = place.define({"type": "array"})
    assert (nonsense.status, nonsense.json()["code"]) == (400, "invalid_definition")


def test_a_change_that_was_cut_short_after_its_commit_is_finished_by_repeating_it(
    place: Place,
) -> None:
    mine = place.anew(DEFINITION)

    def cut(asked: Asked) -> Reply | None:
        return Reply(503, {}, b"") if asked.method == "PATCH" else None

    place.front.invent = cut
    assert mine.define(LOOSER).status >= 500
    place.front.invent = nothing
    assert mine.ingest(ROW | {"since": 1999}).status == 201
    assert "title" not in mine.call("GET", mine.schema).json()["schema"]
    assert mine.define(LOOSER).status == 200
    assert mine.call("GET", mine.schema).json()["schema"] == LOOSER
