"""Columns as Arrow: every live record of one version once, exact, without opening it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from encrypted_records.index.query.asking import Sizes
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.reading import ReadingLimits
from encrypted_records.model.texts import comparable
from encrypted_records.proxy.search import columns
from encrypted_records.proxy.search.fetcher import Fetcher
from encrypted_records.proxy.search.upstream import VersionHold
from encrypted_records.proxy.settings import Overrides
from tests.support.proxies import running_proxy
from tests.support.second_proxy import store_groups, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "properties": {
        "name": {"type": "string"},
        "city": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 10_000},
        "key": {"type": "string", "format": "uuid"},
        "paid": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
        "serial": {"type": "integer", "minimum": 10**39, "maximum": 10**39 + 10_000},
    },
}
#: More than a mini holds.
MANY = 4200
LONG = "a long string that goes on beyond what an index key holds of it: "
FIELDS = list(DEFINITION["properties"])


def person(number: int) -> dict[str, Any]:
    name = f"n{number % 3000}" + ("\x00\x01 e\u0301" if number % 1000 == 3 else "")
    if number % 900 == 7:
        name = LONG + name
    key = f"0190163d-8694-739b-aea5-96{number:08x}00"
    found: dict[str, Any] = {"name": name, "age": number % 9000, "key": key}
    found |= {"paid": number % 5 < 2, "serial": 10**39 + number}
    return found | ({"city": f"c{number % 7}"} if number % 11 else {})


@pytest.fixture(scope="module")
def store(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two large segments and a small one; some records of each have died."""
    store = new_store(service, DEFINITION)
    filling = tmp_path_factory.mktemp("filling") / "own"
    store.ingest([{"name": "first"}, {"name": "dies", "city": "only of the dead"}, {}])

    halves = ([person(at) for at in some] for some in (range(MANY), range(MANY, 2 * MANY)))
    store_groups(store, filling, *halves)
    gone = (
        store.search(limit=3, order_by=["-age"])["results"] + store.search(limit=3)["results"][1:]
    )
    for record in gone:
        assert store.proxy("DELETE", record["url"]).status == 204
    return store


def read(store: Store, fields: Sequence[str], where: Any = None, **more: Any) -> pyarrow.Table:
    body = {"schema": store.schema, "fields": list(fields), **more}
    body |= {"where": where} if where else {}
    answer = store.proxy("POST", "/api/records/columns/", body)
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == "application/vnd.apache.arrow.stream"
    reader = pyarrow.ipc.open_stream(answer.body)
    assert answer.headers["X-Log-Version"] == reader.schema.metadata[b"log_version"].decode()
    table = reader.read_all()
    table.validate(full=True)
    return table


