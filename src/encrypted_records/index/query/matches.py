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
        return len(self.certain) == len(self.possible)


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
            return Matches(
                join(*(one.certain for one in answers)), join(*(one.possible for one in answers))
            )
        case Not(part):
            inner = combine(part, rows, leaf)
            return Matches(rows - inner.possible, rows - inner.certain)
        case _:
            return leaf(predicate)
