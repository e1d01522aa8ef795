"""Tests of texts through a real API: in minis and large segments, after deletions and a merge,
they answer as a plain search would, alone and together with everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.index.segments.merge_policy import Tier
from tests import oracle
from tests.support.second_proxy import Proxy, second_proxy, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

FIELDS: dict[str, Any] = {
    "email": {"type": "string"},
    "city": {"type": "string"},
    "note": {"type": "string"},
    "diary": {"type": "string", "x-index": ["words"]},
    "age": {"type": "integer", "minimum": 0, "maximum": 120},
}
#: More than a mini holds.
MANY = 4200
CITIES = ["Z\u00fcrich", "zurich", "Edinburgh", "Edinburg", "S\u00e3o Paulo", "", "100%"]
WORDS = ["Fever", "no", "f\u00e9ver", "cough", "\u6771\u4eac"]
#: Beyond what an index key keeps.
LONG = "the same beginning of every one of these long notes, and then "
NAMES = ["smith", "Jones", "m\u00fcller", "O'Neill"]


def person(number: int) -> dict[str, Any]:
    person: dict[str, Any] = {
        "email": f"{NAMES[number % 4]}.{number:05}@example{number % 9}.org",
        "city": CITIES[number % 7],
        "age": number % 90,
    }
    if number % 50 == 0:
        person["note"] = f"{LONG}{NAMES[number % 3]} {number // 100}"
    elif number % 3 == 0:
        person["note"] = f"short {number % 10}"
    if number % 11:
        # Some have more words than there is room for.
        letters = " ".join("abcdefghijklmnop"[: number % 17])
        person["diary"] = f"{WORDS[number % 3]} {WORDS[number % 5]}, day {number}: {letters}"
    return person


def text(op: str, field: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"field": field, "op": op, "value": value, **more}


QUESTIONS: list[dict[str, Any]] = [
    text("contains", "email", "0042"),
    text("contains", "email", "JONES.0004", fold=True),
    text("contains", "email", "muller.000", fold=True),
    text("ends_with", "email", "17@example8.org"),
    text("like", "email", "%.0_1_7@%8.org"),
    text("matches", "email", r"^[A-Z]'\w+\.\d*99@"),
    text("matches", "email", r"\AJ.*77@"),
    text("near", "email", "smith.00100@example1.org"),
    text("near", "email", "smyth.00100@exampl1.org", within=2),
    text("in", "email", ["JONES.00001@EXAMPLE1.ORG", "nobody"], fold=True),
    text("eq", "city", "zuerich", fold=True),
    text("eq", "city", "ZURICH", fold=True),
    text("ne", "city", "ZURICH", fold=True),
    text("prefix", "city", "sao", fold=True),
    text("near", "city", "Edinborough", within=2),
    text("like", "city", r"100\%"),
    text("contains", "city", ""),
    text("contains", "note", "Jones 4"),
    text("ends_with", "note", " 7"),
    text("contains", "note", "beginning"),
    text("matches", "note", "(?i)M\u00dcLLER 1[05]$"),
    text("has_words", "note", "JONES 4"),
    text("has_phrase", "note", "these long"),
    text("has_words", "email", "muller org"),
    text("has_words", "diary", "cough FEVER"),
    text("has_words", "diary", "4011"),
    text("has_words", "diary", "d e c b a"),
    text("has_phrase", "diary", "no fever"),
    text("has_phrase", "diary", "\u4eac day"),
    {"not": text("has_words", "diary", "day")},
    {"and": [text("has_words", "diary", "fever"), text("has_words", "note", "then")]},
    {"or": [text("has_phrase", "diary", "fever cough"), text("gt", "age", 85)]},
    {"and": [text("ends_with", "note", "0"), text("lt", "age", 20)]},
    {"or": [text("contains", "note", "Jones 20"), {"not": text("contains", "email", "0")}]},
    {"and": [{"not": text("contains", "note", "o")}, text("contains", "city", "Z")]},
]


@pytest.fixture(scope="module")
def store(services: Callable[[str], Service]) -> Store:
    store = new_store(services("sqlite"), {"type": "object", "properties": FIELDS})
    store.ingest([person(MANY + number) for number in range(10)])
    return store


@pytest.mark.parametrize(
    ("asked", "code", "pointer"),
    [
        (text("matches", "email", "(a"), "pattern", "/where/value"),
        (text("matches", "email", r"(?=a)"), "pattern", "/where/value"),
        (text("matches", "email", "a" * 1001), "pattern", "/where/value"),
        (text("matches", "email", "((a{1000}){1000}){1000}"), "pattern", "/where/value"),
        (text("like", "email", "a\\b"), "pattern", "/where/value"),
        (text("contains", "age", "1"), "op", "/where/op"),
        (text("eq", "age", 1, fold=True), "op", "/where/fold"),
        (text("lt", "email", "a", fold=True), "op", "/where/fold"),
        (text("contains", "email", "a", fold="yes"), "type", "/where/fold"),
        (text("contains", "email", ["a"]), "type", "/where/value"),
        (text("near", "email", "a", within=3), "within", "/where/within"),
        (text("near", "email", "a", within=True), "within", "/where/within"),
        (text("contains", "email", "a", within=1), "op", "/where/within"),
        (text("has_words", "email", "..."), "words", "/where/value"),
        (text("has_phrase", "diary", "a " * 65), "words", "/where/value"),
        (text("has_words", "diary", "a", fold=True), "op", "/where/fold"),
        (text("has_words", "age", "1"), "op", "/where/op"),
        (text("in", "email", [], fold=True), "type", "/where/value"),
        (text("in", "email", ["a", 1], fold=True), "type", "/where/value/1"),
    ],
)
def test_a_test_that_cannot_be_asked_is_refused_with_the_place(
    store: Store, asked: dict[str, Any], code: str, pointer: str
) -> None:
    refused = store.ask(asked)
    assert refused.status == 400
    (flaw,) = refused.json()["errors"]
    assert (flaw["code"], flaw["pointer"], flaw["field"]) == (code, pointer, asked["field"])


def test_a_question_that_finds_nothing_says_which_comparison_is_why(store: Store) -> None:
    where = {
        "and": [
            text("eq", "city", "ZURICH"),
            text("eq", "city", " Edinburgh "),
            {"not": text("contains", "email", "JONES")},
            text("gt", "age", 120),
            text("between", "age", [40, 30]),
            text("ge", "age", 0),
        ]
    }
    told = ask(store, "why", where=where)
    spelled, blank, part, beyond, turned, fits = told["comparisons"]
    cities = [person(MANY + number)["city"] for number in range(10)]
    assert (told["records"], told["count"]) == (10, 0)
    assert spelled["pointer"] == "/where/and/0"
    both = sum(city in CITIES[:2] for city in cities)
    assert (spelled["count"], spelled["folded"], spelled["trimmed"]) == (0, both, None)
    edinburgh = cities.count("Edinburgh")
    assert (blank["count"], blank["folded"], blank["trimmed"]) == (0, 0, edinburgh)
    assert (part["pointer"], part["op"], part["count"]) == ("/where/and/2/not", "contains", 0)
    assert part["folded"] > 0
    assert "minimum and maximum" in beyond["never"]
    assert "above" in turned["never"]
    assert (fits["count"], fits["never"]) == (10, None)
    refused = store.proxy(
        "POST", "/api/records/why/", {"schema": store.schema, "where": text("eq", "no", 1)}
    )
    assert refused.status == 400
    assert refused.json()["errors"][0]["code"] == "unknown_field"


def ask(store: Store, path: str, **body: Any) -> Any:
    answer = store.proxy("POST", f"/api/records/{path}/", {"schema": store.schema, **body})
    assert answer.status == 200
    return answer.json()


def every_answer(store: Store, where: dict[str, Any]) -> dict[str, list[str]]:
    """The e-mail addresses of one answer, by each of the ways to ask for it."""
    by_hand: list[str] = []
    cursor = None
    while True:
        asked = {"order_by": ["email"], "fields": ["email"], "limit": 1000}
        page = store.search(where, **asked, cursor=cursor)
        by_hand += [result["data"]["email"] for result in page["results"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    stored = [result["data"]["email"] for result in store.search(where, limit=50)["results"]]
    return {"sorted, page by page": by_hand, "as stored": stored}


def check(
    store: Store, people: list[dict[str, Any]], questions: list[dict[str, Any]] = QUESTIONS
) -> None:
    for where in questions:
        expected = sorted(one["email"] for one in people if oracle.holds(where, one, FIELDS))
        found = every_answer(store, where)
        assert found["sorted, page by page"] == expected, where
        assert set(found["as stored"]) <= set(expected), where
        assert len(found["as stored"]) == min(50, len(expected)), where
        counted = store.search(where, limit=0, count=True)
        assert counted["count"] == len(expected), where
        measures = [{"op": "count"}, {"op": "sum", "field": "age"}]
        count, _ = ask(store, "aggregate", where=where, measures=measures)["measures"]
        assert count["value"] == len(expected), where


def test_every_test_of_a_text_answers_as_a_plain_search_would(store: Store, tmp_path: Path) -> None:
    people = [person(number) for number in range(MANY + 10)]

    async def fill(proxy: Proxy) -> None:
        await proxy.ingest(people[:MANY])

    async def merge(proxy: Proxy) -> None:
        merged = await proxy.merger(Tier(1, 2), Tier(1 << 16, 1)).merge_next(
            proxy.caller, proxy.state
        )
        assert merged is not None

    folder = with_keyrings(store.service, tmp_path)

    def run(work: Callable[[Proxy], Any]) -> None:
        async def whole() -> None:
            async with second_proxy(store, folder) as proxy:
                await work(proxy)

        asyncio.run(whole())

    run(fill)
    check(store, people)
    gone = text("like", "email", "%.001_0@%")
    deleted = store.proxy(
        "POST", "/api/records/delete/?confirm=10", {"schema": store.schema, "where": gone}
    )
    assert deleted.status == 200
    people = [one for one in people if not oracle.holds(gone, one, FIELDS)]
    check(store, people, QUESTIONS[::5])
    run(merge)
    check(store, people)
    few = ask(store, "explain", where=text("contains", "city", "uri"), limit=0, count=True)
    assert (few["scan"], few["scanned"]) == ("column", ["city"])
    assert few["rows"]["opened"] == 0
    assert ask(store, "explain", where=text("eq", "city", "Oslo"))["scan"] == "ranges"
    day = ask(store, "explain", where=text("has_words", "diary", "day 4011"))
    assert (day["scan"], day["scanned"]) == ("ranges", [])
    assert day["rows"]["certain"] == 1
