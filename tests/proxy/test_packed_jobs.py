"""Jobs whose index is packed before they are published: the same records, found in the same way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model import strict_json
from encrypted_records.proxy.jobs.packing import PackingPolicy
from encrypted_records.proxy.settings import Overrides
from tests import oracle
from tests.support import jobs
from tests.support.fixtures import at
from tests.support.packed import (
    DEFINITION,
    FEW,
    FIELDS,
    LONG,
    PACKING,
    POLICY,
    about,
    held,
    long_rows,
    numbers,
    packing_proxy,
    row,
    segments,
    send,
)
from tests.support.proxies import Proxy
from tests.support.service import Service
from tests.support.store import Store, new_store

#: More than a segment has that is not packed.
MANY = 5_000


@pytest.fixture
def overrides() -> Overrides:
    return PACKING


def named(n: int) -> str:
    """So long that these are more than one chunk."""
    return str(row(n)["name"]).ljust(800, ".")


WHERES: list[Any] = [
    None,
    {"field": "n", "op": "between", "value": [3_000, 4_500]},
    {"field": "n", "op": "eq", "value": 4_096},
    {"field": "part", "op": "gt", "value": 9.5},
    {"field": "part", "op": "is_null"},
    {"field": "name", "op": "eq", "value": named(7)},
    {"not": {"field": "name", "op": "ge", "value": "name 4"}},
    {"field": "text", "op": "has_words", "value": "four n37"},
    {
        "and": [
            {"field": "text", "op": "has_words", "value": "three"},
            {
                "or": [
                    {"field": "n", "op": "lt", "value": 20},
                    {"field": "part", "op": "eq", "value": 1},
                ]
            },
        ]
    },
]


def test_a_packed_job_is_found_as_one_that_is_not_and_as_the_oracle_says(
    service: Service, tmp_path: Path
) -> None:
    rows = [row(n) | {"name": named(n)} for n in range(MANY)]
    with packing_proxy(service.base_url, tmp_path / "own", PackingPolicy(least=MANY)) as proxy:
        packed = at(new_store(service, DEFINITION), proxy)
        jobs.completed(packed, send(packed, rows))
        (one,) = segments(proxy, packed)
        assert (one.form, one.count, len(one.groups)) == ("paged", MANY, 2)
        plain = packed.another_schema(DEFINITION)
        jobs.completed(plain, send(plain, rows[:-1]))  # one fewer than are packed
        plain.ingest(rows[-1:])
        assert [len(own.groups) for own in segments(proxy, plain)] == [1, 1, 1]
        for where in WHERES:
            expected = [one for one in rows if oracle.holds(where, one, FIELDS)]
            for store in (packed, plain):
                found = store.search(where, count=True, limit=50, order_by=["-n"])
                assert found["count"] == len(expected), where
                assert [result["data"]["n"] for result in found["results"]] == [
                    one["n"] for one in expected[::-1][:50]
                ]
        body = {"measures": [{"op": "count"}, {"op": "avg", "field": "part"}], "group_by": ["text"]}
        told = [
            store.proxy("POST", "/api/records/aggregate/", {"schema": store.schema, **body}).json()
            for store in (packed, plain)
        ]
        assert told[0]["groups"] == told[1]["groups"]
        # Merging, deleting and undoing go on from there.
        assert packed.proxy("DELETE", f"/api/records/{packed.found(WHERES[2])[0]}/").status == 204
        assert packed.search(None, count=True, limit=0)["count"] == MANY - 1


@pytest.mark.parametrize("most", [POLICY.run_bytes, 0])
def test_each_pack_of_chunks_has_one_segment_and_their_order_is_that_of_the_file(
    store: Store, proxy: Proxy, most: int
) -> None:
    """Whether the sorted columns come from who has sealed them, or rows are read once more."""
    proxy.services.jobs.runner._packing.policy = replace(POLICY, run_bytes=most)
    path = send(store, long_rows())
    jobs.completed(store, path)
    found = segments(proxy, store)
    assert sorted(len(one.groups) for one in found) == [2, 2]
    assert sum(one.count for one in found) == FEW
    assert [one["data"]["n"] for one in store.everything()] == list(range(FEW))
    assert store.search({"field": "n", "op": "lt", "value": 1400}, count=True)["count"] == 1400
    shown = about(store, path)
    assert (shown["packs"], shown["packed"], shown["waits"]) == (2, 2, None)


def test_rows_of_several_schemas_are_packed_apart_and_bad_ones_left_out(
    store: Store, proxy: Proxy
) -> None:
    other = store.another_schema(DEFINITION)
    rows = [
        {
            "schema": (store, other)[n % 3 == 0].schema,
            "data": {"n": -1 if n == 5 else n, "name": 3 * LONG},
        }
        for n in range(FEW)
    ]
    path = jobs.started(store, strict_json.encode(rows), X_On_Invalid="skip")
    jobs.completed(store, path)
    assert numbers(store) == [n for n in range(FEW) if n % 3 and n != 5]
    assert numbers(other) == list(range(0, FEW, 3))
    assert [len(segments(proxy, one)) for one in (store, other)] == [2, 2]


def test_rows_that_collide_are_left_out_of_what_is_packed(
    store: Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also such that came to collide while others were packed: their pack is built again."""
    unique = store.another_schema({**DEFINITION, "unique": [["n"]]})
    unique.ingest([{"n": 7}])
    with held(proxy, monkeypatch) as gate:
        path = send(unique, long_rows(), X_On_Conflict="skip")
        assert gate.reached.wait(60)
        unique.ingest([{"n": 1}])
        gate.open()
        jobs.completed(unique, path)
    assert numbers(unique) == list(range(FEW))
    assert unique.search({"field": "name", "op": "is_null"}, count=True, limit=0)["count"] == 2
    packed = [segment for segment in segments(proxy, unique) if segment.count > 1]
    assert sum(one.count for one in packed) == FEW - 2


def test_rows_replace_records_and_are_packed(store: Store, proxy: Proxy) -> None:
    unique = store.another_schema({**DEFINITION, "unique": [["n"]]})
    before = unique.ingest([{"n": 7}, {"n": 1300}])
    jobs.completed(unique, send(unique, long_rows(), X_On_Conflict="replace"))
    assert numbers(unique) == list(range(FEW))
    for n, one in zip((7, 1300), before, strict=True):
        assert unique.found({"field": "n", "op": "eq", "value": n}) == [one]
    assert sum(segment.count for segment in segments(proxy, unique) if segment.count > 2) == FEW


def test_a_job_that_seals_again_has_a_segment_for_each_chunk(store: Store, proxy: Proxy) -> None:
    """Its rows come from the API, and would have to come twice."""
    jobs.completed(store, send(store, long_rows()))
    answer = store.proxy("POST", f"/api/schemas/{store.schema_id}/reseal/", {})
    assert answer.status in (201, 202), answer.body
    path = f"/api/jobs/{answer.json()['job_id']}/"
    jobs.completed(store, path)
    assert about(store, path)["packs"] == 0
    assert all(len(segment.groups) == 1 for segment in segments(proxy, store))
    assert numbers(store) == list(range(FEW))
