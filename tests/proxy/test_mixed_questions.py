"""Words, long texts, joins and comparisons in one question, over segments of every form with many
small commits behind them: the answer is a plain search's, whatever is in memory at once."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest

from encrypted_records.index.query.sizes import Sizes
from encrypted_records.index.segments.builder import Limits
from encrypted_records.index.segments.merge_policy import Tier
from encrypted_records.index.segments.reading import ReadingLimits
from encrypted_records.proxy.overrides import Overrides
from tests import oracle
from tests.support.proxies import running_proxy
from tests.support.second_proxy import second_proxy, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

# Nothing here is the database's affair.
pytestmark = pytest.mark.parametrize("service", ["sqlite"], scope="module", indirect=True)

FIELDS: dict[str, Any] = {
    "key": {"type": "integer", "minimum": 0, "maximum": 99_999},
    "note": {"type": "string", "x-index": ["words"]},
    "edge": {"type": "string"},
    "mail": {"type": "string"},
    "city": {"type": "string"},
    "n": {"type": "number", "minimum": -50, "maximum": 5000, "precision": 2},
    "big": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
}
#: Segments of so many rows have pages, and packed ones, of few entries.
FORMS = (Limits(mini=50, plain=5000, entries=40), Limits(mini=50, plain=100, entries=60))
#: The beginning is all that an index key keeps.
LONG = "the same forty-eight letters at the beginning, and "
EDGES = [f"{LONG}{number}" for number in range(8)] + ["short", "shore"]
WORDS = ["fever", "cough", "rash", "night", "none"]
#: Some are longer than a key, some have more words than there is room for.
NOTES = [f"{WORDS[one % 5]} {WORDS[one % 3]} {one}" for one in range(10)]
NOTES += [f"{LONG}{WORDS[one % 5]} {one % 4}" for one in range(10)]
NOTES += [f"{' '.join('abcdefghijklmnopqrstuv')} {WORDS[one % 5]}" for one in range(4)]
CITIES = [f"city {number}" for number in range(6)]

#: Texts may be wanted of fewer rows than the tests leave open: of each text one is opened.
FEW_TEXTS = 60
ONE_BY_ONE = Sizes(
    few_rows=0,
    many_pages=0,
    few_values=0,
    few_to_sort=0,
    few_entries=1,
    reading=ReadingLimits(window=2, few=1),
)
NOTHING_KEPT = replace(ONE_BY_ONE, reading=ReadingLimits(window=2, by_row=0, few=1))
PROXIES = {
    "as ever": Overrides(),
    "few texts": Overrides(question_texts=FEW_TEXTS),
    "one by one": Overrides(question_sizes=ONE_BY_ONE),
    "nothing kept": Overrides(question_sizes=NOTHING_KEPT, question_texts=FEW_TEXTS),
}

Row = dict[str, Any]


def row(key: int, chance: random.Random) -> Row:
    """A record of which any field may be absent."""
    found: Row = {
        "note": chance.choice(NOTES),
        "edge": chance.choice(EDGES),
        "mail": f"person{chance.randrange(400)}@example.org",
        "city": chance.choice(CITIES),
        "n": Decimal(chance.randrange(-2000, 40_000)) / 100,
        "big": chance.choice([chance.randrange(-20, 400), 2**62 + key]),
    }
    return {"key": key} | {name: one for name, one in found.items() if chance.random() < 0.9}


@dataclass
class Scene:
    """A schema through several proxies, and the records that it has."""

    store: Store
    through: dict[str, Store] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)
    #: of comparisons and values, whether they fit
    known: dict[tuple[str, Any], bool] = field(default_factory=dict)
    #: of what is joined with, its values
    joined: dict[str, set[Any]] = field(default_factory=dict)

    def holds(self, where: Any, row: Row) -> bool:
        for name, all_of in (("and", all), ("or", any)):
            if name in where:
                return all_of(self.holds(one, row) for one in where[name])
        if "not" in where:
            return not self.holds(where["not"], row)
        if "of" in where:
            of, value = where["of"], row.get(where["field"])
            return value is not None and value in self.values_of(of)
        at = json.dumps(where, default=str), row.get(where["field"])
        if at not in self.known:
            self.known[at] = oracle.holds(where, row, FIELDS)
        return self.known[at]

    def values_of(self, of: Any) -> set[Any]:
        at = json.dumps(of)
        if at not in self.joined:
            matching = (one for one in self.rows.values() if self.holds(of["where"], one))
            self.joined[at] = {one[of["field"]] for one in matching if of["field"] in one}
        return self.joined[at]


@pytest.fixture(scope="module")
def scene(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    chance = random.Random(1)
    store = new_store(service, {"type": "object", "properties": FIELDS})
    scene = Scene(store)

    def more(count: int) -> list[Row]:
        new = [row(len(scene.rows) + one, chance) for one in range(count)]
        scene.rows |= {one["key"]: one for one in new}
        return new

    store.ingest(more(3))  # the keyring is made

    async def fill() -> None:
        folder = with_keyrings(service, tmp_path_factory.mktemp("filling"))
        async with second_proxy(store, folder) as proxy:
            for limits in (*FORMS, *FORMS):
                await proxy.ingest(more(180), limits)
                for _ in range(8):
                    await proxy.ingest(more(chance.randrange(1, 7)))
            merger = proxy.merger(Tier(64, 8))
            while await merger.merge_next(proxy.caller, proxy.state):
                pass
            for _ in range(12):
                await proxy.ingest(more(chance.randrange(1, 7)))
            forms = [segment.form for segment in proxy.state.ledger.snapshot().segments]
            assert (forms.count("paged"), forms.count("mini") > 10) == (4, True), forms

    asyncio.run(fill())
    every = {one["data"]["key"]: one["url"] for one in store.everything()}
    assert every.keys() == scene.rows.keys()
    for key in chance.sample(sorted(every), 40):
        if key % 2:
            assert store.proxy("DELETE", every[key]).status == 204
            del scene.rows[key]
        else:
            new = row(key, chance)
            assert (
                store.proxy("PUT", every[key], {"schema": store.schema, "data": new}).status == 200
            )
            scene.rows[key] = new
    with ExitStack() as stack:
        for name, overrides in PROXIES.items():
            own = with_keyrings(service, tmp_path_factory.mktemp("proxy"))
            proxy = stack.enter_context(
                running_proxy(service.base_url, own, overrides=overrides, memory_cache=64)
            )
            other = replace(store.service, proxy_url=proxy.url)
            scene.through[name] = replace(store, service=other)
        yield scene


@dataclass
class Questions:
    chance: random.Random
    schema: str

    def leaf(self) -> Row:
        draw = self.chance
        return draw.choice(
            [
                self.text("has_words", "note", draw.choice(WORDS)),
                self.text("has_words", "note", f"{draw.choice(WORDS)} {draw.randrange(9)}"),
                self.text("has_phrase", "note", f"{draw.choice(WORDS)} {draw.choice(WORDS)}"),
                self.text("contains", "note", f"{draw.choice(WORDS)} {draw.randrange(9)}"),
                self.text(
                    "near", "edge", f"{LONG}{draw.randrange(10)}", within=draw.choice([1, 2])
                ),
                self.text("ends_with", "edge", str(draw.randrange(8))),
                self.text("near", "edge", "shorr", within=2),
                self.text("contains", "mail", f"n{draw.randrange(40)}"),
                self.text("near", "mail", f"person{draw.randrange(400)}@exampel.org", within=2),
                self.text("eq", "edge", draw.choice(EDGES)),
                self.text("gt", "edge", draw.choice(EDGES)),
                self.text("prefix", "note", LONG[: draw.choice([3, 48, 51])]),
                self.text("in", "city", draw.sample(CITIES, 2)),
                self.text("in", "city", [draw.choice(CITIES).upper()], fold=True),
                self.text("lt", "n", draw.randrange(-50, 500)),
                self.text("between", "big", [draw.randrange(-20, 100), draw.randrange(400)]),
                {"field": draw.choice(["note", "edge", "n", "big"]), "op": "is_null"},
                self.join(),
                self.join(),
            ]
        )

    def text(self, op: str, name: str, value: Any, **more: Any) -> Row:
        return {"field": name, "op": op, "value": value, **more}

    def join(self) -> Row:
        own, name = self.chance.choice(
            [("big", "n"), ("n", "big"), ("edge", "edge"), ("mail", "mail"), ("big", "key")]
        )
        where = self.chance.choice(
            [
                self.text("eq", "city", self.chance.choice(CITIES)),
                self.text("has_words", "note", self.chance.choice(WORDS)),
                self.text("near", "edge", f"{LONG}{self.chance.randrange(10)}", within=1),
            ]
        )
        return {
            "field": own,
            "op": "in",
            "of": {"schema": self.schema, "field": name, "where": where},
        }

    def condition(self, depth: int = 2) -> Row:
        draw = self.chance
        if depth == 0 or draw.random() < 0.2:
            return self.leaf()
        if draw.random() < 0.2:
            return {"not": self.condition(depth - 1)}
        parts = [self.condition(depth - 1) for _ in range(draw.randrange(2, 4))]
        return {draw.choice(["and", "or", "or"]): parts}


NEAR = {"field": "edge", "op": "near", "value": f"{LONG}3", "within": 1}


@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize(
    "beside",
    [
        {"field": "note", "op": "has_words", "value": "fever"},
        {"field": "n", "op": "lt", "value": 100},
    ],
    ids=["words", "numbers"],
)
def test_long_texts_are_opened_whose_pages_were_not_brought_for_this_test_again(
    scene: Scene, name: str, beside: Row
) -> None:
    """Where more rows are open than may be opened, the texts of words are tested too, and what was
    found before stays; where pages are many, those of the test have gone."""
    where = {"or": [beside, NEAR]}
    expected = {key for key, one in scene.rows.items() if scene.holds(where, one)}
    asked = scene.through[name].ask(where, limit=1000, count=True)
    assert asked.status == 200, asked.body
    assert {result["data"]["key"] for result in asked.json()["results"]} == expected


@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize("seed", range(3))
def test_every_answer_is_that_of_a_plain_search(scene: Scene, name: str, seed: int) -> None:
    store = scene.through[name]
    questions = Questions(random.Random(seed), store.schema)
    for _ in range(20):
        where = questions.condition()
        expected = {key for key, one in scene.rows.items() if scene.holds(where, one)}
        asked = store.ask(where, limit=1000, count=True)
        assert asked.status == 200, (where, asked.body)
        found = [result["data"]["key"] for result in asked.json()["results"]]
        assert (len(found), set(found)) == (asked.json()["count"], expected), where
        match questions.chance.randrange(3):
            case 0:
                n = (scene.rows[key].get("n", Decimal(0)) for key in expected)
                assert measured(store, where) == [len(expected), sum(n, Decimal(0))], where
            case 1:
                order = store.search(where, order_by=["-n", "key"], limit=10)["results"]
                assert [one["data"]["key"] for one in order] == first(scene, expected), where


def measured(store: Store, where: Any) -> list[Any]:
    body = {"schema": store.schema, "where": where}
    body["measures"] = [{"op": "count"}, {"op": "sum", "field": "n"}]
    answer = store.proxy("POST", "/api/records/aggregate/", body)
    assert answer.status == 200, (where, answer.body)
    found = json.loads(answer.body, parse_float=Decimal)["measures"]
    return [one["value"] or Decimal(0) for one in found]


def first(scene: Scene, expected: set[int]) -> list[int]:
    def place(key: int) -> tuple[bool, Decimal, int]:
        n = scene.rows[key].get("n")
        return n is None, -(n or Decimal(0)), key

    return sorted(expected, key=place)[:10]
