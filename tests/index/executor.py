"""Answer whole questions about a world, without a service; note each step they take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from encrypted_records.index.query.asking import Asking, Open, Rows, Sizes, Step, Workspace
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.pages import FIRST_ROWS, Cursor, PageRequest, find_page
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.model.predicates import Predicate
from encrypted_records.model.queries import parse_query
from tests.index.reading import Kept, answer
from tests.index.world import World

T = TypeVar("T")


@dataclass
class Executor:
    """``kept`` is what a cache keeps of columns; ``by_row`` whether there is room for these."""

    world: World
    sizes: Sizes = field(default_factory=Sizes)
    kept: Kept = field(default_factory=Kept)
    by_row: bool = True
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.space = Workspace(
            self.world.ledger.snapshot(),
            self.world.compared,
            self.world.ledger.tails,
            most_opened=10_000,
            most_kept=4096,
            most_hidden=32,
            keeps_columns=lambda _rows, _fields: self.by_row,
            keeps_column=lambda one, name: (one.segment.uid, name) in self.kept.columns,
            sizes=self.sizes,
        )

    def live(self) -> dict[int, dict[str, Any]]:
        """The records that live, by position and in its order."""
        snapshot, world = self.space.snapshot, self.world
        refs = snapshot.find_live(0, snapshot.count)
        rows = [(snapshot.groups[ref.group].sequence, ref.ordinal) for ref in refs]
        return {world.place(row): dict(world.open(row).data) for row in rows}

    def condition(self, where: Predicate) -> Condition:
        return Condition.of(where, self.space.tails, self.space.definition, self.space.texts())

    def run(self, asking: Asking[T]) -> T:
        """The answer. Nothing may stay in a segment that was brought for it."""
        try:
            return answer(
                asking,
                self.world.sealed,
                self.kept,
                self.steps,
                self._fetch,
            )
        finally:
            asking.close()
            for one in self.space.opened.values():
                if isinstance(one, LoadedSegment):
                    assert not one.blocks
                    assert not one.columns
                    assert not one.sums

    def _fetch(self, step: Open | Rows) -> object:
        if isinstance(step, Open):
            return [self.world.open_kept(segment) for segment in step.segments]
        assert step.refs
        self.space.counted.rows += len(step.refs)
        return [self.world.read(ref) for ref in step.refs]

    def pages(
        self,
        body: dict[str, Any],
        most: int = 1 << 20,
        *,
        stored: int | None = None,
        first_rows: int = FIRST_ROWS,
    ) -> tuple[int | None, list[list[int]]]:
        """The count, and the positions of the rows of each page of a search, or of the first.

        Args:
            stored: how many rows there were when the search began; all that there are if None.
            first_rows: as for :func:`find_page`.
        """
        stored = self.space.snapshot.stored if stored is None else stored
        query = parse_query(body, self.space.definition)
        start: Cursor | None = None
        count: int | None = None
        pages: list[list[int]] = []
        while True:
            request = PageRequest(self.space, query, self.condition(query.where), start, stored)
            told, rows = self.run(find_page(request, first_rows))
            count = told if start is None else count
            positions = [candidate.position for candidate, _ in rows]
            pages.append(positions[: query.limit])
            if len(rows) <= query.limit or not query.limit or len(pages) == most:
                return count, pages
            # As of a client: what comes after goes on behind the last row.
            start = Cursor(pages[-1][-1], stored)
            body = {name: value for name, value in body.items() if name != "offset"}
            query = parse_query(body, self.space.definition)
