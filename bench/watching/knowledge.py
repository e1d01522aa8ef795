"""What an API knows before it watches, and what it takes from watching.

It has its database: the length class of every stored string, and the order of the rows. Of other
records of the same kind it has the plaintext. It knows how a proxy asks, which is no secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bench.watching.census import PLAIN, Kind, Question, Row, length_classes
from encrypted_records.index.columns.directory import count_pages
from encrypted_records.index.columns.packing import MAX_ENTRIES
from encrypted_records.index.columns.pages import entries_per_page
from encrypted_records.model.field_types.base import KeyKind

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: How many records of one kind the kind's own figures need to outweigh those of one length.
_WEIGHT = 3.0
LEAST = 1e-9
#: Rows of the service that is attacked, and about for how many words a note has room.
_ROWS, _WORDS = 20_000, 32


@dataclass(frozen=True)
class Shape:
    """Of a column of 20,000 rows: the pages of its directory, filled up, and the entries of a data
    page (docs/SPEC.md, 6.2.1)."""

    directory: int
    entries: int

    @classmethod
    def of(cls, kind: KeyKind) -> Shape:
        planned = count_pages(kind, _ROWS * (_WORDS if kind is KeyKind.WORDS else 1), MAX_ENTRIES)
        pages = 1 << (planned.directory - 1).bit_length()
        return cls(pages, entries_per_page(kind, present=True))


class Knowledge:
    """Of every question that the other records suggest, how likely each stored row matches it.

    ``kinds`` are the different combinations of lengths, ``kind`` the one of each stored row.
    ``by_kind`` has a line for each question and a column for each kind; questions of one field
    exclude each other. ``also`` is, for two questions, how many records of the first match the
    second.
    """

    def __init__(
        self, classes: NDArray[np.int32], others: Sequence[Row], kind: Kind = PLAIN
    ) -> None:
        """
        Args:
            classes: of the stored rows, as :func:`.census.length_classes` gives them.
        """
        self.rows, kind_of = len(classes), kind
        self.questions: list[Question] = [
            (name, value) for name in kind.asked for value in kind.all_values(others, name)
        ]
        self.fields = np.array([kind.asked.index(name) for name, _ in self.questions])
        #: which questions exclude each other: those of one field, but a text has many words
        self.groups = np.where(
            [kind.is_words(name) for name, _ in self.questions],
            len(kind.asked) + np.arange(len(self.questions)),
            self.fields,
        )
        self.columns = by_name = {name: Shape.of(kind.column(name)) for name in kind.asked}
        self.directory = np.array([by_name[name].directory > 1 for name, _ in self.questions])
        self.entries = np.array([by_name[name].entries for name, _ in self.questions])
        found = {name: [set(kind.values(row, name)) for row in others] for name in kind.asked}
        has = np.array([[value in one for one in found[name]] for name, value in self.questions])
        self.shares: Floats = has.mean(axis=1)
        both = has.astype(np.float64) @ has.T
        also = (both + self.shares) / (has.sum(axis=1, keepdims=True) + 1)
        self.also: Floats = np.clip(also, 1e-3, 1 - 1e-3)

        theirs = length_classes(others, kind)
        kinds, own = np.unique(np.vstack([classes, theirs]), axis=0, return_inverse=True)
        own = own.reshape(-1)
        self.kind: NDArray[np.int64] = own[: self.rows]
        of_others = own[self.rows :]
        self.kinds = len(kinds)
        count = np.bincount(of_others, minlength=self.kinds)
        self.by_kind: Floats = np.empty((len(self.questions), self.kinds))
        for at, (name, _) in enumerate(self.questions):
            hits = np.bincount(of_others, weights=has[at], minlength=self.kinds)
            rough = _of_own_length(has[at], name, kind_of, kinds, theirs)
            self.by_kind[at] = (hits + _WEIGHT * rough) / (count + _WEIGHT)

    def matching(self) -> Floats:
        """By question and stored row."""
        found: Floats = self.by_kind[:, self.kind]
        return found

    def counted(self, rows: NDArray[np.int64]) -> Floats:
        """How many of these rows are of each kind."""
        return np.bincount(self.kind[rows], minlength=self.kinds).astype(float)


def _of_own_length(
    has: Flags, name: str, kind: Kind, kinds: NDArray[np.int32], theirs: NDArray[np.int32]
) -> Floats:
    """The share of a value among the others of which this one field is as long, for each kind."""
    if name not in kind.strings:
        return np.full(len(kinds), has.mean())
    at = kind.strings.index(name)
    same = kinds[:, at][:, None] == theirs[:, at]
    found: Floats = (same & has).sum(axis=1) / np.maximum(1, same.sum(axis=1))
    return found


@dataclass
class Seen:
    """A search as the API saw it: which rows it asked for, in blocks of ``size`` rows, and how many
    index pages each request named.

    ``times`` are the numbers of the searches that looked exactly so; where a proxy keeps what it
    fetched there is one.
    """

    rows: NDArray[np.int64]
    size: int
    pages: list[int]
    times: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Habits:
    """How a proxy asks: the most rows that an answer takes, the fewest blocks it asks for, and
    whether it asks for blocks beside those that it needs."""

    wanted: int
    least: int
    beside: bool


@dataclass
class Verdict:
    """``odds`` are the probabilities of the questions, ``count`` the stored records that match."""

    seen: Seen
    odds: Floats
    count: float


@dataclass(frozen=True)
class Claim:
    """That a row matches a question, with a probability."""

    question: int
    row: int
    odds: float


@dataclass
class Findings:
    """``belief`` is, by question and stored row, how likely the row matches, all things seen."""

    verdicts: list[Verdict]
    belief: Floats
    claims: list[Claim] = field(default_factory=list)


def softmax(logs: Floats) -> Floats:
    weights: Floats = np.exp(logs - logs.max())
    odds: Floats = weights / weights.sum()
    return odds


def learn(knowledge: Knowledge, belief: Floats, odds: Floats, after: dict[int, Floats]) -> None:
    """Take one thing seen into ``belief``.

    Args:
        odds: of the questions that it may have been.
        after: for some of these, by stored row, how likely it matches if that was the question.
    """
    for name in {int(knowledge.groups[question]) for question in after}:
        own = np.flatnonzero(knowledge.groups == name)
        before = belief[own]
        mixed = before.copy()
        for question in after.keys() & set(own.tolist()):
            at = int(np.searchsorted(own, question))
            updated = before * ((1 - after[question]) / np.maximum(1 - before[at], LEAST))
            updated[at] = after[question]
            mixed += odds[question] * (updated - before)
        belief[own] = np.clip(mixed, 0.0, 1.0)
