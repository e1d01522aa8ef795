"""What a sample makes of each column, and which samples are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import ErsError, InvalidRecords
from encrypted_records.ingest.infer import infer_csv, infer_json
from encrypted_records.model import strict_json
from encrypted_records.model.definition_parser import parse_definition


def column(*cells: str) -> dict[str, Any]:
    """The field proposed for a CSV column with these cells."""
    # A second column keeps rows of an empty cell from being empty lines.
    text = "\n".join(["x,y", *(f"{cell},1" for cell in cells)])
    field: dict[str, Any] = infer_csv(text.encode()).definition["properties"]["x"]
    return field


@pytest.mark.parametrize(
    ("cells", "field"),
    [
        (["1", "42"], {"type": "integer", "minimum": 0, "maximum": 100}),
        (["-7", "0"], {"type": "integer", "minimum": -20, "maximum": 0}),
        (["0"], {"type": "integer", "minimum": 0, "maximum": 0}),
        (["1.5", "2"], {"type": "number", "minimum": 0, "maximum": 5, "precision": 1}),
        (["0.001"], {"type": "number", "minimum": 0, "maximum": 1, "precision": 3}),
        (["1.0", "2.00"], {"type": "integer", "minimum": 0, "maximum": 5}),
        (["007"], {"type": "string"}),
        (["+1"], {"type": "string"}),
        (["1e5"], {"type": "string"}),
        (["12345678901234567890"], {"type": "string"}),
        (["1", "one"], {"type": "string"}),
        (["", ""], {"type": "string"}),
    ],
)
def test_each_kind_of_column_gets_its_type_and_room_to_grow(
    cells: list[str], field: dict[str, Any]
) -> None:
    assert column(*cells) == field


def test_only_fields_that_every_row_has_are_required() -> None:
    proposal = infer_json(b'[{"a": 1, "b": "x"}, {"a": 2, "b": null}, {"a": 3}]')

    assert proposal.definition["required"] == ["a"]
    assert [(one.present, one.absent) for one in proposal.fields] == [(3, 0), (1, 2)]


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


@pytest.mark.parametrize("sample", [b"[]", b"[1]", b'[{"a": true}]', b'[{"a": [1]}]', b"{", b""])
def test_json_that_no_record_can_be_is_refused(sample: bytes) -> None:
    with pytest.raises(ErsError):
        infer_json(sample)


def test_a_refusal_says_the_row_and_field_and_not_the_value() -> None:
    with pytest.raises(InvalidRecords) as caught:
        infer_json(b'[{"a": 1}, {"b": {"secret": "xyzzy"}}]')

    (flaw,) = caught.value.flaws
    assert (flaw.row, flaw.field) == (2, "b")
    assert "xyzzy" not in repr(caught.value.flaws)


numbers = st.decimals(-(10**9), 10**9, places=3, allow_nan=False).map(str)


@given(
    st.lists(st.fixed_dictionaries({"n": numbers, "i": st.integers(-(10**12), 10**12)}), min_size=1)
)
def test_every_row_of_the_sample_fits_what_is_proposed(rows: list[dict[str, Any]]) -> None:
    lines = [f"{row['n']},{row['i']}" for row in rows]
    definition = infer_csv("\n".join(["n,i", *lines]).encode()).definition
    parsed = parse_definition(str(definition).replace("'", '"'))

    for row in rows:
        for name, text in row.items():
            sent = (
                strict_json.loads(str(text)) if parsed.fields[name].type != "string" else str(text)
            )
            assert parsed.fields[name].accept(sent) is not None
