"""The attack on lengths finds what there is to find, and nothing where there is nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.ingest.estimate import Columns, LengthLeak, Lengths, attack


def attacked(
    stored: Sequence[Sequence[int]],
    truth: Columns,
    lengths: Sequence[Sequence[int]],
    known: Columns,
) -> dict[str, LengthLeak]:
    def table(rows: Sequence[Sequence[int]]) -> Lengths:
        return np.array(rows, np.int64).reshape(len(rows), -1)

    return {one.name: one for one in attack(table(stored), truth, known, table(lengths))}


def test_a_length_that_goes_with_a_value_names_it() -> None:
    known: Columns = {"a": ["x", "y", "y"] * 20, "b": [1, 2, 2] * 20}
    lengths = [[16, 9], [32, 9], [32, 9]] * 20
    told = attacked(lengths[:30], {name: one[:30] for name, one in known.items()}, lengths, known)
    assert [told["a"].attack, told["a"].guess] == pytest.approx([1, 2 / 3])
    # By the lengths of another field.
    assert (told["b"].attack, told["b"].bits) == (1, 0)


def test_two_lengths_together_tell_what_neither_does() -> None:
    rows = [(one, other) for one in (16, 32) for other in (16, 32)] * 50
    value = ["even" if one == other else "odd" for one, other in rows]
    columns = {"a": [""] * 200, "b": [""] * 200, "v": value}
    lengths = [[*row, 9] for row in rows]
    assert attacked(lengths, columns, lengths, columns)["v"].attack == 1


def test_where_all_rows_look_alike_the_attack_is_the_guess() -> None:
    chance = random.Random(1)

    def people() -> Columns:
        return {
            "a": [chance.choice("aab") for _ in range(300)],
            "n": [chance.gauss(0, 1) for _ in range(300)],
        }

    known, truth = people(), people()
    lengths = [[32, 8]] * 300
    for one in attacked(lengths, truth, lengths, known).values():
        assert (one.attack, one.bits) == (one.guess, 0)


def test_lengths_without_meaning_are_worth_nothing() -> None:
    chance = random.Random(2)
    rows = 4000

    def people() -> tuple[Columns, list[list[int]]]:
        values = {"a": [chance.choice("aab") for _ in range(rows)], "t": [""] * rows}
        return values, [[32, chance.choice([32, 48, 64])] for _ in range(rows)]

    (known, lengths), (truth, stored) = people(), people()
    told = attacked(stored, truth, lengths, known)["a"]
    assert abs(told.advantage) < 0.03


def test_values_and_lengths_that_are_not_known_are_no_reason_to_fail() -> None:
    known, truth = {"a": ["x", "x", None]}, {"a": ["z", "x", None]}
    told = attacked([[96], [64], [32]], truth, [[16], [16], [32]], known)["a"]
    assert [told.guess, told.attack] == pytest.approx([1 / 3, 2 / 3])


values = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from([16, 32])), min_size=1, max_size=30
)


@given(values, values)
def test_shares_are_shares(stored: list[tuple[str, int]], known: list[tuple[str, int]]) -> None:
    told = attacked(
        [[length] for _, length in stored],
        {"a": [value for value, _ in stored]},
        [[length] for _, length in known],
        {"a": [value for value, _ in known]},
    )["a"]
    assert 0 <= told.guess <= 1
    assert 0 <= told.attack <= 1
    assert 0 <= told.bits <= 1
