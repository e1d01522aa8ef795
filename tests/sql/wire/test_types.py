"""Values are written as PostgreSQL itself writes them, as text and binary, and read back alike."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import duckdb
import psycopg
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from encrypted_records.sql.connections import open_closed
from encrypted_records.sql.failures import BadParameter, Failure, Unrepresentable
from encrypted_records.sql.limits import STANDARD
from encrypted_records.sql.wire import types
from encrypted_records.sql.wire.results import RowEncoder
from encrypted_records.sql.wire.statements import only, with_duckdb_formats
from tests.support.postgres import NewDatabase

BEFORE_CHRIST = b"0001-12-31 23:59:59.999999 BC"
DAYS = st.dates()
MOMENTS = st.datetimes(timezones=st.just(UTC))
#: DuckDB's type, Arrow's, and values.
KINDS: dict[str, tuple[str, pyarrow.DataType, st.SearchStrategy[Any]]] = {
    "bool": ("BOOLEAN", pyarrow.bool_(), st.booleans()),
    "int2": ("SMALLINT", pyarrow.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int4": ("INTEGER", pyarrow.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int8": ("BIGINT", pyarrow.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float8": ("DOUBLE", pyarrow.float64(), st.floats(-1e14, 1e14).map(lambda x: round(x, 3))),
    "numeric": (
        "DECIMAL(38,4)",
        pyarrow.decimal128(38, 4),
        st.decimals(-(10**30), 10**30, places=4),
    ),
    "text": (
        "VARCHAR",
        pyarrow.string(),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    ),
    "date": ("DATE", pyarrow.date32(), DAYS),
    "time": ("TIME", pyarrow.time64("us"), st.times()),
    "timestamp": ("TIMESTAMP", pyarrow.timestamp("us"), st.datetimes()),
    "timestamptz": ("TIMESTAMP WITH TIME ZONE", pyarrow.timestamp("us", "UTC"), MOMENTS),
    "uuid": ("UUID", pyarrow.string(), st.uuids().map(str)),
    "bytea": ("BLOB", pyarrow.binary(), st.binary()),
    "interval": (
        "INTERVAL",
        pyarrow.month_day_nano_interval(),
        st.tuples(
            st.integers(-1000, 1000),
            st.integers(-1000, 1000),
            st.integers(-(10**12), 10**12).map(lambda microseconds: microseconds * 1000),
        ),
    ),
    "int8[]": (
        "BIGINT[]",
        pyarrow.list_(pyarrow.int64()),
        st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=4),
    ),
    "text[]": (
        "VARCHAR[]",
        pyarrow.list_(pyarrow.string()),
        st.lists(st.none() | st.sampled_from(["", "a b", 'q"', "\\", "NULL", "{,}"]), max_size=4),
    ),
}


@pytest.fixture(scope="module")
def postgres(postgresql: NewDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgresql(), autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        yield connection


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_closed(STANDARD) as connection:
        yield connection


def written(
    kind: str, arrow: pyarrow.DataType, value: Any, form: int, *, iso: bool = False
) -> bytes | None:
    batch = pyarrow.record_batch([pyarrow.array([value], arrow)], ["value"])
    ((found,),) = RowEncoder([("value", kind)], [form], iso_intervals=iso).values(batch)
    return found


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=KINDS["interval"][2])
def test_an_interval_in_iso_8601_is_that_of_postgresql(
    postgres: psycopg.Connection[Any], value: Any
) -> None:
    duckdb, arrow, _ = KINDS["interval"]
    plain, iso = (written(duckdb, arrow, value, 0, iso=is_iso) for is_iso in (False, True))
    assert plain is not None
    with postgres.transaction(), postgres.cursor(binary=False) as cursor:
        cursor.execute("SET LOCAL intervalstyle = iso_8601")
        cursor.execute("SELECT %s::text::interval", [plain.decode()])
        assert cursor.pgresult is not None
        assert cursor.pgresult.get_value(0, 0) == iso


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_value_has_the_bytes_that_postgresql_gives_it(
    postgres: psycopg.Connection[Any], kind: str, data: st.DataObject
) -> None:
    duckdb, arrow, values = KINDS[kind]
    value = data.draw(values)
    text = written(duckdb, arrow, value, 0)
    binary = written(duckdb, arrow, value, 1)
    assert text is not None
    with postgres.cursor(binary=False) as shown, postgres.cursor(binary=True) as packed:
        # The text goes there as it is, so what comes back is PostgreSQL's own reading of it.
        for cursor, ours in ((shown, text), (packed, binary)):
            cursor.execute(f"SELECT %s::text::{kind}", [text.decode()])
            assert cursor.pgresult is not None
            assert cursor.pgresult.get_value(0, 0) == ours
    column = types.column_type(duckdb)
    assert column is not None
    assert binary is not None
    read = [types.decode_parameter(sent, form, column) for form, sent in ((0, text), (1, binary))]
    if kind != "interval":
        assert read[0] == read[1]


@pytest.mark.parametrize(
    ("duckdb", "arrow", "value", "text"),
    [
        ("TIMESTAMP", pyarrow.timestamp("us"), 2**63 - 1, b"infinity"),
        ("TIMESTAMP", pyarrow.timestamp("us"), -(2**63) + 1, b"-infinity"),
        ("TIMESTAMP", pyarrow.timestamp("us"), -62_135_596_800_000_000 - 1, BEFORE_CHRIST),
        ("TIMESTAMP", pyarrow.timestamp("us"), 253_402_300_800_000_000, b"10000-01-01 00:00:00"),
        ("DATE", pyarrow.date32(), 2**31 - 1, b"infinity"),
        ("DOUBLE", pyarrow.float64(), float("nan"), b"NaN"),
        ("DOUBLE", pyarrow.float64(), float("-inf"), b"-Infinity"),
        ("FLOAT", pyarrow.float32(), 0.1, b"0.1"),
        ("HUGEINT", pyarrow.decimal128(38, 0), 10**37, b"1" + b"0" * 37),
        ("UBIGINT", pyarrow.uint64(), 2**64 - 1, b"18446744073709551615"),
        ("JSON", pyarrow.string(), '{"a": 1}', b'{"a": 1}'),
        ("STRUCT(a INTEGER)", pyarrow.struct([("a", pyarrow.int32())]), {"a": 1}, b'{"a": 1}'),
        ("TIMESTAMP_NS", pyarrow.timestamp("ns"), 1, b"1970-01-01 00:00:00.000000001"),
    ],
)  # fmt: skip
def test_values_at_the_edges_are_exact(
    duckdb: str, arrow: pyarrow.DataType, value: Any, text: bytes
) -> None:
    assert written(duckdb, arrow, value, 0) == text


def test_values_that_the_protocol_cannot_hold_are_refused_and_not_cut() -> None:
    with pytest.raises(Unrepresentable, match=r"U\+0000"):
        written("VARCHAR", pyarrow.string(), "a\0b", 0)
    for kind, arrow, value in (
        ("DATE", pyarrow.date32(), -(2**31) + 2),
        ("TIMESTAMP", pyarrow.timestamp("us"), -9_223_372_022_400_000_000),
    ):
        with pytest.raises(Unrepresentable, match="beyond its type's range"):
            written(kind, arrow, value, 1)
    with pytest.raises(Failure, match="1664 columns"):
        RowEncoder([("n", "INTEGER")] * 1665, ())
    with pytest.raises(Unrepresentable, match="finer than microseconds"):
        written("INTERVAL", pyarrow.month_day_nano_interval(), (0, 0, 1), 0)


def test_dictionaries_are_written_as_their_words() -> None:
    column = pyarrow.array(["a", None, "b", "a"]).dictionary_encode()
    batch = pyarrow.record_batch([column], ["word"])
    assert RowEncoder([("word", "VARCHAR")], [1]).values(batch) == [[b"a", None, b"b", b"a"]]


@given(st.sampled_from(types.TYPES), st.binary(max_size=40), st.booleans(), st.booleans())
def test_bytes_that_are_not_of_a_type_are_refused_by_name(
    kind: types.Type, data: bytes, binary: bool, is_array: bool
) -> None:
    try:
        types.decode_parameter(data, int(binary), types.ColumnType(kind, is_array))
    except Failure as error:
        assert isinstance(error, BadParameter)
        assert len(error.state) == 5


def test_parameters_are_read_as_drivers_write_them() -> None:
    def read(kind: types.Type, text: str) -> Any:
        return types.decode_parameter(text.encode(), 0, types.ColumnType(kind))

    assert read(types.DATE, "2020-02-29 +01") == date(2020, 2, 29)  # JDBC
    assert read(types.DATE, "2020-02-29T01:00:00.000+01:00") == date(2020, 2, 29)  # node-postgres
    assert read(types.TIMESTAMPTZ, "2020-01-01 10:00:00+00") == datetime(2020, 1, 1, 10, tzinfo=UTC)
    assert read(types.TIME, "10:00:00.5") == time(10, 0, 0, 500_000)
    assert read(types.BOOL, "t") is True
    assert read(types.NUMERIC, "1.50") == Decimal("1.50")
    assert types.decode_parameter(struct.pack("!q", 1), 1, types.ColumnType(types.TIME)) == time(
        0, 0, 0, 1
    )


@pytest.mark.parametrize(
    ("kind", "text", "state"),
    [
        (types.ColumnType(types.FLOAT8), "1e400", "22003"),
        (types.ColumnType(types.NUMERIC), "1e38", "22003"),
        (types.ColumnType(types.NUMERIC), f"0.{'1' * 39}", "22003"),
        (types.ColumnType(types.TIMESTAMP), "2020-01-01 10:00:00.1234567", "22008"),
        (types.ColumnType(types.TIME), "10:00:00.0000001", "22008"),
        (types.ColumnType(types.INT8, True), "{1,}", "22P02"),
    ],
)
def test_a_parameter_that_would_be_changed_is_refused(
    kind: types.ColumnType, text: str, state: str
) -> None:
    with pytest.raises(BadParameter) as error:
        types.decode_parameter(text.encode(), 0, kind)
    assert error.value.state == state


def test_a_number_of_very_many_digits_is_refused_before_it_is_counted() -> None:
    sent = struct.pack("!HhHH", 65_535, 65_534 // 4, 0, 0) + b"\0\1" * 65_535
    with pytest.raises(BadParameter, match="38 digits"):
        types.decode_parameter(sent, 1, types.ColumnType(types.NUMERIC))


def test_an_array_of_other_elements_is_refused() -> None:
    sent = struct.pack("!iiIiiid", 1, 0, types.FLOAT8.oid, 1, 1, 8, 1.5)
    with pytest.raises(BadParameter, match="int8 is expected"):
        types.decode_parameter(sent, 1, types.ColumnType(types.INT8, True))


def test_the_zone_of_a_time_is_dropped_as_postgresql_drops_it() -> None:
    sent = b"10:00:00+02"
    assert types.decode_parameter(sent, 0, types.ColumnType(types.TIME)) == time(10)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.datetimes(),
    parts=st.permutations(["YYYY", "mm", "DD", "HH24", "MI", "SS", "US"]),
    sign=st.sampled_from(["-", ":", " ", "/", "\"o''clock %\""]),
)
def test_a_format_of_dates_and_times_means_what_it_means_in_postgresql(
    postgres: psycopg.Connection[Any],
    engine: duckdb.DuckDBPyConnection,
    value: datetime,
    parts: list[str],
    sign: str,
) -> None:
    form = sign.join(parts)
    written = f"to_char('{value}'::TIMESTAMP, '{form}')"
    query = (
        f"SELECT {written}, to_timestamp({written}, '{form}'), to_date({written}, '{form}'),"
        f" to_char('{value}'::TIMESTAMP, 'MS')"
    )
    ours = engine.execute(with_duckdb_formats(only(query))).fetchone()
    assert ours == postgres.execute(query).fetchone()


@pytest.mark.parametrize(
    ("function", "form"),
    [("to_char", "FMMonth"), ("to_char", "YYYY%d"), ("to_date", "YYYY-DDD"), ("to_date", "MM-DD")],
)
def test_a_format_that_the_two_may_read_differently_is_refused(function: str, form: str) -> None:
    with pytest.raises(Failure, match=r"patterns|a year") as failure:
        with_duckdb_formats(only(f"SELECT {function}(a, '{form}')"))
    assert failure.value.state == "0A000"


def test_a_format_that_is_no_string_stays_for_duckdb_to_refuse() -> None:
    for sql in ("SELECT to_timestamp(1.5)", "SELECT to_date(a, b || 'x'), to_char", "to_char('a'"):
        assert with_duckdb_formats(only(sql)) == sql
