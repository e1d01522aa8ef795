"""Sets of rows are the same as bits, arrays and parts; few rows are found among others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from encrypted_records.index.ordinals import finder, in_parts, in_pieces, mask_of, of_mask


@given(st.sets(st.integers(0, 3 << 20), max_size=50))
def test_sets_masks_and_pieces_are_one(members: set[int]) -> None:
    rows = of_mask(np.isin(np.arange((3 << 20) + 1), list(members)))
    assert set(rows) == members
    assert of_mask(mask_of(rows, (3 << 20) + 1)) == rows
    pieces = list(in_pieces(rows))
    assert [row for piece in pieces for row in piece.tolist()] == sorted(members)
    assert all(piece[0] >> 20 == piece[-1] >> 20 for piece in pieces)
    for size in (7 << 15, 1 << 20):
        parts = list(in_parts(rows, size))
        assert [row for part in parts for row in part.tolist()] == sorted(members)
        assert all(0 < len(part) <= size for part in parts)


@given(
    st.sets(st.integers(0, 1 << 20), max_size=50),
    st.lists(st.integers(0, 1 << 20), max_size=50, unique=True),
    st.booleans(),
)
def test_rows_are_found_among_others_in_any_order(
    members: set[int], others: list[int], crowded: bool
) -> None:
    # Some end in the same bits, some are the same.
    others += [member for member in members if member % 3 and member not in others]
    others += [member + (1 << 16) for member in members if member + (1 << 16) not in others]
    many = set(range(2 << 20, (2 << 20) + (5000 if crowded else 0)))
    rows = BitMap(members | many)
    found = finder(rows, 3 << 20)(np.array(others, np.uint32))
    assert found.tolist() == [at for at, one in enumerate(others) if one in rows]
