"""Whether stored records have equal values of fields that are to become unique.

Equal values have equal index keys, in all segments and under all definitions of a log, so that the
index alone decides. Records are opened only to say what their values are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.global_dictionary import build_global_dictionary
from encrypted_records.model.condition_parser import MAX_COMPARISONS
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.process.offload import aside
from encrypted_records.proxy.search.context import QueryContext


async def find_doubles(
    context: QueryContext, parts: Sequence[Candidates], names: Sequence[str], most: int
) -> tuple[int, dict[str, Any]]:
    """The number of these records that share their values of all ``names`` with another one, and a
    condition that finds them, or of more than ``most`` different values some of them.

    Args:
        parts: candidates whose columns of ``names`` are here.

    Raises:
        ErsError: as :meth:`QueryContext.rows`.
    """
    count, examples = await aside(_find, parts, names, min(most, MAX_COMPARISONS // len(names)))
    refs = [context.snapshot.ref(position) for position in examples]
    records = await context.rows(refs, alone=True)
    return count, _condition(names, records)


def _find(parts: Sequence[Candidates], names: Sequence[str], most: int) -> tuple[int, list[int]]:
    """The number of rows that share their values, and the positions of one row for each of some
    values.
    """
    columns = [build_global_dictionary(name, parts) for name in names]
    every = [column.codes for column in columns]
    # A record that lacks one of the fields collides with none.
    whole = np.flatnonzero(np.logical_and.reduce([codes > 0 for codes in every]))
    values = reduce(_pair, (codes[whole] for codes in every))
    _, firsts, counts = np.unique(values, return_index=True, return_counts=True)
    shared = counts > 1
    rows = np.sort(whole[firsts[shared]])[:most]
    return int(counts[shared].sum()), columns[0].positions[rows].tolist()


def _pair(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for each row, equal where both are: below the number of rows, so that it and the
    next ones fit 64 bits."""
    width = int(other.max(initial=0)) + 1
    paired: NDArray[np.int64] = np.unique(one, return_inverse=True)[1].astype(np.int64)
    return paired * width + other


def _condition(names: Sequence[str], records: Sequence[PlainRecord]) -> dict[str, Any]:
    if len(names) == 1:
        values = [record.data[names[0]] for record in records]
        return {"field": names[0], "op": "in", "value": values}
    return {
        "or": [
            {"and": [{"field": name, "op": "eq", "value": record.data[name]} for name in names]}
            for record in records
        ]
    }
