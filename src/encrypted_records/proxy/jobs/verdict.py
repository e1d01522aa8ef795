"""Decisions on a job's rows: stored, left out, or the next version of a record. Pure.

All rows are stored together, so that a value may move from one record to another. Where rows may be
left out, those that collide are taken one after another as they come, and what an earlier one took
or freed counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encrypted_records.proxy.jobs.job_keys import Numbers

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Clash:
    """Row ``at`` collides in the set of number ``of`` with the row ``other``, or with the record at
    ``position``; where there is neither, it lacks a field of the set."""

    at: int
    of: int
    other: int | None = None
    position: int | None = None


@dataclass(frozen=True, eq=False)
class Verdict:
    """The decision on each row: whether it is stored, and the position of the record that it
    replaces, or -1.

    ``clashes`` are the first of those that are ``refused``.
    """

    kept: Mask
    target: Numbers
    refused: int
    clashes: list[Clash]

    def is_same(self, other: Verdict) -> bool:
        return np.array_equal(self.kept, other.kept) and np.array_equal(self.target, other.target)


def decide(
    codes: Sequence[Numbers],
    holders: Sequence[Numbers],
    *,
    by: int | None,
    skip: bool,
    most: int,
) -> Verdict:
    """
    Args:
        codes: of each set, a number for each row; 0 collides with none.
        holders: of each set, by that number the position of the stored record that has it, or -1.
        by: the set that finds the records to replace; none are replaced without.
        skip: whether rows that collide are left out; else nothing is stored where there is one.
        most: of so many clashes it is said what they are.
    """
    rows = len(codes[0])
    target: Numbers = np.full(rows, -1, np.int64)
    kept = np.ones(rows, np.bool_)
    if by is not None:
        target = np.where(codes[by] > 0, holders[by][codes[by]], -1)
        kept = codes[by] > 0
    flawed = _find_flawed(codes, holders, kept, target)
    clashes = [] if by is None else [Clash(at, by) for at in np.flatnonzero(~kept)[:most].tolist()]
    if not skip or not flawed.any():
        clashes += _describe(codes, holders, kept, target, np.flatnonzero(flawed)[:most])
        refused = int((flawed | ~kept).sum())
        left = kept & ~flawed
        return Verdict(left, np.where(left, target, -1), refused, clashes[:most])
    for clash in _take_in_order(codes, holders, kept, target, flawed):
        kept[clash.at] = False
        if len(clashes) < most:
            clashes.append(clash)
    return Verdict(kept, np.where(kept, target, -1), int((~kept).sum()), clashes)


def _find_flawed(
    codes: Sequence[Numbers], holders: Sequence[Numbers], kept: Mask, target: Numbers
) -> Mask:
    """The rows that collide with an earlier one, or with a record that none of them replaces."""
    flawed = np.zeros(len(kept), np.bool_)
    replaced = target[kept & (target >= 0)]
    for own, held in zip(codes, holders, strict=True):
        some = np.flatnonzero(kept & (own > 0))
        _, first, which = np.unique(own[some], return_index=True, return_inverse=True)
        holder = held[own[some]]
        taken = (holder >= 0) & ~np.isin(holder, replaced)
        flawed[some[taken | (first[which] != np.arange(len(some)))]] = True
    return flawed


def _describe(
    codes: Sequence[Numbers],
    holders: Sequence[Numbers],
    kept: Mask,
    target: Numbers,
    rows: NDArray[np.intp],
) -> list[Clash]:
    """The first collision of each of these rows."""
    replaced = frozenset(target[kept & (target >= 0)].tolist())
    firsts: list[Numbers] = []
    for own, held in zip(codes, holders, strict=True):
        first: Numbers = np.full(len(held), len(own), np.int64)
        some = np.flatnonzero(kept & (own > 0))[::-1]
        first[own[some]] = some
        firsts.append(first)
    clashes: list[Clash] = []
    for at in rows.tolist():
        for of, (own, held) in enumerate(zip(codes, holders, strict=True)):
            code = int(own[at])
            position, other = int(held[code]), int(firsts[of][code])
            if code and position >= 0 and position not in replaced:
                clashes.append(Clash(at, of, position=position))
                break
            if code and other < at:
                clashes.append(Clash(at, of, other=other))
                break
    return clashes


def _take_in_order(
    codes: Sequence[Numbers],
    holders: Sequence[Numbers],
    kept: Mask,
    target: Numbers,
    flawed: Mask,
) -> list[Clash]:
    """The rows that cannot be stored where each is stored that can be, one after another."""
    involved = flawed.copy()
    for own, held in zip(codes, holders, strict=True):
        shared = np.bincount(own[kept], minlength=len(held)) > 1
        holder = held[own]
        involved |= (own > 0) & (shared[own] | ((holder >= 0) & (holder != target)))
    involved &= kept
    freed = set(target[kept & ~involved & (target >= 0)].tolist())
    rows = np.flatnonzero(involved)
    of_sets = list(zip(*(own[rows].tolist() for own in codes), strict=True))
    of_holders = list(
        zip(
            *(held[own[rows]].tolist() for own, held in zip(codes, holders, strict=True)),
            strict=True,
        )
    )
    taken: list[dict[int, int]] = [{} for _ in codes]
    clashes: list[Clash] = []
    for at, own_target, values, held_by in zip(
        rows.tolist(), target[rows].tolist(), of_sets, of_holders, strict=True
    ):
        clash = None
        for of, (code, position) in enumerate(zip(values, held_by, strict=True)):
            if not code:
                continue
            if code in taken[of]:
                clash = Clash(at, of, other=taken[of][code])
            elif position not in (-1, own_target) and position not in freed:
                clash = Clash(at, of, position=position)
            if clash:
                break
        if clash:
            clashes.append(clash)
            continue
        for of, code in enumerate(values):
            if code:
                taken[of][code] = at
        if own_target >= 0:
            freed.add(own_target)
    return clashes
