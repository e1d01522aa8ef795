"""Proxies of a team, and a proxy that was started again, ask for the same rows and pages beside
those that a question needs: what their requests have in common tells no more than one of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model import wire
from encrypted_records.model.records import PageRef, RowRef
from encrypted_records.proxy.search.cover import SIZES
from tests.support import jobs
from tests.support.front import Front, running_front
from tests.support.proxies import running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Service, call
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 10**6},
        "text": {"type": "string"},
    },
}
#: More rows than a segment has that is fetched whole.
COUNT = 6000
Asked = tuple[frozenset[RowRef], frozenset[PageRef]]

#: A question that needs five stretches, written in two ways, and one that needs three pages.
FIVE = {"field": "n", "op": "in", "value": [5, 1100, 2300, 3400, 5900]}
AGAIN = {"and": [{"field": "n", "op": "in", "value": [5900, 5, 3400, 2300, 1100]}]}
PAGES = {"field": "text", "op": "between", "value": ["text 12", "text 15"]}


@pytest.fixture(scope="module")
def store(service: Service) -> Store:
    made = new_store(service, DEFINITION)
    rows = [{"n": at, "text": f"text {at * 37 % COUNT:05} and more of it"} for at in range(COUNT)]
    jobs.completed(made, jobs.started(made, jobs.as_csv(made, rows, ["n", "text"]), "text/csv"))
    return made


def asked_by(
    store: Store, front: Front, folder: Path, *questions: Mapping[str, Any]
) -> list[Asked]:
    """What a proxy that holds nothing names for each of these questions, all requests together."""
    found: list[Asked] = []
    with running_proxy(front.url, with_keyrings(store.service, folder)) as proxy:
        for where in questions:
            front.forget()
            body = {"schema": store.schema, "where": where}
            answer = call(
                "POST",
                f"{proxy.url}/api/records/search/",
                body,
                auth=store.account.auth,
                headers=proxy.door,
            )
            assert answer.status == 200, answer.body
            rows = [one for one in front.asked if "/rows/" in one.path]
            pages = [one for one in front.asked if "/pages/" in one.path]
            found.append(
                (
                    frozenset(ref for row in rows for ref in wire.decode_all(row.body, RowRef)),
                    frozenset(ref for page in pages for ref in wire.decode_all(page.body, PageRef)),
                )
            )
    return found


def test_every_proxy_asks_for_the_same_rows_and_pages(store: Store, tmp_path: Path) -> None:
    with running_front(store.service.base_url) as front:
        (first,) = asked_by(store, front, tmp_path / "first", FIVE)
        (second,) = asked_by(store, front, tmp_path / "second", FIVE)
        (third,) = asked_by(store, front, tmp_path / "third", AGAIN)
    assert len(first[0]) == 8 * SIZES[0]
    assert len(first[1]) > 1
    assert first == second == third


def test_it_does_so_for_pages_and_after_more_was_stored(store: Store, tmp_path: Path) -> None:
    with running_front(store.service.base_url) as front:
        before = asked_by(store, front, tmp_path / "before", PAGES)
        store.ingest([{"n": 10**6, "text": "later"}])
        again = asked_by(store, front, tmp_path / "again", PAGES)
    assert before[0][0] == again[0][0]
    # The page of the small segment that was stored since comes with them.
    assert before[0][1] == {ref for ref in again[0][1] if ref.segment in uids(before[0])}


def uids(asked: Asked) -> set[bytes]:
    return {ref.segment for ref in asked[1]}


def test_another_question_draws_others(store: Store, tmp_path: Path) -> None:
    other = {"or": [FIVE, {"field": "n", "op": "eq", "value": 999_999}]}
    with running_front(store.service.base_url) as front:
        (first,) = asked_by(store, front, tmp_path / "first", FIVE)
        (second,) = asked_by(store, front, tmp_path / "second", other)
    assert len(first[0]) == len(second[0])
    assert first[0] != second[0]
