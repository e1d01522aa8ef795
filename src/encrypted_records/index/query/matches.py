"""The rows that match a condition, as far as the index tells, and how those of its parts join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyroaring import BitMap

from encrypted_records.model.predicates import And, Everything, Leaf, Not, Or, Predicate


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
        """Without some rows; the same sets where there is none of them, and one where one is
        enough."""
        if not rows:
            return self
        possible = self.possible - rows
        return Matches(possible if self.exact else self.certain - rows, possible)


def combine(predicate: Predicate, rows: BitMap, leaf: Callable[[Leaf], Matches]) -> Matches:
    """The rows that match a condition, of the ``rows`` there are.

    Args:
        leaf: those that match one of its comparisons.
    """
    match predicate:
        case Everything():
            return Matches.exactly(rows)
        case And(parts) | Or(parts):
            answers = [combine(part, rows, leaf) for part in parts]
            join = BitMap.intersection if isinstance(predicate, And) else BitMap.union
            possible = join(*(one.possible for one in answers))
            if all(one.exact for one in answers):
                return Matches.exactly(possible)
            return Matches(join(*(one.certain for one in answers)), possible)
        case Not(part):
            inner = combine(part, rows, leaf)
            if inner.exact:
                return Matches.exactly(rows - inner.possible)
            return Matches(rows - inner.possible, rows - inner.certain)
        case _:
            return leaf(predicate)
