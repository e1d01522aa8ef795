"""The expression language of searches says what the JSON of ``where`` says."""

from __future__ import annotations

import itertools
import json
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encrypted_records.cli.commands.selection import file_format, parse_condition
from encrypted_records.client.sdk import condition_language
from encrypted_records.client.sdk.condition_language import parse, parse_with_places, write
from encrypted_records.errors import InvalidQuery, Malformed
from encrypted_records.model import strict_json
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.predicates import matches
from encrypted_records.model.queries import OPERATORS, parse_query
from tests.index.strategies import Case, cases

SIGNS = {"eq": "= ==", "ne": "!= <>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("age = 3", '{"field": "age", "op": "eq", "value": 3}'),
        ("age==-0.50", '{"field": "age", "op": "eq", "value": -0.50}'),
        ("age<>1e2", '{"field": "age", "op": "ne", "value": 1e2}'),
        ("age >= 18", '{"field": "age", "op": "ge", "value": 18}'),
        ("city = 'it\\'s'", '{"field": "city", "op": "eq", "value": "it\'s"}'),
        (r'city = "\u00e9\n\"x\""', '{"field": "city", "op": "eq", "value": "é\\n\\"x\\""}'),
        ('city = "a\nb"', '{"field": "city", "op": "eq", "value": "a\\nb"}'),
        ("city = '\"'", '{"field": "city", "op": "eq", "value": "\\""}'),
        ("city in ('a')", '{"field": "city", "op": "in", "value": ["a"]}'),
        ("city NOT IN (1, 2)", '{"not": {"field": "city", "op": "in", "value": [1, 2]}}'),
        ("n between 1 and 2", '{"field": "n", "op": "between", "value": [1, 2]}'),
        ("n not between 1 and 2", '{"not": {"field": "n", "op": "between", "value": [1, 2]}}'),
        ("n prefix 'x'", '{"field": "n", "op": "prefix", "value": "x"}'),
        ("n starts with 'x'", '{"field": "n", "op": "prefix", "value": "x"}'),
        ("n not Starts With 'x'", '{"not": {"field": "n", "op": "prefix", "value": "x"}}'),
        ("n contains 'x'", '{"field": "n", "op": "contains", "value": "x"}'),
        ("n not contains 'x'", '{"not": {"field": "n", "op": "contains", "value": "x"}}'),
        ("n ends with 'x' folded", '{"field":"n","op":"ends_with","value":"x","fold":true}'),
        ("n has words 'a b'", '{"field": "n", "op": "has_words", "value": "a b"}'),
        ("n not HAS Phrase 'x'", '{"not": {"field": "n", "op": "has_phrase", "value": "x"}}'),
        ("n has_words 'x'", '{"field": "n", "op": "has_words", "value": "x"}'),
        ("has has words 'words'", '{"field": "has", "op": "has_words", "value": "words"}'),
        ("n like 'a%'", '{"field": "n", "op": "like", "value": "a%"}'),
        (r"n ~ /^a\/b\d/", r'{"field": "n", "op": "matches", "value": "^a/b\\d"}'),
        ("n MATCHES 'x' FOLDED", '{"field":"n","op":"matches","value":"x","fold":true}'),
        ("n not ~ /x/", '{"not": {"field": "n", "op": "matches", "value": "x"}}'),
        ("n near 'x'", '{"field": "n", "op": "near", "value": "x"}'),
        (
            "n near 'x' within 2 folded",
            '{"field":"n","op":"near","value":"x","within":2,"fold":true}',
        ),
        ("n != 'x' folded", '{"field": "n", "op": "ne", "value": "x", "fold": true}'),
        ("n in ('x') folded", '{"field": "n", "op": "in", "value": ["x"], "fold": true}'),
        ("contains contains 'like'", '{"field": "contains", "op": "contains", "value": "like"}'),
        ("n is null", '{"field": "n", "op": "is_null", "value": true}'),
        ("n is not null", '{"field": "n", "op": "is_null", "value": false}'),
        ("`date of ``birth`` ` = 1", '{"field": "date of `birth` ", "op": "eq", "value": 1}'),
        ("`and` = 1", '{"field": "and", "op": "eq", "value": 1}'),
        ("ünï_1.x-y = 1", '{"field": "ünï_1.x-y", "op": "eq", "value": 1}'),
        (
            "a = 1 or b = 2 and not c = 3",
            '{"or": [{"field": "a", "op": "eq", "value": 1},'
            ' {"and": [{"field": "b", "op": "eq", "value": 2},'
            ' {"not": {"field": "c", "op": "eq", "value": 3}}]}]}',
        ),
        (
            "(a = 1 or b = 2) and (c between 1 and 2 and d = 3)",
            '{"and": [{"or": [{"field": "a", "op": "eq", "value": 1},'
            ' {"field": "b", "op": "eq", "value": 2}]},'
            ' {"and": [{"field": "c", "op": "between", "value": [1, 2]},'
            ' {"field": "d", "op": "eq", "value": 3}]}]}',
        ),
    ],
)
def test_an_expression_is_a_condition(text: str, where: str) -> None:
    assert parse(text) == strict_json.loads(where)


