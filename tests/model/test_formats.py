"""Dates, times, instants, uuids and booleans, held to Python's own."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from encrypted_records.errors import InvalidDefinition, InvalidQuery, Malformed, Unsupported
from encrypted_records.model.definition import FieldSpec, SchemaDefinition, Value
from encrypted_records.model.definition_parser import parse_canonical, parse_definition
from encrypted_records.model.field_types import FORMATS, type_in
from encrypted_records.model.field_types.base import ValueRefused
from encrypted_records.model.predicates import matches
from encrypted_records.model.queries import Conditions

PROPERTIES = {
    "born": {"type": "string", "format": "date"},
    "at": {"type": "string", "format": "time"},
    "seen": {"type": "string", "format": "date-time"},
    "id": {"type": "string", "format": "uuid"},
    "alive": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
}
ENFORCED = {"type": "object", "formats": "enforced", "properties": PROPERTIES}
LAST = datetime(9998, 12, 31, tzinfo=UTC)
OFFSETS = st.integers(-(23 * 60 + 59), 23 * 60 + 59).map(
    lambda minutes: timezone(timedelta(minutes=minutes))
)


def parsed(root: dict[str, Any] | None = None) -> SchemaDefinition:
    return parse_definition(json.dumps(root or ENFORCED))


def asked(field: str, op: str, value: Any) -> Any:
    condition = {"where": {"field": field, "op": op, "value": value}}
    return Conditions(parsed()).read(condition)


def test_a_format_is_an_annotation_unless_formats_are_enforced() -> None:
    loose = {"type": "object", "properties": {"born": PROPERTIES["born"]}}
    enforced = loose | {"formats": "enforced"}
    assert parsed(loose).fields["born"].accept("never") == "never"
    with pytest.raises(ValueRefused):
        parsed(enforced).fields["born"].accept("never")
    bindings = {parsed(one).fields["born"].binding for one in (loose, enforced)}
    assert len(bindings) == 2


def test_no_two_formats_share_a_binding() -> None:
    fields = parsed().fields.values()
    plain = parsed({"type": "object", "properties": {"a": {"type": "string"}}}).fields["a"]
    assert len({field.binding for field in (*fields, plain)}) == len(PROPERTIES) + 1


def test_the_one_spelling_of_a_definition_says_that_formats_are_enforced() -> None:
    definition = parsed()
    again = parse_canonical(definition.canonical)
    assert again == definition
    assert b'"formats":"enforced"' in definition.canonical


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"formats": "loose"}, "/schema/formats"),
        (
            {"properties": {"a": {"type": "string", "format": "email"}}},
            "/schema/properties/a/format",
        ),
        ({"properties": {"a": {"type": "string", "format": 3}}}, "/schema/properties/a/format"),
        ({"properties": {"a": {"type": "string", "format": []}}}, "/schema/properties/a/format"),
        (
            {"properties": {"a": {"type": "string", "format": "date", "maxLength": 3}}},
            "/schema/properties/a/maxLength",
        ),
        (
            {"properties": {"a": {"type": "number", "format": "date"}}},
            "/schema/properties/a/format",
        ),
        (
            {
                "properties": {
                    "a": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 2}
                }
            },
            "/schema/properties/a/format",
        ),
    ],
)
def test_a_format_that_cannot_be_enforced_is_named(change: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        parsed(ENFORCED | change)
    assert pointer in [flaw.pointer for flaw in refused.value.flaws]


def spec_of(kind: str) -> FieldSpec:
    return FieldSpec(kind, FORMATS[kind].json_type, format=kind)


def value_at(kind: str, point: int | None) -> Value:
    assert point is not None
    return FORMATS[kind].from_point(spec_of(kind), point)


@given(st.dates())
@example(date(2024, 2, 29))
@example(date(1, 1, 1))
@example(date(9999, 12, 31))
def test_a_date_counts_the_days_since_the_year_1(day: date) -> None:
    text = day.isoformat()
    assert spec_of("date").accept(text) == text
    assert spec_of("date").to_point(text) == (day - date(1, 1, 1)).days
    assert value_at("date", (spec_of("date").to_point(text))) == text


@given(st.times())
def test_a_time_counts_microseconds_of_the_day(moment: time) -> None:
    kept = spec_of("time").accept(moment.isoformat())
    day = datetime.combine(date(2000, 1, 1), moment, UTC) - datetime(2000, 1, 1, tzinfo=UTC)
    assert spec_of("time").to_point(kept) == day // timedelta(microseconds=1)
    assert isinstance(kept, str)
    assert time.fromisoformat(kept) == moment
    assert value_at("time", (spec_of("time").to_point(kept))) == kept


NAIVE = [one.replace(tzinfo=None) for one in (datetime(2, 1, 1, tzinfo=UTC), LAST)]


@given(st.datetimes(*NAIVE, timezones=OFFSETS))
@example(datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=timezone(timedelta(hours=-12))))
@example(datetime(2023, 3, 1, tzinfo=timezone(timedelta(hours=14, minutes=45))))
@example(datetime(1900, 2, 28, 23, 30, tzinfo=timezone(timedelta(minutes=-1))))
def test_instants_are_compared_as_instants_and_keep_their_offset(moment: datetime) -> None:
    kept = spec_of("date-time").accept(moment.isoformat())
    assert isinstance(kept, str)
    since = moment - datetime(1, 1, 1, tzinfo=UTC)
    assert spec_of("date-time").to_point(kept) == since // timedelta(microseconds=1)
    again = datetime.fromisoformat(kept)
    assert (again, again.utcoffset()) == (moment, moment.utcoffset())
    in_utc = value_at("date-time", (spec_of("date-time").to_point(kept)))
    assert isinstance(in_utc, str)
    assert in_utc.endswith("Z")
    assert datetime.fromisoformat(in_utc) == moment


@given(st.uuids())
def test_uuids_are_kept_in_lower_case(one: uuid.UUID) -> None:
    assert spec_of("uuid").accept(str(one).upper()) == str(one)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("2026-01-31t08:30:00z", "2026-01-31T08:30:00Z"),
        ("2026-01-31T08:30:00.500000+00:00", "2026-01-31T08:30:00.5Z"),
        ("2026-01-31T08:30:00.000-00:00", "2026-01-31T08:30:00Z"),
        ("2026-01-31T08:30:00+02:00", "2026-01-31T08:30:00+02:00"),
    ],
)
def test_an_instant_is_given_back_in_one_spelling(sent: str, kept: str) -> None:
    assert spec_of("date-time").accept(sent) == kept


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("date", "2023-02-29"),
        ("date", "1900-02-29"),
        ("date", "2026-04-31"),
        ("date", "0000-01-01"),
        ("date", "2026-1-1"),
        ("date", "20260101"),
        ("date", "2026-W01-1"),
        ("date", "2026-01-01\n"),
        ("date", "٢٠٢٦-01-01"),
        ("date", 20260101),
        ("date", True),
        ("time", "24:00:00"),
        ("time", "23:59:60"),
        ("time", "08:30"),
        ("time", "08:30:00.1234567"),
        ("time", "08:30:00."),
        ("time", "08:30:00Z"),
        ("date-time", "2026-01-31 08:30:00Z"),
        ("date-time", "2026-01-31T08:30:00"),
        ("date-time", "2026-01-31T23:59:60Z"),
        ("date-time", "2026-01-31T08:30:00.1234567Z"),
        ("date-time", "2026-01-31T08:30:00+24:00"),
        ("date-time", "2026-01-31T08:30:00+02:60"),
        ("date-time", "2026-01-31T08:30:00+0200"),
        ("date-time", "2023-02-29T00:00:00Z"),
        ("date-time", "0001-01-01T00:00:00+01:00"),
        ("date-time", "9999-12-31T23:59:59-00:01"),
        ("uuid", "6ba7b8109dad11d180b400c04fd430c8"),
        ("uuid", "{6ba7b810-9dad-11d1-80b4-00c04fd430c8}"),
        ("uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c"),
        ("boolean", 1),
        ("boolean", "true"),
    ],
)
def test_what_is_no_such_value_is_refused(kind: str, value: object) -> None:
    with pytest.raises(ValueRefused) as refused:
        spec_of(kind).accept(value)
    assert refused.value.code in ("type", "format")


@given(
    st.dates(date(1990, 1, 1), date(2030, 12, 31)), st.dates(date(1990, 1, 1), date(2030, 12, 31))
)
@example(date.min, date.min)
@example(date.min, date.max)
@example(date.max, date.min)
@example(date.max, date.max)
@pytest.mark.parametrize("length", [4, 7, 10])
def test_a_comparison_with_a_year_or_month_means_all_its_days(
    length: int, day: date, other: date
) -> None:
    asked_for = other.isoformat()[:length]
    begin = day.isoformat()[:length]
    record = {"born": day.isoformat(), "seen": f"{day.isoformat()}T12:00:00Z"}
    for field in ("born", "seen"):
        for op, holds in (
            ("eq", begin == asked_for),
            ("ne", begin != asked_for),
            ("lt", begin < asked_for),
            ("le", begin <= asked_for),
            ("gt", begin > asked_for),
            ("ge", begin >= asked_for),
        ):
            assert matches(asked(field, op, asked_for), record, parsed()) == holds
        assert matches(asked(field, "in", [asked_for]), record, parsed()) == (begin == asked_for)
        between = asked(field, "between", [asked_for, asked_for])
        assert matches(between, record, parsed()) == (begin == asked_for)


@pytest.mark.parametrize(
    ("field", "op", "value", "code"),
    [
        ("born", "prefix", "2026", "op"),
        ("seen", "prefix", "2026", "op"),
        ("id", "prefix", "6ba7", "op"),
        ("alive", "prefix", "t", "op"),
        ("alive", "lt", True, "op"),
        ("alive", "between", [False, True], "op"),
        ("alive", "eq", 1, "type"),
        ("born", "eq", "2023-02-29", "format"),
        ("born", "ge", "2023-13", "format"),
        ("born", "ge", "0000", "format"),
        ("born", "ge", 2023, "type"),
        ("at", "ge", "2023", "format"),
        ("seen", "in", ["2026-01-01", "yesterday"], "format"),
        ("id", "ge", "6ba7", "format"),
    ],
)
def test_an_operator_or_value_that_does_not_fit_is_named(
    field: str, op: str, value: object, code: str
) -> None:
    with pytest.raises(InvalidQuery) as refused:
        asked(field, op, value)
    (flaw,) = refused.value.flaws
    assert (flaw.code, flaw.field) == (code, field)


@pytest.mark.parametrize("field", ["born", "seen"])
def test_who_writes_a_year_as_a_number_is_told_how_a_year_is_written(field: str) -> None:
    with pytest.raises(InvalidQuery) as refused:
        asked(field, "eq", 2026)
    assert 'a year is "2026"' in refused.value.flaws[0].detail
    asked(field, "eq", "2026")


def test_one_instant_in_two_spellings_is_one_value() -> None:
    record = {"seen": "2026-01-31T08:30:00+02:00"}
    assert matches(asked("seen", "eq", "2026-01-31T06:30:00Z"), record, parsed())
    assert matches(asked("seen", "in", ["2026-01-30T23:30:00-07:00"]), record, parsed())


@given(st.timedeltas(timedelta(days=-100_000_000), timedelta(days=100_000_000)))
@example(timedelta())
@example(timedelta(microseconds=-1))
@example(timedelta(days=100_000_000))
def test_a_duration_counts_microseconds_in_every_spelling(length: timedelta) -> None:
    spec, count = spec_of("duration"), length // timedelta(microseconds=1)
    sign, (seconds, rest) = "-" if count < 0 else "", divmod(abs(count), 10**6)
    for sent in (
        f"{sign}PT{seconds}.{rest:06d}S",
        f"{sign}P{seconds // 86400}DT{seconds % 86400}.{rest:06d}S",
        f"{sign}PT{seconds // 60}M{seconds % 60},{rest:06d}000S",
    ):
        kept = spec.accept(sent)
        assert spec.to_point(kept) == count
        assert spec.accept(kept) == kept == value_at("duration", count)


@pytest.mark.parametrize(
    ("sent", "detail"),
    [
        ("P1Y", "years and months have no exact length"),
        ("-P2M", "years and months have no exact length"),
        ("P1Y2M3DT4H5M6S", "years and months have no exact length"),
        ("PT0.0000001S", "more than 6 decimals"),
        ("P100000000DT0.000001S", "longer than 100000000 days"),
        *((one, "expected a duration") for one in ("", "P", "PT", "-P", "P1DT", "PT5", "1:30:00")),
        *((one, "expected a duration") for one in ("PT1S2M", "P1.5D", "+PT1S", "PT1H\n", "P1W2D")),
    ],
)
def test_a_duration_without_an_exact_length_is_refused_with_the_reason(
    sent: str, detail: str
) -> None:
    with pytest.raises(ValueRefused, match=detail):
        spec_of("duration").accept(sent)


@given(st.datetimes())
def test_a_local_time_has_the_order_of_its_clock(moment: datetime) -> None:
    spec, kept = spec_of("local-date-time"), spec_of("local-date-time").accept(moment.isoformat())
    assert isinstance(kept, str)
    assert datetime.fromisoformat(kept) == moment
    point = (moment - datetime(1, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001 - local
    assert spec.to_point(kept) == point
    assert value_at("local-date-time", point) == kept


def test_a_local_time_with_an_offset_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueRefused, match="has an offset from UTC"):
        spec_of("local-date-time").accept("2026-01-31T08:30:00Z")


def test_a_signed_definition_with_a_format_of_a_later_version_is_refused_by_its_name() -> None:
    later = parsed().canonical.replace(b'"format":"time"', b'"format":"span"')
    with pytest.raises(Malformed, match="and not span"):
        parse_canonical(later)
    definition = {"formats": "enforced", "properties": {"a": {"type": "string", "format": "span"}}}
    with pytest.raises(Unsupported, match="does not know the format span"):
        type_in(definition, "a")
