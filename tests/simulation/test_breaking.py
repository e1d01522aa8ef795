"""What the simulation would find is found: faults that are planted into the service.

All of them, under up to 200 seeds each, are for ``make mutants``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation import breaking
from tests.simulation.breaking import PLANTED, Planted


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_what_a_fault_replaces_still_stands_there(planted: Planted) -> None:
    path = breaking.path_of(planted)
    assert breaking.changed(planted, path) != path.read_text()


def test_a_condition_that_is_ignored_is_found(template: Path) -> None:
    (planted,) = (one for one in PLANTED if one.name == "if_match_is_ignored")
    found = breaking.find(planted, template, 2)
    assert found is not None
    assert "has" in found[1], found
