"""Read logs of schemas that are not in memory, and write checkpoints of them in the background.

A log is read from its copy on disk, from a checkpoint, or from its beginning. A checkpoint is only
a claim of its signer (docs/SPEC.md, section 7.9): if a checkpoint, or the log after it, is invalid,
the log is read from its beginning before it is reported as broken.

The writer of a checkpoint continues a state that this proxy has itself verified from the beginning,
and compares the newest checkpoint with it: so a lie lasts until the next checkpoint is written, and
is reported with its signer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from encrypted_records import errors, runtime
from encrypted_records.client.api import Api
from encrypted_records.index.log import checkpoint as taking
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.ledger_state import LedgerState
from encrypted_records.index.log.order import Begun, LogHead
from encrypted_records.model import ids, wire
from encrypted_records.model.records import ManifestDelta
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.process import CHECKPOINTING, Background
from encrypted_records.proxy.schemas.state import (
    EndedRows,
    KeySource,
    SchemaState,
    ShownSchema,
    lacking,
    may_write,
    read_shown,
)
from encrypted_records.proxy.schemas.store import Heads, LedgerStore

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
        self._keyrings = keyrings
        self._heads = heads
        self._ledgers = ledgers
        self._rows = rows
        self._source = source
        self._see = see

    async def read(
        self, caller: Holder, schema: bytes, writer: bytes, *, from_beginning: bool = False
    ) -> SchemaState:
        """Read the schema's state from its log.

        Args:
            writer: names the commits that are drafted.
            from_beginning: whether it has to be verified from its beginning, here and now.

        Raises:
            ErsError: as :meth:`Schemas.refresh`.
        """
        shown = await read_shown(self._api, caller, schema)
        deltas: list[ManifestDelta] | None = None
        if not from_beginning:
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
            LogBroken: the log does not reach that far.
        """
        try:
            return await self._api.manifest(schema, since, caller.auth)
        except errors.Conflict:
            raise await self.lacking(caller, schema) from None

    async def lacking(
        self, caller: Holder, schema: bytes, ledger: Ledger | None = None
    ) -> errors.LogBroken:
        """The error of a log that lacks commits which this user has seen. It mentions other users
        of this proxy who have accepted the log.

        Args:
            ledger: the log, if it was read.
        """
        lacks = None
        if ledger is not None:
            lacks = await runtime.in_thread(self._heads.lacks, caller.user, schema, ledger)
        accepted = await runtime.in_thread(self._heads.acceptances, schema)
        others = [acceptance for acceptance in accepted if acceptance.user != caller.user]
        return lacking(others, is_fork=lacks == "forked")

    async def go_on(self, caller: Holder, state: SchemaState) -> None:
        """Request the commits after the log of ``state`` again, and add them.

        Raises:
            ErsError: as :meth:`Schemas.refresh`.
        """
        await self.take_shown(caller, state, await self._fetch_rest(caller, state))

    async def _fetch_rest(self, caller: Holder, state: SchemaState) -> list[ManifestDelta]:
        """Deltas that were stored since the log was requested; the ledger has them afterwards."""
        deltas = await self.fetch(caller, state.id, state.ledger.version)
        await self._source.follow(caller, state, deltas)
        extend(state.ledger, deltas)
        return deltas

    async def take_shown(
        self, caller: Holder, state: SchemaState, deltas: Sequence[ManifestDelta]
    ) -> None:
        """Read the definition again that the API shows, if it changed before the first commit.

        Raises:
            LogBroken: the API states another definition than its log contains.
        """
        stated = deltas[-1].definition
        if state.ledger.definition is None:
            if stated != state.shown.definition.digest:
                state.shown = await read_shown(self._api, caller, state.id)
        elif stated != state.ledger.definition.digest:
            raise errors.LogBroken(
                "the API states another definition than the schema's log contains"
            )

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
        # A long log takes a while to verify, and no other task sees this ledger yet.
        await runtime.in_thread(extend, state.ledger, deltas)
        deltas = await self._reach_ends(caller, state) or deltas
        await self.take_shown(caller, state, deltas)
        await self._see(caller, state, new=True)
        return state

    async def _reach_ends(
        self, caller: Holder, state: SchemaState
    ) -> Sequence[ManifestDelta] | None:
        """Check that the log reaches as far as the epochs of its keys state; returns the deltas if
        it had to be requested again.

        Raises:
            LogBroken: it ends before that, though it was requested after the epochs were read.
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
        # The epochs may have begun after the log was requested.
        deltas = await self._fetch_rest(caller, state)
        state.ledger.check_ends(known)
        return deltas

    # --- from disk ------------------------------------------------------------------------------

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
        except (errors.KeyMissing, errors.LogBroken) as error:
            # Only the whole log shows whether the API or the stored log is wrong.
            log.info("a log is being read from its beginning: %s", error.message)
            await runtime.in_thread(self._ledgers.drop, caller.user, schema)
            return None

    async def _open_kept(
        self, caller: Holder, organization: bytes, schema: bytes, writer: bytes
    ) -> Ledger | None:
        """The schema's log as far as it was stored on disk, if it can be used."""
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
        """The state from a checkpoint and the deltas after it; or the whole log, if the API has no
        checkpoint and returned that instead."""
        seen = await runtime.in_thread(self._heads.get, caller.user, schema)
        known = 0 if seen is None else seen.version
        try:
            found, deltas = await self._api.manifest_from_checkpoint(schema, known, caller.auth)
        except errors.Conflict:
            return None, None  # the log is read from its beginning, and compared with what was seen
        if found is None:
            return None, deltas
        try:
            return await self._take(caller, schema, shown, writer, found, deltas, seen), None
        except (errors.CheckpointBroken, errors.LogBroken, errors.KeyMissing) as error:
            log.warning(
                "%s: a checkpoint of schema %s is rejected, and the log is read instead: %s",
                errors.CheckpointBroken.code,
                ids.to_text(schema),
                error.message,
            )
        except errors.Closed as error:
            if error.reason != "grant_missing":
                raise
        return None, None

    async def _take(
        self,
        caller: Holder,
        schema: bytes,
        shown: ShownSchema,
        writer: bytes,
        found: wire.Checkpoint,
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
            # Rows that ended in between are not known, so all rows of the schema are dropped.
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


#: A checkpoint omits requests that are older than this when it is written; in milliseconds.
REQUESTS_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """The number of commits after which a checkpoint is written: one ``part``-th of the log, but no
    fewer than ``least`` and no more than ``most``. So neither the written data nor the number of
    commits that a new proxy has to verify grows with the log.
    """

    least: int = 500
    part: int = 16
    most: int = 10_000

    def after(self, version: int) -> int:
        return min(self.most, max(self.least, version // self.part))


CHECKPOINTS = CheckpointPolicy()
#: For a proxy that changes nothing.
NEVER = CheckpointPolicy(least=1 << 62, most=1 << 62)


class CheckpointWriter:
    def __init__(
        self,
        api: Api,
        reader: LogReader,
        catch_up: Callable[[Holder, SchemaState], Awaitable[None]],
        background: Background,
        policy: CheckpointPolicy = CHECKPOINTS,
    ) -> None:
        self._api = api
        self._reader = reader
        self._catch_up = catch_up
        self._background = background
        self._policy = policy
        self._tasks: dict[bytes, asyncio.Task[None]] = {}

    def note(self, caller: Holder, state: SchemaState) -> None:
        """Write a checkpoint if it is time, and if the caller may."""
        if (
            state.id in self._tasks
            or not self._is_due(state)
            or not may_write(caller, state.ledger)
        ):
            return
        write = partial(self._write_or_log, caller, state)
        task = self._tasks[state.id] = self._background.start(CHECKPOINTING, write)
        task.add_done_callback(partial(self._end, state.id))

    def _end(self, schema: bytes, task: asyncio.Task[None]) -> None:
        if self._tasks.get(schema) is task:
            del self._tasks[schema]

    def _is_due(self, state: SchemaState) -> bool:
        version, after = state.ledger.version, self._policy.after(state.ledger.version)
        at, key_version = state.checkpointed
        if version - at < after and not at:
            return False
        tried, under = state.tried
        _, present = _versions_of(state)
        if tried and version - tried < after and under == present:
            return False
        return version - at >= after or 0 < key_version < present

    async def _write_or_log(self, caller: Holder, state: SchemaState) -> None:
        try:
            # The log may have grown by as many commits meanwhile.
            while self._is_due(state):
                state.tried = _versions_of(state)
                await self._write(caller, state)
        except errors.Conflict as error:
            state.tried = (0, 0)
            log.info("a checkpoint will be written later: %s", error.message)
        except errors.ErsError as error:
            log.info("no checkpoint is written: %s", error.message)

    async def _write(self, caller: Holder, state: SchemaState) -> None:
        listed = await self._api.checkpoints(state.id, caller.auth)
        if listed:
            newest = (listed[0].version, listed[0].key_version)
            state.checkpointed, state.tried = max(state.checkpointed, newest), (0, 0)
            if not self._is_due(state):
                return
            state.tried = _versions_of(state)
        begun = state.ledger.begun
        await self.verify(caller, state)
        compared = "" if begun is None else begun.digest.hex()
        if listed and listed[0].digest not in (compared, state.own_checkpoint.hex()):
            await self._compare_newest(caller, state)
        # No other task of this process runs between these two reads.
        ledger, present = state.ledger, state.ledger.state()
        since = max(0, _now() - REQUESTS_MS)
        made = await runtime.in_thread(taking.make, ledger, present, since)
        if len(made.body) > wire.MAX_CHECKPOINT_BYTES:
            log.info("no checkpoint is written: it would be too large")
            return
        await self._api.add_checkpoint(state.id, made, caller.auth)
        body = wire.decode_checkpoint_body(made)
        state.checkpointed = (body.version, body.key_version)
        state.own_checkpoint = wire.checkpoint_digest(made)

    async def verify(self, caller: Holder, state: SchemaState) -> None:
        """Verify the log of ``state`` from its beginning if it began with a checkpoint, and use the
        result from then on. A false checkpoint is a named error.

        Raises:
            LogBroken: the log from its beginning differs from the log after the checkpoint.
            ErsError: the log cannot be read.
        """
        if state.ledger.begun is None:
            return
        verified = await self._reader.read(
            caller, state.id, state.ledger.writer, from_beginning=True
        )
        async with state.lock:
            # Another task may have done the same meanwhile.
            if state.ledger.begun is None:
                return
            await self._catch_up(caller, state)
            claimed, begun = state.ledger, state.ledger.begun
            if begun is None:
                return
            if verified.ledger.version < claimed.version:
                new = await self._reader.fetch(caller, state.id, verified.ledger.version)
                await runtime.in_thread(extend, verified.ledger, _up_to(new, claimed.version))
            if _is_other(verified.ledger, claimed, begun):
                raise errors.LogBroken(
                    "the API's log is no longer the one that it showed a moment ago"
                )
            await self._require_equal(claimed, verified.ledger, verified.ledger.state(), begun)
            state.ledger = verified.ledger

    async def begin_whole(self, caller: Holder, state: SchemaState) -> None:
        """Read the log from its beginning if it does not continue its checkpoint; the state's lock
        is held.

        Raises:
            ErsError: the log itself is broken, or cannot be read.
        """
        claimed = state.ledger
        verified = await self._reader.read(caller, state.id, claimed.writer, from_beginning=True)
        state.ledger, state.shown = verified.ledger, verified.shown
        await self._judge(caller, verified.ledger, claimed)

    async def _compare_newest(self, caller: Holder, state: SchemaState) -> None:
        """Compare the API's newest checkpoint, updated to the log's version, with the log."""
        found, deltas = await self._api.manifest_from_checkpoint(state.id, 0, caller.auth)
        if found is None:
            # Hidden from us, it may still be shown to others: each of them verifies it in the
            # background, and the checkpoint that is written now replaces it.
            return
        try:
            if taking.read(found).version > state.ledger.version:
                async with state.lock:
                    await self._catch_up(caller, state)
            ledger, present = state.ledger, state.ledger.state()
            version = present.snapshot.version
            keys, by = ledger.keys, ledger.membership
            claimed = await runtime.in_thread(taking.take, found, keys, ledger.writer, by, _now())
        except errors.CheckpointBroken as error:
            log.warning("%s: %s", error.reason, error.message)
            return
        begun = claimed.begun
        if begun is None or claimed.version > version:
            return
        if deltas[-1].version < version:
            deltas = [*deltas, *await self._reader.fetch(caller, state.id, deltas[-1].version)]
        tail = _up_to(taking.after(claimed, deltas), version)
        try:
            await runtime.in_thread(extend, claimed, tail)
        except errors.ErsError:
            await self._judge(caller, ledger, claimed)
            return
        await self._require_equal(claimed, ledger, present, begun)

    async def _judge(self, caller: Holder, verified: Ledger, claimed: Ledger) -> None:
        """Report the signer of a checkpoint that a later commit did not fit, if it was a lie.

        It need not be: a commit may store a request that is older than those that a checkpoint
        names, and the API may have altered a commit on its way.

        Args:
            claimed: the log after the checkpoint, up to the last commit that did fit.
        """
        begun = claimed.begun
        assert begun is not None, "only what began with a checkpoint is judged"
        whole_log = Ledger(verified.keys, verified.writer, verified.membership)
        try:
            deltas = await self._reader.fetch(caller, verified.keys.schema, 0)
            await runtime.in_thread(extend, whole_log, _up_to(deltas, claimed.version))
        except errors.ErsError as error:
            log.info("a checkpoint was not compared: %s", error.message)
            return
        await self._require_equal(claimed, whole_log, whole_log.state(), begun)

    async def _require_equal(
        self, claimed: Ledger, verified: Ledger, present: LedgerState, begun: Begun
    ) -> None:
        try:
            await runtime.in_thread(taking.require_equal, claimed, present)
        except errors.CheckpointBroken:
            self._name(verified, begun)

    def _name(self, ledger: Ledger, begun: Begun) -> None:
        log.warning(
            "%s: the checkpoint of schema %s at version %d, signed by %s, does not match the log",
            errors.CheckpointBroken.code,
            ids.to_text(ledger.keys.schema),
            begun.version,
            ids.to_text(begun.member) if any(begun.member) else "nobody",
        )


def _is_other(verified: Ledger, claimed: Ledger, begun: Begun) -> bool:
    """Whether a log from its beginning differs from the log after a checkpoint, though they agree
    where the checkpoint was made: then the API lies."""
    if verified.version < claimed.version:
        return True
    agree = verified.digest_at(begun.version) == claimed.digest_at(begun.version)
    return agree and verified.digest_at(claimed.version) != claimed.head.digest


def _now() -> int:
    return runtime.wall_ns() // 1_000_000


def _versions_of(state: SchemaState) -> tuple[int, int]:
    """The log's version, and the newest key version that is available; 0 if it is not."""
    with suppress(errors.ErsError):
        return state.ledger.version, state.ledger.key.version
    return state.ledger.version, 0


def _up_to(deltas: Sequence[ManifestDelta], version: int) -> list[ManifestDelta]:
    """Deltas of the log up to a version."""
    return [
        ManifestDelta(
            delta.schema,
            min(delta.version, version),
            delta.key_id,
            delta.definition,
            [entry for entry in delta.entries if entry.version <= version],
            delta.headers,
        )
        for delta in deltas
    ]
