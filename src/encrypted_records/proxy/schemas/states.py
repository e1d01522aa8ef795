"""The state of each schema in use: its definition, key, and verified log.

There is one state per user, because keyrings belong to users. Every query asks the API with the
caller's credentials: an answer that the API refuses is not given from memory.

:class:`Readiness` checks whether readers will accept a change, by its author and by the schema's
signature. Nothing is encrypted for an unsigned schema, or for a schema that the API shows
differently from its signed state. An owner signs a schema that was made at the API by storing into
it (docs/SPEC.md, section 15.10).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from weakref import WeakValueDictionary

from encrypted_records import errors, runtime
from encrypted_records.client.api import Api, Moved
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.order import LogHead, LogMembership
from encrypted_records.index.roster.roster import require_signed, require_writer
from encrypted_records.model import ids, wire
from encrypted_records.model.records import CommitUpload, LogEntry, ManifestDelta, Receipt
from encrypted_records.model.roster import Placement
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.process import (
    Background,
    Fetches,
    Gathering,
    Recent,
    WaitingLine,
    wait_for,
)
from encrypted_records.proxy.schemas.logs import (
    CHECKPOINTS,
    CheckpointPolicy,
    CheckpointWriter,
    LogReader,
    extend,
)
from encrypted_records.proxy.schemas.state import (
    EndedRows,
    KeySource,
    SchemaState,
    SoundPart,
    may_write,
    not_shown,
    read_shown,
)
from encrypted_records.proxy.schemas.store import (
    KEPT,
    STANDARD,
    AcceptedHead,
    Heads,
    KeepingPolicy,
    LedgerKeeper,
    LedgerStore,
)
from encrypted_records.proxy.sharing.founding import roster_not_shown
from encrypted_records.proxy.sharing.settling import Sharing, VerifiedHead

log = logging.getLogger(__name__)


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
        except errors.BadInput:
            # The API refuses entries about schemas that were deleted in the meantime.
            await read_shown(self._api, caller, state.id)
            raise

    async def _require(self, caller: Holder, state: SchemaState, agreed: Placement | None) -> None:
        by = state.ledger.membership
        if by is None:
            if state.ledger.version or not await self._found(caller, state, agreed):
                return
            by = state.ledger.membership
            if by is None:
                raise roster_not_shown()
        if state.ready_at == by.number:
            return
        if not _is_placed(by, state):
            await self._place(caller, state, by, agreed)
        try:
            require_writer(by.roster, caller.user, state.id)
        except errors.NotAllowed:
            # A user who was made a writer since the roster was read may store at once.
            await self._source.renew(caller, state.ledger, within=0)
            require_writer(by.roster, caller.user, state.id)
        try:
            require_signed(by.roster, shown_placement(by, state))
        except errors.SchemaUnsigned:
            # The schema may have been renamed a moment ago.
            state.shown = await read_shown(self._api, caller, state.id)
            require_signed(by.roster, shown_placement(by, state))
        _ = state.ledger.key  # raises if it was not granted
        state.ready_at = by.number

    async def _found(self, caller: Holder, state: SchemaState, agreed: Placement | None) -> bool:
        """Found the organization; False if it has records already, and so no roster."""
        if not self._sharing.reader.has_read(caller.user, state.shown.organization):
            name, shown, dataset = await asyncio.gather(
                self._api.email(caller.auth),
                read_shown(self._api, caller, state.id),
                self._sharing.api.dataset(state.shown.dataset, caller.auth),
            )
            state.shown = shown
            if ids.from_text(dataset.id) != shown.dataset:
                raise errors.Conflict(
                    "the schema was moved to another dataset", code="log_conflict"
                )
            placement = _agreed(shown_placement(None, state), agreed)
            founded = await self._sharing.founding.found_with(
                caller, shown.organization, name, dataset, placement
            )
            if not founded:
                # If the API lies here, the records are sealed under the user's keyring alone, and
                # the organization cannot be shared.
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
            raise errors.SchemaUnsigned(
                "this schema was created at the API, and no owner has signed it"
            )
        shown = state.shown = await read_shown(self._api, caller, state.id)
        placement = _agreed(shown_placement(by, state), agreed)
        founding = self._sharing.founding
        if by.roster.dataset(shown.dataset) is None:
            dataset = await self._sharing.api.dataset(shown.dataset, caller.auth)
            await founding.begin_dataset(
                caller, shown.organization, shown.dataset, slug=dataset.slug, name=dataset.name
            )
        await founding.place(caller, shown.organization, [placement])
        await self._source.renew(caller, state.ledger, within=0)


def _is_placed(by: LogMembership, state: SchemaState) -> bool:
    """Whether an authorized member has placed the schema in the roster. Until the schema has
    records, a placement whose name was freed does not count.
    """
    placed = by.roster.schema(state.id)
    return placed is not None and bool(placed.slug or state.ledger.version)


def shown_otherwise() -> errors.Conflict:
    return errors.Conflict(
        "the API now shows the schema differently",
        hint="check it again before you sign it",
    )


def _agreed(shown: Placement, agreed: Placement | None) -> Placement:
    """The placement to be signed.

    Raises:
        Conflict: the API shows another placement than the user agreed to.
    """
    if agreed is not None and shown != agreed:
        raise shown_otherwise()
    return shown


def shown_placement(by: LogMembership | None, state: SchemaState) -> Placement:
    """The schema as the API shows it; its definition counts until the log has a commit."""
    shown, placed = state.shown, None if by is None else by.roster.schema(state.id)
    definition = shown.definition.digest
    if placed is not None and state.ledger.definition is not None:
        definition = placed.definition
    return Placement(state.id, shown.dataset, shown.slug, shown.name, definition)


MAX_SCHEMAS = 1000
_ALL_ROWS = range(1 << 62)

_Asked = tuple[Holder, bytes]


class Schemas:
    def __init__(
        self,
        api: Api,
        keyrings: Keyrings,
        heads: Heads,
        ledgers: LedgerStore,
        rows: EndedRows,
        sharing: Sharing,
        background: Background,
        keeping: KeepingPolicy = STANDARD,
        checkpointing: CheckpointPolicy = CHECKPOINTS,
    ) -> None:
        self._api = api
        self._keyrings = keyrings
        self._heads = heads
        self._ledgers = ledgers
        self._keeper = LedgerKeeper(ledgers, background, keeping)
        self._rows = rows
        self.source = KeySource(keyrings, sharing)
        self._readiness = Readiness(api, sharing, self.source)
        self._reader = LogReader(api, keyrings, heads, ledgers, rows, self.source, self._see)
        self._checkpoints = CheckpointWriter(
            api, self._reader, self.catch_up, background, checkpointing
        )
        #: by user: two users who store into one schema number their commits separately
        self._writers: dict[bytes, bytes] = {}
        self._states: Recent[tuple[bytes, bytes], SchemaState] = Recent(MAX_SCHEMAS)
        #: increased whenever a keyring changed
        self._epoch = 0
        #: held while a schema is read; ids of missing schemas leave nothing behind
        self._loading: WeakValueDictionary[tuple[bytes, bytes], asyncio.Lock]
        self._loading = WeakValueDictionary()
        #: single flight of logs that are read for the first time
        self._first: Fetches[tuple[bytes, bytes]] = Fetches()
        #: callers that come while a log is read share the next reading
        self._refreshing: Gathering[_Asked, _Asked, SchemaState] = Gathering(self._serve)

    async def load(self, caller: Holder, schema: bytes) -> SchemaState:
        """The schema's last state, read from the API only if there is none in memory, or for an
        API token.

        For writers only: the API checks their commits against the current state.

        Raises:
            Closed: ``keyring_locked``, for this device.
            ErsError: as :meth:`get_cached` and :meth:`refresh`.
        """
        state = await self.cached(caller, schema)
        # Only the API knows whether an API token may read what its user may.
        if state is None or caller.token is not None:
            return await self.refresh(caller, schema)
        return state

    def get_cached(self, caller: Holder, schema: bytes) -> SchemaState | None:
        """The schema's last state; None if there is none in memory. Makes no request to the API.

        A query that uses it must have the API confirm it (:mod:`..search.context`).
        """
        self._keyrings.check_unlocked(caller)
        key = (caller.user, schema)
        if key in self._states:
            self._states.move_to_end(key)
        return self._states.get(key)

    async def cached(self, caller: Holder, schema: bytes) -> SchemaState | None:
        """The cached state; waits if the log is being read for this user. See
        :meth:`get_cached`.
        """
        if first := self._first.of([(caller.user, schema)]):
            await wait_for(first.values())
        return self.get_cached(caller, schema)

    def in_use(self) -> list[SchemaState]:
        """The last state of every schema in memory, once for all its users."""
        return list({state.id: state for state in self._states.values()}.values())

    async def follow(self, caller: Holder, state: SchemaState, moved: Moved) -> None:
        """Update ``state`` to the version that an answer of the API reports, or beyond.

        Raises:
            LogBroken: as :meth:`refresh`.
        """
        async with state.lock:
            if state.ledger.version == moved.known.version:
                before, state.uncertain = state.uncertain, True
                try:
                    await self._take(caller, state, moved.deltas)
                except errors.LogBroken:
                    if state.ledger.begun is None:
                        raise
                    await self._checkpoints.begin_whole(caller, state)
                state.uncertain = before
            elif state.ledger.version < moved.deltas[-1].version:
                await self.catch_up(caller, state)

    async def refresh(self, caller: Holder, schema: bytes) -> SchemaState:
        """The schema's state, brought to the API's newest version and verified.

        Raises:
            NotFound: the schema does not exist, or the caller may not read it.
            KeyMissing: its records are sealed with a key that this user's keyring lacks.
            LogBroken: the log is not authentic, or lacks commits that this proxy has seen.
        """
        self._keyrings.check_unlocked(caller)
        return await self._refreshing.ask((caller, schema), (caller, schema))

    async def _serve(self, line: WaitingLine[_Asked, SchemaState]) -> None:
        # An error holds for all: the same caller requested the log of the same schema.
        if together := line.take():
            state = await self._refresh(*together[0].item)
            for waiting in together:
                waiting.settle(state)

    async def _refresh(self, caller: Holder, schema: bytes) -> SchemaState:
        key = (caller.user, schema)
        async with self._loading.setdefault(key, asyncio.Lock()):
            epoch = self._epoch
            state = self._states.get(key)
            if state is None:
                writer = self._writer_of(caller)
                with self._first.claim([key]):
                    state = await self._reader.read(caller, schema, writer)
                    self._note(caller, state)
                    if epoch == self._epoch:
                        self._states[key] = state
                return state
        async with state.lock:
            await self.catch_up(caller, state)
        if epoch == self._epoch:
            self._states[key] = state
        return state

    async def read_before(self, caller: Holder, schema: bytes, epoch: int) -> VerifiedHead:
        """The verified head; see :meth:`LogHeads.read_before`."""
        # The signer of this head has verified it.
        head = (await self.verified(caller, schema)).ledger.head_before(epoch)
        return VerifiedHead(head.version, head.digest)

    async def remembered(self, caller: Holder, schema: bytes) -> VerifiedHead | None:
        """The remembered head; see :meth:`LogHeads.remembered`."""
        self._keyrings.check_unlocked(caller)
        seen = await runtime.in_thread(self._heads.get, caller.user, schema)
        return None if seen is None else VerifiedHead(seen.version, seen.digest)

    async def has_seen(self, user: bytes, schema: bytes) -> bool:
        """Whether this proxy has seen a commit of the schema for a user; makes no request."""
        seen = await runtime.in_thread(self._heads.get, user, schema)
        return seen is not None and seen.version > 0

    async def knowing(self, caller: Holder, schema: bytes, request: bytes) -> SchemaState:
        """The state from a log that shows whether it has stored the request with this id; see
        :meth:`refresh`.
        """
        state = await self.refresh(caller, schema)
        if state.ledger.forgets(request):
            await self._checkpoints.verify(caller, state)
        return state

    async def verified(self, caller: Holder, schema: bytes) -> SchemaState:
        """The state from a log that is verified from its beginning; see :meth:`refresh`."""
        state = await self.refresh(caller, schema)
        await self._checkpoints.verify(caller, state)
        return state

    async def read_again(self, caller: Holder, schema: bytes) -> SchemaState:
        """The state after reading the log again, because headers of segments that came with it may
        have been wrong. See :meth:`refresh`.

        Raises:
            ErsError: as :meth:`refresh`.
        """
        await runtime.in_thread(self._ledgers.drop, caller.user, schema)
        self.forget(caller, [schema])
        return await self.refresh(caller, schema)

    async def sound_part(self, caller: Holder, schema: bytes) -> SoundPart:
        """The part of the schema's log that can be trusted: read again, and not remembered.

        Raises:
            NotFound: the schema does not exist, or the caller may not read it.
            KeyMissing: there are records, and the caller has no keyring here.
            Unavailable: the API cannot be reached. If only the log fails, the result says so.
        """
        shown = await read_shown(self._api, caller, schema)
        # Before the request: commits that this proxy sees later are no fault of the answer.
        seen = await runtime.in_thread(self._heads.get, caller.user, schema)
        broken: errors.ErsError | None = None
        deltas: list[ManifestDelta] = []
        try:
            deltas = await self._api.manifest(schema, 0, caller.auth)
        except errors.ApiFailed as error:
            broken = error
        key_id = deltas[-1].key_id if deltas else b""
        keys, by = await self.source.keys(caller, shown.organization, schema, key_id)
        state = SchemaState(schema, shown, Ledger(keys, self._writer_of(caller), by))
        broken = broken or await self._follow_as_far(caller, state, deltas)
        ledger = state.ledger
        entries = (entry for delta in deltas for entry in delta.entries)
        newest = next((entry.commit for entry in entries if entry.version == ledger.version), None)
        commit_id = None if newest is None else wire.decode_commit_body(newest).id
        return SoundPart(ledger.definition or shown.definition, ledger, broken, seen, commit_id)

    async def _follow_as_far(
        self, caller: Holder, state: SchemaState, deltas: Sequence[ManifestDelta]
    ) -> errors.ErsError | None:
        """Add the log as far as it is authentic; returns the error that ended it."""
        try:
            await self.source.follow(caller, state, deltas)
            await runtime.in_thread(extend, state.ledger, deltas)
        except errors.Closed as error:
            return error
        return None

    async def list_passed(self, caller: Holder, schema: bytes, up_to: int) -> list[LogHead]:
        """The heads of the log up to a version that this proxy remembers for the caller, the newest
        first."""
        return await runtime.in_thread(self._heads.list_passed, caller.user, schema, up_to)

    async def lacking(self, caller: Holder, schema: bytes) -> errors.LogBroken:
        """The error of a log that lacks commits which the caller has seen."""
        return await self._reader.lacking(caller, schema)

    async def acceptances(self, schema: bytes) -> list[AcceptedHead]:
        """The users of this proxy who accepted another log of a schema, the newest first."""
        return await runtime.in_thread(self._heads.acceptances, schema)

    async def accept(self, caller: Holder, ledger: Ledger, seen: LogHead) -> None:
        """Accept another log of a schema instead of the log that the caller has seen, for the
        caller alone."""
        schema, passed = ledger.keys.schema, ledger.heads(ledger.version - KEPT)
        writer = may_write(caller, ledger)
        now = runtime.wall_ns() // 1_000_000
        accepted = AcceptedHead(caller.user, ledger.head, seen, writer, now)
        await runtime.in_thread(self._heads.accept, schema, accepted, passed)
        # A state in use, or being loaded, follows the other log; and the caller's commits in that
        # log have numbers that this process must not use again for others.
        self._epoch += 1
        self._writers.pop(caller.user, None)
        self.forget(caller, [schema])

    def forget(self, caller: Holder, schemas: Iterable[bytes]) -> None:
        """Drop these schemas from memory; they are read from the API when they are next needed."""
        for schema in schemas:
            self._states.pop((caller.user, schema), None)

    async def forget_deleted(self, caller: Holder, schema: bytes) -> None:
        """Drop all that memory and disk have of a schema that the caller has deleted."""
        users, segments = {caller.user}, set[bytes]()
        for user, of in [key for key in self._states if key[1] == schema]:
            snapshot = self._states.pop((user, of)).ledger.snapshot()
            users.add(user)
            segments.update(segment.uid for segment in snapshot.segments)
        await runtime.in_thread(self._rows.forget_segments, segments)
        await runtime.in_thread(self._rows.forget_between, schema, _ALL_ROWS)
        for user in users:
            await runtime.in_thread(self._ledgers.drop, user, schema)

    def forget_user(self, user: bytes) -> None:
        """Drop everything of this user, whose keyring changed; also logs that are being loaded."""
        self._epoch += 1
        # Running work continues with its state, which is no longer shared.
        self._writers.pop(user, None)
        for key in [key for key in self._states if key[0] == user]:
            del self._states[key]

    def _writer_of(self, caller: Holder) -> bytes:
        """The name of the commits of this process and user (docs/SPEC.md, section 7.2)."""
        return self._writers.setdefault(caller.user, runtime.random_bytes(16))

    async def catch_up(self, caller: Holder, state: SchemaState) -> None:
        """Update ``state``, whose lock the caller holds, to the API's newest version."""
        # Stays true unless all succeeds: nothing is added to a log that was found broken.
        state.uncertain = True
        try:
            await self._catch_up(caller, state)
        except errors.LogBroken:
            if state.ledger.begun is None:
                raise
            await self._checkpoints.begin_whole(caller, state)
        state.uncertain = False

    async def _catch_up(self, caller: Holder, state: SchemaState) -> None:
        known = await self.source.refresh(caller, state)
        deltas = await self._reader.fetch(caller, state.id, state.ledger.version)
        await self._take(caller, state, deltas)
        state.ledger.check_ends(known)

    async def ready(
        self, caller: Holder, state: SchemaState, agreed: Placement | None = None
    ) -> None:
        """Require that readers will accept a change of ``state``, whose lock is held; arguments and
        errors are those of :meth:`Readiness.require`."""
        await self._readiness.require(caller, state, agreed)

    async def refresh_ready(self, caller: Holder, schema: bytes) -> SchemaState:
        """The schema's current state, into which the caller may store.

        Raises:
            ErsError: as :meth:`refresh` and :meth:`ready`.
        """
        state = await self.refresh(caller, schema)
        async with state.lock:
            await self.ready(caller, state)
        return state

    async def _take(
        self, caller: Holder, state: SchemaState, deltas: Sequence[ManifestDelta]
    ) -> None:
        await self.source.follow(caller, state, deltas)
        # Not in a thread: queries take snapshots of this ledger meanwhile.
        extend(state.ledger, deltas)
        await self._reader.take_shown(caller, state, deltas)
        await self._see(caller, state)
        self._note(caller, state)

    def _note(self, caller: Holder, state: SchemaState) -> None:
        """Store the log, and write a checkpoint of it, if it is time."""
        state.kept = self._keeper.note(caller.user, state.ledger, state.kept)
        self._checkpoints.note(caller, state)

    async def _see(self, caller: Holder, state: SchemaState, *, new: bool = False) -> None:
        """Check the log against what was seen before, and remember it.

        Args:
            new: the ledger was just read from the beginning, or from its stored copy.
        """
        seen = await runtime.in_thread(self._heads.get, caller.user, state.id)
        if seen is not None and state.ledger.version < seen.version:
            # Another state of the schema, such as another user's, may have moved on since the
            # request. From now on an honest API answers with all that was seen.
            await self._reader.go_on(caller, state)
        ledger = state.ledger
        if seen is not None and not ledger.knows(seen):
            raise await self._reader.lacking(caller, state.id, ledger)
        if not await runtime.in_thread(self._heads.is_beginning, caller.user, state.id, ledger):
            raise not_shown()
        await self._forget_ended(state, since=seen.version if new and seen is not None else 0)
        if ledger.version and ledger.head != seen:
            passed = ledger.heads(max(ledger.version - KEPT, 0 if seen is None else seen.version))
            await runtime.in_thread(
                self._heads.remember, caller.user, state.id, ledger.head, passed
            )

    async def settle(
        self, caller: Holder, state: SchemaState, upload: CommitUpload, receipt: Receipt
    ) -> None:
        """Add a commit of ours, which the API says it has, to the ledger; the lock is held.

        Raises:
            LogBroken: the log does not contain it, or breaks before it.
            ErsError: as :meth:`refresh`; also if the new head cannot be stored.
        """
        ledger, body = state.ledger, wire.decode_commit_body(upload.commit)
        # Staged segments left their headers with the API.
        staged = len(upload.headers) < len(body.segments)
        if staged or receipt.version != ledger.version + 1:
            await self.catch_up(caller, state)
            if not ledger.ends_with(upload.commit):
                raise errors.LogBroken("the API's log lacks a commit that the API says it contains")
            return
        entry = LogEntry(receipt.version, upload.commit)
        delta = ManifestDelta(
            *(state.id, receipt.version, ledger.key.id, body.definition),
            entries=[entry],
            headers=list(upload.headers),
        )
        ledger.extend(delta)
        await self._forget_ended(state, since=0)
        await runtime.in_thread(self._heads.remember, caller.user, state.id, ledger.head)
        self._note(caller, state)

    async def _forget_ended(self, state: SchemaState, *, since: int) -> None:
        """Drop rows that died after a version, or whose groups ended, and segments that were
        replaced. This happens before the new log counts as seen, so that after an interruption the
        rest is found the next time."""
        ended = state.ledger.take_ended(since)
        if ended.segments:
            await runtime.in_thread(self._rows.forget_segments, ended.segments)
        for numbers in ended.numbers:
            await runtime.in_thread(self._rows.forget_between, state.id, numbers)
        if ended.rows:
            snapshot = state.ledger.snapshot()
            await runtime.in_thread(self._rows.forget, state.id, snapshot, ended.rows)

    async def close(self) -> None:
        """Store the newest commits of long logs, so that the next process starts there."""
        for (user, _), state in reversed(self._states.items()):
            state.kept = self._keeper.note(user, state.ledger, state.kept, at_the_end=True)
        await self._keeper.finish()
