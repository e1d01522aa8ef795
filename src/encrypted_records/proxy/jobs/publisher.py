"""Publish a job's staged parts in one commit per schema, exactly once; and undo a published job.

All commits of a job are published together. The request or its answer may be lost. The verified log
then shows whether the job was published: each commit names the job, like the id of a retryable
request, and no log accepts the same id twice. The job's groups show it as well, until all records
are re-encrypted.

Undoing a job deletes its records that were not changed or deleted since.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.errors import Conflict, LogBroken, MergeFirst, NotFound, StaleDefinition
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_changes import find_added_sets
from encrypted_records.model.records import CommitUpload, RowRef
from encrypted_records.proxy.jobs.conflicts import Conflicts
from encrypted_records.proxy.jobs.job import StoredJob
from encrypted_records.proxy.jobs.store import CheckedSchema, JobStore, StagedContents
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import aside
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.write.committer import ATTEMPTS, STAGED_RACES, Committer, keeps_moving
from encrypted_records.proxy.write.merge_scheduler import MergeScheduler
from encrypted_records.proxy.write.update import Updater

log = logging.getLogger(__name__)


class Publisher:
    def __init__(
        self,
        api: Api,
        schemas: Schemas,
        store: JobStore,
        committer: Committer,
        merger: MergeScheduler,
        conflicts: Conflicts,
    ) -> None:
        self._conflicts = conflicts
        #: jobs without a publication on its way, as far as this process knows
        self._unsent: set[bytes] = set()
        self._api = api
        self._schemas = schemas
        self._store = store
        self._committer = committer
        self._merger = merger

    async def withdraw(self, job: StoredJob, caller: Holder) -> bool:
        """Ensure that an unfinished job is never published; False if it has been already.

        An earlier request may still be on its way, or its answer lost. So this deletes the staged
        parts first, which a late request would publish, and reads the log after that.

        Raises:
            LogBroken: the API has published a part of it.
            ErsError: the API does not answer, so that nothing is certain.
        """
        # The API's claim that they are gone is not trusted: if they are published later all the
        # same, the log shows it.
        await self._api.drop_parts(job.id, caller.auth)
        _, published = await self._look(job, caller, await self._parts(job))
        return not published

    async def _look(
        self,
        job: StoredJob,
        caller: Holder,
        parts: Mapping[CheckedSchema, Sequence[StagedContents]],
    ) -> tuple[list[SchemaState], bool]:
        """The states of the job's schemas, and whether their logs contain it: it is published in
        all of them together.

        Raises:
            LogBroken: only some contain it. Otherwise, with a lost answer as pretext, an API could
                have a job completed of which it kept only a part.
        """
        states: dict[bytes, SchemaState] = {}
        found: set[bool] = set()
        # Twice, because it may have been published between two of these reads.
        for _ in range(2):
            for part in parts:
                states[part.schema] = await self._schemas.knowing(caller, part.schema, job.id)
            found = {
                is_published(states[published.schema], job.id, chunks)
                for published, chunks in parts.items()
            }
            if len(found) < 2:
                return list(states.values()), True in found
        raise LogBroken("the API has published a job in some of its schemas only")

    async def is_lost(self, job: StoredJob, caller: Holder) -> bool:
        """Whether no log contains this job any more, although it was published: the API was
        restored to an earlier state, which the caller has accepted.

        Raises:
            ErsError: as :meth:`Schemas.knowing`.
        """
        stored = await runtime.in_thread(self._store.stored_groups, job.id)
        for schema, groups in stored.items():
            state = await self._schemas.knowing(caller, schema, job.id)
            if state.ledger.has_request(job.id) or state.ledger.snapshot().groups.keys() & groups:
                return False
        return bool(stored)

    async def _parts(self, job: StoredJob) -> dict[CheckedSchema, list[StagedContents]]:
        """The staged parts by schema; schemas without parts are left out."""
        parts: dict[CheckedSchema, list[StagedContents]] = {}
        for checked in await runtime.in_thread(self._store.schemas, job.id):
            staged = await runtime.in_thread(self._store.parts, job.id, checked.schema)
            if staged:
                parts[checked] = staged
        return parts

    def expect_none(self, job: bytes) -> None:
        """Note that all of the job is sealed, and that no request to publish it was sent."""
        self._unsent.add(job)

    def may_be_on_its_way(self, job: bytes) -> bool:
        """Whether a publication of the job may have been sent whose outcome is not known."""
        return job not in self._unsent

    def forget(self, job: bytes) -> None:
        """Drop the data of a job that has ended."""
        self._unsent.discard(job)

    async def publish(
        self, job: StoredJob, caller: Holder, prepare: Callable[[], Awaitable[None]]
    ) -> list[SchemaState]:
        """Make the job's records visible, unless they are visible already.

        Args:
            prepare: called before the first commit is drafted.

        Raises:
            FatesChanged: other values of unique fields are taken than when the job was sealed.
            LogBroken: the API has published a part of it.
            ErsError: as :meth:`Committer.store`.
        """
        parts = await self._parts(job)
        states: list[SchemaState] = []
        until = self._merger.give_up_at()
        attempt, prepared = 0, False
        while attempt < ATTEMPTS:
            attempt += 1
            states, published = await self._look(job, caller, parts)
            if published or not states:
                return states
            if not prepared:
                await prepare()
                prepared = True
            try:
                await self._commit(job, caller, states, parts)
            except MergeFirst:
                if attempt == ATTEMPTS:
                    raise
                await self.merge(caller, states)
            except (Conflict, NotFound) as error:
                # The staged parts may be gone because an earlier attempt has published them. Only
                # the logs tell, not this answer: if they do not have it, all is sealed again.
                if isinstance(error, StaleDefinition) or error.reason not in STAGED_RACES:
                    raise
                # A race against changes that go on for a while does not count as an attempt.
                attempt -= isinstance(error, Conflict) and await keeps_moving(error, until)
                if attempt == ATTEMPTS:
                    if error.reason == "staging_gone":
                        raise StaleDefinition("the staged parts of the job are missing") from None
                    raise
                log.info("a job's commit lost a race (%s) and is drafted again", error.reason)
            else:
                break
        return states

    async def merge(self, caller: Holder, states: Sequence[SchemaState]) -> None:
        for state in states:
            while await self._merger.merge_next(caller, state, unless_resting=True):
                pass

    async def _commit(
        self,
        job: StoredJob,
        caller: Holder,
        states: Sequence[SchemaState],
        parts: dict[CheckedSchema, list[StagedContents]],
    ) -> None:
        async with AsyncExitStack() as locks:
            # In the order of ids, so that two jobs for the same schemas cannot deadlock.
            for state in sorted(states, key=lambda state: state.id):
                await locks.enter_async_context(state.lock)
            await self._committer.prepare(caller, states, adds=True)
            drafts: list[tuple[SchemaState, CommitUpload]] = []
            for state, (checked, staged) in zip(states, parts.items(), strict=True):
                require_same(state, checked)
                killed = await self._conflicts.confirm(job, caller, state)
                drafts.append((state, await aside(_draft, job.id, state, staged, killed)))
            unsent = job.id in self._unsent
            self._unsent.discard(job.id)
            try:
                await self._committer.store(caller, drafts, staging=job.id)
            except (Conflict, NotFound) as error:
                # This request was refused; an earlier request may still be on its way.
                if unsent and not error.repeated:
                    self._unsent.add(job.id)
                raise


def as_checked(state: SchemaState) -> CheckedSchema:
    ledger = state.ledger
    return CheckedSchema(
        state.id, state.definition.digest, ledger.key.version, ledger.tails.version
    )


def require_same(state: SchemaState, checked: CheckedSchema) -> SchemaDefinition:
    """The definition under which the schema was checked, and is sealed; an earlier definition will
    do if no later definition has stricter rules.

    Raises:
        StaleDefinition: the definition, the keys or the unique fields have changed, which sealed
            rows depend on.
    """
    now = as_checked(state)
    history = state.ledger.history
    usable = history is not None and checked.definition in history.usable
    if now != replace(checked, definition=now.definition) or not (
        usable or checked.definition == now.definition
    ):
        raise StaleDefinition("a schema's definition or key changed after the job was checked")
    made = state.definition if history is None else history.of(checked.definition)
    if find_added_sets(made, state.definition) or find_added_sets(state.definition, made):
        raise StaleDefinition("the unique fields have changed since the job was checked")
    return made


def is_published(state: SchemaState, job: bytes, parts: Sequence[StagedContents]) -> bool:
    """Whether the log names the job, or contains its groups: all or none, so the first decides.

    A commit that ends groups names no job, and neither did those of earlier versions.
    """
    if state.ledger.has_request(job):
        return True
    first = next((group.uid for part in parts for group in part.groups), None)
    return first is not None and first in state.ledger.snapshot().groups


def _draft(
    job: bytes, state: SchemaState, parts: Sequence[StagedContents], killed: Sequence[RowRef]
) -> CommitUpload:
    return state.ledger.draft(
        state.definition,
        killed=killed,
        exact=bool(state.definition.unique),
        groups=[group for part in parts for group in part.groups],
        segments=[segment for part in parts for segment in part.segments],
        requests=[job],
    )


class Undo:
    """Undoes jobs. A job's records are in separate groups, which the store remembers. A record
    that was changed since is in another group, and stays.
    """

    def __init__(self, store: JobStore, schemas: Schemas, changer: Updater) -> None:
        self._store = store
        self._schemas = schemas
        self._changer = changer

    async def count(self, caller: Holder, job: StoredJob) -> int:
        """The number of records that :meth:`delete` would delete now.

        Raises:
            NotFound: the caller can no longer read a schema of the job.
            Conflict: ``job_resealed``; its groups have ended.
        """
        count = 0
        for schema, groups in (await self._groups(job)).items():
            snapshot = (await self._schemas.refresh(caller, schema)).ledger.snapshot()
            if not snapshot.groups.keys() >= set(groups):
                raise Conflict(
                    "the records of this job were re-encrypted and are mixed with others now",
                    code="job_resealed",
                    hint="search for them, and delete what you find",
                )
            count += snapshot.count_live(groups)
        return count

    async def delete(self, caller: Holder, job: StoredJob, confirmed: int) -> int:
        """Delete the job's records; returns how many they were.

        Many are deleted in several commits. After an interruption, a repetition deletes the rest.

        Raises:
            Conflict: ``confirm_count``; their number is not ``confirmed``. Nothing is deleted.
                Or ``job_resealed``, as :meth:`count`, maybe after some were deleted.
            ErsError: as :meth:`Updater.delete_groups`.
        """
        count = await self.count(caller, job)
        if count != confirmed:
            raise Conflict(
                f"{count} of the job's records are still there",
                code="confirm_count",
                hint=f"to delete them, repeat the request with ?confirm={count}",
            )
        deleted = 0
        for schema, groups in (await self._groups(job)).items():
            deleted += await self._changer.delete_groups(caller, schema, groups)
        if deleted < confirmed:
            await self.count(caller, job)  # others deleted some, or its groups have ended
        await runtime.in_thread(self._store.mark_undone, job.id)
        log.info("deleted %d records of a job that is undone", deleted)
        return deleted

    async def _groups(self, job: StoredJob) -> Mapping[bytes, list[bytes]]:
        return await runtime.in_thread(self._store.stored_groups, job.id)
