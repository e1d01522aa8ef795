"""Booleans and uuids. Texts of uuids are read by the rules of RFC 9562."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from encrypted_records.model.field_types.base import (
    Control,
    FieldType,
    FrameTypes,
    KeyKind,
    Sql,
    grid_of,
    refuse_form,
    require_text,
)
from encrypted_records.model.rules import ValueRefused

if TYPE_CHECKING:
    from encrypted_records.model.definition import FieldSpec, Value

UUID_BYTES = 16
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Boolean(FieldType):
    """``True`` or ``False``; of JSON Schema an integer from 0 to 1."""

    name = "boolean"
    json_type = "integer"
    type_byte = 8
    is_boolean = True
    is_ordered = False
    bounds_in_definition = (0, 1)
    said = "yes or no"
    about = "true or false"
    phrases = "same"
    reading = "boolean"
    frame = FrameTypes("bool", "boolean", taken=r"bool", declared="BoolType")
    sql = Sql(("boolean",), "{0}")
    control = Control("choice", example="true")
    grid = grid_of(0, 1)

    def column_type(self, spec: FieldSpec) -> str:
        return "bool"

    def accept(self, spec: FieldSpec, raw: object) -> bool:
        if not isinstance(raw, bool):
            raise ValueRefused("type", "expected true or false")
        return raw

    def to_point(self, spec: FieldSpec, value: Value) -> int:
        assert isinstance(value, int)
        return int(value)

    def from_point(self, spec: FieldSpec, point: int) -> bool:
        return bool(point)

    def convert(self, value: Value) -> bool:
        known: dict[Value, bool] = {"true": True, "false": False, 1: True, 0: False}
        if value not in known:
            raise ValueRefused("type", "is neither true nor false")
        return known[value]

    def read_filter(self, typed: str) -> tuple[str, Any]:
        return "eq", self.of_cell(typed)

    def of_cell(self, cell: str) -> object:
        return {"true": True, "false": False}.get(cell, cell)


class Uuid(FieldType):
    name = "uuid"
    json_type = "string"
    keys = KeyKind.UUID
    type_byte = 7
    fixed_bytes = UUID_BYTES
    identifies = True
    said = "UUID"
    about = "hexadecimal, in one spelling"
    phrases = "same"
    frame = FrameTypes("string", "string", declared="UUIDType")
    sql = Sql(("uuid",))
    control = Control("text", example="0190163d-8694-739b-aea5-966c26f8ad91")

    def column_type(self, spec: FieldSpec) -> str:
        return "uuid"

    def accept(self, spec: FieldSpec, raw: object) -> str:
        return self.read_text(raw)

    def read_text(self, raw: object) -> str:
        text = require_text(self.name, raw)
        if not _UUID.fullmatch(text):
            raise refuse_form("expected a uuid: 32 hexadecimal digits in five groups")
        return text.lower()

    def pack(self, spec: FieldSpec, value: Value) -> bytes:
        assert isinstance(value, str)
        return bytes.fromhex(value.replace("-", ""))

    def unpack(self, spec: FieldSpec, plain: bytes) -> str:
        digits = plain.hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


BOOLEAN: Final = Boolean()
UUID: Final = Uuid()
