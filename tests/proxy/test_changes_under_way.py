"""A definition changes while a job runs, a proxy dies, or the API lies about which one holds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from encrypted_records.model import wire
from encrypted_records.model.records import ManifestDelta
from tests.support import jobs
from tests.support.front import Asked, Front, Lie, Reply, nothing, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Service
from tests.support.store import Store, new_store


def definition(**rules: Any) -> dict[str, Any]:
    number = {"type": "integer", "minimum": 0, "maximum": 100} | rules
    return {"type": "object", "properties": {"n": number, "name": {"type": "string"}}}


TEXT = {"type": "string"}
PADDED = TEXT | {"padTo": 60}
WIDER = definition(minimum=-1000, maximum=1000)
#: What only rows of the job break, and what they keep.
BROKEN, KEPT = definition(maximum=50), definition(maximum=90)
UNIQUE = definition() | {"unique": [["n"]]}
ROWS = [{"n": n} for n in range(80)]


@pytest.fixture(scope="module")
def front(service: Service) -> Iterator[Front]:
    with running_front(service.base_url) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of the proxy."""
    return tmp_path_factory.mktemp("under-way")


@pytest.fixture(scope="module")
def first(service: Service, front: Front, folder: Path) -> Iterator[Store]:
    with running_proxy(front.url, folder) as proxy:
        made = new_store(service, definition())
        yield replace(made, service=replace(made.service, proxy_url=proxy.url))


@pytest.fixture
def store(first: Store, front: Front) -> Iterator[Store]:
    made = first.another_schema(definition())
    made.ingest([{"n": 7}])
    yield made
    front.invent = nothing


def change(store: Store, new: Any) -> dict[str, Any]:
    answer = store.proxy("POST", f"{store.schema}change/", {"schema": new})
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


def numbers(store: Store, where: Any = None) -> list[int]:
    return sorted(one["data"]["n"] for one in store.everything(where))


def once_at(front: Front, place: str, store: Store, new: Any) -> list[str]:
    """Change the definition when the API is first asked for ``place``, before it hears of that."""
    done: list[str] = []

    def invent(asked: Asked) -> Reply | None:
        if not done and asked.method == "POST" and asked.path.endswith(place):
            done.append(asked.path)
            change(store, new)
        return None

    front.invent = invent
    return done


def test_a_job_is_checked_again_under_a_rule_that_demands_more(store: Store, front: Front) -> None:
    """Its rows were valid when it began, and some are sealed by then."""
    done = once_at(front, "/staging/", store, BROKEN)
    path = jobs.started(store, jobs.as_json(store, ROWS))
    ended = jobs.ended(store, path)
    assert done
    assert (ended["status"], "29 of 80" in ended["error"]) == ("failed", True), ended
    assert [row for row, _, _ in jobs.flaws(store, path)] == list(range(52, 81))
    assert numbers(store) == [7]


@pytest.mark.parametrize("new", [KEPT, WIDER], ids=["stricter", "wider"])
def test_a_job_is_finished_under_a_rule_that_its_rows_keep(
    store: Store, front: Front, new: Any
) -> None:
    done = once_at(front, "/staging/", store, new)
    jobs.completed(store, jobs.started(store, jobs.as_json(store, ROWS)))
    assert done
    assert numbers(store) == sorted([7, *range(80)])
    assert numbers(store, {"field": "n", "op": "ge", "value": 75}) == [75, 76, 77, 78, 79]


def test_groups_and_bins_are_those_of_all_records_whatever_bounds_they_came_under(
    store: Store,
) -> None:
    store.ingest([{"n": 7, "name": "a"}, {"n": 100, "name": "b"}])
    change(store, WIDER)
    store.ingest([{"n": 7, "name": "b"}, {"n": -1000, "name": "a"}, {"n": 1000}])
    body: dict[str, Any] = {"schema": store.schema}
    by_number = body | {"group_by": ["n"], "measures": [{"op": "count"}]}
    answer = store.proxy("POST", "/api/records/aggregate/", by_number)
    assert answer.status == 200, answer.body
    groups = answer.json()["groups"]
    counts = {group["group"]["n"]: group["measures"][0]["value"] for group in groups}
    assert counts == {-1000: 1, 7: 3, 100: 1, 1000: 1}
    bins = [{"op": "histogram", "field": "n", "bounds": [-1000, 0, 8, 101, 1001]}]
    answer = store.proxy("POST", "/api/records/aggregate/", body | {"measures": bins})
    assert answer.status == 200, answer.body
    (histogram,) = answer.json()["measures"]
    assert [one["count"] for one in histogram["bins"]] == [1, 3, 1, 1]


