"""Form controls for values of each type: the browser's own controls, if they lose nothing.

A control of the browser shows nothing where a value is not of its form, and drops digits that it
does not know of. Such a value gets a field of text, so that it is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from encrypted_records.model.field_types import BY_NAME
from encrypted_records.model.field_types.base import FieldType
from encrypted_records.model.field_types.calendar import DATE
from encrypted_records.proxy.pages import formatting as words

#: Beyond this many digits browsers compare numbers with an error.
_EXACT_DIGITS = 15
#: Longer texts, and those of several lines, get more than one line.
_LONG_TEXT = 80
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
#: How a boolean is typed, and what it is called.
BOOLEANS = (("true", "yes"), ("false", "no"))


@dataclass(frozen=True, slots=True)
class Widget:
    """
    Attributes:
        form: ``input``, ``lines`` (of text), ``menu`` or ``buttons`` (one of ``choices``), or
            ``instant``: a date and time, and its ``offset`` from UTC.
        type: of an ``input``, what HTML calls it.
        attributes: more attributes of an ``input``.
        said: what kind of value it is for.
    """

    form: str
    value: str
    said: str
    type: str = "text"
    attributes: Mapping[str, str] = field(default_factory=dict)
    choices: Sequence[tuple[str, str]] = ()
    offset: str = ""


def widget_of(kind: str, spec: Mapping[str, Any], value: str) -> Widget:
    """
    Args:
        kind: the field's type, or its enforced format.
        spec: the field in the definition.
        value: what is shown, as text; empty for none.
    """
    own = BY_NAME[kind]
    control, said = own.control, own.said
    shows = not value or re.fullmatch(control.pattern, value) is not None
    if "enum" in spec or "const" in spec:
        listed = [words.plain(value) for value in spec.get("enum", [spec.get("const")])]
        if not value or value in listed:
            return Widget(
                "menu", value, "one of a list", choices=[(choice, choice) for choice in listed]
            )
    elif control.form == "number":
        return _of_number(own, spec, value)
    elif control.form == "choice" and value in ("", *(typed for typed, _ in BOOLEANS)):
        return Widget("buttons", value, said, choices=BOOLEANS)
    elif control.form == "native" and shows:
        attributes = {**control.attributes, **({"step": _step(value)} if control.steps else {})}
        return Widget("input", value, said, control.html, attributes)
    elif control.form == "instant" and shows:
        instant = re.fullmatch(control.pattern, value)
        local, offset = (instant["local"], instant["offset"]) if instant else ("", "Z")
        return Widget("instant", local, said, attributes={"step": _step(local)}, offset=offset)
    elif own.is_text and ("\n" in value or len(value) > _LONG_TEXT):
        return Widget("lines", value, said)
    shown = {"placeholder": control.example} if control.hints else {}
    return Widget("input", value, said, attributes={"dir": "auto", **shown})


def _step(time: str) -> str:
    """Seconds, or the decimals that a value has of them."""
    return "0.001" if "." in time else "1"


def _of_number(own: FieldType, spec: Mapping[str, Any], value: str) -> Widget:
    least, most = Decimal(spec["minimum"]), Decimal(spec["maximum"])
    decimals = int(spec.get("precision", 0)) if own.has_decimals else 0
    said = f"{own.said}, {words.grouped(least)} to {words.grouped(most)}"
    if decimals:
        said += f", {words.format_count(decimals, 'decimal')}"
    digits = len(f"{max(abs(least), abs(most)):.0f}") + decimals
    if digits > _EXACT_DIGITS or not (not value or _NUMBER.fullmatch(value)):
        return Widget("input", value, said, attributes={"inputmode": "decimal"})
    # A number with more decimals is not refused here: what becomes of it, the schema says.
    step = "any" if own.has_decimals else "1"
    limits = {"step": step, "min": words.plain(least), "max": words.plain(most)}
    return Widget("input", value, said, "number", limits)


def is_day(text: str) -> bool:
    """Whether a browser's field of a date shows this."""
    return re.fullmatch(DATE.control.pattern, text) is not None


def instant_of(local: str, offset: str) -> str:
    """Join a date, a time and an offset to an instant: with seconds, and without trailing zeros in
    the decimals.
    """
    if not local.strip():
        return ""
    if re.fullmatch(r".*T[0-9]{2}:[0-9]{2}", local):
        local += ":00"
    if "." in local:
        local = local.rstrip("0").rstrip(".")
    return f"{local}{offset.strip()}"
