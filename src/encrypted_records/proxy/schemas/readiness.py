"""Check whether readers will accept a change of a schema: by its author, and by the schema's
signature.

Nothing is encrypted for an unsigned schema, or for one that the API shows differently from its
signed state. An owner signs a schema that was made at the API by storing into it (docs/SPEC.md,
section 15.10).
"""

from __future__ import annotations

import asyncio

from encrypted_records.client.api import Api
from encrypted_records.errors import BadInput, Conflict, NotAllowed, SchemaUnsigned
from encrypted_records.index.log.signing import LogMembership
from encrypted_records.index.roster.access import require_signed, require_writer
from encrypted_records.model import ids
from encrypted_records.model.roster import Placement
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.key_source import KeySource
from encrypted_records.proxy.schemas.state import SchemaState, read_shown
from encrypted_records.proxy.sharing.founding import not_shown
from encrypted_records.proxy.sharing.service import Sharing


class Readiness:
    def __init__(self, api: Api, sharing: Sharing, source: KeySource) -> None:
        self._api = api
        self._sharing = sharing
        self._source = source

    async def require(
        self, caller: Holder, state: SchemaState, agreed: Placement | None = None
    ) -> None:
        """Require that the caller may store into ``state``, whose lock is held, and that it is
        signed as shown; sign it if it was made at the API and the caller is an owner. The first
        owner who stores into an organization without records founds its roster.

        Args:
            agreed: sign only this placement, which a user has checked; None signs the placement
                that the API shows.

        Raises:
            SchemaUnsigned: the API shows the schema differently from its signed state.
            NotAllowed: ``not_writer``, ``not_shared``, ``not_admitted``.
            Closed: ``grant_missing``; the newest key was not granted.
            NotFound: the schema was deleted.
            Conflict: the API shows another placement than ``agreed``.
            ErsError: as for :meth:`Founding.place` and :meth:`Founding.found_with`.
        """
        try:
            await self._require(caller, state, agreed)
        except BadInput:
            # The API refuses entries about what was deleted while they were on their way.
            await read_shown(self._api, caller, state.id)
            raise

    async def _require(self, caller: Holder, state: SchemaState, agreed: Placement | None) -> None:
        by = state.ledger.membership
        if by is None:
            if state.ledger.version or not await self._found(caller, state, agreed):
                return
            by = state.ledger.membership
            if by is None:
                raise not_shown()
        if state.ready_at == by.number:
            return
        if not _is_placed(by, state):
            await self._place(caller, state, by, agreed)
        try:
            require_writer(by.roster, caller.user, state.id)
        except NotAllowed:
            # Who was made a writer since the roster was read is one at once.
            await self._source.renew(caller, state.ledger, within=0)
            require_writer(by.roster, caller.user, state.id)
        try:
            require_signed(by.roster, _shown(by, state))
        except SchemaUnsigned:
            # What it was called a moment ago may not be what it is called now.
            state.shown = await read_shown(self._api, caller, state.id)
            require_signed(by.roster, _shown(by, state))
        _ = state.ledger.key  # raises where it was not granted
        state.ready_at = by.number

    async def _found(self, caller: Holder, state: SchemaState, agreed: Placement | None) -> bool:
        """Found the organization; False where it has records already, and so has no roster."""
        if not self._sharing.reader.has_read(caller.user, state.shown.organization):
            name, shown, dataset = await asyncio.gather(
                self._api.email(caller.auth),
                read_shown(self._api, caller, state.id),
                self._sharing.api.dataset(state.shown.dataset, caller.auth),
            )
            state.shown = shown
            if ids.from_text(dataset.id) != shown.dataset:
                raise Conflict("the schema was moved to another dataset", code="log_conflict")
            placement = _agreed(_shown(None, state), agreed)
            founded = await self._sharing.founding.found_with(
                caller, shown.organization, name, dataset, placement
            )
            if not founded:
                # An API that says so without reason has the records sealed under the user's own
                # keys, which nobody else has, and keeps the organization from being shared.
                return False
        await self._source.begin_again(caller, state)
        return True

    async def _place(
        self, caller: Holder, state: SchemaState, by: LogMembership, agreed: Placement | None
    ) -> None:
        standing = by.roster.member(by.member)
        if state.ledger.version or standing is None or not standing.owns:
            # An owner may have signed it since the roster was read; look again at once.
            await self._source.renew(caller, state.ledger, within=0)
            if _is_placed(by, state):
                return
            raise SchemaUnsigned("this schema was created at the API, and no owner has signed it")
        shown = state.shown = await read_shown(self._api, caller, state.id)
        placement = _agreed(_shown(by, state), agreed)
        founding = self._sharing.founding
        if by.roster.dataset(shown.dataset) is None:
            dataset = await self._sharing.api.dataset(shown.dataset, caller.auth)
            await founding.begin_dataset(
                caller, shown.organization, shown.dataset, slug=dataset.slug, name=dataset.name
            )
        await founding.place(caller, shown.organization, [placement])
        await self._source.renew(caller, state.ledger, within=0)


def _is_placed(by: LogMembership, state: SchemaState) -> bool:
    """Whether a member with the right to do so has placed the schema in the roster. Until the
    schema has records, a placement whose name was freed does not count.
    """
    placed = by.roster.schema(state.id)
    return placed is not None and bool(placed.slug or state.ledger.version)


def shown_otherwise() -> Conflict:
    return Conflict(
        "the API now shows the schema differently",
        hint="check it again before you sign it",
    )


def _agreed(shown: Placement, agreed: Placement | None) -> Placement:
    """The placement to be signed.

    Raises:
        Conflict: the API shows another schema than was agreed to.
    """
    if agreed is not None and shown != agreed:
        raise shown_otherwise()
    return shown


def _shown(by: LogMembership | None, state: SchemaState) -> Placement:
    """The schema as the API shows it; its definition counts until the log has one."""
    shown, placed = state.shown, None if by is None else by.roster.schema(state.id)
    definition = shown.definition.digest
    if placed is not None and state.ledger.definition is not None:
        definition = placed.definition
    return Placement(state.id, shown.dataset, shown.slug, shown.name, definition)
