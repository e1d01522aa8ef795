"""How much of what an attacker says is right, and how much a guess would be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.watching.census import Census
from bench.watching.knowledge import Findings, Knowledge, Verdict

#: From here on the attacker calls itself sure.
SURE = 0.95


@dataclass(frozen=True)
class Share:
    """Of ``count`` cells, how many are right; and how many a guess has right that always says the
    field's most frequent value, and one that says the likeliest for the row's lengths."""

    count: int
    right: float
    mode: float
    lengths: float


@dataclass(frozen=True)
class Score:
    """
    ``silent`` searches asked for no rows; ``recognised`` are repetitions that looked the same.
    ``errors`` are of match counts, by different search; ``exact`` of these are right. ``named`` and
    ``field`` are shares of all searches. ``claimed`` are cells that the searches point at, ``sure``
    cells that the attacker is sure of and was not before; ``every`` cell is the last.
    """

    searches: int
    different: int
    silent: int
    recognised: int
    rows: float
    errors: tuple[float, float]
    exact: int
    sets: int
    named: float
    usual: float
    field: float
    claimed: Share
    sure: Share
    every: Share


class Truth:
    """What is so, and what guesses say of it."""

    def __init__(self, census: Census, knowledge: Knowledge, draws: Sequence[int]) -> None:
        self.census = census
        self.knowledge = knowledge
        self.draws = draws
        self.counts = [int(census.matches(question).sum()) for question in census.questions]
        kind = census.kind
        self.cells = {
            name: [kind.values(row, name) for row in census.stored] for name in kind.asked
        }
        others = {
            name: Counter(value for row in census.others for value in kind.values(row, name))
            for name in kind.asked
        }
        self.modes = {name: found.most_common(1)[0][0] for name, found in others.items()}
        self.by_lengths, _ = self.guesses(knowledge.matching())

    def guesses(self, belief: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """By field and row, the likeliest value and its probability."""
        values, odds = {}, {}
        for at, name in enumerate(self.census.kind.asked):
            own = np.flatnonzero(self.knowledge.fields == at)
            names = np.array([self.knowledge.questions[one][1] for one in own])
            values[name] = names[belief[own].argmax(axis=0)]
            odds[name] = belief[own].max(axis=0)
        return values, odds

    def share(self, cells: Sequence[tuple[str, int, str]]) -> Share:
        """Of cells as (field, row, value that is claimed)."""
        if not cells:
            return Share(0, 0.0, 0.0, 0.0)
        right = [value in self.cells[name][row] for name, row, value in cells]
        mode = [self.modes[name] in self.cells[name][row] for name, row, _ in cells]
        lengths = [self.by_lengths[name][row] in self.cells[name][row] for name, row, _ in cells]
        return Share(len(cells), *(float(np.mean(one)) for one in (right, mode, lengths)))


def score(truth: Truth, findings: Findings, *, recognised: bool) -> Score:
    """
    Args:
        recognised: whether events hold all searches that looked alike.
    """
    knowledge, questions = truth.knowledge, truth.census.questions
    first: dict[int, Verdict] = {}
    named = fields = searches = 0
    for verdict in findings.verdicts:
        guess = knowledge.questions[int(verdict.odds.argmax())]
        for time in verdict.seen.times:
            true = questions[truth.draws[time]]
            searches += 1
            named += guess == true
            fields += guess[0] == true[0]
            first.setdefault(truth.draws[time], verdict)
    # Two questions that select the same rows are one set to whoever sees rows.
    sets = {id(verdict): (at, verdict) for at, verdict in reversed(first.items())}
    counts = [(truth.counts[at], verdict.count) for at, verdict in sets.values()]
    errors = [abs(said - true) / true for true, said in counts]
    usual = Counter(
        truth.draws[time] for verdict in findings.verdicts for time in verdict.seen.times
    )
    repeated = searches - len(first)
    return Score(
        searches=searches,
        different=len(first),
        silent=sum(
            len(verdict.seen.times) for verdict in findings.verdicts if not len(verdict.seen.rows)
        ),
        recognised=repeated if recognised else 0,
        rows=sum(len(verdict.seen.rows) * len(verdict.seen.times) for verdict in findings.verdicts)
        / searches,
        errors=(float(np.median(errors)), float(np.quantile(errors, 0.9))),
        exact=sum(round(said) == true for true, said in counts),
        sets=len(sets),
        named=named / searches,
        usual=usual.most_common(1)[0][1] / searches,
        field=fields / searches,
        claimed=truth.share(_claimed(truth, findings)),
        sure=truth.share(_sure(truth, findings)),
        every=truth.share(_every(truth, findings)),
    )


def _claimed(truth: Truth, findings: Findings) -> list[tuple[str, int, str]]:
    """One value for each cell: the likeliest of what is claimed for it."""
    best: dict[tuple[str, int], tuple[float, str]] = {}
    for claim in findings.claims:
        name, value = truth.knowledge.questions[claim.question]
        best[name, claim.row] = max(best.get((name, claim.row), (-1.0, "")), (claim.odds, value))
    return [(name, row, value) for (name, row), (_, value) in best.items()]


def _sure(truth: Truth, findings: Findings) -> list[tuple[str, int, str]]:
    values, odds = truth.guesses(findings.belief)
    _, before = truth.guesses(truth.knowledge.matching())
    return [
        (name, row, values[name][row])
        for name in truth.census.kind.asked
        for row in np.flatnonzero((odds[name] >= SURE) & (before[name] < SURE)).tolist()
    ]


def _every(truth: Truth, findings: Findings) -> list[tuple[str, int, str]]:
    values, _ = truth.guesses(findings.belief)
    names = truth.census.kind.asked
    return [(name, row, value) for name in names for row, value in enumerate(values[name])]
