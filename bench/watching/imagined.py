"""What an API would see of searches, worked out and not watched: for proxies that ask otherwise
than the present one does, or that hold nothing at each search."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from bench.watching.census import Census, Kind, Question
from bench.watching.knowledge import Flags, Habits, Seen, Shape
from encrypted_records.crypto.keys import CoverKey
from encrypted_records.model.records import MAX_MINI_RECORDS
from encrypted_records.proxy.search import cover as stretches


@dataclass(frozen=True)
class Manner:
    """How a proxy asks: in stretches of these sizes, ``least`` at least, for up to ``most`` rows;
    and whether it keeps what it had. ``apart``: it has nothing at each search."""

    sizes: tuple[int, ...] = stretches.SIZES
    least: int = stretches.LEAST
    most: int = stretches.MOST
    keeps: bool = True
    apart: bool = False

    @property
    def habits(self) -> Habits:
        return Habits(WANTED, self.least, beside=bool(self.sizes))


#: A proxy as it was: exactly the rows that it needs, each time.
EXACTLY = Manner(sizes=(), least=1, most=0, keeps=False)
#: Rows that a search of the default limit takes: one more tells whether there are others.
WANTED = 101
#: Of the schema: all proxies that are worked out have it.
COVER = CoverKey(bytes(32))


@dataclass
class Watched:
    """Which rows and pages a proxy has had."""

    manner: Manner
    held: Flags
    kind: Kind
    questions: set[Question] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)

    def seen(self, question: Question, rows: NDArray[np.int64], count: int, time: int) -> Seen:
        if self.manner.apart:
            self.held[:] = False
            self.questions, self.fields = set(), set()
        pages = self._pages(question, count)
        if not self.manner.keeps:
            return Seen(rows, 1, pages, [time])
        missing = rows[~self.held[rows]]
        size, asked = stretches.SIZES[0], missing
        if len(missing):
            size, asked = self._asked(missing, hashlib.sha256(repr(question).encode()).digest())
        self.held[asked] = True
        return Seen(asked, size, pages, [time])

    def _pages(self, question: Question, count: int) -> list[int]:
        if len(self.held) <= MAX_MINI_RECORDS:
            first, self.fields = not self.fields, {"all"}
            return [1] * first
        name, _ = question
        shape = Shape.of(self.kind.column(name))
        pages = []
        if name not in self.fields:
            self.fields.add(name)
            pages.append(shape.directory)
        if question not in self.questions:
            self.questions.add(question)
            pages.append(1 << (-(-count // shape.entries) - 1).bit_length())
        return pages

    def _asked(self, missing: NDArray[np.int64], question: bytes) -> tuple[int, NDArray[np.int64]]:
        manner = self.manner
        draw = partial(COVER.draw, question)
        with mock.patch.multiple(stretches, SIZES=manner.sizes, LEAST=manner.least):
            plan = stretches.choose_cover(missing.tolist(), len(self.held), draw, manner.most)
        size = plan.size

        def lacking(one: int) -> NDArray[np.int64]:
            return one * size + np.flatnonzero(~self.held[one * size : (one + 1) * size])

        chosen = [lacking(one) for one in sorted(plan.needed)]
        for one in plan.others:
            if len(chosen) == plan.total:
                break
            if len(found := lacking(one)):
                chosen.append(found)
        return size, np.sort(np.concatenate(chosen))


def events(census: Census, draws: Sequence[int], manner: Manner) -> list[Seen]:
    """What is seen of the searches that were drawn; of each different one once if apart. Where
    nothing is kept, those that look alike are one event."""
    watched = Watched(manner, np.zeros(len(census.stored), bool), census.kind)
    matching = {at: np.flatnonzero(census.matches(census.questions[at])) for at in set(draws)}
    found: list[Seen] = []
    alike: dict[bytes, Seen] = {}
    asked = set()
    for time, at in enumerate(draws):
        if manner.apart and at in asked:
            continue
        asked.add(at)
        every = matching[at]
        seen = watched.seen(census.questions[at], every[:WANTED], len(every), time)
        if not manner.keeps:
            first = alike.setdefault(seen.rows.tobytes(), seen)
            if first is not seen:
                first.times.append(time)
                continue
        found.append(seen)
    return found
