"""Rows of groups that ended go in bounded pieces, and many small groups go with one of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.server.programs import run_program
from tests.server.sweeping_life import GROUPS, MANY, MOST_GROUPS, MOST_ROWS, ROWS
from tests.support.postgres import NewDatabase


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_piece_is_many_small_groups_or_a_part_of_a_large_one(
    tmp_path: Path, request: pytest.FixtureRequest, database: str
) -> None:
    """Where each piece is one group, sweeping does not keep up with ingests of single records."""
    url = None
    if database == "postgresql":
        new: NewDatabase = request.getfixturevalue("postgresql")
        url = new.with_tables()
    first, *pieces = run_program("tests.server.sweeping_life", tmp_path, url)
    every = 1 + GROUPS
    assert first == {
        "groups": every,
        "described": every,
        "rows": MANY + GROUPS * ROWS,
        "dead": 2,
    }
    assert pieces[-1] == {"groups": 0, "described": 0, "rows": 0, "dead": 0}
    rows = [before["rows"] - after["rows"] for before, after in pairwise([first, *pieces])]
    # The large one is shortened twice, and its last rows go with the small ones.
    assert rows[:2] == [MOST_ROWS] * 2
    assert max(rows) <= MOST_ROWS
    assert len(pieces) == 2 + -(-(1 + GROUPS) // MOST_GROUPS)
