"""What the proxy holds of each schema in use: its definition, key, and verified log.

A schema is known per user, since keyrings are. The API is asked before every question, with the
caller's own credentials: what it refuses is not answered from memory.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from encrypted_records.client.api import Api, Moved
from encrypted_records.crypto.keys import SchemaKeys
from encrypted_records.errors import ApiFailed, BadInput, Conflict, KeyMissing, LogBroken
from encrypted_records.index.ledger import Ledger
from encrypted_records.model import ids
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.records import CommitUpload, LogEntry, ManifestDelta, Receipt
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.heads import Heads
from encrypted_records.proxy.keyrings import Keyrings

log = logging.getLogger(__name__)

MAX_SCHEMAS = 1000


@dataclass
class SchemaState:
    """One schema as one user's keyring opens it. Change it only while holding ``lock``."""

    id: bytes
    #: the definition as JSON, and as understood
    text: bytes
    definition: SchemaDefinition
    ledger: Ledger
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: an earlier commit may or may not have been stored; ask before drafting another
    uncertain: bool = False


class Schemas:
    def __init__(self, api: Api, keyrings: Keyrings, heads: Heads) -> None:
        self._api = api
        self._keyrings = keyrings
        self._heads = heads
        self._writer = os.urandom(16)
        self._states: OrderedDict[tuple[bytes, bytes], SchemaState] = OrderedDict()
        #: one more whenever a keyring changed
        self._epoch = 0
        self._loading: dict[tuple[bytes, bytes], asyncio.Lock] = {}

    async def known(self, caller: Caller, schema: bytes) -> SchemaState:
        """The schema's state as it was when last asked for; read it now if it never was.

        For writers only: the API checks their commits against the present state.
        """
        state = self._states.get((caller.user, schema))
        return await self.fresh(caller, schema) if state is None else state

    def seen(self, caller: Caller, schema: bytes) -> SchemaState | None:
        """The state as it was when last asked for; None if it never was.

        Whoever answers a question from it has the API confirm it (:mod:`.asking`).
        """
        place = (caller.user, schema)
        if place in self._states:
            self._states.move_to_end(place)
        return self._states.get(place)

    def in_use(self) -> list[SchemaState]:
        """Every schema that is held, as it was when last asked for; once, whoever uses it."""
        return list({state.id: state for state in self._states.values()}.values())

    async def follow(self, caller: Caller, state: SchemaState, moved: Moved) -> None:
        """Bring ``state`` to where an answer of the API says it is by now, or beyond.

        Raises:
            LogBroken: as :meth:`fresh`.
        """
        async with state.lock:
            if state.ledger.version == moved.known.version:
                await self._take(caller, state, moved.deltas)
            else:
                await self.refresh(caller, state)

    async def fresh(self, caller: Caller, schema: bytes) -> SchemaState:
        """The schema's state at the API's newest version, verified.

        Raises:
            NotFound: the API knows no such schema, or not for this caller.
            KeyMissing: its records are sealed with a key that this user's keyring lacks.
            LogBroken: the log is not authentic, or lacks what this proxy has seen.
        """
        place = (caller.user, schema)
        async with self._loading.setdefault(place, asyncio.Lock()):
            epoch = self._epoch
            state = self._states.get(place)
            if state is None:
                state = await self._load(caller, schema)
                if epoch == self._epoch:
                    self._remember(place, state)
                return state
        async with state.lock:
            await self.refresh(caller, state)
        if epoch == self._epoch:
            self._states[place] = state
            self._states.move_to_end(place)
        return state

    def _remember(self, place: tuple[bytes, bytes], state: SchemaState) -> None:
        self._states[place] = state
        while len(self._states) > MAX_SCHEMAS:
            forgotten, _ = self._states.popitem(last=False)
            self._loading.pop(forgotten, None)

    async def _load(self, caller: Caller, schema: bytes) -> SchemaState:
        organization, text, definition = await self._read(caller, schema)
        deltas = await self._log(caller, schema, 0)
        if deltas[-1].definition != definition.digest:
            # It has changed since it was read, and rows may have come with the change.
            organization, text, definition = await self._read(caller, schema)
        keys = await self._keys(caller, organization, schema, deltas[-1].key_id)
        state = SchemaState(schema, text, definition, Ledger(keys, self._writer))
        # A long log takes a while to verify, and nobody else sees this ledger yet.
        await asyncio.to_thread(_extend, state.ledger, deltas)
        await self._check(state)
        return state

    async def _keys(
        self, caller: Caller, organization: bytes, schema: bytes, key_id: bytes | None
    ) -> SchemaKeys:
        """The schema's keys; for a schema without one, of a keyring that is made if need be."""
        if key_id is None:
            keyring = await asyncio.to_thread(self._keyrings.of, caller.user)
            return keyring.schema(organization, schema)
        existing = await asyncio.to_thread(self._keyrings.existing, caller.user)
        if existing is None:
            # None is made: it would only stand in the way of the one that is to be restored.
            raise KeyMissing(
                f"this schema is sealed with key {key_id.hex()}; you have no keyring here"
            )
        return existing.schema(organization, schema)

    async def _read(self, caller: Caller, schema: bytes) -> tuple[bytes, bytes, SchemaDefinition]:
        """The schema's organization, and its definition as JSON and as understood."""
        resource = await self._api.schema(schema, caller.auth)
        try:
            organization = ids.from_reference(
                resource.organization, "organizations", pointer="/organization"
            )
            text = bytes(resource.schema)
            return organization, text, parse_definition(text)
        except BadInput:
            raise ApiFailed("the API's answer holds no schema of this version") from None

    def forget(self, caller: Caller, schemas: Iterable[bytes]) -> None:
        """Ask the API anew about these schemas when they are needed next."""
        for schema in schemas:
            self._states.pop((caller.user, schema), None)

    def forget_user(self, user: bytes) -> None:
        """Drop everything of this user, whose keyring changed; also what is being loaded."""
        self._epoch += 1
        for place in [place for place in self._states if place[0] == user]:
            del self._states[place]

    async def _log(self, caller: Caller, schema: bytes, since: int) -> list[ManifestDelta]:
        try:
            return await self._api.manifest(schema, since, caller.auth)
        except Conflict:
            raise LogBroken("the API's log is shorter than what this proxy has seen") from None

    async def refresh(self, caller: Caller, state: SchemaState) -> None:
        """Bring ``state``, whose lock the caller holds, to the API's newest version."""
        deltas = await self._log(caller, state.id, state.ledger.version)
        await self._take(caller, state, deltas)
        state.uncertain = False

    async def _take(
        self, caller: Caller, state: SchemaState, deltas: Sequence[ManifestDelta]
    ) -> None:
        newest = deltas[-1]
        if newest.definition != state.definition.digest:
            # Before the log: its new rows may have fields that the old definition lacks.
            _, state.text, state.definition = await self._read(caller, state.id)
        # Not in a thread: questions take views of this ledger meanwhile.
        _extend(state.ledger, deltas)
        await self._check(state)

    async def _check(self, state: SchemaState) -> None:
        """Hold the log against what was seen before, and remember it."""
        ledger = state.ledger
        seen = await asyncio.to_thread(self._heads.get, state.id)
        if seen is not None and not ledger.knows(seen):
            raise LogBroken("the API's log lacks commits that this proxy has seen")
        if ledger.version and ledger.head != seen:
            await asyncio.to_thread(self._heads.remember, state.id, ledger.head)

    async def settle(
        self, caller: Caller, state: SchemaState, upload: CommitUpload, receipt: Receipt
    ) -> None:
        """Enter a commit of ours, which the API holds, into the ledger; the lock is held."""
        ledger = state.ledger
        if receipt.version != ledger.version + 1:
            await self.refresh(caller, state)
            return
        entry = LogEntry(receipt.version, upload.commit)
        definition = state.definition.digest
        ledger.extend(ManifestDelta(state.id, receipt.version, ledger.key.id, definition, [entry]))
        await asyncio.to_thread(self._heads.remember, state.id, ledger.head)


def _extend(ledger: Ledger, deltas: Sequence[ManifestDelta]) -> None:
    for delta in deltas:
        ledger.extend(delta)
