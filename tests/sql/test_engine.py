"""The engine answers SELECT over the records that its caller can read, and nothing else."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest

from encrypted_records import Client
from encrypted_records.errors import SqlError
from encrypted_records.sql.engine import Engine
from encrypted_records.sql.limits import SqlLimits
from tests.support.sql import MakeClient, ask

EVERY_TYPE: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "properties": {
        "text": {"type": "string"},
        "whole": {"type": "integer", "minimum": -(10**12), "maximum": 10**12},
        "wide": {"type": "integer", "minimum": 10**20, "maximum": 10**20 + 1000},
        "number": {"type": "number", "minimum": -1000, "maximum": 10**9, "precision": 2},
        "day": {"type": "string", "format": "date"},
        "clock": {"type": "string", "format": "time"},
        "at": {"type": "string", "format": "date-time"},
        "local": {"type": "string", "format": "local-date-time"},
        "length": {"type": "string", "format": "duration"},
        "key": {"type": "string", "format": "uuid"},
        "yes": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
    },
    "required": [],
}
FULL: dict[str, Any] = {
    "text": "Zoë",
    "whole": -7,
    "wide": 10**20 + 5,
    "number": Decimal("-999.99"),
    "day": "0001-01-01",
    "clock": "23:59:59.000001",
    "at": "2026-01-31T08:30:00+02:00",
    "local": "9999-12-31T23:59:59.999999",
    "length": "-P1DT1S",
    "key": "0190163d-8694-739b-aea5-966c26f8ad91",
    "yes": True,
}


@pytest.fixture(scope="module", autouse=True)
def stored(client: Client) -> None:
    dataset = client.create_dataset("Clinic", slug="clinic")
    dataset.create_schema("Every type", EVERY_TYPE, slug="every").ingest([FULL, {}])
    people = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "Name": {"type": "string"},
            'a "b"); DROP': {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
        },
        "required": [],
    }
    rows: list[dict[str, Any]] = [
        {"name": "Ada", "Name": "ADA", 'a "b"); DROP': "x", "age": 36},
        {"name": "Bo", "age": 20},
        {"name": "Cy", "age": 20},
        {"name": "Di"},
    ]
    dataset.create_schema("People", people, slug="people").ingest(rows)


def test_every_type_of_field_has_its_exact_type_of_sql(proxy: MakeClient) -> None:
    full, empty = ask(proxy, "SELECT * FROM every ORDER BY whole NULLS LAST")
    assert full == {
        "text": "Zoë",
        "whole": -7,
        "wide": Decimal(10**20 + 5),
        "number": Decimal("-999.99"),
        "day": date(1, 1, 1),
        "clock": time(23, 59, 59, 1),
        "at": datetime(2026, 1, 31, 6, 30, tzinfo=UTC),
        "local": datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
        "length": full["length"],
        "key": "0190163d-8694-739b-aea5-966c26f8ad91",
        "yes": True,
    }
    assert timedelta(microseconds=full["length"].nanoseconds // 1000) == -timedelta(1, 1)
    assert set(empty.values()) == {None}


def test_groups_windows_and_joins(proxy: MakeClient) -> None:
    told = ask(
        proxy,
        """
        WITH ages AS (SELECT age, count(*) AS many FROM people GROUP BY age)
        SELECT p.name, a.many, rank() OVER (ORDER BY p.age DESC NULLS LAST) AS place
        FROM people p LEFT JOIN ages a USING (age) ORDER BY place, p.name
        """,
    )
    assert [tuple(row.values()) for row in told] == [
        ("Ada", 1, 1),
        ("Bo", 2, 2),
        ("Cy", 2, 2),
        ("Di", None, 4),
    ]


def test_names_of_fields_are_names_whatever_is_in_them(proxy: MakeClient) -> None:
    told = ask(
        proxy, 'SELECT "a ""b""); DROP" AS odd, name_1 FROM people WHERE "name_1" IS NOT NULL'
    )
    assert told == [{"odd": "x", "Name_1": "ADA"}]


def test_a_count_of_all_rows_needs_no_column(proxy: MakeClient) -> None:
    assert ask(proxy, "SELECT count(*) AS n FROM clinic.people") == [{"n": 4}]


def test_parameters_stand_for_values(proxy: MakeClient) -> None:
    assert ask(proxy, "SELECT name FROM people WHERE age > $1", [30]) == [{"name": "Ada"}]
    assert ask(proxy, "SELECT $x::int + 1 AS y", {"x": 1}) == [{"y": 2}]


#: Statements, their states, and what their errors tell.
ERRORS = [
    ("SELECT * FROM patients", "42P01", "every, people"),
    ("SELECT nme FROM people", "42703", "name"),
    ("SELECT nonsense(1)", "42883", "functions"),
    ("SELECT btrim(name) FROM people", "42883", "in DuckDB's SQL it is trim"),
    ("SELECT '{}'::jsonb", "42000", "in DuckDB's SQL it is JSON"),
    ("SELEC 1", "42601", ""),
    ("SELECT 1\nFROM people\nWHERE nme = 'x'", "42703", "clause! (line 3)"),
    ("PIVOT people ON name USING count(*)", "0A000", "list the values"),
    ("EXPLAIN SELECT 1", "25006", "EXPLAIN is not supported"),
    ("", "42601", ""),
    ("SELECT '\ud800'", "42601", "Unicode"),
    ("SELECT 1; SELECT 2", "42601", ""),
    ("SELECT 'x'::int", "22P02", ""),
    ("SELECT '10:00:00+02'::TIMETZ", "0A000", "VARCHAR"),
    ("SELECT [340282366920938463463374607431768211455::UHUGEINT]", "0A000", "VARCHAR"),
    ("SELECT {'bits': '101'::BIT}", "0A000", "VARCHAR"),
    ("INSERT INTO people VALUES (1)", "25006", "SELECT"),
    ("DELETE FROM people", "25006", "SELECT"),
    ("WITH x AS (DELETE FROM people RETURNING *) SELECT * FROM x", "25006", "SELECT"),
    *(
        (nonsense, "42601", "")
        for nonsense in ("x" * 10**6, "\0\1" * 10**5, f"SELECT {'(' * 10**5}1{')' * 10**5}")
    ),
]


def test_errors_have_a_state_and_name_what_there_is_in_one_paragraph(proxy: MakeClient) -> None:
    async def run() -> None:
        async with proxy() as client, Engine(client) as engine:
            for statement, state, told in ERRORS:
                with pytest.raises(SqlError) as caught:
                    async with await engine.execute(statement) as result:
                        await result.table()
                assert caught.value.sqlstate == state, statement[:100]
                assert told in caught.value.message + caught.value.hint, statement[:100]
                assert len(caught.value.message) < 1_100, statement[:100]

    asyncio.run(run())


def test_an_unknown_dataset_is_told_with_those_that_there_are(proxy: MakeClient) -> None:
    with pytest.raises(SqlError) as caught:
        ask(proxy, "SELECT 1", dataset="nowhere")
    assert caught.value.sqlstate == "3D000"
    assert "clinic" in caught.value.hint


FOREVER = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t"


@pytest.mark.parametrize(
    ("statement", "limits", "state", "code"),
    [
        (FOREVER, {"seconds": 0.5}, "57014", "sql_time"),
        (
            "SELECT list(r) FROM range(1000000000) t(r)",
            {"memory_bytes": 100 << 20},
            "53200",
            "sql_memory",
        ),
        ("SELECT * FROM range(1000)", {"rows": 999}, "54000", "sql_rows"),
    ],
)
def test_a_statement_beyond_a_limit_ends_by_name(
    proxy: MakeClient, statement: str, limits: dict[str, Any], state: str, code: str
) -> None:
    with pytest.raises(SqlError) as caught:
        ask(proxy, statement, limits=SqlLimits(**limits))
    assert (caught.value.sqlstate, caught.value.reason) == (state, code)
    assert "SET " not in caught.value.message


def test_a_statement_is_cancelled_and_the_engine_goes_on(proxy: MakeClient) -> None:
    async def run() -> Any:
        async with proxy() as client, Engine(client) as engine:
            asyncio.get_running_loop().call_later(0.3, engine.cancel)
            with pytest.raises(SqlError) as caught:
                async with await engine.execute(FOREVER) as result:
                    await result.table()
            async with await engine.execute("SELECT 1 AS a") as result:
                return caught.value.reason, (await result.table()).to_pylist()

    assert asyncio.run(run()) == ("sql_canceled", [{"a": 1}])
