"""One question about a world, asked of columns, and of records where these are wanted."""

from __future__ import annotations

from typing import Any

from encrypted_records.index.candidates import Candidates
from encrypted_records.index.long_texts import Texts
from encrypted_records.index.resolve import resolve
from encrypted_records.index.view import place_parts
from encrypted_records.model.predicates import Predicate
from tests.index.world import World


class Question:
    """The rows that a condition selects, and the records opened so far."""

    def __init__(self, world: World, where: Predicate) -> None:
        self.world = world
        view = world.ledger.view()
        self.parts = [
            Candidates.of(
                segment,
                resolve(where, segment, world.ledger.tails, world.definition),
                view,
            )
            for segment in world.opened()
        ]
        self.texts = Texts()
        self.opened = 0

    def learn(self) -> None:
        """Open a record for every text that is wanted."""
        for (field, key), place in list(self.texts.wanted.items()):
            self.opened += 1
            held = self.world.open(place_parts(place)).data.get(field)
            self.texts.answer(field, key, held, self.tail(field))

    def tail(self, field: str) -> Any:
        return self.world.ledger.tails.field(self.world.definition.fields[field]).tail
