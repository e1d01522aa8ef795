"""Values and names that could be taken for parts of a plan are values and names."""

from __future__ import annotations

from decimal import Decimal

import pytest

from encrypted_records import Client
from encrypted_records.errors import SqlError
from tests.support.sql import MakeClient, ask, ask_each

LINES = "a\nc1 IS NULL\nb"
TEXTS = [
    LINES,
    "a\n'\nc1 IS NULL\n'",
    "it's",
    "x' AND c1 = 'y",
    "'; c1 IS NULL --",
    "\\' OR c1 IS NULL",
    "\r\n\t",
    "%_\\",
    "c1",
    "",
    " ",
]
#: More digits than Python's own arithmetic keeps.
LOW, HIGH = 10**34, 10**34 + 1000


@pytest.fixture(scope="module", autouse=True)
def stored(client: Client) -> None:
    dataset = client.create_dataset("Awkward", slug="awkward")
    number = {"type": "number", "minimum": -HIGH, "maximum": -LOW, "precision": 2}
    fields = {"text": {"type": "string"}, "other": {"type": "string"}, "number": number}
    definition = {"type": "object", "properties": fields, "required": []}
    rows = [{"text": text, "other": "there"} for text in TEXTS]
    dataset.create_schema("Texts", definition, slug="texts").ingest(rows)
    numbers = [{"number": Decimal(f"-{LOW}.{cents}")} for cents in ("00", "25", "50", "75")]
    dataset.create_schema("Numbers", definition, slug="numbers").ingest(numbers)
    # Numbers of tables follow their names: this is not the table of that number.
    texts = {"type": "object", "properties": {"a": {"type": "string"}}, "required": []}
    for slug, count in (("s3", 1), ("s4", 2), ("s1", 4), ("s0", 8)):
        dataset.create_schema(slug, texts, slug=slug).ingest([{"a": slug}] * count)


def test_a_text_is_found_whatever_is_in_it(proxy: MakeClient) -> None:
    forms = ("text = $1", "$1 IN (text)", "text >= $1 AND text <= $1", "text IN ($1, 'n/a')")
    asked = [
        (f"SELECT text, other FROM texts WHERE {form}", [text]) for form in forms for text in TEXTS
    ]
    found = [[{"text": text, "other": "there"}] for _, (text,) in asked]
    assert ask_each(proxy, asked) == found


def test_numbers_of_many_digits_are_compared_exactly(proxy: MakeClient) -> None:
    asked = "SELECT count(*) AS n FROM numbers WHERE number"
    told = ask_each(proxy, [(f"{asked} {op} -{LOW}.50", ()) for op in ("=", ">", ">=", "<", "<=")])
    assert told == [[{"n": count}] for count in (1, 2, 3, 1, 2)]


def test_tables_may_be_called_as_nothing_else_is(proxy: MakeClient) -> None:
    assert ask(proxy, "SELECT * FROM s3") == [{"a": "s3"}]
    sizes = {"s3": 1, "s4": 2, "s1": 4, "s0": 8}
    pairs = (("s3", "s4"), ("s1", "s0"), ("s0", "s3"))
    both = "SELECT (SELECT count(*) FROM {}) AS x, (SELECT count(*) FROM {}) AS y"
    told = ask_each(proxy, [(both.format(*pair), ()) for pair in pairs])
    assert told == [[{"x": sizes[first], "y": sizes[second]}] for first, second in pairs]


@pytest.mark.parametrize("slug", ["memory", "temp", "system", "main", "_columns", "t0"])
def test_a_dataset_of_any_name_lets_others_be_asked(
    client: Client, proxy: MakeClient, slug: str
) -> None:
    texts = {"type": "object", "properties": {"a": {"type": "string"}}, "required": []}
    client.create_dataset(slug, slug=slug).create_schema("t0", texts, slug="t0").ingest(
        [{"a": slug}]
    )
    if slug == "_columns":
        count = "SELECT count(*) AS n FROM texts"
        assert ask(proxy, count, dataset="awkward") == [{"n": len(TEXTS)}]
        with pytest.raises(SqlError):
            ask(proxy, count, dataset=slug)
        return
    asked = [("SELECT count(*) AS n FROM awkward.texts", ()), ("SELECT a FROM t0", ())]
    assert ask_each(proxy, asked, dataset=slug) == [[{"n": len(TEXTS)}], [{"a": slug}]]


def test_a_statement_that_is_nested_deeply_is_answered_or_refused_by_name(
    proxy: MakeClient,
) -> None:
    deep = " + ".join(["1"] * 300)
    try:
        assert ask(proxy, f"SELECT {deep} AS n FROM texts LIMIT 1") == [{"n": 300}]
    except SqlError as error:
        assert error.sqlstate == "54000"
