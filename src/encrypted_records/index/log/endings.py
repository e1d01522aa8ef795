"""Rows that are no longer what they were, until somebody who keeps them was told."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from encrypted_records.model.records import KilledRows, RowRef


@dataclass(frozen=True, slots=True)
class Ended:
    """``rows`` died, in groups that live; the rows with these ``numbers``, of which no two ranges
    touch, lie in other groups; ``segments`` were replaced."""

    rows: list[RowRef]
    numbers: list[range]
    segments: list[bytes]


@dataclass(slots=True)
class Endings:
    """What commits ended, with the version at which they did."""

    _killed: list[tuple[int, Sequence[KilledRows]]] = field(default_factory=list)
    _moved: list[tuple[int, Sequence[range]]] = field(default_factory=list)
    _replaced: list[tuple[int, Sequence[bytes]]] = field(default_factory=list)

    def note_killed(self, version: int, rows: Sequence[KilledRows]) -> None:
        self._killed.append((version, rows))

    def note_moved(self, version: int, numbers: Sequence[range]) -> None:
        self._moved.append((version, numbers))

    def note_replaced(self, version: int, uids: Sequence[bytes]) -> None:
        if uids:
            self._replaced.append((version, uids))

    def take(self, since: int, live: Container[bytes]) -> Ended:
        """What ended after version ``since``, of what this was not asked for yet.

        Args:
            live: the groups that live, by uid.
        """
        killed, self._killed = self._killed, []
        moved, self._moved = self._moved, []
        replaced, self._replaced = self._replaced, []
        some = (one for version, every in killed if version > since for one in every)
        rows = [row for one in some if one.group in live for row in one.rows()]
        return Ended(
            rows,
            _joined(at for version, every in moved if version > since for at in every),
            [uid for version, every in replaced if version > since for uid in every],
        )


def _joined(numbers: Iterable[range]) -> list[range]:
    """The same numbers in ascending order, in as few ranges as can be: the groups of a crowd are
    many, and follow one another."""
    joined: list[range] = []
    for number in sorted(numbers, key=lambda some: some.start):
        if joined and number.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, number.stop))
        else:
            joined.append(number)
    return joined
