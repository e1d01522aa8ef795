"""Sets of rows are the rows, however many and in whatever order."""

from __future__ import annotations

import numpy as np
import pytest
from pyroaring import BitMap

from encrypted_records.index.ordinals import bitmap, ordinals


@pytest.mark.parametrize("count", [0, 1, 4096, 4097, 60_000, 70_000])
@pytest.mark.parametrize("span", [70_000, 1 << 20])
def test_a_bitmap_has_exactly_its_rows(count: int, span: int) -> None:
    """Chunks that are empty, sparse, dense and full; lists and masks in the portable format."""
    rng = np.random.default_rng(count)
    for rows in (
        rng.permutation(span)[:count].astype(np.uint32),
        np.arange(span - count, span, dtype=np.uint32),
    ):
        found = bitmap(rows)
        assert found == BitMap(rows.tolist())
        assert np.array_equal(ordinals(found), np.sort(rows))
        assert BitMap.deserialize(found.serialize()) == found
        assert bitmap(*np.array_split(rows, 3)) == found
