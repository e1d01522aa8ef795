"""One question about a world, asked of columns, and of records where these are wanted."""

from __future__ import annotations

from typing import Any

from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.key_sets import MAX_OPENED, Texts
from encrypted_records.model.predicates import Predicate
from tests.index.world import World


class Question:
    """The rows that a condition selects, and the records opened so far."""

    def __init__(self, world: World, where: Predicate, most_texts: int = MAX_OPENED) -> None:
        self.world = world
        snapshot = world.ledger.snapshot()
        self.condition = Condition.of(where, world.ledger.tails, world.definition)
        self.parts = [
            Candidates.of(segment, self.condition.match(segment), snapshot)
            for segment in world.opened()
        ]
        self.texts = Texts(most_texts)
        self.opened = 0

    def learn(self) -> None:
        """Open a record for every text that is wanted."""
        for (field, key), position in list(self.texts.wanted.items()):
            self.opened += 1
            held = self.world.open(self.world.row_at(position)).data.get(field)
            self.texts.answer(field, key, held, self.tail(field))

    def tail(self, field: str) -> Any:
        return self.world.ledger.tails.field(self.world.definition.fields[field]).tail
