"""PostgreSQL's types for DuckDB's, and their values as text and binary.

Sources: PostgreSQL's `pg_type.dat` for OIDs and sizes, and the `*send` and `*recv` functions of
`src/backend/utils/adt` for binary formats. Binary dates and times count from 2000-01-01; texts are
those of `DateStyle` ISO and `IntervalStyle` postgres, in UTC.

A value is encoded exactly, or refused with an `Unrepresentable`: nothing is rounded or cut.
"""

from __future__ import annotations

import json
import re
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from math import isinf, isnan
from typing import Any

from encrypted_records.sql.failures import BadParameter, Unrepresentable

TEXT_FORM, BINARY_FORM = 0, 1
_DAYS_TO_2000 = 10_957
_MICROSECONDS_TO_2000 = _DAYS_TO_2000 * 86_400_000_000
_DAY = 86_400_000_000
#: DuckDB's values for infinite dates and times, and PostgreSQL's.
_INFINITE_DAY, _INFINITE_TIME = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class Type:
    """A type of PostgreSQL.

    Attributes:
        size: bytes in ``pg_type``, -1 for a variable length.
        array: OID of the type's arrays.
        to_text, to_binary: encode a present value.
        from_text, from_binary: decode to values that DuckDB accepts.
        duckdb: the type's name in DuckDB.
    """

    oid: int
    name: str
    size: int
    array: int
    to_text: Callable[[Any], bytes]
    to_binary: Callable[[Any], bytes]
    from_text: Callable[[str], Any]
    from_binary: Callable[[bytes], Any]
    duckdb: str


# -- texts ------------------------------------------------------------------------------------


def _text_out(value: str) -> bytes:
    if "\0" in value:
        raise Unrepresentable(
            "a text contains the character U+0000, which PostgreSQL's texts cannot hold:"
            " select it as replace(field, chr(0), '')"
        )
    return str(value).encode()


def _text_in(value: str) -> str:
    return value


