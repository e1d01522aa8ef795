"""The rows that match a condition, as far as the index tells."""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap


@dataclass(frozen=True, slots=True)
class Matches:
    """``certain`` is a subset of ``possible``; the truth lies between them."""

    certain: BitMap
    possible: BitMap

    @classmethod
    def exactly(cls, rows: BitMap) -> Matches:
        return cls(rows, rows)

    @property
    def exact(self) -> bool:
        """Whether the index decides every row."""
        return self.certain is self.possible or len(self.certain) == len(self.possible)

    def without(self, rows: BitMap) -> Matches:
        """The matches without ``rows``; the same sets if ``rows`` is empty, and a single set if the
        matches are exact.
        """
        if not rows:
            return self
        possible = self.possible - rows
        return Matches(possible if self.exact else self.certain - rows, possible)
