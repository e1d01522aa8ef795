"""To decide texts, a question opens so many records and no more: of parts, words and phrases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from encrypted_records.proxy.settings import Overrides
from tests.support.second_proxy import beside
from tests.support.service import Service
from tests.support.store import Store, new_store

#: Records that a question of this proxy opens at most, and those that it would have to.
MOST, MANY = 6, 20
WORDS: dict[str, Any] = {"type": "string", "x-index": ["words"]}
DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 0, "maximum": 1000},
        "long": WORDS,
        "short": WORDS,
        "alike": WORDS,
        "plain": {"type": "string"},
    },
}
#: Beyond what an index key keeps.
TAIL = "and whatever else was said of it at the time of the visit"


def record(number: int) -> dict[str, Any]:
    said = "no fever" if number % 10 == 3 else "fever, no"
    return {
        "number": number,
        "long": f"{said} cough {number}, {TAIL}",
        "short": f"{said} {number}",
        "alike": f"{said} {number % 2}, {TAIL}",
        "plain": f"{said} {number}, {TAIL}",
    }


@pytest.fixture(scope="module")
def store(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Any:
    own = new_store(service, DEFINITION)
    own.ingest([record(number) for number in range(MANY)])
    folder: Path = tmp_path_factory.mktemp("limited")
    limited = Overrides(question_texts=MOST)
    with beside(own, service.base_url, service.data_dir, folder, limited) as other:
        yield other


def phrase(field: str, **more: Any) -> dict[str, Any]:
    return {"field": field, "op": "has_phrase", "value": "no fever", **more}


def asked(store: Store, path: str, **body: Any) -> tuple[int, Any]:
    answer = store.proxy("POST", f"/api/records/{path}/", {"schema": store.schema, **body})
    return answer.status, answer.json()


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("search", {"count": True}),
        ("search", {"order_by": ["number"]}),
        ("search", {"limit": 2, "offset": 2}),
        ("aggregate", {}),
        ("export", {}),
        ("why", {}),
        ("explain", {"count": True}),
    ],
)
@pytest.mark.parametrize(
    "where", [phrase("long"), {"field": "plain", "op": "contains", "value": "no fever"}]
)
def test_a_question_that_opens_too_many_records_is_refused_by_name(
    store: Store, where: dict[str, Any], path: str, more: dict[str, Any]
) -> None:
    status, told = asked(store, path, where=where, **more)
    assert (status, told["code"]) == (400, "too_many_long")
    assert "narrow" in told["hint"]


def test_other_comparisons_narrow_it_until_it_can_be_answered(store: Store) -> None:
    few = {"field": "number", "op": "between", "value": [10, 14]}
    status, told = asked(store, "search", where={"and": [phrase("long"), few]}, count=True)
    assert (status, told["count"]) == (200, 1)
    assert told["results"][0]["data"]["number"] == 13


@pytest.mark.parametrize("field", ["short", "alike"])
def test_what_the_fields_own_column_decides_opens_no_record_for_each_row(
    store: Store, field: str
) -> None:
    """Short texts are in the index as a whole, and of equal long ones a single one is opened."""
    expected = [number for number in range(MANY) if number % 10 == 3]
    where = phrase(field)
    status, told = asked(store, "search", where=where, count=True)
    assert (status, told["count"]) == (200, len(expected))
    assert [result["data"]["number"] for result in told["results"]] == expected
    _, opened = asked(store, "explain", where=where, count=True, limit=0)
    assert (opened["scan"], opened["scanned"]) == ("column", [field])
    assert opened["rows"]["opened"] <= 4
    status, told = asked(store, "search", where={"not": where}, count=True, limit=0)
    assert (status, told["count"]) == (200, MANY - len(expected))
    # Where few records are open, the column is left alone.
    few = {"field": "number", "op": "lt", "value": 5}
    _, opened = asked(store, "explain", where={"and": [where, few]}, count=True)
    assert (opened["scan"], opened["rows"]["unsure"]) == ("ranges", 5)


def test_a_page_that_few_records_fill_opens_no_more_than_these(store: Store) -> None:
    any_of = {"or": [phrase("long"), {"field": "number", "op": "lt", "value": 3}]}
    status, told = asked(store, "search", where=any_of, limit=2)
    assert (status, [result["data"]["number"] for result in told["results"]]) == (200, [0, 1])
