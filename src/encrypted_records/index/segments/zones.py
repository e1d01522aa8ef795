"""The least and greatest key of a column, in a paged segment's header (docs/SPEC.md, 6.2.4).

They rule a segment out before any of its pages is asked for. Their width is fixed, so that a
header's length says nothing of the keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns.column import KeyRange, Keys, stored_key_type
from encrypted_records.model.field_types.base import KeyKind


@dataclass(frozen=True, slots=True)
class Zone:
    """``least`` and ``greatest`` as edges of key ranges have them; a column without a present row
    has no key between them."""

    least: int | bytes
    greatest: int | bytes

    def meets(self, key_range: KeyRange) -> bool:
        """Whether a key of the range may be in the column."""
        first, last = key_range
        least, greatest = self.least, self.greatest
        if not self._is_ordered:
            return False
        begins, ends = _comparable(first.key), _comparable(last.key)
        after_first = greatest > begins or (greatest == begins and first.side == "left")  # type: ignore[operator]
        before_last = least < ends or (least == ends and last.side == "right")  # type: ignore[operator]
        return bool(after_first and before_last)

    def moved(self, move: Callable[[int], int]) -> Zone:
        """The zone of a numeric column whose keys ``move`` gave other values, in their order."""
        if (
            not self._is_ordered
            or isinstance(self.least, bytes)
            or isinstance(self.greatest, bytes)
        ):
            return self
        return Zone(move(self.least), move(self.greatest))

    @property
    def _is_ordered(self) -> bool:
        return bool(self.least <= self.greatest)  # type: ignore[operator]


def _comparable(key: int | bytes) -> int | bytes:
    """Keys of strings compare as if padded with zero bytes."""
    return key.rstrip(b"\x00") if isinstance(key, bytes) else key


def encode_zone(firsts: Keys, lasts: Keys, kind: KeyKind) -> bytes:
    """The zone of a column, or of pages, whose first and last keys these are, in their order."""
    stored = stored_key_type(kind)
    if not len(firsts):
        return b"\xff" * stored.itemsize + bytes(stored.itemsize)
    return firsts[:1].astype(stored).tobytes() + lasts[-1:].astype(stored).tobytes()


def decode_zone(encoded: bytes, kind: KeyKind) -> Zone:
    """Undo :func:`encode_zone`.

    Raises:
        DoesNotOpen: it is of another length.
    """
    width = stored_key_type(kind).itemsize
    if len(encoded) != 2 * width:
        raise DoesNotOpen("a segment's header has keys of another width than its fields")
    least, greatest = encoded[:width], encoded[width:]
    if kind.of_bytes:
        return Zone(_comparable(least), _comparable(greatest))
    return Zone(int.from_bytes(least, "big"), int.from_bytes(greatest, "big"))
