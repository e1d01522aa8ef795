"""The information that lengths of encrypted fields leak: the attack whose results LEAKAGE.md
reports.

The attacker has a copy of the database, and thus the lengths of all fields of every stored row, and
plaintext rows of the same kind that are not stored there. The attack guesses the value of a field
from all lengths of the row. Its advantage is how much more often it is right than an attack that
always guesses the most frequent value. Estimates and tests use the same attack.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encrypted_records.model.ciphertext_lengths import sealed_class
from encrypted_records.model.definition import FieldSpec, Value

#: By field, of one row after the other; None is an absent value, which can be guessed, too.
Columns = Mapping[str, Sequence[Hashable]]
#: A line for each row, a column for each field: how long its ciphertext is, in any unit.
Lengths = NDArray[np.int64]
Codes = NDArray[np.int64]

#: How many known rows with all lengths in common outweigh those with only the field's own.
_WEIGHT = 3.0


@dataclass(frozen=True, slots=True)
class LengthLeak:
    """The information that lengths leak about one field.

    ``guess`` is the share of stored rows in which the most frequent value is right, ``attack`` the
    share in which the attack is right. ``bits`` is the average information of the field's own
    length; 0 if all values have the same length.
    """

    name: str
    guess: float
    attack: float
    bits: float

    @property
    def advantage(self) -> float:
        return self.attack - self.guess


def lengths_of(fields: Mapping[str, FieldSpec], columns: Mapping[str, Sequence[Value]]) -> Lengths:
    """The lengths that ``fields`` would be sealed at, in the order of ``columns``."""
    return np.array(
        [
            [sealed_class(fields[name], _size(value)) for value in values]
            for name, values in columns.items()
        ],
        np.int64,
    ).T


def attack(
    stored: Lengths, truth: Columns, known: Columns, known_lengths: Lengths
) -> list[LengthLeak]:
    """The success rate of guessing each field of the stored rows.

    Args:
        stored: what the attacker has of the stored rows.
        truth: what they hold, to count what is right.
        known: other rows, in plaintext, with the same fields in the same order.
        known_lengths: the lengths that those would have.
    """
    kinds, kind = np.unique(np.vstack([stored, known_lengths]), axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    of_stored, of_known = kind[: len(stored)], kind[len(stored) :]
    wanted = np.unique(of_stored)
    told = []
    for at, name in enumerate(truth):
        values, taught = _number(known[name], {})
        _, asked = _number(truth[name], values)
        own = kinds[:, at]
        guesses = _guess(taught, of_known, own, wanted)
        mode = np.bincount(taught).argmax()
        by_kind = np.full(len(kinds), mode)
        by_kind[wanted] = guesses
        told.append(
            LengthLeak(
                name=name,
                guess=float((asked == mode).mean()),
                attack=float((asked == by_kind[of_stored]).mean()),
                bits=_entropy(stored[:, at]),
            )
        )
    return told


def _guess(taught: Codes, of_known: Codes, own: Lengths, wanted: Codes) -> list[int]:
    """The likeliest value for each of the ``wanted`` kinds of rows.

    Args:
        taught: the values of the known rows, as numbers.
        of_known: the kind of each known row.
        own: by kind, the length of the field itself.
    """
    overall = np.bincount(taught)
    order = np.argsort(of_known, kind="stable")
    begins = np.searchsorted(of_known[order], np.arange(len(own) + 1))
    shares: dict[int, NDArray[np.float64]] = {}
    guesses = []
    for kind in wanted.tolist():
        length = int(own[kind])
        if length not in shares:
            alike = np.bincount(taught[own[of_known] == length], minlength=len(overall))
            rough = alike if alike.any() else overall
            shares[length] = rough / rough.sum()
        score = _WEIGHT * shares[length]
        rows = taught[order[begins[kind] : begins[kind + 1]]]
        # Only what these rows hold can overtake the likeliest value of that length.
        seen, hits = np.unique(rows, return_counts=True)
        best = int(score.argmax())
        candidates = np.append(seen, best)
        votes = score[candidates] + np.append(hits, 0)
        if best in seen:
            votes[-1] = votes[int(np.flatnonzero(seen == best)[0])]
        guesses.append(int(candidates[votes.argmax()]))
    return guesses


def _number(
    column: Sequence[Hashable], known: dict[Hashable, int]
) -> tuple[dict[Hashable, int], Codes]:
    """Values as numbers: those of ``known``, to which new ones are added if it is empty; others
    are -1."""
    if not known:
        known = {value: at for at, value in enumerate(dict.fromkeys(column))}
    return known, np.array([known.get(value, -1) for value in column], np.int64)


def _entropy(lengths: Lengths) -> float:
    _, counts = np.unique(lengths, return_counts=True)
    shares = counts / counts.sum()
    return abs(float(-(shares * np.log2(shares)).sum()))


def _size(value: Value) -> int:
    return len(value.encode()) if isinstance(value, str) else 0
