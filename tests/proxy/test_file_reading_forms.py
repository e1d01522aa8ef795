"""Hidden members of the import's form that the page did not write."""

from __future__ import annotations

import pytest

from encrypted_records.proxy.pages.imports import reading_of

RECIPE = '{"columns":[{"source":"a","name":"a"}]}'


@pytest.mark.parametrize(
    "hidden",
    [
        {"reading": "5"},
        {"reading": '{"columns":5}'},
        {"reading": '{"columns":[{}]}'},
        {"reading": '{"columns":[{"source":"a","name":"a","null":5}]}'},
        {"reading": RECIPE, "said": '{"columns":[]}'},
        {"reading": RECIPE, "said": '{"columns":{"a":3}}'},
        {"reading": RECIPE, "said": "[" * 5000},
    ],
)
def test_hidden_members_of_another_form_say_nothing(hidden: dict[str, str]) -> None:
    reading = reading_of({**hidden, "null-0": "none"})
    known = hidden["reading"] == RECIPE
    assert reading.choices == ({"columns": {"a": {"null": ["none"]}}} if known else {})


def test_two_words_become_those_of_a_boolean_as_browsers_send_them() -> None:
    form = {"reading": RECIPE, "kind-0": "string", "type-0": "boolean", "two-0": "J\r\nN"}
    said = reading_of(form).choices["columns"]["a"]
    assert (said["false"], said["true"]) == ("J", "N")
