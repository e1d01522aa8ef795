"""Build the segment of a merge: here, or in a worker if it is large (:mod:`..workers.segments`).

This process answers all users, so it holds only one piece of a large merge's pages at a time. Pages
that are too large for the body of one commit are staged before it, piece by piece.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.errors import Conflict, DoesNotOpen, ErsError, NotFound
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.asking import bring_together
from encrypted_records.index.segments.loaded import load
from encrypted_records.index.segments.merge import merge
from encrypted_records.index.segments.mini import Built
from encrypted_records.model import records, wire
from encrypted_records.model.digests import check_pages
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.context import drive
from encrypted_records.proxy.search.fetcher import Fetcher, PageFetcher
from encrypted_records.proxy.search.upstream import Upstream
from encrypted_records.proxy.spool import KEEP_FREE_BYTES
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.pool import WorkerPool
from encrypted_records.proxy.write.committer import staging_id

#: Pages that are sent at once; more are staged before their commit, in parts of this size.
PAGES_AT_ONCE = 1024
#: Maximum bytes of minis that are merged in this process: their words may make them long.
MOST_HERE = 8 << 20

#: Called whenever pages come or go during a merge; it raises the error that ends the merge.
ObsoleteCheck = Callable[[], Awaitable[None]]
#: Returns rows of a group, from an ordinal on.
FetchRows = Callable[[records.Group, int], Awaitable[messages.RowsReply]]


async def _never_obsolete() -> None:
    pass


@dataclass(frozen=True, slots=True)
class PreparedSegment:
    """A merged segment. Its pages are here, or staged under ``staging``; ``built`` is the segment
    if it was built in this process."""

    segment: records.Segment
    header: records.SegmentHeader
    pages: tuple[records.Page, ...] = ()
    staging: bytes | None = None
    built: tuple[Built, ...] = ()


class MergeExecutor:
    def __init__(
        self,
        api: Api,
        fetcher: Fetcher,
        pager: PageFetcher,
        workers: WorkerPool,
        folder: Path,
        pages_at_once: int = PAGES_AT_ONCE,
        keep_free: int = KEEP_FREE_BYTES,
    ) -> None:
        """
        Args:
            folder: on a disk with room for the pages of a merge.
            keep_free: bytes of that disk that stay free.
        """
        self._api = api
        self._fetcher = fetcher
        self._pager = pager
        self._workers = workers
        self._folder = folder
        self._pages_at_once = pages_at_once
        self._keep_free = keep_free

    async def build(
        self,
        caller: Holder,
        state: SchemaState,
        snapshot: Snapshot,
        inputs: Sequence[records.Segment],
        *,
        large: bool = False,
        check: ObsoleteCheck = _never_obsolete,
    ) -> PreparedSegment:
        """Build one segment for the rows of ``inputs`` that are live in ``snapshot``.

        Every input page is verified against its segment's commit.

        Args:
            large: whether the merge takes long, and runs in an additional worker process.

        Raises:
            Conflict: ``check`` reports that the merge is obsolete; the staged data is deleted.
            DoesNotOpen: a page of an input was altered, or belongs elsewhere.
            Altered: a page can be decrypted but differs from the stored page.
            NotFound: an input is gone: merged away and cleaned up meanwhile.
            Unavailable: the API, or ``worker_lost``, or ``spool_failed``.
            OutOfSpace: the disk has no room for the merge.
        """
        small = sum(source.count for source in inputs) <= records.MAX_MINI_RECORDS
        if small and all(source.form == "mini" for source in inputs):
            built = await self._build_here(caller, state, snapshot, inputs)
            if built is not None:
                return built
        try:
            return await self._build_in_worker(caller, state, snapshot, inputs, large, check)
        except DoesNotOpen:
            # The page may be damaged on our disk only; the API's may open.
            await runtime.in_thread(self._pager.drop, [source.uid for source in inputs])
            return await self._build_in_worker(caller, state, snapshot, inputs, large, check)

    async def rebuild(
        self,
        caller: Holder,
        state: SchemaState,
        snapshot: Snapshot,
        lost: records.Segment,
        fetch: FetchRows,
        *,
        large: bool = False,
        check: ObsoleteCheck = _never_obsolete,
    ) -> PreparedSegment:
        """A segment for the live rows of ``lost``, made of the rows themselves.

        Args:
            fetch: returns rows of one of its groups.

        Raises:
            ErsError: as :meth:`build`, and as ``fetch``.
        """
        groups = [snapshot.groups[uid].group for uid, _ in snapshot.groups_of(lost)]
        ledger = state.ledger
        key, tails = ledger.key, ledger.tails
        versions = {key.version, tails.version, *(group.key_version for group in groups)}
        task = messages.RebuildTask(
            schema=state.id,
            organization=key.organization,
            definition=snapshot.definition.canonical,
            earlier=snapshot.definitions,
            keys=[(version, ledger.keys.of(version).hand_over()) for version in versions],
            version=key.version,
            tails=tails.version,
            lost=lost.uid,
            groups=groups,
            most=self._pages_at_once,
            folder=str(self._folder),
            keep_free=self._keep_free,
        )

        async def reply(message: messages.Interim) -> messages.RowsReply:
            assert isinstance(message, messages.RowsRequest)
            return await fetch(groups[message.group], message.first)

        return await self._run(caller, state, [lost], snapshot, task, reply, large, check)

    async def _build_here(
        self,
        caller: Holder,
        state: SchemaState,
        snapshot: Snapshot,
        inputs: Sequence[records.Segment],
    ) -> PreparedSegment | None:
        """None if they are larger than a merge in this process may be."""
        definition = snapshot.definition
        names = set(definition.fields)
        upstream = self._upstream(caller, state, snapshot)
        opened = [load(kept) for kept in await self._fetcher.open(upstream, inputs)]
        lacking = bring_together(opened, lambda segment: segment.missing_columns(names))
        await drive(self._fetcher, upstream, lacking)
        if sum(segment.size for segment in opened) > MOST_HERE:
            return None
        key = state.ledger.key
        built = await runtime.in_thread(merge, key, definition, opened, snapshot)
        return PreparedSegment(built.segment, built.header, built.pages, built=(built,))

    async def _build_in_worker(
        self,
        caller: Holder,
        state: SchemaState,
        snapshot: Snapshot,
        inputs: Sequence[records.Segment],
        large: bool,
        check: ObsoleteCheck,
    ) -> PreparedSegment:
        upstream = self._upstream(caller, state, snapshot)

        async def reply(message: messages.Interim) -> messages.PagesReply:
            assert isinstance(message, messages.PagesRequest)
            return messages.PagesReply(
                await self._pager.fetch_sealed(upstream, inputs, message.pages)
            )

        task = self._task(state, snapshot, inputs, await self._page_digests(upstream, inputs))
        return await self._run(caller, state, inputs, snapshot, task, reply, large, check)

    async def _run(
        self,
        caller: Holder,
        state: SchemaState,
        inputs: Sequence[records.Segment],
        snapshot: Snapshot,
        task: messages.MergeTask | messages.RebuildTask,
        reply: Callable[[messages.Interim], Awaitable[messages.Reply]],
        large: bool,
        check: ObsoleteCheck,
    ) -> PreparedSegment:
        """Have a worker build a segment, and take its pages or stage them."""
        staging = staging_id(caller.user, state, [source.uid for source in inputs])
        digest = snapshot.definition.digest
        pages: tuple[records.Page, ...] = ()
        staged = 0

        async def listen(message: messages.Interim) -> messages.Reply | None:
            nonlocal pages, staged
            await check()
            if not isinstance(message, messages.MergedPages):
                return await reply(message)
            if message.segment.pages <= self._pages_at_once:
                pages = tuple(message.pages)
                return None
            # These parts replace those of an earlier, interrupted merge.
            part = records.Part(staging, staged, digest, [], [message.segment], 0)
            upload = records.PartUpload(part, pages=tuple(message.pages), headers=(message.header,))
            await self._api.stage(state.id, b"".join(wire.encode_part(upload)), caller.auth)
            staged += 1
            return None

        try:
            merged = await self._workers.run(task, listen, additional=large)
        except (Conflict, NotFound):
            await self.give_up(caller, staging if staged else None)
            raise
        assert isinstance(merged, messages.MergedSegment)
        if not staged:
            return PreparedSegment(merged.segment, merged.header, pages)
        return PreparedSegment(merged.segment, merged.header, staging=staging)

    async def give_up(self, caller: Holder, staging: bytes | None) -> None:
        """Give up a merge: delete its staged data, if any."""
        if staging is not None:
            with suppress(ErsError):  # otherwise the API removes it after a week
                await self._api.drop_parts(staging, caller.auth)

    async def _page_digests(
        self, upstream: Upstream, inputs: Sequence[records.Segment]
    ) -> list[bytes]:
        """The digests of each input's pages, compared with its commit.

        Raises:
            Altered: they, or a header, do not match the commit.
        """
        uids = [source.uid for source in inputs]
        answers = await self._api.page_digests(upstream.state.id, uids, upstream.caller.auth)
        for segment, digests in zip(inputs, answers, strict=True):
            check_pages(segment, upstream.snapshot.header(segment), digests.pages)
        return [digests.pages for digests in answers]

    def _upstream(self, caller: Holder, state: SchemaState, snapshot: Snapshot) -> Upstream:
        # The log names the inputs, and the API refuses a commit that comes too late.
        upstream = Upstream(self._api, caller, state, confirmed=True)
        upstream.use(snapshot)
        return upstream

    def _task(
        self,
        state: SchemaState,
        snapshot: Snapshot,
        inputs: Sequence[records.Segment],
        digests: list[bytes],
    ) -> messages.MergeTask:
        key = state.ledger.key
        versions = {key.version, *(source.key_version for source in inputs)}
        keys = [(version, state.ledger.keys.of(version).hand_over()) for version in versions]
        return messages.MergeTask(
            schema=state.id,
            organization=key.organization,
            definition=snapshot.definition.canonical,
            earlier=snapshot.definitions,
            keys=keys,
            version=key.version,
            inputs=list(inputs),
            headers=[snapshot.header(source) for source in inputs],
            digests=digests,
            groups=[list(snapshot.groups_of(source)) for source in inputs],
            dead=[snapshot.dead_rows(source).serialize() for source in inputs],
            most=self._pages_at_once,
            folder=str(self._folder),
            keep_free=self._keep_free,
        )
