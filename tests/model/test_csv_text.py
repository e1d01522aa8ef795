"""Lines of CSV hold what was stored; those for spreadsheets hold no formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.model import record_formats
from encrypted_records.model.definition import Value

#: What OWASP names, and in full width.
SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20"
BLANKS = "\t\r\n\0"
#: What some program, or the same one in another country, takes for the end of a cell.
SEPARATORS = ",;\t|"
#: Mostly what could go wrong.
TEXTS = st.text(
    st.one_of(
        st.sampled_from(SIGNS + BLANKS + SEPARATORS + "\"' 1a"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=12,
)
NUMBERS = st.one_of(st.integers(), st.decimals(allow_nan=False, allow_infinity=False, places=3))
ROWS = st.lists(st.lists(st.one_of(TEXTS, NUMBERS, st.none()), min_size=2, max_size=5), max_size=5)


def read(rows: Sequence[Sequence[Value]], *, safe: bool, separator: str = ",") -> list[list[str]]:
    text = b"".join(record_formats.csv_line(row, safe=safe) for row in rows).decode()
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))


def shown(value: Value) -> str:
    return "" if value is None else format(value, "f") if isinstance(value, Decimal) else str(value)


def is_formula(text: str) -> bool:
    return text.startswith(tuple(SIGNS + BLANKS))


@given(ROWS)
def test_what_is_written_is_read_back(rows: list[list[Value]]) -> None:
    assert read(rows, safe=False) == [list(map(shown, row)) for row in rows]


@given(ROWS)
def test_for_spreadsheets_only_a_number_begins_like_a_formula_and_numbers_stay(
    rows: list[list[Value]],
) -> None:
    found = read(rows, safe=True)
    assert [len(row) for row in found] == [len(row) for row in rows]
    for value, text in zip(chain(*rows), chain(*found), strict=True):
        if not isinstance(value, str):
            assert text == shown(value)
            continue
        assert not is_formula(text)
        # Nothing but apostrophes came to it, and one comes to whatever began like a formula.
        assert text.replace("'", "") == value.replace("'", "")
        assert (text[:1] == "'") == (value[:1] == "'" or is_formula(value))


def texts_with(separator: str) -> st.SearchStrategy[tuple[str, list[list[str]]]]:
    few = st.text(st.sampled_from(f'{separator}{SIGNS}"\r\n a'), max_size=8)
    rows = st.lists(st.lists(few | TEXTS, min_size=2, max_size=5), max_size=5)
    return st.tuples(st.just(separator), rows)


@given(st.sampled_from(SEPARATORS).flatmap(texts_with))
def test_for_spreadsheets_no_text_holds_a_formula_behind_another_separator(
    read_as: tuple[str, list[list[str]]],
) -> None:
    """A program that ends cells elsewhere sees other cells, and no formula in them either."""
    separator, rows = read_as
    for cell in chain(*read(rows, safe=True, separator=separator)):
        assert not cell.lstrip(BLANKS).startswith(tuple(SIGNS)), cell


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ('=HYPERLINK("http://x","y")', '''"'=HYPERLINK(""http://x"",""y"")"'''),
        ("-5", '"\'-5"'),
        (-5, "-5"),
        (Decimal("-0.50"), "-0.50"),
        (Decimal("1E+3"), "1000"),
        ("+49 30 1", '"\'+49 30 1"'),
        ("a@b.example", '"a@b.example"'),
        ("1 - 2 = -1", '"1 - 2 = -1"'),
        ("x;=1", '"x;\'=1"'),
        ("plain", '"plain"'),
        ("", '""'),
        (None, ""),
    ],
)
def test_cells_for_spreadsheets(value: Value, written: str) -> None:
    assert record_formats.csv_cell(value, safe=True) == written


def test_an_absent_value_and_an_empty_text_stay_two_things() -> None:
    for safe in (False, True):
        assert re.fullmatch(rb',""\r\n', record_formats.csv_line([None, ""], safe=safe))
