"""Values that another field has, as a set: what a semi-join compares a field with."""

from __future__ import annotations

from typing import Protocol


class Members(Protocol):
    """Values as the field has them that is compared, whatever they were where they come from."""

    def has_point(self, point: int, /) -> bool:
        """Whether a point of the field's grid is one of them."""

    def has_text(self, text: str, /) -> bool:
        """Whether a text, in the form in which it is compared, is one of them."""