def test_numbers_stay_exact() -> None:
    assert parse("n = 9007199254740993")["value"] == 9007199254740993
    found = parse("n = 0.1000000000000000055511151231257827")["value"]
    assert found == Decimal("0.1000000000000000055511151231257827")


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("", 1, "empty"),
        ("age", 4, "expected a comparison after the field"),
        ("age 3", 5, "expected a comparison after the field"),
        ("age >= and city = 'x'", 8, "expected a value"),
        ("age >=", 7, "expected a value after >="),
        ("age = Rome", 7, "expected a value"),
        ("age = null", 7, "null is not a value"),
        ("age is 3", 8, "expected null"),
        ("n = /x/", 5, "a pattern follows ~ or matches"),
        ("n ~ /x", 5, "a quote is not closed"),
        ("n has 'x'", 3, "expected a comparison after the field"),
        ("age not = 3", 9, "expected a comparison after not"),
        ("age in 3", 8, "expected ( after in"),
        ("age in ()", 9, "expected a value"),
        ("age in (1 2)", 11, "expected )"),
        ("age between 1 or 2", 15, "expected and"),
        ("age = 1 city = 2", 9, "expected the end"),
        ("age = 1)", 8, "expected the end"),
        ("(age = 1", 9, "expected )"),
        ("and = 1", 1, "expected the name of a field, found and"),
        ("1 = age", 1, "expected the name of a field"),
        ("age = 'x", 7, "a quote is not closed"),
        ("`age = 1", 1, "a quote is not closed"),
        ("age = 007", 7, "this is not a number"),
        ("age = 1.x", 7, "this is not a number"),
        ("age = .5", 7, "this is not a number"),
        ("age = 1 && city = 'x'", 9, "& is not understood"),
        (r"city = '\x'", 8, "this cannot be a text"),
        ("age = 1" + "0" * 400, 7, "this cannot be a number"),
        ("not " * 101 + "a = 1", 401, "nested more than 100 levels"),
        ("(" * 5000, 101, "nested more than 100 levels"),
    ],
)
def test_what_is_no_expression_is_refused_with_a_caret_at_the_place(
    text: str, at: int, message: str
) -> None:
    with pytest.raises(InvalidQuery) as refused:
        parse(text)
    what, line, caret = refused.value.message.split("\n")
    assert message in what
    assert what.endswith(f"at character {at} of the expression")
    assert caret.index("^") == at + 1
    assert len(line) == len(text) + 2


@settings(deadline=None)  # machines are busy at times
@given(
    st.text(st.characters(codec="utf-8"), max_size=30) | st.text("ab ()=<>'\"\\`,1.-", max_size=20)
)
def test_any_text_is_an_expression_or_a_named_error(text: str) -> None:
    try:
        parse(text)
    except InvalidQuery as refused:
        assert refused.message.count("\n") == 2