def showing(old: dict[str, Any]) -> Lie:
    """An API that shows this definition, whatever its log says."""

    def lie(_asked: Asked, reply: Reply) -> Reply:
        if reply.headers.get("Content-Type", "").startswith("application/json"):
            body = json.loads(reply.body)
            if isinstance(body, dict) and "schema" in body and "dataset" in body:
                return reply.with_body(json.dumps(body | {"schema": old}).encode())
        return reply

    return lie


@pytest.mark.parametrize(
    ("new", "value", "status"),
    [(WIDER, 500, 201), (KEPT, 95, 400), (UNIQUE, 7, 409)],
    ids=["wider", "stricter", "unique"],
)
def test_an_api_that_shows_the_definition_before_is_not_believed(
    store: Store, front: Front, new: Any, value: int, status: int
) -> None:
    change(store, new)
    with front.telling(showing(definition())):
        assert store.send([{"n": value}]).status == status
        found = [7, *([value] if status == 201 else [])]
        assert numbers(store, {"field": "n", "op": "ge", "value": 0}) == found


def test_texts_are_padded_as_the_log_says_and_not_as_the_api_does(
    store: Store, front: Front
) -> None:
    """Else their lengths would tell them."""
    of = definition()
    change(store, of | {"properties": of["properties"] | {"name": PADDED}})
    with front.telling(showing(definition())):
        store.ingest([{"n": 1, "name": "a"}, {"n": 2, "name": "a" * 40}])
    sealed = store.api("GET", f"/api/records/?schema={store.schema_id}").json()["results"]
    lengths = [len(one["fields"]["name"]) for one in sealed[-2:]]
    assert lengths[0] == lengths[1] > len(sealed[0]["fields"]["name"])


def test_a_field_that_gets_another_name_while_its_record_is_read_is_no_altered_row(
    store: Store, front: Front
) -> None:
    (named,) = store.ingest([{"n": 8, "name": "eight"}])
    new = {"type": "object", "properties": {"n": KEPT["properties"]["n"], "called": TEXT}}
    done: list[str] = []

    def rename(asked: Asked, reply: Reply) -> Reply:
        if not done and asked.method == "GET" and named in asked.path:
            done.append(asked.path)
            body = {"schema": new, "renames": {"called": "name"}}
            assert store.proxy("POST", f"{store.schema}change/", body).status == 200
        return reply

    with front.telling(rename):
        changed = store.proxy("PATCH", f"/api/records/{named}/", {"data": {"n": 9}})
    assert (changed.status, len(done)) == (200, 1), changed.body
    assert changed.json()["data"] == {"n": 9, "called": "eight"}


def without_changes(_asked: Asked, reply: Reply) -> Reply:
    """A log without the commits that changed the definition; what came after them is there."""
    if not reply.body.startswith(b"ERS1"):
        return reply
    frames: list[Any] = []
    for one in wire.decode(reply.body):
        if isinstance(one, ManifestDelta):
            kept = [
                entry
                for entry in one.entries
                if entry.version == 1 or not wire.decode_commit_body(entry.commit).definition_text
            ]
            entries = [
                msgspec.structs.replace(entry, version=number)
                for number, entry in enumerate(kept, 1)
            ]
            frames.append(msgspec.structs.replace(one, entries=entries, version=len(entries)))
        else:
            frames.append(one)
    return reply.with_body(wire.encode(frames))


def test_a_log_that_lacks_a_change_is_refused_by_who_never_saw_it(
    store: Store, front: Front, folder: Path, tmp_path: Path
) -> None:
    """Else a rule that demands more would be gone, and values told by what is then refused."""
    change(store, KEPT)
    store.ingest([{"n": 8}])
    copy = tmp_path / "other" / "proxy"
    shutil.copytree(folder / "proxy" / "keyrings", copy / "keyrings")
    shutil.copy(folder / "proxy" / "machine.key", copy)
    with running_proxy(front.url, tmp_path / "other") as second:
        other = replace(store, service=replace(store.service, proxy_url=second.url))
        with front.telling(without_changes):
            answer = other.ask()
            assert (answer.status, answer.json()["code"]) == (422, "log_broken")
            assert other.send([{"n": 95}]).status == 422
        assert numbers(other) == [7, 8]
        assert other.send([{"n": 95}]).status == 400
