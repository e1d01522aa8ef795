"""Items of JSON are read when they are all there, and refused as soon as they cannot be right."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest

from encrypted_records.errors import Malformed
from encrypted_records.model.strict_json import JsonItems

ITEMS = JsonItems("record", "upload")


@pytest.mark.parametrize(
    ("text", "value"),
    [('  {"a": [1, "]"]} ,', {"a": [1, "]"]}), ("-1.5e3,", Decimal(-1500)), ("null", None)],
)
def test_a_value_is_read_as_soon_as_its_end_is_there(text: str, value: Any) -> None:
    for end in range(len(text.rstrip(" ,"))):
        assert ITEMS.read(text[:end], 0, 1, final=False) is None
    found = ITEMS.read(text, 0, 1, final=False)
    assert found is not None
    assert (found.value, text[found.end :].strip(" ,"), found.fault) == (value, "", "")


def test_a_number_waits_for_what_may_still_belong_to_it_and_nothing_else_does() -> None:
    assert ITEMS.read("12", 0, 1, final=False) is None
    assert ITEMS.read("1e", 0, 1, final=False) is None
    last = ITEMS.read("12", 0, 1, final=True)
    assert last is not None
    assert last.value == 12
    with pytest.raises(Malformed, match="record 1 is followed by neither"):
        ITEMS.step("{}111", 0, 1, final=False)


@pytest.mark.parametrize("text", ["]", " \n] ", '"a"]', "1 , 2]", "[[]],{}]"])
def test_an_array_is_gone_through_to_its_end(text: str) -> None:
    at, number, ended = 0, 1, False
    values = []
    while not ended:
        step = ITEMS.step(text, at, number, final=False)
        assert step is not None
        values += [] if step.item is None else [step.item.value]
        at, ended, number = step.end, step.is_last, number + 1
    ITEMS.check_end(text, at)
    assert len(values) == (0 if text.strip() == "]" else text.count(",") + 1)


def test_json_that_is_refused_still_has_an_end() -> None:
    step = ITEMS.step('{"a": 1, "a": 2}, 7]', 0, 1, final=True)
    assert step is not None
    assert step.item is not None
    assert step.item.fault == "an object has the same key twice"
    assert ITEMS.step('{"a": 1, "a": 2}, 7]', step.end, 2, final=True) is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the upload breaks off in record 3"),
        ('{"a": ', "the upload breaks off in record 3"),
        ('{"a": }', "record 3 is not JSON"),
        ("]", "record 3 is not JSON"),
        ("{} {}", "record 3 is followed by neither a comma nor the array's end"),
        ("{}", "record 3 is followed by neither a comma nor the array's end"),
        ("[" * 100_000, "record 3 is nested too deeply"),
    ],
)
def test_what_cannot_be_right_is_named_by_its_number(text: str, message: str) -> None:
    with pytest.raises(Malformed, match=re.escape(message)):
        ITEMS.step(text, 0, 3, final=True)


def test_nothing_follows_the_end_of_an_array() -> None:
    ITEMS.check_end("[] \n\t", 2)
    with pytest.raises(Malformed, match="something follows"):
        ITEMS.check_end("[] 1", 2)
