"""Erasures that meet sweeps, moves, deletions and readers, on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.programs import run_program
from tests.support.postgres import NewDatabase


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_erasures_finish_whatever_comes_between_their_steps(
    tmp_path: Path, request: pytest.FixtureRequest, database: str
) -> None:
    url = None
    if database == "postgresql":
        new: NewDatabase = request.getfixturevalue("postgresql")
        url = new()
    assert len(run_program("tests.server.erasure_life", tmp_path, url)) > 5
