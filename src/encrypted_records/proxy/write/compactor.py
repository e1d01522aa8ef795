"""Make one group of many small ones whose segment stays (docs/SPEC.md, section 7.7.2).

It is done in the background behind merges, with the credentials of the request that made the last
commit. The rows are fetched, compared with what was signed, opened and sealed again. Few of them
come with the commit that ends the old groups; more are staged, and then that commit is small. Until
it is in the log nothing has changed, and whatever interrupts this leaves at most a staging that the
next try replaces.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from contextlib import suppress

from pyroaring import BitMap

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.errors import BadInput, Conflict, DoesNotOpen, ErsError, NotFound
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.segments.crowds import STANDARD, Crowd, Crowds, CrowdSizes
from encrypted_records.model import wire
from encrypted_records.model.records import MAX_MINI_RECORDS, CommitUpload, RowRef
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.offload import aside
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.pool import WorkerPool
from encrypted_records.proxy.workers.reseal import reseal
from encrypted_records.proxy.write.committer import Committer
from encrypted_records.proxy.write.row_source import FetchedRows, RowSource, refetch

log = logging.getLogger(__name__)

#: Up to so many bytes are stored sooner than staged: a staging has a dozen statements of its own.
MOST_WITH_COMMIT = 128 << 10


class Compactor:
    def __init__(
        self,
        api: Api,
        schemas: Schemas,
        committer: Committer,
        workers: WorkerPool,
        sizes: CrowdSizes = STANDARD,
        most_with_commit: int = MOST_WITH_COMMIT,
    ) -> None:
        """
        Args:
            most_with_commit: bytes of rows; more are staged.
        """
        self._api = api
        self._schemas = schemas
        self._committer = committer
        self._workers = workers
        self._crowds = Crowds(sizes)
        self._most_with_commit = most_with_commit

    def find(self, state: SchemaState, taken: Collection[bytes] = ()) -> Crowd | None:
        """The next groups to make one of; ``taken`` are uids of segments that are left alone."""
        return self._crowds.find(state.ledger.snapshot(), taken)

    async def compact(self, caller: Holder, state: SchemaState, crowd: Crowd) -> int:
        """Make one group of these; how many they were, and 0 where nothing can be made of them.

        Raises:
            Conflict: ``group_not_live``; others merged, deleted or sealed again what it is made
                of. Or as :meth:`Committer.store`.
            Altered, DoesNotOpen: a row is not as it was stored: nothing of it is sealed again.
            ErsError: what else may fail on the way to the API. Nothing was changed.
        """
        fetched = await self._fetch(caller, state, crowd)
        ended = [source.group.uid for source in fetched.sources]
        if len(ended) < 2 or not _is_whole(fetched):
            self._crowds.leave(state.ledger.snapshot(), crowd)
            return 0
        name = _staging(caller.user, state, ended)
        try:
            part = await self._seal(state, fetched, name)
        except DoesNotOpen:
            self._crowds.leave(state.ledger.snapshot(), crowd)
            raise
        staging = name if len(part.body) > self._most_with_commit else None
        if staging:
            await self._api.stage(state.id, part.body, caller.auth)
        try:
            async with state.lock:
                await self._committer.prepare(caller, [state])
                upload = await aside(_draft, state, ended, part, is_staged=staging is not None)
                await self._committer.store(caller, [(state, upload)], staging=staging)
        except (BadInput, NotFound) as error:
            # Another proxy does the same, and has replaced our part or published its own. Where
            # that is a lie, the groups stay as they are.
            if staging is None or error.reason not in ("invalid_commit", "staging_gone"):
                raise
            raise _overtaken() from None
        except Conflict:
            if staging:
                with suppress(ErsError):  # else it goes after a week
                    await self._api.drop_parts(staging, caller.auth)
            raise
        log.info("made one group of %d, of %d rows", len(ended), part.groups[0].count)
        return len(ended)

    async def _fetch(self, caller: Holder, state: SchemaState, crowd: Crowd) -> FetchedRows:
        """The rows of as many whole groups of the crowd as one part takes."""
        rows = RowSource(self._api, caller, state)
        fetched = await refetch(self._schemas, caller, rows, _chunk(crowd.first, crowd.end))
        if fetched.end < crowd.end:
            # Its texts are longer than its groups state: what fits into one part, in whole groups.
            end = fetched.snapshot.number(RowRef(fetched.sources[-1].group.uid, 0))
            if end > crowd.first:
                fetched = await refetch(self._schemas, caller, rows, _chunk(crowd.first, end))
        return fetched

    async def _seal(
        self, state: SchemaState, fetched: FetchedRows, staging: bytes
    ) -> messages.SealedPart:
        task = fetched.task(state, staging, indexed=False)
        if sum(source.group.count for source in fetched.sources) <= MAX_MINI_RECORDS:
            sealed = await runtime.in_thread(reseal, task)
        else:
            worked = await self._workers.run(task)
            assert isinstance(worked, messages.SealedChunk)
            sealed = worked
        (part,) = sealed.parts
        return part


def _chunk(first: int, end: int) -> messages.ChunkAt:
    return messages.ChunkAt(first, end, 0, 1, end - first)


def _is_whole(fetched: FetchedRows) -> bool:
    return all(source.first == 0 and source.end == source.group.count for source in fetched.sources)


def _staging(user: bytes, state: SchemaState, ended: list[bytes]) -> bytes:
    """The staging id, the same for every attempt of a user at the same compaction (docs/SPEC.md,
    section 7.7.2).
    """
    return hashlib.sha256(b"".join((user, state.id, *ended))).digest()[:16]


def _overtaken() -> Conflict:
    return Conflict("another change of the same groups came first", code="group_not_live")


def _draft(
    state: SchemaState, ended: list[bytes], part: messages.SealedPart, *, is_staged: bool
) -> CommitUpload:
    """The commit that has the new group stand for the others, with its rows unless they are staged.

    Raises:
        Conflict: they cannot become one any more.
        StaleDefinition: as :meth:`Ledger.draft`.
    """
    (group,) = part.groups
    snapshot = state.ledger.snapshot()
    if group.key_version != state.ledger.key.version or not _follow_one_another(snapshot, ended):
        raise _overtaken()
    holes = BitMap()
    for first, count in part.holes:
        holes.add_range(first, first + count)
    dead, base = BitMap(), 0
    for uid in ended:
        dead |= snapshot.dead.get(uid, BitMap()).shift(base)
        base += snapshot.groups[uid].group.count
    brought = None if is_staged else wire.decode_part(bytes(part.body))
    return state.ledger.draft(
        state.definition,
        groups=[group],
        rows=brought.rows if brought else (),
        salts=brought.salts if brought else (),
        killed=[RowRef(group.uid, at) for at in dead - holes],
        ended=ended,
        holes=[RowRef(group.uid, at) for at in holes],
    )


def _follow_one_another(snapshot: Snapshot, uids: list[bytes]) -> bool:
    """Whether these groups live and are neighbours in one segment and in the order of storing."""
    if any(uid not in snapshot.groups for uid in uids):
        return False
    first = snapshot.groups[uids[0]].sequence
    if [snapshot.groups[uid].sequence for uid in uids] != list(range(first, first + len(uids))):
        return False
    for segment in snapshot.segments:
        named = [uid for uid, _ in snapshot.groups_of(segment)]
        if uids[0] in named:
            at = named.index(uids[0])
            return named[at : at + len(uids)] == uids
    return False
