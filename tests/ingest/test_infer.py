"""What a sample makes of each column, and which samples are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import ErsError, InvalidRecords
from encrypted_records.ingest.blocks import RawRecord
from encrypted_records.ingest.check import validate
from encrypted_records.ingest.estimate import look_at
from encrypted_records.ingest.infer import NOTHING_MORE, Wishes, infer
from encrypted_records.ingest.layouts import parser_for, recognize
from encrypted_records.ingest.parsing import read_numbers
from encrypted_records.model import strict_json
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.record_formats import Format
from encrypted_records.model.samples import ProposedSchema

ALL = Wishes(enum=True, unique=True, required=True, tight=True)
WIDE = 10**18 - 1


def infer_csv(sample: bytes, wishes: Wishes = NOTHING_MORE) -> ProposedSchema:
    return infer(sample, Format.CSV, wishes)


def infer_json(sample: bytes) -> ProposedSchema:
    return infer(sample, Format.JSON)


def column(*cells: str, name: str = "x", **wishes: bool) -> dict[str, Any]:
    """The field proposed for a CSV column with these cells."""
    # A second column keeps rows of an empty cell from being empty lines.
    text = "\n".join([f"{name},y", *(f"{cell},1" for cell in cells)])
    fields = infer_csv(text.encode(), Wishes(**wishes)).schema["properties"]
    field: dict[str, Any] = fields[name]
    return field


def number(precision: int, magnitude: int) -> dict[str, Any]:
    bound = 10**magnitude
    return {"type": "number", "minimum": -bound, "maximum": bound, "precision": precision}


WHOLE = {"type": "integer", "minimum": -WIDE, "maximum": WIDE}


@pytest.mark.parametrize(
    ("cells", "field"),
    [
        (["1", "42"], WHOLE),
        (["-7", "0"], WHOLE),
        (["999999999999999999"], WHOLE),
        (["1.5", "2"], number(2, 12)),
        (["0.01"], number(2, 12)),
        (["0.001"], number(5, 12)),
        (["0.123456"], number(8, 10)),
        (["12345678901234.5"], number(2, 14)),
        (["123456789012345.678"], number(3, 15)),
        (["12345678901234567.8"], number(1, 17)),
        (["12345678901234567.89"], {"type": "string", "padTo": 31}),
        # Written with decimals, be they zero: another month has others.
        (["1.0", "2.00"], number(2, 12)),
        (["007"], {"type": "string", "padTo": 31}),
        (["+1"], {"type": "string", "padTo": 31}),
        (["1e5"], {"type": "string", "padTo": 31}),
        (["12345678901234567890"], {"type": "string", "padTo": 31}),
        (["1", "one"], {"type": "string", "padTo": 31}),
        (["1" * 40, "one"], {"type": "string", "padTo": 63}),
        (["Oslo", "x" * 31], {"type": "string", "padTo": 31}),
        (["Oslo", "x" * 32], {"type": "string", "padTo": 63}),
        (["\u5b57" * 21, "x"], {"type": "string", "padTo": 63}),
        (["Oslo", "x" * 64], {"type": "string"}),
        (["x" * 990, "x" * 1000], {"type": "string"}),
        (["a"] * 20 + ["b"] * 20, {"type": "string", "padTo": 31}),
        (["", ""], {"type": "string", "padTo": 31}),
    ],
)
def test_each_kind_of_column_gets_its_type_and_room_to_grow(
    cells: list[str], field: dict[str, Any]
) -> None:
    assert column(*cells) == field


@pytest.mark.parametrize(
    ("name", "amount"),
    [
        ("amount", True),
        ("unit_price", True),
        ("UnitPrice", True),
        ("Umsatz", True),
        ("Total costs", True),
        ("age", False),
        ("operator", False),
        ("totally", False),
    ],
)
def test_whole_numbers_of_a_column_that_is_called_an_amount_get_decimals(
    name: str, amount: bool
) -> None:
    assert column("3", "12", name=name) == (number(2, 12) if amount else WHOLE)


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["a"] * 20 + ["b"] * 20, ["a", "b"]),
        (["b"] * 95 + ["a"] * 5, ["a", "b"]),
        (["b"] * 95 + ["a"] * 4, None),
        (["a"] * 20 + ["b"] * 19, None),
        (["a"] * 100, None),
        (["a"] * 20 + ["7"] * 20, ["7", "a"]),
        (["", "a", "b"] * 20, ["a", "b"]),
        ([f"v{at}" for at in range(50)] * 20, sorted(f"v{at}" for at in range(50))),
        ([f"v{at}" for at in range(51)] * 20, None),
    ],
)
def test_lists_of_values_are_proposed_where_they_are_asked_for(
    cells: list[str], values: list[str] | None
) -> None:
    padded = {"type": "string", "padTo": 31}
    assert column(*cells) == padded
    assert column(*cells, enum=True) == ({"type": "string", "enum": values} if values else padded)


@pytest.mark.parametrize(
    ("cells", "least", "most"),
    [
        (["1", "42"], 0, 100),
        (["-7", "0"], -20, 0),
        (["0"], 0, 0),
        (["1.5", "2"], 0, 5),
        (["999999999999999999"], 0, WIDE),
    ],
)
def test_tight_bounds_are_proposed_where_they_are_asked_for(
    cells: list[str], least: int, most: int
) -> None:
    field = column(*cells, tight=True)
    assert (field["minimum"], field["maximum"]) == (least, most)


def test_a_proposal_holds_no_value_and_no_rule_that_nobody_asked_for() -> None:
    lines = [f"{at},{'mf'[at % 2]},{at % 9}.5" for at in range(1000)]
    sample = "\n".join(["id,sex,score", *lines]).encode()
    plain = infer_csv(sample)
    assert set(plain.schema) == {"type", "rounding", "properties"}
    assert plain.schema["rounding"] == "refuse"
    allowed = {"type", "minimum", "maximum", "precision", "padTo"}
    assert set().union(*plain.schema["properties"].values()) == allowed
    # What there is to ask for is said to whom it was asked by.
    told = {field.name: field for field in plain.fields}
    assert (told["sex"].values, told["score"].values, told["id"].unique) == (["f", "m"], None, True)
    assert "a candidate for unique" in (told["id"].note or "")

    asked = infer_csv(sample, ALL).schema
    assert asked["properties"]["sex"]["enum"] == ["f", "m"]
    assert (asked["required"], asked["unique"]) == (["id", "sex", "score"], [["id"]])
    assert asked["properties"]["score"]["maximum"] == 20


def test_a_list_of_values_and_a_length_that_tells_something_are_said() -> None:
    rows = "".join(f"{'mf'[at % 2]},{'x' * at}\n" for at in range(100))
    sample = f"sex,text\n{rows}".encode()
    shown = {field.name: field.note or "" for field in infer_csv(sample, ALL).fields}
    assert "the API can read these 2 values in the definition" in shown["sex"]
    assert "reveals roughly how long" in shown["text"]
    assert [field.note for field in infer_csv(sample).fields if field.name == "sex"] == [None]


def test_half_of_a_surrogate_pair_is_named_by_row_and_field() -> None:
    rows = [{"a": "b"}, {"a": "\ud800"}]
    for sample in (json.dumps(rows), "\n".join(map(json.dumps, rows))):
        with pytest.raises(InvalidRecords) as caught:
            infer_json(sample.encode())
        [flaw] = caught.value.flaws
        assert (flaw.code, flaw.row, flaw.field, flaw.pointer) == ("unicode", 2, "a", "/1/a")


def test_only_fields_that_every_row_has_are_required() -> None:
    proposal = infer(
        b'[{"a": 1, "b": "x"}, {"a": 2, "b": null}, {"a": 3}]', Format.JSON, Wishes(required=True)
    )

    assert proposal.schema["required"] == ["a"]
    assert [(field.present, field.absent) for field in proposal.fields] == [(3, 0), (1, 2)]


def test_records_bare_objects_and_lines_are_read_alike() -> None:
    bare = infer_json(b'[{"a": 1.5}]')

    assert infer_json(b'[{"schema": "/api/schemas/x/", "data": {"a": 1.5}}]') == bare
    assert infer_json(b'\xef\xbb\xbf{"a": 1.5}\n') == bare
    assert infer_csv(b"\xef\xbb\xbfa,schema_id:x\r\n1.5\r\n") == bare


@pytest.mark.parametrize(
    "sample", [b"", b"\n", b"a,a\n1,2", b"a\n1,2", b'a\n"x', b"\xff\xfe", b"schema_id:x\n1"]
)
def test_csv_that_says_two_things_or_nothing_is_refused(sample: bytes) -> None:
    with pytest.raises(ErsError):
        infer_csv(sample)


def test_true_and_false_of_json_are_booleans_and_their_text_is_none() -> None:
    sample = b'{"a": true, "b": "true"}\n{"b": "false"}\n{"a": false, "b": "true"}\n'
    proposal = infer_json(sample)
    assert proposal.schema == {
        "type": "object",
        "rounding": "refuse",
        "formats": "enforced",
        "properties": {
            "a": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
            "b": {"type": "string", "padTo": 31},
        },
    }
    assert [(field.present, field.absent) for field in proposal.fields] == [(2, 1), (3, 0)]
    parsed = parse_definition(json.dumps(proposal.schema))
    assert look_at(parsed, sample, Format.NDJSON).refused == 0


@pytest.mark.parametrize("other", ["1", '"true"'])
@pytest.mark.parametrize("turned", [False, True])
def test_true_and_false_beside_other_values_are_named_with_their_place(
    other: str, turned: bool
) -> None:
    first, second = (other, "true") if turned else ("true", other)
    with pytest.raises(InvalidRecords) as caught:
        infer_json(f'[{{"a": {first}}}, {{"a": null}}, {{"a": {second}}}]'.encode())
    (flaw,) = caught.value.flaws
    assert (flaw.row, flaw.field, flaw.pointer) == (3, "a", "/2/a")


@pytest.mark.parametrize("sample", [b"[]", b"[1]", b'[{"a": {}}]', b'[{"a": [1]}]', b"{", b""])
def test_json_that_no_record_can_be_is_refused(sample: bytes) -> None:
    with pytest.raises(ErsError):
        infer_json(sample)


def test_a_refusal_says_the_row_and_field_and_not_the_value() -> None:
    with pytest.raises(InvalidRecords) as caught:
        infer_json(b'[{"a": 1}, {"b": {"secret": "xyzzy"}}]')

    (flaw,) = caught.value.flaws
    assert (flaw.row, flaw.field) == (2, "b")
    assert "xyzzy" not in repr(caught.value.flaws)


def require_taken(sample: bytes, kind: Format) -> None:
    """An upload takes all of a sample by the definition that is proposed for it."""
    parsed = parse_definition(json.dumps(infer(sample, kind).schema))
    recognized = recognize(sample, kind, final=True)
    assert recognized is not None
    layout, start = recognized
    parser = parser_for(layout, start, schema_named=True)
    for block in [*parser.feed(sample[start.offset :]), *parser.finish()]:
        for record in block.records:
            assert isinstance(record, RawRecord)
            cells = read_numbers(parsed, record.data) if kind is Format.CSV else record.data
            _, flaws = validate(parsed, cells, row=record.row, pointer="")
            assert not flaws


@given(st.text(alphabet='a1",.\n\r- e0T:é\x00', max_size=60))
def test_a_file_of_csv_is_taken_by_its_own_proposal_or_refused_before(rows: str) -> None:
    sample = f"a,b\n{rows}".encode()
    try:
        infer_csv(sample)
    except ErsError:
        return
    require_taken(sample, Format.CSV)


_WRITTEN = st.one_of(
    st.integers(-(10**25), 10**25).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.sampled_from(["1e2", "1e300", "1e-20", "-0", "0.10", "1E+400", "true", "null", "5"]),
    st.text(max_size=5).map(json.dumps),
    st.sampled_from(['"2024-02-29"', '"true"', '"5"', '""', '"12:30:00"']),
)


@given(st.lists(st.dictionaries(st.sampled_from("ab"), _WRITTEN), min_size=1, max_size=4))
def test_records_of_json_are_taken_by_their_own_proposal_or_refused_before(
    rows: list[dict[str, str]],
) -> None:
    records = [",".join(f'"{name}":{value}' for name, value in row.items()) for row in rows]
    sample = "\n".join(f'{{"data":{{{record}}}}}' for record in records).encode()
    try:
        infer(sample, Format.NDJSON)
    except ErsError:
        return
    require_taken(sample, Format.NDJSON)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (['"1"', '""'], "string"),
        (['"2024-01-05"', '""'], "string"),
        (["1", ""], "integer"),
    ],
)
def test_empty_texts_in_quotes_make_a_column_of_texts_as_an_upload_has_them(
    cells: list[str], kind: str
) -> None:
    sample = "\n".join(["x,y", *(f"{cell},1" for cell in cells)]).encode()
    found = infer_csv(sample).schema["properties"]["x"]
    assert (found["type"], "format" in found) == (kind, False)
    require_taken(sample, Format.CSV)


@pytest.mark.parametrize(
    ("sample", "row", "says"),
    [
        ("id,name,c\n1,x,y\n2,x\n", 2, "the row has 2 cells, not 3"),
        ("id,place\n1,37\u00b036'37.8\"N\n", 1, "not valid CSV"),
        ('[{"a": 300}, {"a": "Heat"}]', 2, "numbers are mixed with texts"),
        ('[{"a": 1}, {"a": 123456789012345678901234567890}]', 2, "too many digits"),
        ('[{"a": 1e300}, {"a": 5}]', 1, "too many digits"),
        ('[{"a": 0.00000000001}, {"a": 123456789012}]', 2, "too many digits"),
    ],
)
def test_rows_that_no_field_or_no_upload_takes_are_named(sample: str, row: int, says: str) -> None:
    with pytest.raises(InvalidRecords) as caught:
        (infer_json if sample[0] == "[" else infer_csv)(sample.encode())
    (flaw,) = caught.value.flaws
    assert (flaw.row, says in flaw.detail) == (row, True)


numbers = st.decimals(-(10**9), 10**9, places=3, allow_nan=False).map(str)


@given(
    st.lists(st.fixed_dictionaries({"n": numbers, "i": st.integers(-(10**12), 10**12)}), min_size=1)
)
def test_every_row_of_the_sample_fits_what_is_proposed(rows: list[dict[str, Any]]) -> None:
    lines = [f"{row['n']},{row['i']}" for row in rows]
    definition = infer_csv("\n".join(["n,i", *lines]).encode()).schema
    parsed = parse_definition(str(definition).replace("'", '"'))

    for row in rows:
        for name, text in row.items():
            sent = (
                strict_json.loads(str(text)) if parsed.fields[name].type != "string" else str(text)
            )
            assert parsed.fields[name].accept(sent) is not None


def named(count: int) -> str:
    return ",".join(f"f{at}" for at in range(count))


@pytest.mark.parametrize(
    "sample",
    [
        b"," * (1 << 20),
        named(513).encode() + b"\n",
        named(513).encode(),
        b'"' + b"x" * (1 << 20),
        b"[{" + b",".join(b'"%d":1' % at for at in range(513)) + b"}]",
        b"".join(b'{"f%d":1}\n' % at for at in range(513)),
    ],
    ids=["commas", "a header", "a header alone", "a name", "an object", "objects together"],
)
def test_a_sample_has_no_more_columns_than_a_schema_has_fields(sample: bytes) -> None:
    with pytest.raises(InvalidRecords) as caught:
        (infer_json if sample[:1] in b"[{" else infer_csv)(sample)
    assert caught.value.reason == "too_many_columns"


def test_512_columns_are_taken() -> None:
    row = ",".join(["1"] * 512)
    assert len(infer_csv(f"{named(512)},schema_id:x\n{row}\n".encode()).fields) == 512


def test_rows_beyond_the_first_10000_are_not_even_read() -> None:
    assert infer_json(b'{"a":1}\n' * 10_000 + b"oops").sampled == 10_000


def _lines(name: str, value: Callable[[int], object], rows: int = 1000) -> bytes:
    return b"\n".join(msgspec.json.encode({name: value(number)}) for number in range(rows))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("id", str, True),
        ("customer_id", int, True),
        ("customerId", int, True),
        ("E-Mail", lambda n: f"{n}@x", True),
        ("what", lambda n: str(uuid5(NAMESPACE_URL, str(n))), True),
        # No name of an identifier, whatever its values are.
        ("paid", int, False),
        ("amount", int, False),
        ("guide", str, False),
        # Twice there, not in every row, or no identifier at all.
        ("id", lambda n: str(n % 999), False),
        ("id", lambda n: f"{'e' + chr(769) if n == 1 else chr(233) if n == 2 else n}", False),
        ("id", lambda n: None if n == 7 else n, False),
        ("id", lambda n: n + 0.5, False),
    ],
)
def test_fields_that_name_their_records_are_proposed_as_unique_where_that_is_asked_for(
    name: str, value: Callable[[int], object], expected: bool
) -> None:
    proposal = infer(_lines(name, value), Format.NDJSON, Wishes(unique=True))
    assert proposal.schema.get("unique", []) == ([[name]] if expected else [])
    (note,) = proposal.fields
    assert ("a candidate for unique" in (note.note or "")) == expected


def test_few_rows_say_nothing_of_what_is_unique() -> None:
    assert "unique" not in infer(_lines("id", int, 999), Format.NDJSON, ALL).schema


def test_a_number_with_decimals_is_proposed_so_that_no_other_value_is_rounded() -> None:
    exact = infer_csv(b"price\n0.5\n1\n")
    assert exact.schema["rounding"] == "refuse"
    assert "a value with more than 2 decimals is refused" in (exact.fields[0].note or "")


def test_plain_objects_may_have_fields_called_like_members_of_a_record() -> None:
    plain = infer_json(b'[{"id": 1, "data": "x", "schema": "y"}]').schema["properties"]
    assert list(plain) == ["id", "data", "schema"]
    whole = infer_json(b'[{"id": "x", "schema": "y", "data": {"age": 1}}]')
    assert list(whole.schema["properties"]) == ["age"]


def test_codes_that_could_be_days_are_texts_and_durations_say_so_by_their_time() -> None:
    codes = infer_csv(b"code,took\nP1D,P1D\nP2W,PT90M\n").schema["properties"]
    assert codes["code"] == {"type": "string", "padTo": 31}
    assert codes["took"] == {"type": "string", "format": "duration"}
