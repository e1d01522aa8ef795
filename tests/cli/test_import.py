"""``ers import``: a table becomes an encrypted schema, each row of it once, whatever happens."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow
import pytest
from pyarrow import parquet

from encrypted_records.client.proxy.jobs import Jobs
from tests.cli.command import Ers, environment
from tests.cli.terminals import COMMAND
from tests.support import forked
from tests.support.eventually import eventually
from tests.support.postgres import NewDatabase
from tests.support.service import Account, Service, clean_environment, state_beside

CUSTOMERS = """
CREATE TABLE customers (
    id bigint PRIMARY KEY, name text NOT NULL, city varchar(40), born date, balance numeric(12, 2),
    score double precision, active boolean NOT NULL, tags text[], seen timestamptz, ref uuid,
    big numeric(30, 0), raw bytea, empty text
);
INSERT INTO customers
SELECT n * 3, 'person ' || n, CASE WHEN n % 3 > 0 THEN 'Oslo' END, date '1970-01-01' + n,
       n * 1.25 - 100, n / 8.0, n % 2 = 0, ARRAY['a', n::text],
       timestamptz '2024-02-29 12:00:00+02' + n * interval '1 second',
       md5(n::text)::uuid, 123456789012345678901234567890 - n, decode('00ff', 'hex'), NULL