def _text_received(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadParameter("invalid byte sequence for encoding UTF8", "22021") from None


def _nested_out(value: Any) -> bytes:
    try:
        return _text_out(json.dumps(value, default=str, ensure_ascii=False, allow_nan=False))
    except ValueError:
        raise Unrepresentable(
            "a nested number is not finite, and JSON has no such: cast it"
        ) from None


def _bytes_out(value: bytes) -> bytes:
    return b"\\x" + bytes(value).hex().encode()


def _bytes_in(value: str) -> bytes:
    try:
        if value.startswith("\\x"):
            return bytes.fromhex(value[2:])
        return re.sub(
            rb"\\(\\|[0-3][0-7]{2})",
            lambda found: b"\\" if found[1] == b"\\" else bytes([int(found[1], 8)]),
            value.encode(),
        )
    except ValueError:
        raise BadParameter("invalid input syntax for type bytea") from None


# -- truth and numbers ------------------------------------------------------------------------


def _bool_in(value: str) -> bool:
    word = value.strip().lower()
    if word and ("true".startswith(word) or "yes".startswith(word) or word in ("on", "1")):
        return True
    if word and ("false".startswith(word) or "no".startswith(word) or word in ("off", "of", "0")):
        return False
    raise BadParameter("invalid input syntax for type boolean")


def _bool_received(data: bytes) -> bool:
    if len(data) != 1:
        raise BadParameter("incorrect binary data format for type boolean", "22P03")
    return data != b"\0"


def _integer(called: str, form: str) -> tuple[Callable[[str], int], Callable[[bytes], int]]:
    packed = struct.Struct(form)
    most = 1 << (packed.size * 8 - (0 if form[-1].isupper() else 1))

    def from_text(value: str) -> int:
        if not re.fullmatch(r"\s*[+-]?\d{1,40}\s*", value, re.ASCII):
            raise BadParameter(f"invalid input syntax for type {called}")
        number = int(value)
        if not -most <= number < most:
            raise BadParameter(f"value out of range for type {called}", "22003")
        return number

    def from_binary(data: bytes) -> int:
        if len(data) != packed.size:
            raise BadParameter(f"incorrect binary data format for type {called}", "22P03")
        return int(packed.unpack(data)[0])

    return from_text, from_binary


def _packed(form: str) -> Callable[[Any], bytes]:
    packed = struct.Struct(form)

    def to_binary(value: Any) -> bytes:
        try:
            return packed.pack(value)
        except struct.error:
            raise Unrepresentable(
                "a value is beyond its type's range in PostgreSQL: cast it to VARCHAR"
            ) from None

    return to_binary


def _whole_out(value: int) -> bytes:
    return b"%d" % value


def _float_out(value: float) -> bytes:
    text = repr(value)
    if text in ("inf", "-inf", "nan"):
        return {"inf": b"Infinity", "-inf": b"-Infinity", "nan": b"NaN"}[text]
    return text.removesuffix(".0").encode()


def _float4_out(value: float) -> bytes:
    """The shortest text that identifies this number among four-byte floats."""
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if isnan(value) or struct.pack("!f", float(text)) == struct.pack("!f", value):
            return _float_out(float(text))
    return _float_out(value)


def _float_in(value: str) -> float:
    try:
        number = float(value.replace("_", "?"))
    except ValueError:
        raise BadParameter("invalid input syntax for type double precision") from None
    if isinf(number) and "inf" not in value.lower():
        raise BadParameter("value out of range for type double precision", "22003")
    return number


def _float_received(form: str) -> Callable[[bytes], float]:
    packed = struct.Struct(form)

    def from_binary(data: bytes) -> float:
        if len(data) != packed.size:
            raise BadParameter("incorrect binary data format for a float", "22P03")
        return float(packed.unpack(data)[0])

    return from_binary


#: Digits of DuckDB's widest decimal. A longer parameter would become a float there.
_MOST_DIGITS = 38
#: Maximum groups of four digits in such a number, plus some empty ones around it.
_MOST_GROUPS = 16
_NUMERIC_HEAD = struct.Struct("!HhHH")
_NEGATIVE, _NAN, _INFINITE, _MINUS_INFINITE = 0x4000, 0xC000, 0xD000, 0xF000


def _numeric_out(value: Decimal | int) -> bytes:
    number = Decimal(value)
    if not number.is_finite():
        return b"NaN" if number.is_nan() else b"-Infinity" if number < 0 else b"Infinity"
    return format(number, "f").encode()


def _numeric_binary(value: Decimal | int) -> bytes:
    """Digits to the base 10,000, the weight of the first, the sign, and the scale."""
    number = Decimal(value)
    if not number.is_finite():
        sign = _NAN if number.is_nan() else _MINUS_INFINITE if number < 0 else _INFINITE
        return _NUMERIC_HEAD.pack(0, 0, sign, 0)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    text = "".join(map(str, digits)) + "0" * max(exponent, 0)
    before, after = (text[:-scale], text[-scale:]) if scale else (text, "")
    after = after.rjust(scale, "0")
    before = before.rjust(-(-len(before) // 4) * 4, "0")
    after = after.ljust(-(-len(after) // 4) * 4, "0")
    groups = [int(text[at : at + 4]) for text in (before, after) for at in range(0, len(text), 4)]
    weight = len(before) // 4 - 1
    while groups and groups[-1] == 0:
        groups.pop()
    while groups and groups[0] == 0:
        groups.pop(0)
        weight -= 1
    if not groups:
        sign, weight = 0, 0
    head = _NUMERIC_HEAD.pack(len(groups), weight, _NEGATIVE if sign else 0, scale)
    return head + struct.pack(f"!{len(groups)}H", *groups)


def _numeric_in(value: str) -> Decimal:
    if not re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,4})?\s*", value, re.ASCII | re.I):
        raise BadParameter("invalid input syntax for type numeric")
    try:
        return _kept_exact(Decimal(value.strip()))
    except InvalidOperation:
        raise BadParameter("invalid input syntax for type numeric") from None


def _kept_exact(number: Decimal) -> Decimal:
    """
    Raises:
        BadParameter: DuckDB would round it.
    """
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if max(len(digits) + max(exponent, 0), -exponent) > _MOST_DIGITS:
        raise BadParameter(f"a numeric parameter has {_MOST_DIGITS} digits at most", "22003")
    return number


def _numeric_received(data: bytes) -> Decimal:
    wrong = BadParameter("incorrect binary data format for type numeric", "22P03")
    if len(data) < _NUMERIC_HEAD.size:
        raise wrong
    count, weight, sign, scale = _NUMERIC_HEAD.unpack_from(data)
    if len(data) != _NUMERIC_HEAD.size + 2 * count or sign not in (0, _NEGATIVE) or scale > 0x3FFF:
        raise wrong
    if count > _MOST_GROUPS or abs(weight) > _MOST_GROUPS:
        raise BadParameter(f"a numeric parameter has {_MOST_DIGITS} digits at most", "22003")
    groups = struct.unpack_from(f"!{count}H", data, _NUMERIC_HEAD.size)
    if any(group > 9_999 for group in groups):
        raise wrong
    number = 0
    for group in groups:
        number = number * 10_000 + group
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 200_000, -999_999, 999_999
        value = Decimal(-number if sign else number).scaleb(4 * (weight - count + 1))
        return _kept_exact(value.quantize(Decimal(1).scaleb(-scale)))


# -- dates and times --------------------------------------------------------------------------


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day since 1970, in the proleptic Gregorian calendar.

    Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms"."""
    days += 719_468
    era, day_of_era = divmod(days, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year_of_era + (month <= 2), month, day


def _clock(microseconds: int) -> str:
    seconds, fraction = divmod(microseconds, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def _date_out(days: int) -> bytes:
    if abs(days) == _INFINITE_DAY:
        return b"infinity" if days > 0 else b"-infinity"
    year, month, day = _civil(days)
    return (
        f"{year:04}-{month:02}-{day:02}" if year > 0 else _before_christ(year, month, day, "")
    ).encode()


def _before_christ(year: int, month: int, day: int, clock: str) -> str:
    return f"{1 - year:04}-{month:02}-{day:02}{clock} BC"


def _date_binary(days: int) -> bytes:
    if abs(days) == _INFINITE_DAY:
        return struct.pack("!i", _INFINITE_DAY if days > 0 else -_INFINITE_DAY - 1)
    return _packed("!i")(days - _DAYS_TO_2000)


def _moment(zone: str) -> Callable[[int], bytes]:
    def to_text(microseconds: int) -> bytes:
        if abs(microseconds) == _INFINITE_TIME:
            return b"infinity" if microseconds > 0 else b"-infinity"
        days, time_of_day = divmod(microseconds, _DAY)
        year, month, day = _civil(days)
        clock = f" {_clock(time_of_day)}{zone}"
        if year > 0:
            return f"{year:04}-{month:02}-{day:02}{clock}".encode()
        return _before_christ(year, month, day, clock).encode()

    return to_text


def _moment_binary(microseconds: int) -> bytes:
    if abs(microseconds) == _INFINITE_TIME:
        return struct.pack("!q", _INFINITE_TIME if microseconds > 0 else -_INFINITE_TIME - 1)
    return _packed("!q")(microseconds - _MICROSECONDS_TO_2000)


def _date_in(value: str) -> date:
    # JDBC sends a date with its local zone, and node-postgres with its time, too; PostgreSQL parses
    # and drops both.
    text = re.sub(r"\s*[+-]\d\d(:\d\d)?$", "", value.strip()) if len(value) > 10 else value
    try:
        return datetime.fromisoformat(text.strip()).date()
    except ValueError:
        raise BadParameter("invalid input syntax for type date", "22007") from None


def _check_fraction(value: str) -> None:
    """
    Raises:
        BadParameter: a fraction of a second would be cut.
    """
    if re.search(r"[.,]\d{6}0*[1-9]", value):
        raise BadParameter("a time is finer than microseconds", "22008")


def _moment_in(value: str) -> datetime:
    _check_fraction(value)
    try:
        return datetime.fromisoformat(value.strip())
    except ValueError:
        raise BadParameter("invalid input syntax for type timestamp", "22007") from None


def _zoned_in(value: str) -> datetime:
    moment = _moment_in(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _plain_moment_in(value: str) -> datetime:
    # PostgreSQL ignores the zone of a timestamp without time zone.
    return _moment_in(value).replace(tzinfo=None)


def _time_in(value: str) -> time:
    _check_fraction(value)
    try:
        # JDBC sends its local zone, which PostgreSQL parses and drops.
        return time.fromisoformat(value.strip()).replace(tzinfo=None)
    except ValueError:
        raise BadParameter("invalid input syntax for type time", "22007") from None


def _date_received(data: bytes) -> date:
    (days,) = _exactly("!i", data, "date")
    try:
        return date(2000, 1, 1) + timedelta(days=days)
    except OverflowError:
        raise BadParameter("date out of range", "22008") from None


def _moment_received(data: bytes) -> datetime:
    (microseconds,) = _exactly("!q", data, "timestamp")
    try:
        return datetime(2000, 1, 1) + timedelta(microseconds=microseconds)  # noqa: DTZ001 - none
    except OverflowError:
        raise BadParameter("timestamp out of range", "22008") from None


def _zoned_received(data: bytes) -> datetime:
    return _moment_received(data).replace(tzinfo=UTC)


def _time_received(data: bytes) -> time:
    (microseconds,) = _exactly("!q", data, "time")
    if not 0 <= microseconds < _DAY:
        raise BadParameter("time out of range", "22008")
    return (datetime(2000, 1, 1) + timedelta(microseconds=microseconds)).time()  # noqa: DTZ001


def _exactly(form: str, data: bytes, called: str) -> tuple[Any, ...]:
    if len(data) != struct.calcsize(form):
        raise BadParameter(f"incorrect binary data format for type {called}", "22P03")
    return struct.unpack(form, data)


def _interval_parts(value: Any) -> tuple[int, int, int]:
    """Months, days and microseconds; Arrow counts nanoseconds."""
    months, days, nanoseconds = value
    microseconds, finer = divmod(nanoseconds, 1_000)
    if finer:
        raise Unrepresentable("an interval is finer than microseconds")
    return months, days, microseconds


def _interval_out(value: Any) -> bytes:
    months, days, microseconds = _interval_parts(value)
    years, months = int(months / 12), months - 12 * int(months / 12)
    parts = []
    negative = False
    for number, unit in ((years, "year"), (months, "mon"), (days, "day")):
        if number:
            sign = "+" if negative and number > 0 else ""
            parts.append(f"{sign}{number} {unit}{'' if number == 1 else 's'}")
            negative = number < 0
    if microseconds or not parts:
        sign = "-" if microseconds < 0 else "+" if negative else ""
        parts.append(sign + _clock(abs(microseconds)))
    return " ".join(parts).encode()


def _interval_in_iso(value: Any) -> bytes:
    months, days, microseconds = _interval_parts(value)
    years = int(months / 12)
    minutes, rest = divmod(abs(microseconds), 60_000_000)
    seconds = f"{Decimal(rest).scaleb(-6).normalize():f}"
    sign = "-" if microseconds < 0 else ""
    date = (f"{years}Y", f"{months - 12 * years}M", f"{days}D")
    clock = (f"{minutes // 60}H", f"{minutes % 60}M", f"{seconds}S")
    time_of_day = "".join(sign + part for part in clock if part[:-1] != "0")
    parts = [part for part in date if part[:-1] != "0"] + ["T", time_of_day] * bool(time_of_day)
    return f"P{''.join(parts) or 'T0S'}".encode()


def _interval_binary(value: Any) -> bytes:
    months, days, microseconds = _interval_parts(value)
    return struct.pack("!qii", microseconds, days, months)


@dataclass(frozen=True, slots=True)
class Interval:
    """A parameter's interval, as text that DuckDB casts to INTERVAL."""

    text: str


def _interval_in(value: str) -> Interval:
    return Interval(value)


def _interval_received(data: bytes) -> Interval:
    microseconds, days, months = _exactly("!qii", data, "interval")
    return Interval(f"{months} months {days} days {microseconds} microseconds")


def _uuid_in(value: str) -> uuid.UUID:
    try:
        return uuid.UUID(value.strip())
    except ValueError:
        raise BadParameter("invalid input syntax for type uuid") from None


def _uuid_received(data: bytes) -> uuid.UUID:
    if len(data) != 16:
        raise BadParameter("incorrect binary data format for type uuid", "22P03")
    return uuid.UUID(bytes=data)


def _uuid_binary(value: uuid.UUID | str) -> bytes:
    return uuid.UUID(str(value)).bytes


def _str_out(value: Any) -> bytes:
    return str(value).encode()


_INT2, _INT4, _INT8 = (
    _integer(name, form) for name, form in (("smallint", "!h"), ("integer", "!i"), ("bigint", "!q"))
)
_OID = _integer("oid", "!I")

BOOL = Type(
    16, "bool", 1, 1000,
    lambda value: b"t" if value else b"f", lambda value: b"\1" if value else b"\0",
    _bool_in, _bool_received, "BOOLEAN",
)  # fmt: skip
BYTEA = Type(17, "bytea", -1, 1001, _bytes_out, bytes, _bytes_in, bytes, "BLOB")
NAME = Type(19, "name", 64, 1003, _text_out, _text_out, _text_in, _text_received, "VARCHAR")
CHAR = Type(18, "char", 1, 1002, _text_out, _text_out, _text_in, _text_received, "VARCHAR")
INT8 = Type(20, "int8", 8, 1016, _whole_out, _packed("!q"), *_INT8, "BIGINT")
INT2 = Type(21, "int2", 2, 1005, _whole_out, _packed("!h"), *_INT2, "SMALLINT")
INT4 = Type(23, "int4", 4, 1007, _whole_out, _packed("!i"), *_INT4, "INTEGER")
TEXT = Type(25, "text", -1, 1009, _text_out, _text_out, _text_in, _text_received, "VARCHAR")
OID = Type(26, "oid", 4, 1028, _whole_out, _packed("!I"), *_OID, "UINTEGER")
JSON = Type(114, "json", -1, 199, _text_out, _text_out, _text_in, _text_received, "VARCHAR")
#: Values of nested types, shown as JSON; values of DuckDB's JSON type are already JSON texts.
NESTED = replace(JSON, to_text=_nested_out, to_binary=_nested_out)
FLOAT4 = Type(
    700, "float4", 4, 1021, _float4_out, struct.Struct("!f").pack,
    _float_in, _float_received("!f"), "FLOAT",
)  # fmt: skip
FLOAT8 = Type(
    701, "float8", 8, 1022, _float_out, struct.Struct("!d").pack,
    _float_in, _float_received("!d"), "DOUBLE",
)  # fmt: skip
UNKNOWN = Type(705, "unknown", -2, 0, _text_out, _text_out, _text_in, _text_received, "VARCHAR")
BPCHAR = Type(
    1042, "bpchar", -1, 1014, _text_out, _text_out, _text_in, _text_received, "VARCHAR"
)  # fmt: skip
VARCHAR = Type(
    1043, "varchar", -1, 1015, _text_out, _text_out, _text_in, _text_received, "VARCHAR"
)  # fmt: skip
DATE = Type(1082, "date", 4, 1182, _date_out, _date_binary, _date_in, _date_received, "DATE")
TIME = Type(
    1083, "time", 8, 1183, lambda value: _clock(value).encode(), struct.Struct("!q").pack,
    _time_in, _time_received, "TIME",
)  # fmt: skip
TIMESTAMP = Type(
    1114, "timestamp", 8, 1115, _moment(""), _moment_binary,
    _plain_moment_in, _moment_received, "TIMESTAMP",
)  # fmt: skip
TIMESTAMPTZ = Type(
    1184, "timestamptz", 8, 1185, _moment("+00"), _moment_binary,
    _zoned_in, _zoned_received, "TIMESTAMP WITH TIME ZONE",
)  # fmt: skip
INTERVAL = Type(
    1186, "interval", 16, 1187, _interval_out, _interval_binary,
    _interval_in, _interval_received, "INTERVAL",
)  # fmt: skip
#: With `IntervalStyle` iso_8601, which Rails sets.
ISO_INTERVAL = replace(INTERVAL, to_text=_interval_in_iso)
NUMERIC = Type(
    1700, "numeric", -1, 1231, _numeric_out, _numeric_binary,
    _numeric_in, _numeric_received, "DECIMAL(38,9)",
)  # fmt: skip
UUID = Type(2950, "uuid", 16, 2951, _str_out, _uuid_binary, _uuid_in, _uuid_received, "UUID")

TYPES: Sequence[Type] = (
    BOOL, BYTEA, CHAR, NAME, INT8, INT2, INT4, TEXT, OID, JSON, FLOAT4, FLOAT8, UNKNOWN, BPCHAR,
    VARCHAR, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, NUMERIC, UUID,
)  # fmt: skip
BY_OID = {kind.oid: kind for kind in TYPES}
BY_ARRAY = {kind.array: kind for kind in TYPES if kind.array}

_OF_DUCKDB = {
    "BOOLEAN": BOOL, "TINYINT": INT2, "SMALLINT": INT2, "INTEGER": INT4, "BIGINT": INT8,
    "OID": OID,
    "UTINYINT": INT2, "USMALLINT": INT4, "UINTEGER": INT8, "UBIGINT": NUMERIC,
    "HUGEINT": NUMERIC, "UHUGEINT": NUMERIC, "FLOAT": FLOAT4, "DOUBLE": FLOAT8,
    "VARCHAR": TEXT, "BLOB": BYTEA, "DATE": DATE, "TIME": TIME, "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": TIMESTAMPTZ, "INTERVAL": INTERVAL, "UUID": UUID, "JSON": JSON,
}  # fmt: skip
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a result's column; ``modifier`` is PostgreSQL's ``atttypmod``."""

    element: Type
    is_array: bool = False
    modifier: int = -1

    @property
    def oid(self) -> int:
        return self.element.array if self.is_array else self.element.oid

    @property
    def duckdb(self) -> str:
        return self.element.duckdb + ("[]" if self.is_array else "")

    @property
    def size(self) -> int:
        return -1 if self.is_array else self.element.size

    def encoder(self, form: int) -> Callable[[Any], bytes]:
        """The function that encodes a present value."""
        encode = self.element.to_binary if form == BINARY_FORM else self.element.to_text
        if not self.is_array:
            return encode
        oid = self.element.oid
        if form == BINARY_FORM:
            return lambda values: _array_binary(values, oid, encode)
        return lambda values: _array_text(values, encode)


def column_type(duckdb: str) -> ColumnType | None:
    """PostgreSQL's type for a DuckDB type; None for types without a counterpart, which are cast to
    text first (nested types, nanoseconds, bits).
    """
    if duckdb.endswith("[]"):
        element = column_type(duckdb[:-2])
        return None if element is None or element.is_array else ColumnType(element.element, True)
    if found := _DECIMAL.fullmatch(duckdb):
        return ColumnType(NUMERIC, modifier=(int(found[1]) << 16 | int(found[2])) + 4)
    kind = _OF_DUCKDB.get(duckdb)
    return None if kind is None else ColumnType(kind)


def _array_binary(values: Sequence[Any], oid: int, encode: Callable[[Any], bytes]) -> bytes:
    absent = any(value is None for value in values)
    if not values:
        return struct.pack("!iiI", 0, 0, oid)
    parts = [struct.pack("!iiIii", 1, absent, oid, len(values), 1)]
    for value in values:
        data = None if value is None else encode(value)
        parts.append(struct.pack("!i", -1 if data is None else len(data)) + (data or b""))
    return b"".join(parts)


_BARE = re.compile(rb'[^\s{}",\\]+')


def _array_text(values: Sequence[Any], encode: Callable[[Any], bytes]) -> bytes:
    parts = []
    for value in values:
        data = b"NULL" if value is None else encode(value)
        if value is not None and (not _BARE.fullmatch(data) or data.upper() == b"NULL"):
            data = b'"' + data.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
        parts.append(data)
    return b"{" + b",".join(parts) + b"}"


_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^",{}\\]+))\s*(,|$)', re.DOTALL)


def _array_in(value: str, decode: Callable[[str], Any]) -> list[Any]:
    text = value.strip()
    if text[:1] != "{" or text[-1:] != "}":
        raise BadParameter("malformed array literal")
    values, at, text = [], 0, text[1:-1].strip()
    more = False
    while at < len(text) or more:
        found = _ITEM.match(text, at)
        if found is None:
            raise BadParameter("malformed array literal: one dimension is read")
        if found[1] is not None:
            values.append(decode(re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL)))
        else:
            word = found[2].strip()
            values.append(None if word.upper() == "NULL" else decode(word))
        at, more = found.end(), found[3] == ","
    return values


def _array_received(data: bytes, element: Type) -> list[Any]:
    wrong = BadParameter("incorrect binary data format for an array of one dimension", "22P03")
    if len(data) < 12:
        raise wrong
    dimensions, _, oid = struct.unpack_from("!iiI", data)
    if oid != element.oid:
        raise BadParameter(f"wrong element type: {element.name} is expected", "42804")
    if dimensions == 0:
        return []
    if dimensions != 1 or len(data) < 20:
        raise wrong
    (count,) = struct.unpack_from("!i", data, 12)
    values: list[Any] = []
    at = 20
    while at + 4 <= len(data) and len(values) < count:
        (size,) = struct.unpack_from("!i", data, at)
        at += 4
        if size < -1 or at + max(size, 0) > len(data):
            raise wrong
        values.append(None if size == -1 else element.from_binary(data[at : at + size]))
        at += max(size, 0)
    if len(values) != count or at != len(data):
        raise wrong
    return values


def decode_parameter(data: bytes | None, form: int, kind: ColumnType) -> Any:
    """A parameter's value as a Python type; an interval is an `Interval`.

    Raises:
        BadParameter: the bytes do not fit the type.
    """
    if data is None:
        return None
    element = kind.element
    if form == BINARY_FORM:
        if kind.is_array:
            return _array_received(data, element)
        return element.from_binary(data)
    text = _text_received(data)
    return _array_in(text, element.from_text) if kind.is_array else element.from_text(text)