def rows(table: pyarrow.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def stored(store: Store, where: Any = None) -> list[tuple[Any, ...]]:
    found = (one["data"] for one in store.everything(where))
    shown = (
        {name: comparable(one) if isinstance(one, str) else one for name, one in data.items()}
        for data in found
    )
    return sorted((tuple(_typed(one.get(name)) for name in FIELDS) for one in shown), key=repr)


def _typed(value: Any) -> Any:
    from uuid import UUID

    if isinstance(value, int) and value >= 10**39:  # beyond Arrow's decimals
        return str(value)
    is_key = isinstance(value, str) and value.startswith("0190163d-")
    return UUID(value) if is_key else value


@pytest.fixture(scope="module")
def in_windows(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The same store behind a proxy that reads columns a page or two at a time, keeps none, and
    sends some rows of a segment at a time."""
    own = with_keyrings(store.service, tmp_path_factory.mktemp("windows") / "own")
    reading = ReadingLimits(window=2, by_row=0, few=1)
    sizes = Sizes(few_rows=0, many_pages=0, few_values=0, reading=reading)
    overrides = Overrides(question_sizes=sizes)
    with (
        pytest.MonkeyPatch.context() as patch,
        running_proxy(store.service.base_url, own, overrides=overrides) as proxy,
    ):
        patch.setattr(columns, "BATCH_ROWS", 500)
        patch.setattr(columns, "WINDOW_BYTES", 1500 * 300)
        patch.setattr(columns, "WINDOW_ROWS", 1)
        yield replace(store, service=replace(store.service, proxy_url=proxy.url))


def test_every_live_record_is_there_once_with_its_exact_values(
    store: Store, in_windows: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = stored(store)
    assert len(expected) == 2 * MANY + 3 - 5
    assert rows(read(store, FIELDS)) == expected
    assert rows(read(in_windows, FIELDS)) == expected
    monkeypatch.setattr(Fetcher, "keeps_columns", lambda *_: False)
    assert rows(read(in_windows, FIELDS)) == expected
    for fields in ([], ["paid"]):
        assert read(in_windows, fields).num_rows == len(expected)


def test_a_version_is_held_where_columns_are_read_after_the_first_piece_was_sent(
    in_windows: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[str] = []
    begin = VersionHold.begin

    async def watched(hold: VersionHold) -> None:
        held.append(hold.reason)
        await begin(hold)

    monkeypatch.setattr(VersionHold, "begin", watched)
    assert read(in_windows, FIELDS).num_rows > MANY
    assert held == ["export"]
    assert in_windows.api("GET", f"{in_windows.schema}holds/").json() == []
    few = {"field": "age", "op": "lt", "value": 40}
    assert 0 < read(in_windows, ["age", "city"], few).num_rows < 500
    assert held == ["export"]


def test_a_few_rows_take_single_pages_once_their_columns_were_read(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    put = LoadedSegment.put

    def count(segment: LoadedSegment, number: int, sealed: bytes) -> None:
        opened.append(number)
        put(segment, number, sealed)

    monkeypatch.setattr(LoadedSegment, "put", count)
    reading = ReadingLimits(by_row=0)  # all columns have too many values to be kept with them
    overrides = Overrides(question_sizes=Sizes(reading=reading))
    own = with_keyrings(store.service, tmp_path / "own")
    with running_proxy(store.service.base_url, own, overrides=overrides) as proxy:
        mapped = replace(store, service=replace(store.service, proxy_url=proxy.url))
        pages = []
        for age in (100, 3000, 200):
            where = {"field": "age", "op": "eq", "value": age}
            assert rows(read(mapped, FIELDS, where)) == stored(store, where)
            pages.append(len(opened))
            opened.clear()
        assert max(pages[1:]) < pages[0] / 2
        assert rows(read(mapped, FIELDS)) == stored(store)


def test_a_condition_selects_records(store: Store, in_windows: Store) -> None:
    for where in (
        {"field": "age", "op": "between", "value": [100, 3000]},
        {"field": "name", "op": "prefix", "value": "a long"},
        {
            "or": [
                {"field": "city", "op": "is_null"},
                {"field": "name", "op": "contains", "value": "77"},
            ]
        },
        {"field": "age", "op": "eq", "value": 9999},
    ):
        assert rows(read(store, FIELDS, where)) == stored(store, where)
        assert rows(read(in_windows, FIELDS, where)) == stored(store, where)


def test_the_first_records_of_an_order_are_among_those_that_come(
    store: Store, in_windows: Store
) -> None:
    at = {name: place for place, name in enumerate(FIELDS)}
    every = [tuple(row.values()) for row in read(store, FIELDS).to_pylist()]

    def first(fields: Sequence[tuple[str, bool, bool]], limit: int) -> list[tuple[Any, ...]]:
        found = every
        for name, descending, nulls_first in reversed(fields):
            there = [row for row in found if row[at[name]] is not None]
            absent = [row for row in found if row[at[name]] is None]
            there.sort(key=lambda row: row[at[name]], reverse=descending)
            found = absent + there if nulls_first else there + absent
        return [tuple(row[at[name]] for name, _, _ in fields) for row in found[:limit]]

    for fields in (
        [("city", False, False)],
        [("city", True, True), ("age", False, False)],
        [("name", False, True), ("city", False, False), ("age", True, True)],
        [("key", True, False)],
    ):
        for way in (store, in_windows):
            order_by = [
                {
                    "field": name,
                    "descending": descending,
                    "nulls": "first" if nulls_first else "last",
                }
                for name, descending, nulls_first in fields
            ]
            for limit in (1, 40, 1000):
                said = {"order_by": order_by, "limit": limit - limit // 3, "offset": limit // 3}
                came = read(way, [name for name, _, _ in fields], **said)
                sent = [tuple(row.values()) for row in came.to_pylist()]
                wanted = first(fields, limit)
                assert limit <= len(sent) <= 4 * limit
                assert Counter(wanted) <= Counter(sent), (fields, limit)


def test_a_batch_of_wide_rows_has_fewer_of_them(
    in_windows: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MOST_WINDOW_BYTES", 100 * 300)
    body = {"schema": in_windows.schema, "fields": FIELDS}
    answer = in_windows.proxy("POST", "/api/records/columns/", body)
    batches = list(pyarrow.ipc.open_stream(answer.body))
    assert 0 < max(batch.num_rows for batch in batches) < 200
    assert sum(batch.num_rows for batch in batches) == 2 * MANY + 3 - 5


def test_the_digits_of_numbers_that_are_sent_as_texts_count(
    in_windows: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MOST_WINDOW_BYTES", 60_000)
    body = {"schema": in_windows.schema, "fields": ["serial"]}
    answer = in_windows.proxy("POST", "/api/records/columns/", body)
    batches = list(pyarrow.ipc.open_stream(answer.body))
    assert 0 < max(batch.num_rows for batch in batches) < 400
    assert sum(batch.num_rows for batch in batches) == 2 * MANY + 3 - 5


def test_a_value_that_only_dead_records_had_is_not_sent(store: Store, in_windows: Store) -> None:
    for way in (store, in_windows):
        body = {"schema": store.schema, "fields": ["city"]}
        assert b"only of the dead" not in way.proxy("POST", "/api/records/columns/", body).body


def test_texts_are_dictionaries_of_different_values(in_windows: Store) -> None:
    table = read(in_windows, ["city", "name"])
    assert pyarrow.types.is_dictionary(table.schema.field("city").type)
    for chunk in (*table["city"].chunks, *table["name"].chunks):
        assert len(chunk.dictionary) == len(chunk.dictionary.unique())


def test_no_record_is_opened_for_texts_that_the_index_holds(
    in_windows: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    own_rows = Fetcher.rows

    async def noting(fetcher: Fetcher, upstream: Any, wanted: Any, **options: Any) -> Any:
        opened.append(len(wanted))
        return await own_rows(fetcher, upstream, wanted, **options)

    monkeypatch.setattr(Fetcher, "rows", noting)
    read(in_windows, ["city", "age", "key"])
    assert opened == []
    read(in_windows, ["name"])
    # One for each part of each segment that has the text.
    assert 0 < sum(opened) <= 2 * MANY // 900 + 2


def test_what_cannot_be_asked_is_named(store: Store) -> None:
    for body, place in (
        ({"fields": ["nme"]}, "/fields/0"),
        ({"fields": ["name"], "limit": 1001}, "/limit"),
        ({"fields": ["name"], "order_by": ["name"]}, "/order_by"),
        ({"order_by": [{"field": "age", "nulls": "low"}], "limit": 3}, "/order_by/0/nulls"),
        ({"fields": ["name"], "offset": 3}, "/offset"),
        ({"where": {"field": "age", "op": "eq", "value": "x"}}, "/where/value"),
    ):
        answer = store.proxy("POST", "/api/records/columns/", {"schema": store.schema, **body})
        assert answer.status == 400
        assert answer.json()["errors"][0]["pointer"] == place
