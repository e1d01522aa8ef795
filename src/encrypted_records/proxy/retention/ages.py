"""On which day the record of each row was first stored, as its id says.

A record keeps its id when it is changed or sealed again, so the time in the id is that of its first
version. The index has no ids; the API says them, and they are believed only where a field of the
row opens under them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from encrypted_records.errors import NotFound
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model import ids
from encrypted_records.model.retention import DAY_MILLISECONDS
from encrypted_records.proxy.jobs.names import look_up_names
from encrypted_records.proxy.process.offload import aside
from encrypted_records.proxy.search.upstream import RowsGone, Upstream

#: Rows that are asked for before the next ones are.
AT_ONCE = 1 << 15
#: Of a row that has ended; the last day that can be told from it is the one before.
_NEVER = 0xFFFF


class Ages:
    """Ages of one log's rows: the day since 1970 by the number of each row, as far as it was asked
    for.

    A row keeps its number, whatever is merged, ended or sealed again. ``known`` is how many were
    asked for.
    """

    def __init__(self) -> None:
        #: end to end, as they were asked for
        self._days: list[NDArray[np.uint16]] = []
        self.known = 0

    async def learn(self, upstream: Upstream) -> None:
        """Ask for the rows that are not known yet.

        Raises:
            RowsGone: a row is gone that lived in the snapshot.
            DoesNotOpen: what the API says of a row is not so.
        """
        snapshot = upstream.snapshot
        while self.known < snapshot.stored:
            first = self.known
            end = min(first + AT_ONCE, snapshot.stored)
            living = await aside(_living, snapshot, first, end)
            try:
                names = await look_up_names(upstream, living)
            except NotFound as error:
                if error.reason != "row_gone":
                    raise
                # No row is old for being gone: the log has to say that it ended, or it is broken.
                raise RowsGone from None
            days = np.full(end - first, _NEVER, np.uint16)
            for number, (record, _) in names.items():
                days[number - first] = min(ids.milliseconds(record) // DAY_MILLISECONDS, _NEVER - 1)
            if self.known == first:  # else another question was quicker
                self._days.append(days)
                self.known = end

    def find_before(self, day: int, snapshot: Snapshot) -> list[int]:
        """The numbers of the rows that live and whose records were first stored before a day."""
        found: list[int] = []
        first = 0
        for days in list(self._days):
            for at in np.flatnonzero(days < day).tolist():
                number = first + at
                if number >= snapshot.stored:
                    return found
                ref = snapshot.ref(number)
                if snapshot.is_live(ref.group, ref.ordinal):
                    found.append(number)
                else:
                    days[at] = _NEVER  # it does not come back
            first += len(days)
        return found


def _living(snapshot: Snapshot, first: int, end: int) -> list[int]:
    return [snapshot.number(ref) for ref in snapshot.live_between(first, end)]
