"""The attack on a proxy that asks for blocks of rows and keeps what it had.

Searches are looked at in turn. A block that is asked for holds a match, or came beside one that
does; a block that the proxy lacks and does not ask for holds none, as long as the answer has not
ended before it; of blocks that it holds nothing shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.watching import by_pages
from bench.watching.knowledge import (
    LEAST,
    Claim,
    Findings,
    Flags,
    Floats,
    Habits,
    Knowledge,
    Seen,
    Verdict,
    learn,
    softmax,
)

_LIKELY = 1e-3
#: Shares of all records, one of which is guessed to match.
_SHARES = 160


def attack(
    knowledge: Knowledge,
    events: Sequence[Seen],
    habits: Habits,
    popularity: Floats | None,
    *,
    apart: bool = False,
) -> Findings:
    """As :func:`.by_rows.attack`.

    Args:
        apart: the proxy held nothing at each of the searches, each is judged by itself.
    """
    findings = Findings([], knowledge.matching())
    held = np.zeros(knowledge.rows, bool)
    prior = np.zeros(len(knowledge.questions))
    if popularity is not None:
        prior = np.log(popularity + LEAST)
    sums: dict[int, _Sums] = {}
    # Of searches that asked for no rows there are many, all alike until the next that did.
    silent: Weighing | None = None
    for seen in events:
        if silent is not None and not len(seen.rows):
            weighing = silent
        else:
            if seen.size not in sums:
                sums[seen.size] = _Sums.of(findings.belief, held, seen.size)
            weighing = Weighing(knowledge, sums[seen.size], held, seen, habits)
        odds = softmax(prior + weighing.told + by_pages.fit(knowledge, seen))
        findings.verdicts.append(Verdict(seen, odds, weighing.count(seen, odds)))
        if not len(seen.rows):
            silent = weighing
            continue
        after = weighing.after(odds, findings)
        if not apart:
            learn(knowledge, findings.belief, odds, after)
            held[seen.rows] = True
            silent, sums = None, {}
    return findings


@dataclass(frozen=True)
class _Sums:
    """By question and block: how likely one of its rows that are not held matches, how many of all
    its rows do, and the variance of that."""

    some: Floats
    mean: Floats
    spread: Floats

    @classmethod
    def of(cls, belief: Floats, held: Flags, size: int) -> _Sums:
        starts = np.arange(0, len(held), size)
        none = np.where(held, 0.0, np.log1p(-np.minimum(belief, 1 - LEAST)))
        return cls(
            -np.expm1(np.add.reduceat(none, starts, axis=1)),
            np.add.reduceat(belief, starts, axis=1),
            np.add.reduceat(belief * (1 - belief), starts, axis=1),
        )


class Weighing:
    """One search held against every question. ``told`` is the log-likelihood of each."""

    def __init__(
        self, knowledge: Knowledge, sums: _Sums, held: Flags, seen: Seen, habits: Habits
    ) -> None:
        self._knowledge = knowledge
        self._habits = habits
        self._sums = sums
        self._size = seen.size
        self._starts = np.arange(0, knowledge.rows, seen.size)
        self._sizes = np.diff(np.append(self._starts, knowledge.rows))
        self._unheld = np.add.reduceat(~held, self._starts, dtype=np.int64)
        self._asked = np.zeros(len(self._starts), bool)
        self._asked[np.unique(seen.rows // seen.size)] = True
        self._left_out = ~self._asked & (self._unheld > 0)
        # Where every stretch was asked for, no logarithm is to be taken of nothing.
        self._beside = min(self._chance_beside(), 1 - LEAST)
        self.told, self._ends = self._weigh(sums)
        self._by_share: Floats | None = None

    def _chance_beside(self) -> float:
        """Of a block that is not needed, that it is asked for."""
        asked = int(self._asked.sum())
        if not self._habits.beside or not asked:
            return LEAST
        needed = 0.75 * asked if asked > self._habits.least else asked / 2
        return max(LEAST, (asked - needed) / max(1.0, int((self._unheld > 0).sum()) - needed))

    def _weigh(self, sums: _Sums) -> tuple[Floats, Floats]:
        """Log-likelihoods; and by question and block, how likely the answer ends there, in the
        last column that it does not end before all rows do."""
        asked, left_out, beside = self._asked, self._left_out, self._beside
        mean, spread = sums.mean, sums.spread
        some = np.clip(sums.some, LEAST, 1 - LEAST)
        here = np.where(asked, np.log(some + (1 - some) * beside), 0.0)
        here += np.where(left_out, np.log1p(-some) + math.log1p(-beside), 0.0)
        behind = np.where(asked, math.log(beside), 0.0)
        behind += np.where(left_out, math.log1p(-beside), 0.0)
        # How many matches there are up to each block, given what was asked for.
        needed = some / (some + (1 - some) * beside)
        count = np.where(asked, needed * np.maximum(mean / some, 1.0), mean)
        count = np.where(left_out, mean * (self._sizes - self._unheld) / self._sizes, count)
        square = np.where(asked, needed * (spread + mean**2) / some - count**2, spread)
        variance = np.where(left_out, 0.0, np.maximum(square, 0.0))
        deviation = np.sqrt(np.cumsum(variance, axis=1)) + 1e-3
        short = _normal((self._habits.wanted - 0.5 - np.cumsum(count, axis=1)) / deviation)
        before = np.hstack([np.ones((len(some), 1)), short[:, :-1]])
        up_to = np.cumsum(here, axis=1)
        after = behind.sum() - np.cumsum(behind)
        logs = np.log(np.maximum(before - short, 0) + 1e-300) + up_to + after
        logs = np.hstack([logs, (np.log(short[:, -1] + 1e-300) + up_to[:, -1])[:, None]])
        highest = logs.max(axis=1, keepdims=True)
        weights = np.exp(logs - highest)
        total = weights.sum(axis=1, keepdims=True)
        return (np.log(total) + highest)[:, 0], weights / total

    def count(self, seen: Seen, odds: Floats) -> float:
        """How many records match: the median of what the blocks, the pages and the question that
        it seems to be say of it together."""
        rows = self._knowledge.rows
        shares = np.geomspace(0.5 / rows, 0.99, _SHARES)
        if self._by_share is None:
            some = 1 - (1 - shares)[:, None] ** self._unheld
            mean = shares[:, None] * self._sizes
            self._by_share, _ = self._weigh(_Sums(some, mean, mean * (1 - shares)[:, None]))
        told = self._by_share
        if len(seen.pages) > 1:
            entries = self._knowledge.entries[self._knowledge.directory == (seen.pages[0] > 1)]
            most = np.full(len(shares), entries.min(initial=self._knowledge.entries.max()))
            told = told + by_pages.count_fit(seen, shares * rows, most)
        at = np.searchsorted(shares, np.clip(self._knowledge.shares, shares[0], shares[-1]))
        counted = np.bincount(at, weights=odds, minlength=len(shares))
        # A question's share among others is not quite that among these.
        named = np.convolve(counted, np.hanning(9) / 4, "same") + 1e-3
        both = np.cumsum(softmax(told) * named)
        return float(shares[int(np.searchsorted(both / both[-1], 0.5))] * rows)

    def after(self, odds: Floats, findings: Findings) -> dict[int, Floats]:
        """By likely question and row, how likely it matches by now; and claim what the likeliest
        question points at: rows that do rather than not, and one of each block."""
        asked, left_out, beside = self._asked, self._left_out, self._beside
        found = {}
        for question in np.flatnonzero(odds > _LIKELY).tolist():
            lasts = np.cumsum(self._ends[question, ::-1])[::-1][:-1]
            some = np.clip(self._sums.some[question], LEAST, 1)
            factor = np.where(asked, lasts / (some + (1 - some) * beside), 1.0)
            factor = np.where(left_out, 1 - lasts, factor)
            by_row = np.repeat(factor, self._sizes)
            found[question] = np.clip(findings.belief[question] * by_row, 0.0, 1.0)
        question = int(odds.argmax())
        for block in np.flatnonzero(asked).tolist():
            start = int(self._starts[block])
            own = found[question][start : start + int(self._sizes[block])]
            # Which of equals is left to what says nothing of them.
            best = int(np.argmax(own + 1e-9 * (np.arange(len(own)) * 37 + block) % 61))
            rows = {best, *np.flatnonzero(own > 0.5).tolist()}
            findings.claims += [Claim(question, start + row, float(own[row])) for row in rows]
        return found


def _normal(x: Floats) -> Floats:
    """The standard normal distribution function (Abramowitz and Stegun, 7.1.26)."""
    z = np.abs(x) / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    terms = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
    poly = sum(one * t ** (at + 1) for at, one in enumerate(terms))
    error = 1 - poly * np.exp(-np.minimum(z * z, 700))
    found: Floats = 0.5 * (1 + np.sign(x) * error)
    return found
