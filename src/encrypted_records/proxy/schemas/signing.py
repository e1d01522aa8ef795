"""Sign a schema as the API shows it, after a user has checked the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from encrypted_records.errors import SchemaUnsigned
from encrypted_records.model.roster import Placement
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.readiness import shown_otherwise
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.sharing.founding import roster_missing
from encrypted_records.proxy.sharing.service import Sharing


@dataclass(frozen=True, slots=True)
class StateDifference:
    """The state of a schema that was signed, None where nothing was, and the one that the API
    shows.
    """

    signed: Placement | None
    shown: Placement

    @property
    def members(self) -> list[str]:
        """Members that differ, among slug, name and definition."""
        names = ("slug", "name", "definition")
        if self.signed is None or not self.signed.slug:
            return list(names)
        return [name for name in names if getattr(self.signed, name) != getattr(self.shown, name)]


class SchemaSigning:
    def __init__(self, schemas: Schemas, sharing: Sharing) -> None:
        self._schemas = schemas
        self._sharing = sharing

    async def compare(self, caller: Holder, schema: bytes) -> StateDifference:
        """The difference that signing would make.

        Raises:
            Closed: ``roster_missing``; the organization has records, and no roster.
            SchemaUnsigned: the schema has records although the roster never had it, or it was moved
                to another dataset: signing would accept the API's claims about the records.
            ErsError: as for :meth:`Schemas.refresh`.
        """
        self._schemas.forget(caller, [schema])
        state = await self._schemas.refresh(caller, schema)
        by, shown = state.ledger.membership, state.shown
        if by is None and state.ledger.version:
            raise roster_missing()
        placed = None if by is None else by.roster.schema(schema)
        definition = shown.definition.digest
        if placed is not None and state.ledger.definition is not None:
            definition = placed.definition
        now = Placement(schema, shown.dataset, shown.slug, shown.name, definition)
        if placed is None:
            if state.ledger.version:
                raise SchemaUnsigned("it has records, and was never in the roster")
            return StateDifference(None, now)
        if placed.dataset != shown.dataset:
            raise SchemaUnsigned("the API shows it in another dataset than the signed one")
        before = Placement(schema, placed.dataset, placed.slug, placed.name, placed.definition)
        return StateDifference(before, now)

    async def sign(
        self, caller: Holder, schema: bytes, seen: Sequence[str] | None = None
    ) -> StateDifference:
        """Sign it as the API shows it; what that changed.

        Args:
            seen: slug, name and definition (the digest in hex) as the caller has agreed to them.

        Raises:
            NotAllowed: ``owners_only``, ``not_writer``, ``not_admitted``.
            Conflict: the API shows it otherwise by now.
            ErsError: as :meth:`compare`.
        """
        difference = await self.compare(caller, schema)
        shown = difference.shown
        if seen is not None and list(seen) != [shown.slug, shown.name, shown.definition.hex()]:
            raise shown_otherwise()
        if difference.members:
            state = await self._schemas.refresh(caller, schema)
            by = state.ledger.membership
            if by is None or by.roster.dataset(shown.dataset) is None:
                async with state.lock:
                    await self._schemas.ready(caller, state, shown)
            else:
                await self._sharing.founding.place(caller, state.shown.organization, [shown])
            self._schemas.forget(caller, [schema])
        return difference
