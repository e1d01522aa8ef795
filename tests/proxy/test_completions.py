"""Completions in a line of the condition language."""

from __future__ import annotations

from typing import Any

import pytest

from encrypted_records.client.sdk.condition_language import parse
from encrypted_records.proxy.pages.charts import complete_line

PROPERTIES: dict[str, dict[str, Any]] = {
    "city": {"type": "string"},
    "cost": {"type": "number", "minimum": 0, "maximum": 9, "precision": 2},
    "date of birth": {"type": "string", "format": "date"},
    "alive": {"type": "integer", "minimum": 0, "maximum": 1, "format": "boolean"},
    "ward": {"type": "string", "enum": ["north", "south"]},
    "stage": {"type": "integer", "minimum": 1, "maximum": 4, "enum": [1, 2, 4]},
}
TYPES = {
    "city": "string",
    "cost": "number",
    "date of birth": "date",
    "alive": "boolean",
    "ward": "string",
    "stage": "integer",
}


def offers(text: str) -> list[str]:
    """The line after each completion."""
    found = complete_line(text, TYPES, PROPERTIES)
    return [text[: found.at] + option.text for option in found.options]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("c", ["city ", "cost "]),
        ("BIRTH", ["`date of birth` "]),
        ("(not al", ["(not alive "]),
        ("cost is n", ["cost is null ", "cost is not null "]),
        ("city st", ["city starts with "]),
        ("cost bet", ["cost between "]),
        ("alive = ", ["alive = true ", "alive = false "]),
        ("ward != 'so", ['ward != "south" ']),
        ("ward in ('north', n", ["ward in ('north', \"north\" "]),
        ("stage = 4", ["stage = 4 "]),
        ("cost > 3 an", ["cost > 3 and "]),
        ("city contains 'a' f", ["city contains 'a' folded "]),
        ("cost between 1 ", ["cost between 1 and "]),
        ("cost > 3 or `date of birth` is n", ["cost > 3 or `date of birth` is null "] * 1),
        ("mary ", []),
        ("city = 'x' city", []),
        ("cost > > ", []),
    ],
)
def test_each_place_offers_what_the_grammar_has_there(text: str, lines: list[str]) -> None:
    assert offers(text)[: len(lines) or 9] == lines


def test_every_line_that_is_made_of_completions_alone_can_be_asked() -> None:
    def grow(text: str, words: int) -> None:
        found = complete_line(text, TYPES, PROPERTIES)
        for option in found.options[:4]:
            longer = text[: found.at] + option.text
            place = complete_line(longer, TYPES, PROPERTIES).place
            assert place, longer
            if place == "joined":
                parse(longer)
            elif words:
                grow(longer, words - 1)

    grow("", 4)


def test_values_are_asked_of_the_index_for_texts_that_no_definition_lists() -> None:
    found = complete_line('cost > 3 and city = "Ro', TYPES, PROPERTIES)
    assert (found.field, found.typed, found.asks_index) == ("city", "Ro", True)
    for text in ("ward = ", "cost > ", "alive = ", "`date of birth` < "):
        assert not complete_line(text, TYPES, PROPERTIES).asks_index
    assert "0 to 9" in complete_line("cost > ", TYPES, PROPERTIES).hint
