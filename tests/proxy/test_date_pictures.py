"""The columns of pictures of dates."""

from __future__ import annotations

from datetime import date
from itertools import pairwise

import pytest

from encrypted_records.proxy.pages import pictures


@pytest.mark.parametrize(
    ("first", "last", "labels"),
    [
        ("2026-02-27", "2026-03-01", ["2026-02-27", "2026-02-28", "2026-03-01"]),
        ("2025-11-30", "2026-03-11", ["2025-11", "2025-12", "2026-01", "2026-02", "2026-03"]),
        ("1899-05-05", "2026-01-01", ["1890\u20131899", "1900\u20131909", "2020\u20132029"]),
        ("0001-01-01", "9999-12-31", ["0001\u20130099", "0100\u20130199", "9900\u20139999"]),
    ],
)
def test_columns_of_dates_cover_every_day_between_the_ends_once(
    first: str, last: str, labels: list[str]
) -> None:
    ends = date.fromisoformat(first), date.fromisoformat(last)
    found = pictures.columns_of_dates(*ends)
    said = [pictures.period_text(*one) for one in found]
    assert len(found) <= pictures.MOST_PERIODS
    assert [said[0], said[1], said[-1]] == [labels[0], labels[1], labels[-1]]
    for (_, _, high), (_, low, _) in pairwise(found):
        assert (low - high).days == 1
    assert found[0][1] <= ends[0] <= ends[1] <= found[-1][2]
