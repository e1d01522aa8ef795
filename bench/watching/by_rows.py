"""The attack on a proxy that asks for exactly the rows it needs, each time.

A set of rows is all that match, or the first of them: those in between do not. Sets are held
against each other as well, since how often two questions select the same record is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.watching import by_pages
from bench.watching.knowledge import (
    LEAST,
    Claim,
    Findings,
    Floats,
    Habits,
    Knowledge,
    Seen,
    Verdict,
    learn,
    softmax,
)

#: How often the sets are held against each other, against how many guesses of each, and for how
#: much each of many comparisons counts, since they are not independent.
_TURNS, _TOP, _TRUST = 4, 5, 0.5
#: Guesses below this are not followed.
_LIKELY = 1e-3


def attack(
    knowledge: Knowledge, events: Sequence[Seen], habits: Habits, popularity: Floats | None
) -> Findings:
    """
    Args:
        popularity: how often each question is asked, where the attacker knows that.
    """
    ends = [_end(knowledge, seen, habits) for seen in events]
    alone = np.array(
        [
            _by_lengths(knowledge, seen, end)
            + by_pages.fit(knowledge, seen)
            + _by_times(seen, events, popularity)
            for seen, end in zip(events, ends, strict=True)
        ]
    )
    odds = _beside_each_other(knowledge, events, ends, alone)
    findings = Findings([], knowledge.matching())
    for seen, end, own in zip(events, ends, odds, strict=True):
        findings.verdicts.append(Verdict(seen, own, _count(knowledge, seen, end, own, habits)))
    # What is sure is learnt first, and corrects what is not.
    for at in sorted(range(len(events)), key=lambda at: -odds[at].max()):
        question = int(odds[at].argmax())
        chance = float(odds[at][question])
        rows = events[at].rows.tolist()
        findings.claims += [Claim(question, row, chance) for row in rows]
        _learn(knowledge, findings.belief, events[at], ends[at], odds[at])
    return findings


def _end(knowledge: Knowledge, seen: Seen, habits: Habits) -> int:
    """The first row of which the set says nothing."""
    return knowledge.rows if len(seen.rows) < habits.wanted else int(seen.rows.max()) + 1


def _by_lengths(knowledge: Knowledge, seen: Seen, end: int) -> Floats:
    matching = np.clip(knowledge.by_kind, LEAST, 1 - LEAST)
    inside = knowledge.counted(seen.rows)
    between = knowledge.counted(np.arange(end)) - inside
    found: Floats = np.log(matching) @ inside + np.log1p(-matching) @ between
    return found


def _by_times(seen: Seen, events: Sequence[Seen], popularity: Floats | None) -> Floats | float:
    if popularity is None:
        return 0.0
    every, times = sum(len(event.times) for event in events), len(seen.times)
    share = np.clip(popularity, LEAST, 1 - LEAST)
    found: Floats = times * np.log(share) + (every - times) * np.log1p(-share)
    return found


def _count(knowledge: Knowledge, seen: Seen, end: int, odds: Floats, habits: Habits) -> float:
    """All of a short set are all; else as many to a row as up to the last, and as the question
    that it seems to be has among others."""
    if len(seen.rows) < habits.wanted:
        return len(seen.rows)
    by_place = habits.wanted / end * knowledge.rows
    by_name = float(odds @ knowledge.shares) * knowledge.rows
    # The spread of the first is a tenth, and the other's may be anything where it is unsure.
    trust = float(odds.max()) if abs(by_name - by_place) < 0.3 * by_place else 0.0
    return trust * by_name + (1 - trust) * by_place


def _beside_each_other(
    knowledge: Knowledge, events: Sequence[Seen], ends: Sequence[int], alone: Floats
) -> Floats:
    """Odds that also weigh how many rows two sets share, as far as both reach."""
    rows = np.zeros((len(events), knowledge.rows), np.float32)
    for at, seen in enumerate(events):
        rows[at, seen.rows] = 1
    reach = (np.arange(knowledge.rows) < np.array(ends)[:, None]).astype(np.float32)
    mine, both = rows @ reach.T, rows @ rows.T
    odds = np.array([softmax(own) for own in alone])
    for _ in range(_TURNS):
        for at, own in enumerate(alone):
            others = np.delete(np.arange(len(events)), at)
            top = np.argsort(-odds[others], axis=1)[:, :_TOP]
            chances = np.take_along_axis(odds[others], top, axis=1)
            share = knowledge.also[:, top]
            hits, tries = both[at, others][:, None], mine[at, others][:, None]
            logs = hits * np.log(share) + (tries - hits) * np.log1p(-share)
            highest = logs.max(axis=2, keepdims=True)
            weighed = (np.exp(logs - highest) * chances).sum(axis=2) + 1e-12
            told = (np.log(weighed) + highest[:, :, 0]).sum(axis=1)
            odds[at] = softmax(own + _TRUST * told)
    return odds


def _learn(knowledge: Knowledge, belief: Floats, seen: Seen, end: int, odds: Floats) -> None:
    after = {}
    for question in np.flatnonzero(odds > _LIKELY).tolist():
        matching = belief[question].copy()
        matching[:end] = 0.0
        matching[seen.rows] = 1.0
        after[question] = matching
    learn(knowledge, belief, odds, after)
