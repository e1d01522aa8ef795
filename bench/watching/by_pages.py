"""What the numbers of index pages tell of a search (docs/SPEC.md, 6.2.1)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bench.watching.knowledge import Floats, Knowledge, Seen

#: A search whose pages cannot be those of a question is another one, but for an error of ours.
_UNLIKELY = math.log(1e-3)


def fit(knowledge: Knowledge, seen: Seen) -> Floats:
    """For each question, the logarithm of how well the pages fit.

    The directory comes first, unless the proxy has it: one page for numbers, several for strings.
    Of data pages no more are asked for than the value has, filled up to a power of two.
    """
    found = np.zeros(len(knowledge.questions))
    if len(seen.pages) > 1:
        found += np.where(knowledge.directory == (seen.pages[0] > 1), 0.0, _UNLIKELY)
    return found + count_fit(seen, knowledge.shares * knowledge.rows, knowledge.entries)


def count_fit(seen: Seen, counts: Floats, entries: NDArray[np.int64]) -> Floats:
    """The same for numbers of records that match, in fields of so many entries a page."""
    if not seen.pages:
        return np.zeros(len(counts))
    most = np.ceil(1.2 * counts / entries) + 2
    found: Floats = np.where(seen.pages[-1] <= 2 * most, 0.0, _UNLIKELY)
    return found
