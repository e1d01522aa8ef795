"""Build what a merge stores: a small segment here, a large one in a worker (`worker_merging`).

This process, which answers everybody, holds no more of a large merge than one piece of pages. What
is too large for the body of one commit is stored ahead of it, piece by piece as it is built.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from encrypted_records.client.api import Api
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.merge import merge
from encrypted_records.index.view import View
from encrypted_records.model import wire
from encrypted_records.model.records import (
    MAX_MINI_RECORDS,
    Page,
    Part,
    PartUpload,
    Segment,
)
from encrypted_records.proxy import tasks
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.pager import Pager
from encrypted_records.proxy.reader import Reader
from encrypted_records.proxy.schemas import SchemaState
from encrypted_records.proxy.workers import Workers

#: Pages that travel at once; more are stored ahead of their commit, in parts of so many.
PAGES_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Prepared:
    """A merged segment. Its pages are here, or stored ahead under ``staging``, in parts of the
    digests ``staged``."""

    segment: Segment
    pages: tuple[Page, ...] = ()
    staging: bytes | None = None
    staged: Sequence[bytes] = ()


class MergeBuilds:
    def __init__(
        self,
        api: Api,
        reader: Reader,
        pager: Pager,
        workers: Workers,
        pages_at_once: int = PAGES_AT_ONCE,
    ) -> None:
        self._api = api
        self._reader = reader
        self._pager = pager
        self._workers = workers
        self._pages_at_once = pages_at_once

    async def prepared(
        self, caller: Caller, state: SchemaState, view: View, inputs: Sequence[Segment]
    ) -> Prepared:
        """One segment for the rows of ``inputs`` that live in ``view``.

        Raises:
            DoesNotOpen: a page of an input was altered, or is of another place.
            NotFound: an input is gone: merged away and cleaned up meanwhile.
            Unavailable: the API, or ``worker_lost``.
        """
        if sum(one.count for one in inputs) <= MAX_MINI_RECORDS:
            return await self._here(caller, state, view, inputs)
        try:
            return await self._apart(caller, state, view, inputs)
        except DoesNotOpen:
            # A page may have been damaged on our disk; what the API has may be well.
            await asyncio.to_thread(self._pager.drop, [one.uid for one in inputs])
            return await self._apart(caller, state, view, inputs)

    async def _here(
        self, caller: Caller, state: SchemaState, view: View, inputs: Sequence[Segment]
    ) -> Prepared:
        every = set(state.definition.fields)
        opened = await self._reader.segments(
            caller, state, inputs, lambda segment: segment.missing_columns(every)
        )
        key = state.ledger.key
        built = await asyncio.to_thread(merge, key, state.definition, opened, view)
        return Prepared(built.segment, built.pages)

    async def _apart(
        self, caller: Caller, state: SchemaState, view: View, inputs: Sequence[Segment]
    ) -> Prepared:
        staging = _staging(state, inputs)
        digest = state.definition.digest
        pages: tuple[Page, ...] = ()
        staged: list[bytes] = []

        async def listen(said: tasks.Said) -> tasks.Fetched | None:
            nonlocal pages
            if isinstance(said, tasks.Fetch):
                return tasks.Fetched(await self._pager.sealed(caller, state, inputs, said.pages))
            assert isinstance(said, tasks.Piece)
            if said.segment.pages <= self._pages_at_once:
                pages = tuple(said.pages)
                return None
            # A merge that was cut off leaves parts behind, whose places these take.
            part = Part(staging, len(staged), digest, [], [said.segment])
            body = b"".join(wire.encode_part(PartUpload(part, (), tuple(said.pages))))
            await self._api.stage(state.id, body, caller.auth)
            staged.append(wire.part_digest((), said.pages))
            return None

        merged = await self._workers.run(self._task(state, view, inputs), listen)
        assert isinstance(merged, tasks.Merged)
        if not staged:
            return Prepared(merged.segment, pages)
        return Prepared(merged.segment, staging=staging, staged=staged)

    def _task(self, state: SchemaState, view: View, inputs: Sequence[Segment]) -> tasks.Merge:
        key = state.ledger.key
        versions = {key.version, *(one.key_version for one in inputs)}
        keys = [(version, state.ledger.keys.of(version).hand_over()) for version in versions]
        return tasks.Merge(
            schema=state.id,
            organization=key.organization,
            definition=state.text,
            keys=keys,
            version=key.version,
            inputs=list(inputs),
            dead=[view.dead_rows(one).serialize() for one in inputs],
            most=self._pages_at_once,
        )


def _staging(state: SchemaState, inputs: Sequence[Segment]) -> bytes:
    """One id for every attempt at one merge (docs/SPEC.md, section 7.6)."""
    return hashlib.sha256(b"".join((state.id, *(one.uid for one in inputs)))).digest()[:16]
