"""Whatever changes places in the database: the proxy says so, or answers as if nothing had.

Never other data, and never fewer rows. Sizes and versions of everything swapped are equal, so
that only authentication can tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.e2e import swaps
from tests.e2e.database import database_of
from tests.e2e.swaps import DEFINITION, Filled, Pair, Swap, filled
from tests.support.fixtures import at
from tests.support.proxies import running_proxy
from tests.support.service import Answer, Service
from tests.support.store import Store, new_store

WAYS = frozenset({"search", "list", "get"})


@dataclass(frozen=True)
class Case:
    """A swap, the code that names it, and where; everywhere else the answers are right."""

    swap: Swap
    code: str
    refused: frozenset[str] = WAYS
    both: bool = False

    @property
    def name(self) -> str:
        return self.swap.__name__


#: What asks for the pages of segments; the other ways read the log and rows.
INDEX = frozenset({"search"})
CASES = [
    Case(swaps.two_fields_of_one_record, "does_not_open"),
    Case(swaps.one_field_of_two_records, "does_not_open"),
    Case(swaps.one_field_of_two_groups, "does_not_open"),
    Case(swaps.one_field_of_two_schemas, "does_not_open", both=True),
    Case(swaps.all_fields_of_two_records, "does_not_open"),
    Case(swaps.two_rows_of_one_group, "does_not_open"),
    Case(swaps.two_rows_of_two_groups, "does_not_open"),
    Case(swaps.two_rows_of_two_schemas, "does_not_open", both=True),
    Case(swaps.the_ids_of_two_records, "does_not_open"),
    Case(swaps.the_version_of_a_record_for_another, "does_not_open"),
    Case(swaps.the_uids_of_two_groups, "does_not_open"),
    Case(swaps.two_columns_of_one_page, "altered", INDEX),
    Case(swaps.the_pages_of_two_segments, "altered", INDEX),
    Case(swaps.the_pages_of_two_schemas, "altered", INDEX, both=True),
    Case(swaps.the_uids_of_two_segments, "altered", INDEX),
    Case(swaps.the_headers_of_two_segments, "altered", INDEX),
    Case(swaps.the_salts_of_two_segments, "altered", INDEX),
    Case(swaps.two_segments_without_their_uids, "altered", INDEX),
    # Only what is sealed anew is held against it.
    Case(swaps.the_salts_of_two_groups, "not used", frozenset()),
    Case(swaps.two_commits_of_one_schema, "log_broken"),
    Case(swaps.two_commits_of_two_schemas, "log_broken", both=True),
    Case(swaps.the_groups_that_two_segments_state, "log_broken"),
    Case(swaps.the_digests_that_two_segments_state, "log_broken"),
    Case(swaps.the_segments_that_the_api_notes_for_two_groups, "not used", frozenset()),
]


@pytest.fixture(scope="module")
def swapped(
    service: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Service, dict[str, Pair]]]:
    """With a proxy that was started again after every case's swap, each in schemas of its own."""
    folder = tmp_path_factory.mktemp("swaps")
    with running_proxy(service.base_url, folder) as proxy:
        store = at(new_store(service, DEFINITION), proxy)
        pairs = {case.name: new_pair(store) for case in CASES}
    with database_of(service) as tables:
        for case in CASES:
            case.swap(tables, pairs[case.name])
    with running_proxy(service.base_url, folder) as proxy:
        yield replace(service, proxy_url=proxy.url), pairs


def new_pair(store: Store) -> Pair:
    left, right = (filled(store.another_schema(DEFINITION), mark) for mark in ("left", "rite"))
    return Pair(left, right)


def asked(side: Filled, service: Service) -> dict[str, Answer]:
    """Each way's answer about all records of the schema, or the first."""
    store = Store(service, side.store.account, side.store.schema)
    return {
        "search": store.ask({"field": "a", "op": "ge", "value": ""}),
        "list": store.proxy("GET", f"/api/records/?schema={store.schema_id}"),
        "get": store.proxy("GET", f"/api/records/{next(iter(side.records))}/"),
    }


def records_in(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.body
    found = answer.json()
    return {one["id"]: one["data"] for one in found.get("results", [found])}


def check(side: Filled, service: Service, refused: frozenset[str], code: str) -> None:
    first = next(iter(side.records))
    for way, answer in asked(side, service).items():
        if way in refused:
            assert (answer.status, answer.json()["code"]) == (422, code), (way, answer.body)
        elif way == "get":
            assert records_in(answer) == {first: side.records[first]}
        else:
            assert records_in(answer) == side.records, way


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_was_swapped_is_refused_by_name_and_all_else_is_right(
    case: Case, swapped: tuple[Service, dict[str, Pair]]
) -> None:
    service, pairs = swapped
    pair = pairs[case.name]
    check(pair.left, service, case.refused, case.code)
    check(pair.right, service, case.refused if case.both else frozenset(), case.code)


def test_a_swap_behind_a_running_service_is_refused_or_changes_nothing(
    swapped: tuple[Service, dict[str, Pair]],
) -> None:
    service, pairs = swapped
    account = next(iter(pairs.values())).left.store.account
    opened, unopened = (new_pair(Store(service, account, "")) for _ in range(2))
    check(opened.left, service, frozenset(), "")

    with database_of(service) as tables:
        for pair in (opened, unopened):
            swaps.two_rows_of_one_group(tables, pair)

    # What the proxy has opened it does not ask for again.
    check(opened.left, service, frozenset(), "")
    check(unopened.left, service, WAYS, "does_not_open")
    check(unopened.right, service, frozenset(), "")
