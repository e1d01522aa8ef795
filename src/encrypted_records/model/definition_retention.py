"""The keyword ``retention`` at the root of a definition: how long records stay."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.definition_sets import Flaws
from encrypted_records.model.field_types import TYPES
from encrypted_records.model.retention import MAX_DAYS, Retention
from encrypted_records.model.rules import as_decimal


def read_retention(
    root: Mapping[str, Any], sound: Mapping[str, FieldSpec], names: Collection[str]
) -> tuple[Retention | None, Flaws]:
    """The rule, and what is wrong with it.

    Args:
        sound: the fields without a flaw, of those that the definition ``names``.
    """
    if "retention" not in root:
        return None, []
    body, flaws = root["retention"], list[tuple[str, tuple[str, ...]]]()
    if not isinstance(body, dict):
        return None, [("expected an object with days, and maybe a field", ())]
    flaws += [("expected days or field", (one,)) for one in body if one not in ("days", "field")]
    days = as_decimal(body.get("days"))
    if days is None or not 1 <= days <= MAX_DAYS or days != int(days):
        flaws.append((f"expected an integer from 1 to {MAX_DAYS}", ("days",)))
    if "field" in body:
        flaws += [(detail, ("field",)) for detail in _flaws_of_field(body["field"], sound, names)]
    if flaws or days is None:
        return None, flaws
    return Retention(int(days), body.get("field")), []


def _flaws_of_field(
    name: object, sound: Mapping[str, FieldSpec], names: Collection[str]
) -> list[str]:
    if not isinstance(name, str) or name not in names:
        return ["names no field"]
    spec = sound.get(name)
    if spec is not None and not spec.field_type.is_moment:
        named = " or ".join(kind.name for kind in TYPES if kind.is_moment)
        return [f"expected a field of the enforced format {named}"]
    return []
