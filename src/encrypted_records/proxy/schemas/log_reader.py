"""Read the log of a schema that is not in memory: from its copy on disk, from a checkpoint, or from
its beginning.

A checkpoint is only a claim of its signer (docs/SPEC.md, section 7.9): if a checkpoint, or the log
after it, is invalid, the log is read from its beginning before it is reported as broken.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from typing import Protocol

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.client.checkpoints import CheckpointApi
from encrypted_records.errors import (
    CheckpointBroken,
    Closed,
    Conflict,
    KeyMissing,
    LogBroken,
)
from encrypted_records.index.log import checkpoint as taking
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.order import LogHead
from encrypted_records.model import ids, wire
from encrypted_records.model.records import ManifestDelta
from encrypted_records.model.wire import Checkpoint
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.schemas.heads import Heads
from encrypted_records.proxy.schemas.key_source import KeySource
from encrypted_records.proxy.schemas.ledger_store import LedgerStore
from encrypted_records.proxy.schemas.state import (
    EndedRows,
    SchemaState,
    ShownSchema,
    lacking,
    read_shown,
)

log = logging.getLogger(__name__)


class See(Protocol):
    def __call__(self, caller: Holder, state: SchemaState, *, new: bool = False) -> Awaitable[None]:
        """Check a state against what was seen before, and remember it."""


class LogReader:
    def __init__(
        self,
        api: Api,
        keyrings: Keyrings,
        heads: Heads,
        ledgers: LedgerStore,
        rows: EndedRows,
        source: KeySource,
        see: See,
    ) -> None:
        self._api = api
        self._checkpoints = CheckpointApi(api.transport)
        self._keyrings = keyrings
        self._heads = heads
        self._ledgers = ledgers
        self._rows = rows
        self._source = source
        self._see = see

    async def read(
        self, caller: Holder, schema: bytes, writer: bytes, *, whole: bool = False
    ) -> SchemaState:
        """The schema's state, by its log.

        Args:
            writer: names what is drafted.
            whole: whether it has to be verified from its beginning, here and now.

        Raises:
            ErsError: as :meth:`Schemas.refresh`.
        """
        shown = await read_shown(self._api, caller, schema)
        deltas: list[ManifestDelta] | None = None
        if not whole:
            state = await self._from_kept(caller, schema, shown, writer)
            if state is None:
                state, deltas = await self._from_checkpoint(caller, schema, shown, writer)
            if state is not None:
                return state
        if deltas is None:
            deltas = await self.fetch(caller, schema, 0)
        state = await self._begin(caller, schema, shown, writer, deltas)
        return await self._finish(caller, state, deltas)

    async def fetch(self, caller: Holder, schema: bytes, since: int) -> list[ManifestDelta]:
        """The log after a version.

        Raises:
            LogBroken: it does not reach that far.
        """
        try:
            return await self._api.manifest(schema, since, caller.auth)
        except Conflict:
            raise await self.lacking(caller, schema) from None

    async def lacking(
        self, caller: Holder, schema: bytes, ledger: Ledger | None = None
    ) -> LogBroken:
        """The error of a log that lacks commits which this user has seen. It tells of other users
        of this proxy who have accepted the log.

        Args:
            ledger: the log, where it was read.
        """
        lacks = None
        if ledger is not None:
            lacks = await runtime.in_thread(self._heads.lacks, caller.user, schema, ledger)
        accepted = await runtime.in_thread(self._heads.acceptances, schema)
        others = [acceptance for acceptance in accepted if acceptance.user != caller.user]
        return lacking(others, is_fork=lacks == "forked")

    async def go_on(self, caller: Holder, state: SchemaState) -> None:
        """Ask once more for what comes after the log of ``state``, and take it in.

        Raises:
            ErsError: as :meth:`Schemas.refresh`.
        """
        await self.take_shown(caller, state, await self._fetch_rest(caller, state))

    async def _fetch_rest(self, caller: Holder, state: SchemaState) -> list[ManifestDelta]:
        """Deltas that were stored since the log was asked for, which the ledger has by then."""
        deltas = await self.fetch(caller, state.id, state.ledger.version)
        await self._source.follow(caller, state, deltas)
        extend(state.ledger, deltas)
        return deltas

    async def take_shown(
        self, caller: Holder, state: SchemaState, deltas: Sequence[ManifestDelta]
    ) -> None:
        """Read the definition again that the API shows, where it changed before the first commit.

        Raises:
            LogBroken: the API states another definition than its log holds.
        """
        stated = deltas[-1].definition
        if state.ledger.definition is None:
            if stated != state.shown.definition.digest:
                state.shown = await read_shown(self._api, caller, state.id)
        elif stated != state.ledger.definition.digest:
            raise LogBroken("the API states another definition than the schema's log contains")

    async def _begin(
        self,
        caller: Holder,
        schema: bytes,
        shown: ShownSchema,
        writer: bytes,
        deltas: Sequence[ManifestDelta],
    ) -> SchemaState:
        """A state with an empty log, under the keys and the roster that the log names."""
        key_id = deltas[-1].key_id
        keys, by = await self._source.keys(caller, shown.organization, schema, key_id)
        state = SchemaState(schema, shown, Ledger(keys, writer, by))
        await self._source.follow(caller, state, deltas)
        return state

    async def _finish(
        self, caller: Holder, state: SchemaState, deltas: Sequence[ManifestDelta]
    ) -> SchemaState:
        # A long log takes a while to verify, and nobody else sees this ledger yet.
        await runtime.in_thread(extend, state.ledger, deltas)
        deltas = await self._reach_ends(caller, state) or deltas
        await self.take_shown(caller, state, deltas)
        await self._see(caller, state, new=True)
        return state

    async def _reach_ends(
        self, caller: Holder, state: SchemaState
    ) -> Sequence[ManifestDelta] | None:
        """See that the log goes as far as epochs of its keys say that it did; what came of it
        where it had to be asked for again.

        Raises:
            LogBroken: it ends before that, though the API was asked after they had been read.
        """
        ledger = state.ledger
        by = ledger.membership
        if by is None:
            return None
        known = by.number
        ends = (end for end in by.roster.ends(state.id) if end.number <= known)
        reached = all(end.version <= ledger.version for end in ends)
        if reached and not ledger.ends_forgotten(known):
            return None
        # They may have begun after the log was asked for.
        deltas = await self._fetch_rest(caller, state)
        state.ledger.check_ends(known)
        return deltas

    # --- from what was kept ---------------------------------------------------------------------

    async def _from_kept(
        self, caller: Holder, schema: bytes, shown: ShownSchema, writer: bytes
    ) -> SchemaState | None:
        ledger = await self._open_kept(caller, shown.organization, schema, writer)
        if ledger is None:
            return None
        try:
            deltas = await self.fetch(caller, schema, ledger.version)
            state = SchemaState(schema, shown, ledger, kept=ledger.version)
            await self._source.follow(caller, state, deltas)
            return await self._finish(caller, state, deltas)
        except (KeyMissing, LogBroken) as error:
            # Only the whole log shows whether the API or the kept log is wrong.
            log.info("a log is being read from its beginning: %s", error.message)
            await runtime.in_thread(self._ledgers.drop, caller.user, schema)
            return None

    async def _open_kept(
        self, caller: Holder, organization: bytes, schema: bytes, writer: bytes
    ) -> Ledger | None:
        """The schema's log as far as it was kept on disk, where it can be used."""
        seen = await runtime.in_thread(self._heads.get, caller.user, schema)
        sealed = await runtime.in_thread(self._ledgers.find, caller.user, schema)
        if seen is None or sealed is None:
            return None
        if await runtime.in_thread(self._keyrings.existing, caller) is None:
            return None
        keys, by = await self._source.keys(caller, organization, schema, None)
        return await runtime.in_thread(
            self._ledgers.open, caller.user, keys, writer, sealed, seen, by
        )

    # --- from a checkpoint ----------------------------------------------------------------------

    async def _from_checkpoint(
        self, caller: Holder, schema: bytes, shown: ShownSchema, writer: bytes
    ) -> tuple[SchemaState | None, list[ManifestDelta] | None]:
        """The state by a checkpoint and what comes after it; or else the whole log, if the API has
        no checkpoint and handed that out."""
        seen = await runtime.in_thread(self._heads.get, caller.user, schema)
        known = 0 if seen is None else seen.version
        try:
            found, deltas = await self._checkpoints.read(schema, known, caller.auth)
        except Conflict:
            return None, None  # the log is read from its beginning, and compared with what was seen
        if found is None:
            return None, deltas
        try:
            return await self._take(caller, schema, shown, writer, found, deltas, seen), None
        except (CheckpointBroken, LogBroken, KeyMissing) as error:
            log.warning(
                "%s: a checkpoint of schema %s is rejected, and the log is read instead: %s",
                CheckpointBroken.code,
                ids.to_text(schema),
                error.message,
            )
        except Closed as error:
            if error.reason != "grant_missing":
                raise
        return None, None

    async def _take(
        self,
        caller: Holder,
        schema: bytes,
        shown: ShownSchema,
        writer: bytes,
        found: Checkpoint,
        deltas: Sequence[ManifestDelta],
        seen: LogHead | None,
    ) -> SchemaState:
        state = await self._begin(caller, schema, shown, writer, deltas)
        by, body = state.ledger.membership, taking.read(found)
        if by is not None and body.roster > by.number:
            await self._source.renew(caller, state.ledger, within=0)
        keys, by = state.ledger.keys, state.ledger.membership
        now = runtime.wall_ns() // 1_000_000
        ledger = await runtime.in_thread(taking.take, found, keys, writer, by, now)
        passed = [entry for delta in deltas for entry in delta.entries]
        passed = [entry for entry in passed if entry.version <= ledger.version]
        if seen is not None and seen.version < ledger.version:
            await runtime.in_thread(taking.prove_passage, ledger, seen, passed)
            # What ended in between is not followed: whatever was kept of the schema goes.
            replaced = [
                uid for entry in passed for uid in wire.decode_commit_body(entry.commit).replaced
            ]
            await runtime.in_thread(self._rows.forget_segments, replaced)
            rows = range(ledger.snapshot().stored)
            await runtime.in_thread(self._rows.forget_between, schema, rows)
        state.ledger = ledger
        state.checkpointed = (ledger.version, body.key_version)
        return await self._finish(caller, state, taking.after(ledger, deltas))


def extend(ledger: Ledger, deltas: Sequence[ManifestDelta]) -> None:
    for delta in deltas:
        ledger.extend(delta)
