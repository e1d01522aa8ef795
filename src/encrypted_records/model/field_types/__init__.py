"""All types of fields, by name and by definition, and proposals of fields.

A field is proposed when only some of its values are known. A proposal reveals and forbids nothing:
bounds are those of the type, not of the observed values, numbers keep more decimals than were
observed, and no allowed texts are listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from encrypted_records.errors import Unsupported
from encrypted_records.model.field_types.base import FieldType
from encrypted_records.model.field_types.calendar import DATE, DURATION, INSTANT, LOCAL, TIME
from encrypted_records.model.field_types.plain import BOOLEAN, INTEGER, NUMBER, TEXT, UUID

#: All types, in the order in which users can choose them.
TYPES: Final[tuple[FieldType, ...]] = (
    *(TEXT, INTEGER, NUMBER, DATE, TIME, INSTANT, UUID, BOOLEAN),
    *(LOCAL, DURATION),
)
#: Every type by its name.
BY_NAME: Final[Mapping[str, FieldType]] = {kind.name: kind for kind in TYPES}
#: The types with an enforced format, by the format's name.
FORMATS: Final[Mapping[str, FieldType]] = {kind.name: kind for kind in TYPES if kind.is_format}
#: The types without a format, by the JSON type.
PLAIN: Final[Mapping[str, FieldType]] = {kind.name: kind for kind in TYPES if not kind.is_format}


def type_in(definition: Mapping[str, Any], name: str) -> FieldType:
    """The type of a field in a JSON definition that the service has accepted."""
    field = definition["properties"][name]
    return proposed_type(field) if "formats" in definition else PLAIN[field["type"]]


def proposed_type(field: Mapping[str, Any]) -> FieldType:
    """The type of a field in a JSON definition that enforces formats.

    Raises:
        Unsupported: a later version created it.
    """
    if "format" not in field:
        return PLAIN[field["type"]]
    known = FORMATS.get(field["format"])
    if known is None:
        raise Unsupported(
            f"this version does not know the format {str(field['format'])[:40]}",
            hint="install the version that the service has",
        )
    return known


#: Digits of a number, before and after its point together.
MAX_DIGITS = 18
#: The largest whole number, for bounds and for an index, which stores 64 bits.
WHOLE = 10**MAX_DIGITS - 1
#: Numbers with decimals have bounds of up to this power of ten.
_MAGNITUDE = 12
_LEAST_DECIMALS = 2
#: Short texts are padded to one of these lengths, in bytes.
_PADDED = (31, 63)
#: Column names whose whole numbers are amounts: next month's may have decimals.
_AMOUNT = re.compile(
    r"(?<![^\W\d_])(?:amount|price|total|cost|betrag|umsatz|preis|montant|prix|importe|valor|rate"
    r"|weight)s?(?![^\W\d_])",
    re.IGNORECASE,
)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|_")


def is_amount(name: str) -> bool:
    """Whether a column's name suggests money or a measure, which have decimals sooner or later."""
    return _AMOUNT.search(_HUMP.sub(" ", name)) is not None


def propose_whole_number(lowest: int = -WHOLE, highest: int = WHOLE) -> dict[str, Any]:
    return {"type": "integer", "minimum": max(lowest, -WHOLE), "maximum": min(highest, WHOLE)}


def propose_decimal(digits: int, decimals: int) -> dict[str, Any] | None:
    """A field of numbers with up to ``digits`` digits before the point and ``decimals`` decimals;
    None if a number field does not support that many.
    """
    spare = MAX_DIGITS - max(digits, 1)
    if decimals > spare:
        return None
    wanted = max(decimals, _LEAST_DECIMALS) if decimals <= _LEAST_DECIMALS else decimals + 2
    return propose_number(
        min(wanted, spare), min(MAX_DIGITS - min(wanted, spare), _MAGNITUDE), digits
    )


def propose_number(precision: int, magnitude: int, digits: int = 0) -> dict[str, Any]:
    """A field of numbers with ``precision`` decimals and bounds of a power of ten, which is at
    least 10 to the power ``digits``.
    """
    bound = 10 ** max(magnitude, digits)
    if precision <= 0:
        return propose_whole_number(-bound, bound)
    return {"type": "number", "minimum": -bound, "maximum": bound, "precision": precision}


def propose_text(longest: int) -> dict[str, Any]:
    """A field of texts of up to ``longest`` bytes in UTF-8."""
    padded = next((width for width in _PADDED if longest <= width), None)
    return {"type": "string"} if padded is None else {"type": "string", "padTo": padded}


def headroom(extreme: Decimal) -> int:
    """The first of 1, 2, 5, 10, 20, 50, ... that is at least twice ``extreme``."""
    wanted = max(2 * extreme, Decimal(1))
    power = int(Decimal(1).scaleb(max(wanted.adjusted(), 0)))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= wanted)


def propose_definition(
    properties: dict[str, dict[str, Any]], required: list[str]
) -> dict[str, Any]:
    """A definition of these fields that refuses values with surplus decimals instead of
    rounding.
    """
    made: dict[str, Any] = {"type": "object", "rounding": "refuse"}
    if any("format" in field for field in properties.values()):
        made["formats"] = "enforced"
    made["properties"] = properties
    if required:
        made["required"] = required
    return made
