"""Which control the form of a record has for a value, and what is made of what was typed there."""

from __future__ import annotations

from typing import Any

import pytest

from encrypted_records.proxy.pages.formatting import instant_of, widget_of

NUMBER: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 100, "precision": 2}
WARD: dict[str, Any] = {"type": "string", "enum": ["north", "south"]}


@pytest.mark.parametrize(
    ("kind", "spec", "value", "form"),
    [
        ("date", {}, "2024-02-29", "input date"),
        ("time", {}, "08:30:00.5", "input time"),
        ("date-time", {}, "2026-01-31T08:30:00+02:00", "instant text"),
        ("boolean", {}, "true", "buttons text"),
        ("string", WARD, "north", "menu text"),
        ("string", {"const": "a"}, "", "menu text"),
        ("string", {}, "a\nb", "lines text"),
        ("integer", {"minimum": 0, "maximum": 9}, "3", "input number"),
        ("number", NUMBER, "3.25", "input number"),
    ],
)
def test_each_type_has_a_control_of_its_own(
    kind: str, spec: dict[str, Any], value: str, form: str
) -> None:
    widget = widget_of(kind, spec, value)
    assert f"{widget.form} {widget.type}" == form


@pytest.mark.parametrize(
    ("kind", "spec", "value"),
    [
        ("date", {}, "31.12.1980"),
        ("time", {}, "08:30:00.123456"),
        ("date-time", {}, "2026-01-31T08:30:00.123456Z"),
        ("boolean", {}, "perhaps"),
        ("string", WARD, "west"),
        ("number", NUMBER, "many"),
        ("integer", {"minimum": 0, "maximum": 2**62}, "4611686018427387904"),
    ],
)
def test_a_value_that_a_control_would_not_show_is_shown_as_text(
    kind: str, spec: dict[str, Any], value: str
) -> None:
    widget = widget_of(kind, spec, value)
    assert (widget.form, widget.type, widget.value) == ("input", "text", value)


@pytest.mark.parametrize(
    ("stored", "local"),
    [
        ("2026-01-31T08:30:00Z", "2026-01-31T08:30"),
        ("2026-01-31T08:30:05+02:00", "2026-01-31T08:30:05"),
        ("2026-01-31T08:30:00.5-11:00", "2026-01-31T08:30:00.500"),
    ],
)
def test_an_instant_that_a_browser_writes_in_its_own_way_is_the_one_that_was_shown(
    stored: str, local: str
) -> None:
    widget = widget_of("date-time", {}, stored)
    assert instant_of(local, widget.offset) == stored
    assert instant_of("", widget.offset) == ""


def test_a_duration_is_typed_with_an_example_and_a_local_time_in_the_browsers_own_control() -> None:
    spec = {"type": "string", "format": "duration"}
    made = widget_of("duration", spec, "PT1H30M")
    assert (made.form, made.type, made.value) == ("input", "text", "PT1H30M")
    assert made.attributes["placeholder"] == "PT1H30M"
    spec = {"type": "string", "format": "local-date-time"}
    local = widget_of("local-date-time", spec, "2026-01-31T08:30:00.25")
    assert (local.type, local.attributes["step"]) == ("datetime-local", "0.001")
    # More decimals than the control shows.
    finer = widget_of("local-date-time", spec, "2026-01-31T08:30:00.250001")
    assert (finer.type, finer.value) == ("text", "2026-01-31T08:30:00.250001")
