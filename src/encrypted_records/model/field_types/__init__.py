"""All types of fields, by name and as a definition says them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from encrypted_records.errors import Unsupported
from encrypted_records.model.field_types.base import FieldType
from encrypted_records.model.field_types.calendar import DATE, INSTANT, LOCAL, TIME
from encrypted_records.model.field_types.durations import DURATION
from encrypted_records.model.field_types.formatted import BOOLEAN, UUID
from encrypted_records.model.field_types.plain import INTEGER, NUMBER, TEXT

#: Every type, in the order in which people are offered them.
TYPES: Final[tuple[FieldType, ...]] = (
    *(TEXT, INTEGER, NUMBER, DATE, TIME, INSTANT, UUID, BOOLEAN),
    *(LOCAL, DURATION),
)
#: Every type by its name.
BY_NAME: Final[Mapping[str, FieldType]] = {kind.name: kind for kind in TYPES}
#: The types that enforced formats name, by these names.
FORMATS: Final[Mapping[str, FieldType]] = {kind.name: kind for kind in TYPES if kind.is_format}
#: The types without a format, by the JSON type.
PLAIN: Final[Mapping[str, FieldType]] = {kind.name: kind for kind in TYPES if not kind.is_format}


def type_in(definition: Mapping[str, Any], name: str) -> FieldType:
    """The type of a field of a definition in JSON, which the service has accepted."""
    field = definition["properties"][name]
    return proposed_type(field) if "formats" in definition else PLAIN[field["type"]]


def proposed_type(field: Mapping[str, Any]) -> FieldType:
    """The type of a field in JSON, in a definition that enforces formats.

    Raises:
        Unsupported: a later version has made it.
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