FROM generate_series(1, 2500) AS n;
"""


@pytest.fixture(scope="module")
def shop(postgresql: NewDatabase) -> str:
    """The URL of a database with a table."""
    url = postgresql()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(CUSTOMERS)
    return url


@pytest.fixture
def name() -> str:
    return f"t{secrets.token_hex(4)}"


def stored(ers: Ers, schema: str) -> list[dict[str, Any]]:
    said = ers.done("record", "search", "--schema", schema, "--all")
    return [json.loads(line, parse_float=Decimal)["data"] for line in said.out.splitlines()]


def test_a_table_becomes_a_schema_by_one_command_with_every_value(
    ers: Ers, shop: str, name: str
) -> None:
    said = ers.done("import", shop, "--table", "customers", "--dataset", name)
    path = said.one["schema"]
    assert path.endswith(f"/{name}/customers")
    assert said.one["stored"] == 2500

    definition = json.loads(ers.done("schema", "get", path, "--definition").out)
    fields = definition["properties"]
    assert list(fields)[:3] == ["id", "name", "city"]
    kinds = {name: spec["type"] for name, spec in fields.items()}
    assert {name for name, kind in kinds.items() if kind == "integer"} == {"id", "active"}
    assert {name for name, kind in kinds.items() if kind == "number"} == {"balance", "score"}
    assert (fields["balance"]["precision"], fields["score"]["precision"]) == (2, 5)
    assert definition["required"] == ["id", "name", "active"]

    rows = stored(ers, path)
    assert [row["id"] for row in rows] == [3 * n for n in range(1, 2501)]
    assert rows[1999] == {
        "id": 6000,
        "name": "person 2000",
        "city": "Oslo",
        "born": str(datetime.date(1970, 1, 1) + datetime.timedelta(2000)),
        "balance": Decimal("2400.00"),
        "score": Decimal("250.000"),
        "active": True,
        "tags": '["a","2000"]',
        "seen": "2024-02-29T10:33:20Z",
        "ref": rows[1999]["ref"],
        "big": str(123456789012345678901234567890 - 2000),
        "raw": "\\x00ff",
    }
    assert "city" not in rows[2]

    again = ers("import", shop, "--table", "customers", "--dataset", name)
    assert (again.code, "already exists" in again.err) == (4, True)
    assert len(stored(ers, path)) == 2500


@pytest.mark.parametrize("kind", ["text", "two", "numeric"])
def test_pages_follow_whatever_key_tells_rows_apart(
    ers: Ers, postgresql_url: str, name: str, kind: str
) -> None:
    declared = {
        "text": "k text PRIMARY KEY, v int",
        "two": "a int, k varchar(9), v int, PRIMARY KEY (k, a)",
        "numeric": "k numeric(6, 1), v int",
    }[kind]
    keys = ["B", "a", "É", "z", "Z", "ab", "1", "10", "2", "ß", "東京"]
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE things ({declared})")
        for at, key in enumerate(keys):
            if kind == "numeric":
                connection.execute("INSERT INTO things VALUES (%s, %s)", (at / 2 - 2, at))
            elif kind == "two":
                connection.execute("INSERT INTO things VALUES (%s, %s, %s)", (at, key[0], at))
            else:
                connection.execute("INSERT INTO things VALUES (%s, %s)", (key, at))
    run: tuple[str, ...] = (
        "import",
        postgresql_url,
        "--table",
        "things",
        "--dataset",
        name,
        "--page-rows",
        "2",
    )
    if kind == "numeric":
        said = ers(*run)
        assert (said.code, "--key" in said.err) == (2, True)
        run = (*run, "--key", "k")

    path = ers.done(*run).one["schema"]

    rows = stored(ers, path)
    assert sorted(row["v"] for row in rows) == list(range(len(keys)))


class Killed:
    """An import as a process of its own, which is killed."""

    def __init__(self, told: dict[str, str], state: Path, *arguments: str) -> None:
        self.told, self.arguments = told, arguments
        self.state = state / "encrypted-records" / "imports.json"

    def remembered(self) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError, ValueError):
            (found,) = json.loads(self.state.read_text()).values()
            return dict(found)
        return {}

    def until(self, reached: Any) -> None:
        """Run it until what it remembers is ``reached``, and kill it then."""
        process = forked.Forked(
            [*COMMAND, *self.arguments],
            env=self.told,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

        def is_there() -> bool:
            return bool(reached(self.remembered())) or process.poll() is not None

        eventually(is_there, "it is where it is to be killed", pause=0.002)
        assert process.poll() is None, process.communicate()[1]
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def to_its_end(self) -> dict[str, Any]:
        done = forked.run([*COMMAND, *self.arguments], self.told)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))


@pytest.fixture
def told(running: Service, account: Account, tmp_path: Path) -> dict[str, str]:
    own = environment(running, account) | {
        "XDG_STATE_HOME": state_beside(running, tmp_path / "own")
    }
    return clean_environment(**own)


@pytest.fixture(params=["postgresql", "parquet"])
def source(request: pytest.FixtureRequest, shop: str, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """Arguments of an import of 2500 rows, whose ids are 3, 6, 9, ..."""
    if request.param == "postgresql":
        yield (shop, "--table", "customers")
        return
    path = tmp_path / "customers.parquet"
    ids = [3 * n for n in range(1, 2501)]
    names = [f"person {n}" for n in range(1, 2501)]
    table = pyarrow.table({"id": ids, "name": names, "score": [n / 8 for n in range(1, 2501)]})
    parquet.write_table(table, path, row_group_size=700)
    yield (str(path),)


def test_a_killed_import_goes_on_and_stores_no_row_twice(
    ers: Ers, told: dict[str, str], source: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    run = Killed(told, tmp_path / "own", "import", *source, "--dataset", name, "--page-rows", "400")
    run.until(lambda known: known.get("job"))  # before anything of it is there
    run.until(lambda known: known.get("read", 0) >= 1200 and known["job"])  # amid the next

    text = run.state.read_text()
    assert "person" not in text
    assert set(run.remembered()) == {"schema", "read", "stored", "job"}
    done = run.to_its_end()

    assert done["stored"] == 2500
    ids = [row["id"] for row in stored(ers, done["schema"])]
    assert ids == [3 * n for n in range(1, 2501)]
    assert run.remembered() == {}


def test_a_page_whose_end_nobody_saw_is_not_stored_again(
    ers: Ers, shop: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ("import", shop, "--table", "customers", "--dataset", name, "--page-rows", "1000")
    waited = Jobs.wait

    async def killed(self: Jobs, job_id: str) -> Any:
        await waited(self, job_id)
        raise KeyboardInterrupt  # it is stored, and the command is gone

    with monkeypatch.context() as patch:
        patch.setattr(Jobs, "wait", killed)
        assert ers(*run).code == 130
    assert ers.done(*run).one["stored"] == 2500
    assert len({row["id"] for row in stored(ers, f"{name}/customers")}) == 2500


def test_records_of_others_in_the_schema_end_an_import_by_name(
    ers: Ers, shop: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ("import", shop, "--table", "customers", "--dataset", name, "--page-rows", "1000")
    waited = Jobs.wait

    async def killed(self: Jobs, job_id: str) -> Any:
        await waited(self, job_id)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Jobs, "wait", killed)
        assert ers(*run).code == 130
    row = json.dumps({"id": 99, "name": "x", "active": True})
    ers.done("record", "create", "--file", "-", "--schema", f"{name}/customers", typed=row)

    said = ers(*run)
    assert (said.code, "somebody else stored" in said.err) == (4, True)

    ers.done("dataset", "delete", name, "--cascade", "--yes")  # then it begins anew
    assert ers.done(*run).one["stored"] == 2500


def test_rows_that_do_not_fit_are_named_or_left_out(
    ers: Ers, postgresql_url: str, name: str
) -> None:
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text, f float8)")
        connection.execute("INSERT INTO t SELECT n, 'v', n FROM generate_series(1, 30) n")
        connection.execute("UPDATE t SET v = repeat('x', 1048577) WHERE id IN (25, 26)")
    run = ("import", postgresql_url, "--table", "t", "--dataset", name, "--page-rows", "10")

    said = ers(*run)
    assert said.code == 6
    assert "row 25, v: longer than" in said.err
    assert "20 records before this page are stored" in said.err
    said = ers(*run, "--skip-invalid")
    assert (said.code, said.one["stored"]) == (6, 28)
    assert "2 rows did not match the schema" in said.err

    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute("UPDATE t SET v = 'v', f = CASE id WHEN 7 THEN float8 'NaN' ELSE 1 END")
    said = ers(*run, "--name", "other")
    assert said.code == 6
    assert "row 7, f: expected a" in said.err


@pytest.mark.parametrize(
    ("url", "says", "code"),
    [
        ("postgresql://ada:{secret}@{at}/nothing", "no database nothing", 2),
        ("postgresql://ada:{secret}@127.0.0.1:1/shop", "cannot be reached", 5),
        ("postgresql://ada:{secret}@127.0.0.1:x/shop", "cannot be reached", 5),
        (
            "postgresql://ada:{secret}@127.0.0.1/shop?nothing={secret}",
            "is not the URL of a database",
            2,
        ),
    ],
)
def test_a_password_in_a_url_is_never_shown_or_kept(
    ers: Ers, shop: str, tmp_path: Path, url: str, says: str, code: int
) -> None:
    secret = "violet-harbour-49"
    at = shop.partition("@")[2].rpartition("/")[0]
    if "{at}" in url and "host=" in shop:
        pytest.skip("this PostgreSQL has no port")
    url = url.replace("ada:", "tests:" if "{at}" in url else "ada:").format(secret=secret, at=at)
    ers.set(ERS_IMPORT_URL=url, ERS_TRACEBACK="1")
    said = ers("import", "--table", "customers")
    assert (said.code, says in said.err) == (code, True)
    assert secret not in said.out + said.err
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or secret not in path.read_text(errors="replace")


def test_a_url_with_a_password_leaves_no_trace_when_it_works(
    ers: Ers, shop: str, name: str, tmp_path: Path, running: Service
) -> None:
    secret = "violet-harbour-49"
    url = shop.replace("@", f":{secret}@", 1)
    ers.set(ERS_IMPORT_URL=url)
    said = ers.done("import", "--table", "customers", "--dataset", name, "--name", "copy")
    assert secret not in said.out + said.err + running.log
    ers.unset("ERS_IMPORT_URL")
    told = ers("import", url, "--table", "nothing").err
    assert (secret in told, "list of processes" in told) == (False, True)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or secret not in path.read_text(errors="replace")


def test_what_cannot_be_imported_is_said_before_anything_is_stored(
    ers: Ers, shop: str, name: str, tmp_path: Path
) -> None:
    typed = tmp_path / "typed.parquet"
    parquet.write_table(pyarrow.table({"age": [1]}), typed)
    table = (shop, "--table", "customers", "--key")
    for says, code, given in (
        ("no file or table to import", 2, ()),
        ("no file or table to import", 2, ("--exact",)),
        ("no file or table to import", 2, ("--schema", "people")),
        ("missing: --table", 2, (shop,)),
        ("no table public.custmers", 3, (shop, "--table", "custmers")),
        ("no column x", 2, (*table, "x")),
        ("cannot be used as a key", 2, (*table, "seen")),
        ("is null in a row", 2, (*table, "city")),
        ("no table", 3, (shop, "--table", 'x"; DROP TABLE customers; --')),
        ("cannot be read", 2, ("people.parquet",)),
        ("are for PostgreSQL", 2, ("people.parquet", "--table", "x")),
        ("not for tables, Parquet and Arrow", 2, (str(typed), "--keep")),
    ):
        said = ers("import", *given, "--dataset", name)
        assert (said.code, says in said.err) == (code, True), said.err


TYPES = """
CREATE DOMAIN percent AS numeric(5, 2) NOT NULL;
CREATE TYPE mood AS ENUM ('sad', 'ecstatic');
CREATE TABLE typed (
    id bigint PRIMARY KEY, small smallint, whole integer NOT NULL, price numeric(8, 2),
    wide numeric(30, 4), count numeric(6, 0), free numeric, share percent, real real,
    code varchar(7), long varchar(200), fixed char(3), on_day date, at time, seen timestamptz,
    local timestamp(3), lasted interval, ref uuid UNIQUE, mood mood, paid money,
    notes jsonb, is_on boolean
);
INSERT INTO typed VALUES (
    1, -3, 7, 12.50, 1.5, 12, 0.125, 99.5, 0.5, 'abc', 'x', 'ab', '2024-01-05', '10:11:12',
    '2024-01-05 10:11:12.5+01', '2024-01-05 10:11:12.123', '-1 day -2:00:00.5',
    md5('a')::uuid, 'sad', 5.25, '{"a": 1}',
    false
);
"""
LARGE = 10**18 - 1


def test_declared_types_of_postgresql_stay_what_they_are(
    ers: Ers, postgresql: NewDatabase, name: str
) -> None:
    url = postgresql()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TYPES)
    said = ers.done("import", url, "--table", "typed", "--dataset", name, "--unique", "ref")
    definition = json.loads(ers.done("schema", "get", said.one["schema"], "--definition").out)

    def whole(least: int, most: int) -> dict[str, Any]:
        return {"type": "integer", "minimum": least, "maximum": most}

    def exact(precision: int, magnitude: int) -> dict[str, Any]:
        bound = 10**magnitude
        return {"type": "number", "minimum": -bound, "maximum": bound, "precision": precision}

    def text(padded: int, **more: int) -> dict[str, Any]:
        return {"type": "string", **more, "padTo": padded}

    def of(named: str) -> dict[str, Any]:
        return {"type": "string", "format": named}

    assert definition["properties"] == {
        "id": whole(-LARGE, LARGE),
        "small": whole(-(2**15), 2**15 - 1),
        "whole": whole(-(2**31), 2**31 - 1),
        "price": exact(2, 6),
        "wide": text(63),
        "count": whole(-(10**6), 10**6),
        "free": exact(9, 9),
        "share": exact(2, 3),
        "real": exact(2, 12),
        "code": text(28, maxLength=7),
        "long": text(63, maxLength=200),
        "fixed": text(12, maxLength=3),
        "on_day": of("date"),
        "at": of("time"),
        "seen": of("date-time"),
        "local": of("local-date-time"),
        "lasted": of("duration"),
        "ref": of("uuid"),
        "mood": text(8),
        "paid": exact(2, 16),
        "notes": text(31),
        "is_on": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
    }
    assert definition["required"] == ["id", "whole", "share"]
    assert (definition["unique"], definition["rounding"]) == ([["ref"]], "refuse")
    assert "local: times without a zone: local times" in said.err
    (row,) = stored(ers, said.one["schema"])
    assert row["local"] == "2024-01-05T10:11:12.123"
    assert row["lasted"] == "-P1DT2H0.5S"
    assert row["seen"] == "2024-01-05T09:11:12.5Z"
    assert (row["free"], row["paid"], row["is_on"]) == (Decimal("0.125"), Decimal("5.25"), False)


ODD = """
CREATE TYPE weekday AS ENUM ('Mo', 'Mittwoch');
CREATE TABLE odd (
    id uuid PRIMARY KEY, day weekday NOT NULL, lasted interval NOT NULL, marks integer[],
    words text[] NOT NULL, facts jsonb NOT NULL, long numeric(38, 10) NOT NULL,
    seen timestamptz NOT NULL, price numeric(12, 2) NOT NULL,
    gross numeric(14, 3) GENERATED ALWAYS AS (price * 1.19) STORED
);
INSERT INTO odd VALUES (
    md5('a')::uuid, 'Mittwoch', '1 mon 2 days 03:04:05', '{1,NULL,3}', '{"a,b",c}',
    '{"b": 1.50, "a": [1]}', 1234567890123456789012345678.0123456789,
    '1890-06-01 12:00:00+00', 10.00
);
"""


def test_odd_columns_of_postgresql_keep_their_values_and_are_said(
    ers: Ers, postgresql: NewDatabase, name: str
) -> None:
    url = postgresql()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(ODD)
        connection.execute("UPDATE odd SET lasted = '2 days 03:04:05'")
    said = ers.done("import", url, "--table", "odd", "--dataset", name)
    definition = json.loads(ers.done("schema", "get", said.one["schema"], "--definition").out)
    assert definition["required"] == [
        *("id", "day", "lasted", "words", "facts", "long", "seen", "price")
    ]
    assert definition["properties"]["day"] == {"type": "string", "padTo": 8}
    assert definition["properties"]["gross"]["precision"] == 3
    assert "enum" not in json.dumps(definition)
    for column, note in (
        ("marks", "a list: kept as JSON text"),
        ("words", "a list: kept as JSON text"),
        ("facts", "JSON: kept as text"),
        ("long", "more than 18 digits: kept as text"),
    ):
        assert f"{column}: {note}" in said.err
    (row,) = stored(ers, said.one["schema"])
    assert row["long"] == "1234567890123456789012345678.0123456789"
    assert (json.loads(row["marks"]), json.loads(row["words"])) == ([1, None, 3], ["a,b", "c"])
    assert json.loads(row["facts"]) == {"a": [1], "b": 1.5}
    assert row["seen"].startswith("1890-06-01T12:00:00")
    assert (row["gross"], row["lasted"], row["day"]) == (Decimal("11.9"), "P2DT3H4M5S", "Mittwoch")

    # Months have no length, and bytes are no text: neither is stored as something else.
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE odd SET lasted = '1 mon'")
        connection.execute("CREATE TABLE raw (id integer PRIMARY KEY, scan bytea)")
        connection.execute("INSERT INTO raw VALUES (1, 'secret')")
    months = ers("import", url, "--table", "odd", "--dataset", name, "--name", "months")
    assert months.code != 0
    assert "lasted" in months.err
    raw = ers("import", url, "--table", "raw", "--dataset", name)
    assert "scan" in raw.err
    assert "secret" not in raw.err


def test_odd_columns_of_parquet_and_arrow_are_exact_or_refused_by_name(
    ers: Ers, name: str, tmp_path: Path
) -> None:
    texts = pyarrow.array(["ja", "nein", "ja"])
    lasted = pyarrow.array([5_400_000_000, None, 1], pyarrow.duration("us"))
    table = pyarrow.table(
        [texts.dictionary_encode(), texts.cast(pyarrow.large_string()), lasted],
        schema=pyarrow.schema(
            [
                pyarrow.field("word", pyarrow.dictionary(pyarrow.int32(), pyarrow.string())),
                pyarrow.field("large", pyarrow.large_string(), nullable=False),
                pyarrow.field("lasted", pyarrow.duration("us")),
            ]
        ),
    )
    for kind in ("parquet", "arrow"):
        path = tmp_path / f"odd-{kind}.{kind}"
        if kind == "parquet":
            parquet.write_table(table, path)
        else:
            with pyarrow.ipc.new_file(path, table.schema) as file:
                file.write_table(table)
        said = ers.done("import", path, "--dataset", name)
        definition = json.loads(ers.done("schema", "get", said.one["schema"], "--definition").out)
        assert definition["required"] == ["large"]
        assert definition["properties"]["lasted"]["format"] == "duration"
        assert "enum" not in json.dumps(definition)
        rows = stored(ers, said.one["schema"])
        assert {row["word"] for row in rows} == {row["large"] for row in rows} == {"ja", "nein"}
        assert {row.get("lasted") for row in rows} == {"PT1H30M", None, "PT0.000001S"}
    count = len(ers.done("schema", "list", "--dataset", name).lines)
    for column, value in (
        ("tags", pyarrow.array([["a"], ["b"]])),
        ("place", pyarrow.array([{"x": 1}, {"x": 2}])),
        ("raw: values of type binary cannot be stored", pyarrow.array([None, b"secret"])),
    ):
        path = tmp_path / f"{column[:3]}.parquet"
        parquet.write_table(pyarrow.table({column.partition(":")[0]: value}), path)
        refused = ers("import", path, "--dataset", name)
        assert refused.code != 0
        assert column in refused.err
        assert "secret" not in refused.err
    assert len(ers.done("schema", "list", "--dataset", name).lines) == count


def test_declared_types_of_parquet_stay_what_they_are(ers: Ers, name: str, tmp_path: Path) -> None:
    path = tmp_path / "typed.parquet"
    day = datetime.datetime(2024, 1, 5, 10, 11, 12)  # noqa: DTZ001 - a time without a zone
    columns = {
        "tiny": ([1, 2], pyarrow.field("tiny", pyarrow.uint8(), nullable=False)),
        "price": ([Decimal("1.50"), None], pyarrow.field("price", pyarrow.decimal128(9, 2))),
        "ratio": ([0.125, 3.0], pyarrow.field("ratio", pyarrow.float64())),
        # Texts that look like days are texts where they are declared as such.
        "text": (["2024-01-05", "2024-01-06"], pyarrow.field("text", pyarrow.string())),
        "is_on": ([True, False], pyarrow.field("is_on", pyarrow.bool_())),
        "on_day": ([day.date(), None], pyarrow.field("on_day", pyarrow.date32())),
        "local": ([day, None], pyarrow.field("local", pyarrow.timestamp("us"))),
    }
    arrays = [pyarrow.array(values, one.type) for values, one in columns.values()]
    schema = pyarrow.schema([one for _, one in columns.values()])
    parquet.write_table(pyarrow.table(arrays, schema=schema), path)
    said = ers.done("import", path, "--dataset", name)
    definition = json.loads(ers.done("schema", "get", said.one["schema"], "--definition").out)
    fields = definition["properties"]
    assert (fields["tiny"]["minimum"], fields["tiny"]["maximum"]) == (0, 255)
    assert (fields["price"]["precision"], fields["price"]["maximum"]) == (2, 10**7)
    assert fields["ratio"]["precision"] == 5
    assert fields["text"] == {"type": "string", "padTo": 31}
    assert (fields["is_on"]["format"], fields["on_day"]["format"]) == ("boolean", "date")
    assert fields["local"] == {"type": "string", "format": "local-date-time"}
    assert definition["required"] == ["tiny"]
    row = stored(ers, said.one["schema"])[0]
    assert row["local"] == "2024-01-05T10:11:12"
    assert (row["is_on"], row["on_day"]) == (True, "2024-01-05")


def test_a_column_of_nanoseconds_is_text_wherever_the_first_of_them_is(
    ers: Ers, name: str, tmp_path: Path
) -> None:
    path = tmp_path / "seen.parquet"
    counts = [1_583_020_800 * 10**9] * 2001 + [7]
    column = pyarrow.array(counts, pyarrow.timestamp("ns", "UTC"))
    parquet.write_table(pyarrow.table({"at": column}), path)
    said = ers.done("import", path, "--dataset", name)
    values = [row["at"] for row in stored(ers, said.one["schema"])]
    assert values[0] == "2020-03-01T00:00:00Z"
    assert values[-1] == "1970-01-01T00:00:00.000000007Z"
    assert len(values) == len(counts)


def test_a_damaged_file_of_columns_is_named(ers: Ers, tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    path.write_bytes(os.urandom(1000))
    said = ers("import", path)
    assert (said.code, "damaged" in said.err) == (2, True)


def test_one_command_at_a_time_imports_a_table(
    ers: Ers,
    told: dict[str, str],
    shop: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    arguments = ("import", shop, "--table", "customers", "--dataset", name)
    others: list[subprocess.CompletedProcess[str]] = []
    waited = Jobs.wait
    told["XDG_STATE_HOME"] = str(tmp_path / "state")  # the same person, on the same machine

    async def beside(self: Jobs, job_id: str) -> Any:
        others.append(forked.run([*COMMAND, *arguments], told))
        return await waited(self, job_id)

    monkeypatch.setattr(Jobs, "wait", beside)
    assert ers.done(*arguments).one["stored"] == 2500
    (other,) = others
    assert (other.returncode, "another command is importing" in other.stderr) == (4, True)
