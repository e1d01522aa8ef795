"""What a preview says of columns, and which columns are not read at all."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import InvalidRecords
from encrypted_records.ingest.infer import infer
from encrypted_records.ingest.parsing import check_columns, read_header
from encrypted_records.ingest.preview import BINS, SeenValues, preview
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.record_formats import Format
from encrypted_records.model.samples import Common
from tests.ingest.test_parse_csv import rows

DEFINITION = parse_definition(
    b'{"type": "object", "properties": {"name": {"type": "string"},'
    b' "age": {"type": "integer", "minimum": 0, "maximum": 99}}}'
)


def test_a_preview_says_how_the_values_of_a_column_are_spread() -> None:
    sample = b"name,age\nAda,17\nAda,90\nGrace,many\n,17\n"
    found = preview(DEFINITION, sample, Format.CSV, shown=1)
    name, age = found.fields
    assert (name.present, name.distinct) == (3, 2)
    assert name.common == [Common("Ada", 2), Common("Grace", 1)]
    assert (age.present, age.distinct) == (4, 3)
    assert [age.least, age.most] == [Decimal(17), Decimal(90)]
    # What is no number is in no stretch.
    assert age.bins == [2, *[0] * (BINS - 2), 1]
    assert found.bad_rows == 1


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False), min_size=1))
def test_every_number_is_in_one_stretch(numbers: list[Decimal]) -> None:
    seen = SeenValues()
    for number in numbers:
        seen.add(number)
    found = seen.spread("n", numeric=True)
    assert (found.least, found.most) == (min(numbers), max(numbers))
    # Numbers that are further apart than any field's bounds are in none.
    assert sum(found.bins) == len(numbers) or found.bins == []


def test_a_column_that_is_left_out_is_in_no_record_by_rows_or_by_columns() -> None:
    plain = b"leave_out:1,name,leave_out:1,age\nx,Ada,y,17\n,Grace,z,85\n"
    quoted = plain.replace(b"x,Ada", b'"x,""",Ada')
    wanted = [{"name": "Ada", "age": "17"}, {"name": "Grace", "age": "85"}]
    assert rows(plain) == wanted
    assert rows(quoted) == wanted
    found = preview(DEFINITION, plain, Format.CSV, shown=5)
    assert found.columns == [field.name for field in found.fields] == ["name", "age"]
    assert [row.cells for row in found.rows] == [["Ada", "17"], ["Grace", "85"]]
    assert list(infer(plain, Format.CSV).schema["properties"]) == ["name", "age"]


def test_not_all_columns_can_be_left_out_and_none_that_is_a_field() -> None:
    with pytest.raises(InvalidRecords, match="all columns are left out"):
        read_header(b"leave_out:a,leave_out:b\n", final=True)
    old = parse_definition(b'{"type": "object", "properties": {"leave_out:a": {"type": "string"}}}')
    with pytest.raises(InvalidRecords, match="column 1 is a field of the schema, and the name"):
        check_columns(["leave_out:a"], old)
