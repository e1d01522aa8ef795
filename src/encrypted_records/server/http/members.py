"""Members of a body that nobody reads are refused, with their places: a misspelt ``descripton``
would otherwise be taken for a description that was left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError


class KnownMembers(serializers.Serializer[Any]):
    """For serializers to derive from. Read-only members may be sent back, and change nothing."""

    def to_internal_value(self, data: Any) -> Any:
        """
        Raises:
            ValidationError: ``unknown_member``, beside what else is wrong.
        """
        unknown = [name for name in data if name not in self.fields] if _is_object(data) else []
        if not unknown:
            return super().to_internal_value(data)
        taken = ", ".join(name for name, field in self.fields.items() if not field.read_only)
        detail = ErrorDetail(f"there is no such member; there are {taken}", code="unknown_member")
        errors: dict[str, Any] = {name: [detail] for name in unknown}
        try:
            super().to_internal_value(data)
        except ValidationError as error:
            if isinstance(error.detail, dict):
                errors |= error.detail
        raise ValidationError(errors)


def _is_object(data: Any) -> bool:
    return isinstance(data, Mapping)
