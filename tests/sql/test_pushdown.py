"""Comparisons that the proxy is asked to make are those of the statement, or wider ones."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from encrypted_records.sql import pushdown
from encrypted_records.sql.catalogue import Catalogue, Column, Table
from encrypted_records.sql.limits import STANDARD
from encrypted_records.sql.planner import Planner

COLUMNS = (
    Column("age", "BIGINT", "age", "int64"),
    Column("name", "VARCHAR", "name", "string"),
    Column("paid", "DECIMAL(6,2)", "paid", "decimal128(6, 2)"),
    Column("born", "DATE", "born", "date32[day]"),
)


@pytest.fixture(scope="module")
def planner() -> Planner:
    table = Table("clinic", "people", "/api/schemas/x/", COLUMNS)
    return Planner(Catalogue(("clinic",), (table,)), "clinic", STANDARD)


def asked(planner: Planner, condition: str, rest: str = "") -> Any:
    """The condition that the proxy is asked to test."""
    plan = planner.plan(planner.only(f"SELECT age FROM people WHERE {condition} {rest}"))
    (scan,) = plan.scans.values()
    table = planner.catalogue.tables[0]
    return pushdown.condition_of(table, scan.filters, planner.expression)


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
