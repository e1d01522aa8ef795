"""What becomes of rows that collide, against a plain reading of the rules one row after another."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.proxy.jobs.conflicts import Verdict, decide

SETS, VALUES = 2, 4
Row = tuple[int, ...]
rows = st.lists(st.tuples(*[st.integers(0, VALUES)] * SETS), min_size=1, max_size=8)


@st.composite
def stored_records(draw: st.DrawFn) -> list[Row]:
    """Records, of which no two have the same value in a set, unless it is absent."""
    every = draw(st.lists(st.tuples(*[st.integers(0, VALUES)] * SETS), max_size=4))
    kept: list[Row] = []
    for one in every:
        if all(not a or a != b for other in kept for a, b in zip(one, other, strict=True)):
            kept.append(one)
    return kept


def judge(sent: list[Row], stored: list[Row], by: int | None, *, skip: bool) -> Verdict:
    holders = [np.full(VALUES + 1, -1, np.int64) for _ in range(SETS)]
    for position, record in enumerate(stored):
        for held, value in zip(holders, record, strict=True):
            if value:
                held[value] = position
    codes = [np.array([row[of] for row in sent], np.int64) for of in range(SETS)]
    return decide(codes, holders, by=by, skip=skip, most=100)


def outcome(sent: list[Row], stored: list[Row], verdict: Verdict) -> list[Row]:
    left = [
        record for position, record in enumerate(stored) if position not in verdict.target.tolist()
    ]
    return left + [row for row, kept in zip(sent, verdict.kept.tolist(), strict=True) if kept]


def is_unique(records: list[Row]) -> bool:
    values = [(of, value) for record in records for of, value in enumerate(record) if value]
    return len(values) == len(set(values))


def clash_of(row: Row, stored: list[Row], own: int | None) -> bool:
    return any(
        value and value == record[of]
        for position, record in enumerate(stored)
        if position != own
        for of, value in enumerate(row)
    )


@given(rows, stored_records(), st.sampled_from([None, 0, 1]))
def test_what_is_stored_is_unique_and_nothing_is_left_out_without_a_reason(
    sent: list[Row], stored: list[Row], by: int | None
) -> None:
    verdict = judge(sent, stored, by, skip=True)
    assert is_unique(outcome(sent, stored, verdict))
    assert verdict.refused == len(sent) - int(verdict.kept.sum()) == len(verdict.clashes)
    assert sorted(clash.at for clash in verdict.clashes) == np.flatnonzero(~verdict.kept).tolist()
    for clash in verdict.clashes:
        row = sent[clash.at]
        if clash.other is None and clash.position is None:
            assert row[clash.of] == 0
        elif clash.other is not None:
            assert row[clash.of] == sent[clash.other][clash.of] != 0
            assert verdict.kept[clash.other]
        else:
            assert clash.position is not None
            assert row[clash.of] == stored[clash.position][clash.of] != 0


@given(rows, stored_records(), st.sampled_from([None, 0, 1]))
def test_a_job_that_leaves_nothing_out_is_refused_where_the_outcome_would_not_be_unique(
    sent: list[Row], stored: list[Row], by: int | None
) -> None:
    verdict = judge(sent, stored, by, skip=False)
    found = by is None or all(row[by] for row in sent)
    targets = [
        next((at for at, one in enumerate(stored) if by is not None and one[by] == row[by]), None)
        for row in sent
    ]
    left = [one for at, one in enumerate(stored) if at not in targets]
    fits = found and is_unique(left + sent)
    assert (verdict.refused == 0) == fits
    assert bool(verdict.clashes) == (not fits)


@given(rows, stored_records())
def test_rows_are_left_out_as_if_each_came_alone(sent: list[Row], stored: list[Row]) -> None:
    """Where none replaces another."""
    alone = list(stored)
    for row in sent:
        if not clash_of(row, alone, None):
            alone.append(row)
    assert outcome(sent, stored, judge(sent, stored, None, skip=True)) == alone


@pytest.mark.parametrize("skip", [False, True])
def test_a_chain_of_values_that_move_is_stored_as_a_whole(skip: bool) -> None:
    stored: list[Row] = [(1, 1), (2, 2), (3, 3)]
    sent: list[Row] = [(1, 2), (2, 3), (3, 1)]
    verdict = judge(sent, stored, 0, skip=skip)
    assert (verdict.refused, verdict.target.tolist()) == (0, [0, 1, 2])


def test_every_small_case_ends_in_unique_records() -> None:
    """All pairs of rows against all single records: no luck of the draw."""
    values = list(product(range(3), repeat=SETS))
    for one, other, record in product(values, repeat=3):
        for by in (None, 0, 1):
            verdict = judge([one, other], [record], by, skip=True)
            assert is_unique(outcome([one, other], [record], verdict))
