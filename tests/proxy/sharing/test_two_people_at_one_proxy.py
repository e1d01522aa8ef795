"""Two people use one proxy, and one schema, at the same time: neither is in the other's way."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from encrypted_records.proxy.write.committer import ATTEMPTS
from tests.roles.people import Person
from tests.roles.shared_stage import SharedStage, set_up
from tests.support.service import Answer, Service, call

#: Of each; so many that two which count over each other could not all be lucky.
INGESTS = 15 * ATTEMPTS


@pytest.fixture(scope="module")
def stage(service: Service) -> SharedStage:
    return set_up(service)


def ingest(stage: SharedStage, person: Person, name: str) -> Answer:
    row = {"schema": stage.schema["url"], "data": {"name": name, "age": 1}}
    return person.proxy("POST", "/api/records/ingest/", [row])


def named(stage: SharedStage, person: Person, name: str) -> int:
    where = {"field": "name", "op": "eq", "value": name}
    asked = {"schema": stage.schema["url"], "where": where, "count": True, "limit": 0}
    answer = person.proxy("POST", "/api/records/search/", asked)
    assert answer.status == 200, answer.body
    count: int = answer.json()["count"]
    return count


def test_both_store_into_one_schema_and_neither_is_told_to_repeat(stage: SharedStage) -> None:
    writer = stage.person("writer")
    assert writer is not None

    def store(person: Person) -> Counter[int]:
        return Counter(ingest(stage, person, "Hedy").status for _ in range(INGESTS))

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(store, (stage.owner, writer)))
    assert said == [Counter({201: INGESTS})] * 2
    assert {named(stage, one, "Hedy") for one in (stage.owner, writer)} == {2 * INGESTS}


def test_a_reader_calls_a_log_whole_whose_keys_changed_a_moment_ago(stage: SharedStage) -> None:
    """Nothing has told the reader's part of the proxy of the new key: only the log names it."""
    reader, service = stage.person("reader"), stage.service
    assert reader is not None
    log = f"{stage.schema['url']}log/"
    for number in range(3):
        assert reader.proxy("GET", log).json()["state"] == "whole"
        path = f"{service.proxy_url}{stage.dataset['url']}rotate/"
        rotated = call("POST", path, auth=stage.owner.auth, headers=service.door)
        assert rotated.status == 200, rotated.body
        assert ingest(stage, stage.owner, f"Radia {number}").status == 201
        shown = reader.proxy("GET", log).json()
        assert (shown["state"], shown.get("fault")) == ("whole", None)
    assert named(stage, reader, "Radia 2") == 1
