"""What a stored value becomes where its field takes another type: the same value, or none."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from encrypted_records.model.definition_changes import convert
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.field_types.base import ValueRefused
from encrypted_records.model.strict_json import encode

TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": -1000, "maximum": 1000}
SIZE = {"type": "number", "minimum": -1000, "maximum": 1000, "precision": 2}
COARSE = SIZE | {"precision": 1}
BIT = {"type": "integer", "minimum": 0, "maximum": 1}
BOOLEAN = BIT | {"format": "boolean"}


def field(spec: dict[str, Any]) -> Any:
    formats = {"formats": "enforced"} if "format" in spec else {}
    schema = {"type": "object", "properties": {"f": spec}, **formats}
    return parse_definition(encode(schema)).fields["f"]


def turned(before: dict[str, Any], after: dict[str, Any], value: Any) -> Any:
    return convert(field(before), field(after), value)


@pytest.mark.parametrize(
    ("before", "after", "value", "becomes"),
    [
        (TEXT, COUNT, "12", 12),
        (TEXT, COUNT, "-7", -7),
        (TEXT, SIZE, "1.5", Decimal("1.5")),
        (COUNT, TEXT, -3, "-3"),
        (SIZE, TEXT, Decimal("1.50"), "1.5"),
        (SIZE, COUNT, Decimal("4.00"), 4),
        (COUNT, SIZE, 4, Decimal(4)),
        (SIZE, COARSE, Decimal("0.50"), Decimal("0.5")),
        (TEXT, BOOLEAN, "true", True),
        (BIT, BOOLEAN, 0, False),
        (BOOLEAN, TEXT, True, "true"),
        (BOOLEAN, COUNT, True, 1),
        (TEXT, TEXT | {"format": "date"}, "2024-02-29", "2024-02-29"),
        (TEXT | {"format": "date"}, TEXT, "2024-02-29", "2024-02-29"),
        (TEXT, COUNT, None, None),
    ],
)
def test_a_value_stays_the_same_in_another_type(
    before: dict[str, Any], after: dict[str, Any], value: Any, becomes: Any
) -> None:
    converted = turned(before, after, value)
    assert (converted, type(converted)) == (becomes, type(becomes))


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [
        (TEXT, COUNT, "007"),
        (TEXT, COUNT, "1e2"),
        (TEXT, COUNT, "\u0663"),
        (TEXT, COUNT, "twelve"),
        (TEXT, COUNT, ""),
        (TEXT, COUNT, "1001"),
        (TEXT, COUNT, "1.5"),
        (TEXT, SIZE, "1.50"),
        (TEXT, SIZE, "-0"),
        (SIZE, COUNT, Decimal("4.25")),
        (SIZE, COARSE, Decimal("0.25")),
        (TEXT, BOOLEAN, "yes"),
        (COUNT, BOOLEAN, 2),
        (TEXT, TEXT | {"format": "date"}, "2023-02-29"),
        (COUNT, TEXT | {"format": "date"}, 5),
        (COUNT, TEXT | {"maxLength": 1}, 12),
    ],
)
def test_what_would_be_another_value_is_refused(
    before: dict[str, Any], after: dict[str, Any], value: Any
) -> None:
    with pytest.raises(ValueRefused):
        turned(before, after, value)
