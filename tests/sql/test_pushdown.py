"""Comparisons that the proxy is asked to make are those of the statement, or wider ones."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from encrypted_records.sql import pushdown
from encrypted_records.sql.catalogue import Catalogue, SqlColumn, SqlTable
from encrypted_records.sql.limits import STANDARD
from encrypted_records.sql.planner import Planner

COLUMNS = (
    SqlColumn("age", "BIGINT", "age", "int64"),
    SqlColumn("name", "VARCHAR", "name", "string"),
    SqlColumn("paid", "DECIMAL(6,2)", "paid", "decimal128(6, 2)"),
    SqlColumn("born", "DATE", "born", "date32[day]"),
)


@pytest.fixture(scope="module")
def planner() -> Planner:
    table = SqlTable("clinic", "people", "/api/schemas/x/", COLUMNS)
    return Planner(Catalogue(("clinic",), (table,)), "clinic", STANDARD)


def asked(planner: Planner, condition: str, rest: str = "") -> Any:
    """The condition that the proxy is asked to test."""
    plan = planner.plan(planner.only(f"SELECT age FROM people WHERE {condition} {rest}"))
    (scan,) = plan.scans.values()
    table = planner.catalogue.tables[0]
    return pushdown.condition_of(table, scan.filters, planner.expression).where


def first(planner: Planner, statement: str) -> Any:
    """The columns by which rows are sorted, and how many of them are asked for."""
    plan = planner.plan(planner.only(statement))
    (scan,) = plan.scans.values()
    table = planner.catalogue.tables[0]
    condition = pushdown.condition_of(table, scan.filters, planner.expression)
    if scan.first is None or not condition.exact:
        return None
    order = [
        f"{'-' if one.descending else ''}{table.columns[one.column].name}"
        f"{'!' if one.nulls_first else ''}"
        for one in scan.first.order
    ]
    return " ".join([*order, f"{scan.first.offset}+{scan.first.limit}"])


def among(field: str, *values: object) -> dict[str, object]:
    return {"field": field, "op": "in", "value": list(values)}


def equal(value: object) -> dict[str, object]:
    return {"field": "paid", "op": "between", "value": [value, value]}


@pytest.mark.parametrize(
    ("condition", "where"),
    [
        ("name IN ('x', 'o''z')", among("name", "x", "o'z")),
        (
            "name IN ('optional: ', 'Dynamic Filter (c0)')",
            among("name", "optional: ", "Dynamic Filter (c0)"),
        ),
        ("born IN ('2020-01-31', '2021-02-01')", among("born", "2020-01-31", "2021-02-01")),
        ("paid IN (1.5, 7)", {"or": [equal(Decimal("1.50")), equal(Decimal("7.00"))]}),
        (
            f"paid IN ({', '.join(str(value / 2) for value in range(1, 40))})",
            {"field": "paid", "op": "between", "value": [Decimal("0.50"), Decimal("19.50")]},
        ),
        ("name IN ('x', NULL)", among("name", "x")),
        ("name NOT IN ('x', 'y')", None),
        ("name IN ('x', 'e\u0301')", None),
        ("paid IN (1.555, 2)", None),
    ],
)
def test_lists_of_values(planner: Planner, condition: str, where: Any) -> None:
    assert asked(planner, condition) == where


def test_the_first_rows_of_an_order_are_asked_for_with_the_condition(planner: Planner) -> None:
    where = {"field": "age", "op": "gt", "value": 3}
    assert asked(planner, "age > 3", "ORDER BY age DESC LIMIT 5") == where


@pytest.mark.parametrize(
    ("statement", "asked_for"),
    [
        ("SELECT * FROM people ORDER BY age DESC LIMIT 10", "-age 0+10"),
        (
            "SELECT name FROM people ORDER BY AGE, name NULLS FIRST LIMIT 3 OFFSET 4",
            "age name! 4+3",
        ),
        ("SELECT name AS age FROM people ORDER BY age LIMIT 3", "name 0+3"),
        ("SELECT name AS age FROM people p ORDER BY p.age LIMIT 3", "age 0+3"),
        ("SELECT name, age FROM people ORDER BY 2 DESC NULLS FIRST LIMIT 3", "-age! 0+3"),
        ("SELECT upper(name) FROM people WHERE age = 7 LIMIT 3", "0+3"),
        ("SELECT * FROM people WHERE age < 7 ORDER BY born NULLS FIRST LIMIT 3", "born! 0+3"),
        # Of what follows, the index cannot tell the first rows, or it is not sure.
        ("SELECT -age AS age FROM people ORDER BY age LIMIT 3", None),
        ("SELECT * REPLACE (-age AS age) FROM people ORDER BY age LIMIT 3", None),
        ("SELECT age FROM people ORDER BY age + 0 LIMIT 3", None),
        ("SELECT age FROM people ORDER BY name COLLATE NOCASE LIMIT 3", None),
        ("SELECT age FROM people WHERE name <> 'x' ORDER BY age LIMIT 3", None),
        ("SELECT age FROM people WHERE age IN (1, 5, 99) OR name = 'x' LIMIT 3", None),
        ("SELECT age FROM people WHERE name = 'optional: ' LIMIT 3", None),
        ("SELECT DISTINCT age FROM people ORDER BY age LIMIT 3", None),
        ("SELECT max(age) FROM people LIMIT 3", None),
        ("SELECT age, row_number() OVER () FROM people ORDER BY age LIMIT 3", None),
        ("SELECT unnest([1, 2]), age FROM people ORDER BY age LIMIT 3", None),
        ("SELECT age FROM people USING SAMPLE 3 ORDER BY age LIMIT 3", None),
        ("SELECT a FROM people p(b, a) ORDER BY a LIMIT 3", None),
        ("WITH people AS (SELECT -age AS age FROM clinic.people) FROM people LIMIT 3", None),
        ("SELECT age FROM people ORDER BY age LIMIT 50%", None),
        ("SELECT age FROM people ORDER BY age LIMIT 990 OFFSET 11", None),
        ("SELECT age FROM people ORDER BY age", None),
    ],
)
def test_the_first_rows_of_an_order_are_asked_for_where_the_index_can_tell_them(
    planner: Planner, statement: str, asked_for: str | None
) -> None:
    assert first(planner, statement) == asked_for
