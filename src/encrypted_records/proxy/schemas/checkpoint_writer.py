"""Write checkpoints of logs in the background, and compare those of others with the log.

Who writes one goes on from a state that this proxy has itself verified from the beginning, and
compares the newest checkpoint that there is with it: so a lie lasts until the next one is written,
and is named with its signer (docs/SPEC.md, section 7.9).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from encrypted_records import runtime
from encrypted_records.client.checkpoints import CheckpointApi
from encrypted_records.errors import CheckpointBroken, Conflict, ErsError, LogBroken
from encrypted_records.index.log import checkpoint as taking
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.ledger_state import LedgerState
from encrypted_records.index.log.order import Begun
from encrypted_records.model import ids, wire
from encrypted_records.model.records import ManifestDelta
from encrypted_records.model.wire import MAX_CHECKPOINT_BYTES
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.background import CHECKPOINTING, Background
from encrypted_records.proxy.schemas.log_reader import LogReader, extend
from encrypted_records.proxy.schemas.state import SchemaState, may_write

log = logging.getLogger(__name__)

#: Requests that are older when a checkpoint is written are not named in it; in milliseconds.
REQUESTS_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """The number of commits after which a checkpoint is written: the ``part``-th part of the log,
    but no fewer than ``least`` and no more than ``most``. So neither the written data nor the
    number of commits that a new proxy has to verify grows with the log.
    """

    least: int = 500
    part: int = 16
    most: int = 10_000

    def after(self, version: int) -> int:
        return min(self.most, max(self.least, version // self.part))


CHECKPOINTS = CheckpointPolicy()
#: Of a proxy that changes nothing.
NEVER = CheckpointPolicy(least=1 << 62, most=1 << 62)


class CheckpointWriter:
    def __init__(
        self,
        api: CheckpointApi,
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
        """Write a checkpoint if it is time, and the caller may."""
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
        _, present = _stands(state)
        if tried and version - tried < after and under == present:
            return False
        return version - at >= after or 0 < key_version < present

    async def _write_or_log(self, caller: Holder, state: SchemaState) -> None:
        try:
            # The log may have gone on as far again meanwhile.
            while self._is_due(state):
                state.tried = _stands(state)
                await self._write(caller, state)
        except Conflict as error:
            state.tried = (0, 0)
            log.info("a checkpoint will be written later: %s", error.message)
        except ErsError as error:
            log.info("no checkpoint is written: %s", error.message)

    async def _write(self, caller: Holder, state: SchemaState) -> None:
        listed = await self._api.listed(state.id, caller.auth)
        if listed:
            newest = (listed[0].version, listed[0].key_version)
            state.checkpointed, state.tried = max(state.checkpointed, newest), (0, 0)
            if not self._is_due(state):
                return
            state.tried = _stands(state)
        begun = state.ledger.begun
        await self.verify(caller, state)
        compared = "" if begun is None else begun.digest.hex()
        if listed and listed[0].digest not in (compared, state.own_checkpoint.hex()):
            await self._compare_newest(caller, state)
        # No other task of this process runs between these two.
        ledger, present = state.ledger, state.ledger.state()
        since = max(0, _now() - REQUESTS_MS)
        made = await runtime.in_thread(taking.make, ledger, present, since)
        if len(made.body) > MAX_CHECKPOINT_BYTES:
            log.info("no checkpoint is written: it would be too large")
            return
        await self._api.add(state.id, made, caller.auth)
        body = wire.decode_checkpoint_body(made)
        state.checkpointed = (body.version, body.key_version)
        state.own_checkpoint = wire.checkpoint_digest(made)

    async def verify(self, caller: Holder, state: SchemaState) -> None:
        """Verify the log of ``state`` from its beginning if it began with a checkpoint, and use the
        result from then on. A false checkpoint is a named error.

        Raises:
            LogBroken: the API shows another log from its beginning than behind the checkpoint.
            ErsError: the log cannot be read.
        """
        if state.ledger.begun is None:
            return
        whole = await self._reader.read(caller, state.id, state.ledger.writer, whole=True)
        async with state.lock:
            # Others may have done the same meanwhile.
            if state.ledger.begun is None:
                return
            await self._catch_up(caller, state)
            claimed, begun = state.ledger, state.ledger.begun
            if begun is None:
                return
            if whole.ledger.version < claimed.version:
                new = await self._reader.fetch(caller, state.id, whole.ledger.version)
                await runtime.in_thread(extend, whole.ledger, _up_to(new, claimed.version))
            if _is_other(whole.ledger, claimed, begun):
                raise LogBroken("the API's log is no longer the one that it showed a moment ago")
            await self._require_equal(claimed, whole.ledger, whole.ledger.state(), begun)
            state.ledger = whole.ledger

    async def begin_whole(self, caller: Holder, state: SchemaState) -> None:
        """Take the log from its beginning instead of a checkpoint that it does not continue; the
        state's lock is held.

        Raises:
            ErsError: the log is broken itself, or cannot be read.
        """
        claimed = state.ledger
        whole = await self._reader.read(caller, state.id, claimed.writer, whole=True)
        state.ledger, state.shown = whole.ledger, whole.shown
        await self._judge(caller, whole.ledger, claimed)

    async def _compare_newest(self, caller: Holder, state: SchemaState) -> None:
        """Compare the API's newest checkpoint, brought to where the log stands, with the log."""
        found, deltas = await self._api.read(state.id, 0, caller.auth)
        if found is None:
            # Hidden from us, it may still be shown to others: each of them has it verified behind
            # what they do with it, and the one that is written now takes its place.
            return
        try:
            if taking.read(found).version > state.ledger.version:
                async with state.lock:
                    await self._catch_up(caller, state)
            own, present = state.ledger, state.ledger.state()
            version = present.snapshot.version
            keys, by = own.keys, own.membership
            claimed = await runtime.in_thread(taking.take, found, keys, own.writer, by, _now())
        except CheckpointBroken as error:
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
        except ErsError:
            await self._judge(caller, own, claimed)
            return
        await self._require_equal(claimed, own, present, begun)

    async def _judge(self, caller: Holder, whole: Ledger, claimed: Ledger) -> None:
        """Name who signed a checkpoint behind which a commit did not fit, if that was a lie.

        It need not be: a commit may store a request that is older than those that a checkpoint
        names, and the API may have altered one on its way.

        Args:
            claimed: as far as commits did fit.
        """
        begun = claimed.begun
        assert begun is not None, "only what began with a checkpoint is judged"
        own = Ledger(whole.keys, whole.writer, whole.membership)
        try:
            deltas = await self._reader.fetch(caller, whole.keys.schema, 0)
            await runtime.in_thread(extend, own, _up_to(deltas, claimed.version))
        except ErsError as error:
            log.info("a checkpoint was not compared: %s", error.message)
            return
        await self._require_equal(claimed, own, own.state(), begun)

    async def _require_equal(
        self, claimed: Ledger, own: Ledger, present: LedgerState, begun: Begun
    ) -> None:
        try:
            await runtime.in_thread(taking.require_equal, claimed, present)
        except CheckpointBroken:
            self._name(own, begun)

    def _name(self, ledger: Ledger, begun: Begun) -> None:
        log.warning(
            "%s: the checkpoint of schema %s at version %d, signed by %s, does not match the log",
            CheckpointBroken.code,
            ids.to_text(ledger.keys.schema),
            begun.version,
            ids.to_text(begun.member) if any(begun.member) else "nobody",
        )


def _is_other(whole: Ledger, claimed: Ledger, begun: Begun) -> bool:
    """Whether a log from its beginning is another than one behind a checkpoint, though both are the
    same where the checkpoint was made: then it is the API that lies."""
    if whole.version < claimed.version:
        return True
    here, there = whole.digest_at(begun.version), claimed.digest_at(begun.version)
    return here == there and whole.digest_at(claimed.version) != claimed.head.digest


def _now() -> int:
    return runtime.wall_ns() // 1_000_000


def _stands(state: SchemaState) -> tuple[int, int]:
    """Version of the log, and the newest key version that is here; 0 where it is not."""
    with suppress(ErsError):
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
