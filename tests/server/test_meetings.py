"""Erasures that meet sweeps, moves, deletions and readers, and readers that meet sweeps, on both
databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.programs import run_program
from tests.support.postgres import NewDatabase


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str | None:
    if request.param == "sqlite":
        return None
    new: NewDatabase = request.getfixturevalue("postgresql")
    return new.with_tables()


def test_erasures_finish_whatever_comes_between_their_steps(
    tmp_path: Path, database_url: str | None
) -> None:
    assert len(run_program("tests.server.erasure_life", tmp_path, database_url)) > 5


def test_whoever_reads_what_is_swept_or_erased_meanwhile_is_told_so_by_name(
    tmp_path: Path, database_url: str | None
) -> None:
    """Else an API says that it is broken, or that it has altered something."""
    found = run_program("tests.server.readers_life", tmp_path, database_url)
    assert found == {
        "pages": "segment_gone",
        "digests of pages": "segment_gone",
        "rows": "row_gone",
        "digests of rows": "row_gone",
        "names of rows": "row_gone",
        "an erased row": "row_gone",
        "a row beside it": "True",
        "a lost page": "object_lost",
    }
