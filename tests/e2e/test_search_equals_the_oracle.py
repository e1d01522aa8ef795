"""Whatever is stored and asked over HTTP, the answer is what it means on plain records."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import oracle
from tests.index.strategies import Case, cases
from tests.reference import definitions
from tests.support.service import Account, Service
from tests.support.store import Store, new_schema


@pytest.fixture(scope="module")
def account(service: Service) -> Account:
    return service.new_account()


def as_returned(record: dict[str, Any], fields: dict[str, definitions.Field]) -> dict[str, Any]:
    """What comes back of a record: absent fields left out, numbers rounded to their field."""
    return {
        name: value if fields[name]["type"] == "string" else oracle.rounded(fields[name], value)
        for name, value in record.items()
        if value is not None
    }


@given(case=cases())
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_ids_counts_and_values_equal_the_oracles(
    service: Service, account: Account, case: Case
) -> None:
    schema = new_schema(service, account, msgspec.Raw(case.text.encode()))
    store = Store(service, account, schema)
    ids = [one for group in case.groups for one in store.ingest(group)]

    for where in [None, *case.asked]:
        expected = [
            (identifier, as_returned(record, case.fields))
            for identifier, record in zip(ids, case.records, strict=True)
            if oracle.holds(where, record, case.fields)
        ]
        answer = store.search(where, count=True, limit=1000)
        assert [(result["id"], result["data"]) for result in answer["results"]] == expected
        assert answer["count"] == len(expected)


@given(case=cases(), data=st.data())
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_sorted_pages_follow_one_another_in_the_oracles_order(
    service: Service, account: Account, case: Case, data: st.DataObject
) -> None:
    schema = new_schema(service, account, msgspec.Raw(case.text.encode()))
    store = Store(service, account, schema)
    ids = [one for group in case.groups for one in store.ingest(group)]
    names = data.draw(st.lists(st.sampled_from(sorted(case.fields)), min_size=1, unique=True))
    order_by = [data.draw(st.sampled_from([name, f"-{name}"])) for name in names]
    where = data.draw(st.sampled_from([None, *case.asked]))
    expected = [
        ids[number]
        for number in oracle.in_order(order_by, case.records, case.fields)
        if oracle.holds(where, case.records[number], case.fields)
    ]

    found: list[str] = []
    cursor = None
    while True:
        page = store.search(where, order_by=order_by, limit=3, cursor=cursor, count=True)
        assert page["count"] == len(expected)
        found += [result["id"] for result in page["results"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        # What is stored meanwhile is for the next search, wherever it would stand in this one.
        store.ingest(case.groups[0][:1])
    assert found == expected