class Writer:
    """Writes conditions as expressions, in all the ways in which they can be written."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def word(self, text: str) -> str:
        return "".join(self.random.choice((one.lower(), one.upper())) for one in text)

    def space(self) -> str:
        return self.random.choice((" ", "  ", "\t", "\n "))

    def spaced(self, *parts: str) -> str:
        return self.space().join(parts)

    def field(self, name: str) -> str:
        plain = (
            re.fullmatch(r"[^\W\d][\w.-]*", name) and name.lower() not in condition_language.WORDS
        )
        quoted = f"`{name.replace('`', '``')}`"
        return self.random.choice((name, quoted)) if plain else quoted

    def value(self, value: Any) -> str:
        if not isinstance(value, str):
            return str(value)
        if self.random.random() < 0.5:
            return json.dumps(value, ensure_ascii=self.random.random() < 0.5)
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def write(self, where: Any) -> str:
        if "and" in where or "or" in where:
            word = next(iter(where))
            parts = [f"({self.write(one)})" for one in where[word]]
            inner = f"{self.space()}{self.word(word)}{self.space()}".join(parts)
            return f"({inner})" if self.random.random() < 0.5 else inner
        if "not" in where:
            return self.spaced(self.word("not"), f"({self.write(where['not'])})")
        written = self.comparison(where)
        if "within" in where:
            written = self.spaced(written, self.word("within"), str(where["within"]))
        return self.spaced(written, self.word("folded")) if "fold" in where else written

    def test(self, op: str, value: str) -> str:
        if op == "matches" and self.random.random() < 0.5:
            return self.spaced("~", f"/{value.replace('/', chr(92) + '/')}/")
        words = op.split("_")
        return self.spaced(*map(self.word, words), self.value(value))

    def comparison(self, where: Any) -> str:
        name, op, value = self.field(where["field"]), where["op"], where.get("value")
        match op:
            case (
                "contains" | "ends_with" | "like" | "matches" | "near" | "has_words" | "has_phrase"
            ):
                return self.spaced(name, self.test(op, value))
            case "is_null":
                words = ["is", "null"] if value is not False else ["is", "not", "null"]
                return self.spaced(name, *map(self.word, words))
            case "in":
                return self.spaced(name, self.word(op), f"({','.join(map(self.value, value))})")
            case "between":
                low, high = map(self.value, value)
                return self.spaced(name, self.word(op), low, self.word("and"), high)
            case "prefix":
                words = self.random.choice((["prefix"], ["starts", "with"]))
                return self.spaced(name, *map(self.word, words), self.value(value))
            case _:
                return self.spaced(name, self.random.choice(SIGNS[op].split()), self.value(value))


def test_values_of_another_schema_are_selected_from_it() -> None:
    deeper = {"field": "b", "op": "in", "of": {"schema": "my visits", "field": "from"}}
    for text, of in [
        ("(select x from visits)", {"schema": "visits", "field": "x"}),
        ("(SELECT `x y` FROM '/api/schemas/a/')", {"schema": "/api/schemas/a/", "field": "x y"}),
        (
            "(select select from from where b in (select from from `my visits`))",
            {"schema": "from", "field": "select", "where": deeper},
        ),
    ]:
        assert parse(f"a in {text}") == {"field": "a", "op": "in", "of": of}
        assert parse(f"a not in {text}") == {"not": {"field": "a", "op": "in", "of": of}}


@pytest.mark.parametrize(
    ("text", "at", "what"),
    [
        ("a in (select b visits)", 16, "expected from"),
        ("a in (select b from 3)", 21, "expected the name of a schema"),
        ("a in (select b from v", 22, "expected )"),
        ("a in (select b from v) folded", 24, "expected the end"),
        ("a in (select b from v where)", 28, "expected the name of a field"),
    ],
)
def test_a_selection_that_is_none_is_refused_at_its_place(text: str, at: int, what: str) -> None:
    with pytest.raises(InvalidQuery, match=rf"^{re.escape(what)}.*, at character {at} of"):
        parse(text)


@settings(deadline=None)  # machines are busy at times
@given(case=cases(), seed=st.integers(0, 2**32))
def test_whatever_can_be_asked_in_json_can_be_written_and_means_the_same(
    case: Case, seed: int
) -> None:
    definition = parse_definition(case.text)
    for where in case.asked:
        text = Writer(seed).write(where)
        asked = parse_query({"where": where}, definition).where
        try:
            written = parse_query({"where": parse(text)}, definition).where
        except InvalidQuery as refused:
            raise AssertionError(text) from refused
        for record in case.records:
            accepted = {
                name: definition.fields[name].accept(value) for name, value in record.items()
            }
            assert matches(written, accepted, definition) == matches(asked, accepted, definition)


def test_the_grammar_in_the_documentation_is_the_one_of_the_parser() -> None:
    document = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert condition_language.__doc__ is not None
    grammar = condition_language.__doc__.partition("::\n")[2].partition("\nWords")[0]
    lines = [line.strip() for line in grammar.splitlines() if line.strip()]
    assert lines
    flat = " ".join(document.split())
    assert [line for line in lines if " ".join(line.split()) not in flat] == []


DOCS = Path(__file__).parents[2] / "docs"


def operators_in(where: Any) -> set[str]:
    if isinstance(where, list):
        return set().union(*map(operators_in, where))
    if "op" not in where:
        return operators_in(next(iter(where.values())))
    inner = where.get("of", {}).get("where")
    return {where["op"]} | (operators_in(inner) if inner else set())


def test_every_operator_of_the_code_can_be_written_and_has_an_example() -> None:
    section = (DOCS / "cli.md").read_text().partition("\n## Conditions\n")[2]
    examples = section.split("```")[1].strip().splitlines()
    assert set().union(*(operators_in(parse(example)) for example in examples)) == set(OPERATORS)


def test_every_operator_of_the_code_stands_in_the_table_of_the_reference() -> None:
    lines = (DOCS / "http-api.md").read_text().splitlines()
    start = lines.index("| `op` | `value` | Meaning |")
    table = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    first = " ".join(line.split("|")[1] for line in table)
    assert set(re.findall(r"`(\w+)`", first)) == set(OPERATORS)


@settings(deadline=None)  # machines are busy at times
@given(case=cases())
def test_an_expression_that_is_written_for_a_condition_means_the_same(case: Case) -> None:
    definition = parse_definition(case.text)
    for where in case.asked:
        text = write(where)
        asked = parse_query({"where": where}, definition).where
        written = parse_query({"where": parse(text)}, definition).where
        assert write(parse(text)) == text
        for record in case.records:
            accepted = {
                name: definition.fields[name].accept(value) for name, value in record.items()
            }
            found = matches(written, accepted, definition)
            assert found == matches(asked, accepted, definition), text


@pytest.mark.parametrize(
    "text",
    [
        'city starts with "\u017b" or (age >= 3 and not (b = 1 or c = 2))',
        "seen between 2026-01 and 2026-01-31T08:30:00Z",
        "not a = 1.50",
        'name not contains "it\'s \\"so\\"" folded',
        'a not in (select `x y` from visits where ward near "n" within 2)',
        "`is` is not null",
    ],
)
def test_an_expression_is_written_as_people_write_it(text: str) -> None:
    assert write(parse(text)) == text


def test_the_place_of_each_comparison_is_known() -> None:
    text = "a = 1 and (b in (select c from d where e = 2) or not f ~ 'x')"
    assert [text[at] for at in parse_with_places(text)[1]] == ["a", "b", "e", "f"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("born < 01.01.1940", "dates are written year-month-day: 2026-01-31"),
        ("born < 31.12.1940 and age = 3", "dates are written year-month-day: 2026-01-31"),
        ("born < 12/31/1940", "dates are written year-month-day: 2026-01-31"),
        ("height > 1,80", "numbers have a decimal point, and no mark of thousands: 1.80"),
        ("pay > 5.000,00", "numbers have a decimal point, and no mark of thousands: 5000.00"),
        ("age = 3 4", "join conditions by and, or"),
        ("age = 007", "numbers are written as in JSON: 18, -2.5, 1e6"),
        ("Größe (m) > 3", "put names that are not plain words in back quotes: `Größe (m)`"),
        (
            "x = 1 or date of birth <= '2'",
            "names that are not plain words in back quotes: `date of",
        ),
    ],
)
def test_a_local_date_number_or_name_is_answered_with_how_to_write_it(text: str, hint: str) -> None:
    with pytest.raises(InvalidQuery) as refused:
        parse(text)
    assert hint in refused.value.hint


def test_a_condition_given_as_json_is_answered_with_the_option_and_without_it() -> None:
    with pytest.raises(Malformed, match=r"^--where: not JSON at line 1") as refused:
        parse_condition(None, "city = 'Ulm'")
    assert refused.value.hint.startswith("leave --where out")


@pytest.mark.parametrize("name", ["people.xlsx", "PEOPLE.XLSX", "people.parquet"])
def test_an_export_is_not_written_under_the_name_of_another_format(name: str) -> None:
    with pytest.raises(click.UsageError, match=r"choose -o csv or -o ndjson"):
        file_format(None, name, safe_cells=False, schema_id=False)
    assert file_format("csv", name, safe_cells=False, schema_id=False) == "csv"
    assert file_format(None, "people.CSV", safe_cells=False, schema_id=False) == "csv"
