"""The values that some rows have in a field, for a semi-join: what is read out of their column."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.columns.column import Keys
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.long_strings import Texts
from encrypted_records.index.query.members import are_long


def list_values(part: Candidates, field: str, texts: Texts) -> tuple[Keys, set[bytes]]:
    """The distinct keys that some rows have, and apart from them those of long strings, whose texts
    are now wanted.

    Raises:
        InvalidQuery: ``too_many_long``.
        DoesNotOpen: the column does not open.
    """
    held = part.counts(field)[1:] > 0
    every = part.dictionary(field).keys
    long: NDArray[np.bool_] = held & are_long(every)
    if not long.any():
        return every[held], set()
    # One row that has it, for each key.
    codes, places = np.unique(part.codes(field), return_index=True)
    holder = dict(zip(codes.tolist(), part.positions[places].tolist(), strict=True))
    wanted = {int(at): bytes(every[at]) for at in np.flatnonzero(long)}
    for at, key in wanted.items():
        texts.want(field, key, holder[at + 1])
    return every[held & ~long], set(wanted.values())
