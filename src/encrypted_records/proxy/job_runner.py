"""Runs batch jobs: check -> seal -> publish, each step such that it can be repeated.

A job goes on by itself, after whatever ended this process. What the store says was done is done;
everything else is done again, with new uids and record ids, which is safe because nothing of a job
is visible before its publication. Whether that has happened, the verified log says: it holds the
job's groups, or it does not. So no record is lost and none is stored twice.

While the API is away, or the keyring locked, a job waits. What cannot be cured by waiting fails it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import ParamSpec, TypeVar

from encrypted_records.client.api import Api
from encrypted_records.errors import (
    BadInput,
    Conflict,
    ErsError,
    MergeFirst,
    NotFound,
    StaleDefinition,
    Throttled,
    Unavailable,
)
from encrypted_records.model.records import CommitUpload
from encrypted_records.proxy import tasks
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.committing import ATTEMPTS, LOST_RACES, Committer
from encrypted_records.proxy.job_secrets import JobSecrets
from encrypted_records.proxy.job_store import CheckedSchema, JobStore, StagedPart
from encrypted_records.proxy.jobs import Job, in_words
from encrypted_records.proxy.keyrings import Keyrings
from encrypted_records.proxy.merger import Merger
from encrypted_records.proxy.progress import Progress
from encrypted_records.proxy.schemas import Schemas, SchemaState
from encrypted_records.proxy.spool import Spool
from encrypted_records.proxy.workers import Workers

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds between two attempts of a job that waits, from the first on.
WAITS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
#: How often a worker may be lost over one step before that step is to blame.
LOST_WORKERS = 3


class JobRunner:
    def __init__(
        self,
        *,
        api: Api,
        schemas: Schemas,
        keyrings: Keyrings,
        committer: Committer,
        merger: Merger,
        store: JobStore,
        secrets: JobSecrets,
        spool: Spool,
        workers: Workers,
        progress: Progress,
        own_origins: tuple[str, ...],
    ) -> None:
        self._api = api
        self._schemas = schemas
        self._keyrings = keyrings
        self._committer = committer
        self._merger = merger
        self._store = store
        self._secrets = secrets
        self._spool = spool
        self._workers = workers
        self._progress = progress
        self._own_origins = own_origins

    async def run(self, job: bytes) -> None:
        """Bring a job that has all its bytes to its end, whatever that is."""
        waits, lost = 0, 0
        while True:
            before = await self._read(job)
            try:
                await self._advance(before)
                break
            except StaleDefinition as error:
                log.info("a job is checked again: %s", error.message)
                await self._stored(job, self._store.check_again, job)
            except ErsError as error:
                lost += error.reason == "worker_lost"
                if lost > LOST_WORKERS or not _passes(error):
                    await self.fail(job, error)
                    break
                after = await self._read(job)
                # Whoever gets on between two failures is not kept waiting longer and longer.
                waits = 0 if after != before else min(waits + 1, len(WAITS) - 1)
                await _wait(job, error, WAITS[waits])
            except Exception as error:
                log.exception("unexpected %s in a job", type(error).__name__)
                await self.fail(job, ErsError("the proxy made a mistake; see its log"))
                break
        await self.tidy(job)

    async def _stored(
        self, job: bytes, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What a step of the store gives, which a full disk only delays."""
        for seconds in itertools.chain(WAITS, itertools.repeat(WAITS[-1])):
            try:
                return await asyncio.to_thread(step, *args, **kwargs)
            except Unavailable as error:
                await _wait(job, error, seconds)
        raise AssertionError("it is tried for ever")

    async def _read(self, job: bytes) -> Job:
        found = await self._stored(job, self._store.get, job)
        assert found is not None
        return found

    async def fail(self, job: bytes, error: ErsError) -> None:
        """Enter how the job has ended, as soon as the disk takes it.

        Raises:
            Conflict: ``job_ended``; it has ended otherwise.
        """
        log.info("a job failed: %s", error.reason)
        await self._stored(job, self._store.failed, job, in_words(error), time.time())
        self._progress.changed(job)

    async def tidy(self, job: bytes) -> None:
        """Drop what an ended job has left in the spool and at the API; later, if not now."""
        try:
            found = await asyncio.to_thread(self._store.get, job)
            if found is None:
                return  # its owner was faster
            await asyncio.to_thread(self._spool.delete, job)
            try:
                await self._api.drop_job(job, (await self._caller(found)).auth)
            except ErsError as error:
                if _passes(error):
                    raise
                # Its token has ended, and with it what was staged will.
            await asyncio.to_thread(self._store.tidied, job)
        except ErsError as error:
            log.info("what a job left stays there for now: %s", error.message)

    async def _caller(self, job: Job) -> Caller:
        token = await asyncio.to_thread(self._store.token, job.id)
        return Caller(job.user, await asyncio.to_thread(self._secrets.open_token, job, token))

    async def _advance(self, job: Job) -> None:
        caller = await self._caller(job)
        if job.phase == "check":
            job = await self._check(job, caller)
        if job.phase == "seal":
            await self._seal(job, caller)
        try:
            states = await self._publish(job, caller)
        except StaleDefinition:
            # A request of ours may be on its way still, and must not publish a first copy beside
            # the one that is sealed next.
            if await self.withdraw(job, caller):
                raise
            states = []
        await asyncio.to_thread(self._store.completed, job.id, time.time())
        self._progress.changed(job.id)
        log.info("a job of %d records is completed", job.total)
        # With the job's token, which ends after this.
        try:
            await self._merge(caller, states)
        except ErsError as error:
            log.warning("merging failed, a later ingest tries again: %s", error.message)

    async def _source(self, job: Job) -> tasks.Source:
        keyring = await asyncio.to_thread(self._keyrings.of, job.user)
        keys = await asyncio.to_thread(self._spool.keys, job.id, keyring)
        return tasks.Source(
            folder=str(self._spool.folder),
            upload=job.id,
            size=job.size,
            keys=[(key.upload, key.version, key.hand_over()) for key in keys],
            csv=job.order.csv,
            named=job.order.named,
            own_hosts=self._own_origins,
        )

    # --- check ------------------------------------------------------------------------------

    async def _check(self, job: Job, caller: Caller) -> Job:
        """
        Raises:
            BadInput: rows do not fit and the job is not to skip them, or the input as a whole.
        """
        checked: dict[bytes, CheckedSchema] = {}

        async def listen(said: tasks.Said) -> tasks.Definition | None:
            if isinstance(said, tasks.Counted):
                await asyncio.to_thread(self._store.counted, job.id, said.rows)
                self._progress.changed(job.id)
                return None
            assert isinstance(said, tasks.Wanted)
            try:
                state = await self._schemas.fresh(caller, said.schema)
            except NotFound:
                return tasks.Definition(None)
            checked[said.schema] = _as_checked(state)
            return tasks.Definition(state.text)

        found = await self._workers.run(tasks.Check(await self._source(job)), listen)
        assert isinstance(found, tasks.Found)
        flaws = await asyncio.to_thread(self._secrets.seal_flaws, job, found.flaws)
        await asyncio.to_thread(
            self._store.checked,
            job.id,
            rows=found.rows,
            flawed=found.flawed,
            listed=len(found.flaws),
            flaws=flaws,
            chunks=found.chunks,
            schemas=checked.values(),
        )
        self._progress.changed(job.id)
        if found.flawed and not job.order.skip:
            raise BadInput(
                f"{found.flawed} of {found.rows} records {'does' if found.flawed == 1 else 'do'}"
                " not fit, so that nothing was stored",
                code="invalid_records",
                hint="the job's errors/ lists them; X-On-Invalid: skip stores the others",
            )
        return await self._read(job.id)

    # --- seal -------------------------------------------------------------------------------

    async def _seal(self, job: Job, caller: Caller) -> None:
        """Seal every open chunk and store it ahead, some at the same time."""
        schemas = [
            await self._schema_keys(caller, one)
            for one in await asyncio.to_thread(self._store.schemas, job.id)
        ]
        source = await self._source(job)
        chunks = iter(await asyncio.to_thread(self._store.open_chunks, job.id))

        async def some() -> None:
            for chunk in chunks:
                sealed = await self._workers.run(tasks.Seal(source, chunk, schemas, job.id))
                assert isinstance(sealed, tasks.Sealed)
                for part in sealed.parts:
                    await self._api.stage(part.schema, part.body, caller.auth)
                await asyncio.to_thread(self._store.done, job.id, chunk, sealed.parts)
                self._progress.changed(job.id)

        # One more than there are workers, so that these need not wait for the API.
        await _together([some] * (self._workers.count + 1))
        await asyncio.to_thread(self._store.sealed, job.id)

    async def _schema_keys(self, caller: Caller, checked: CheckedSchema) -> tasks.SchemaKeyBytes:
        """
        Raises:
            StaleDefinition: not the definition or the keys that the job was checked with.
        """
        state = await self._schemas.fresh(caller, checked.schema)
        _require_same(state, checked)
        key, tails = state.ledger.key, state.ledger.tails
        return tasks.SchemaKeyBytes(
            schema=state.id,
            organization=key.organization,
            definition=state.text,
            key=key.hand_over(),
            key_version=key.version,
            tails=tails.hand_over(),
            tails_version=tails.version,
        )

    # --- publish ----------------------------------------------------------------------------

    async def withdraw(self, job: Job, caller: Caller) -> bool:
        """Make sure that a job under way is not published; False where it has been.

        A request may be on its way still, or its answer lost: so the log is asked, once nothing
        staged is left that a late one could publish.

        Raises:
            ErsError: the API cannot be asked, so that nothing is certain.
        """
        await self._api.drop_parts(job.id, caller.auth)
        for checked, parts in (await self._parts(job)).items():
            state = await self._schemas.fresh(caller, checked.schema)
            if _is_published(state, parts):
                return False
        return True

    async def _parts(self, job: Job) -> dict[CheckedSchema, list[StagedPart]]:
        """What is staged of each schema; schemas of which nothing is are left out."""
        parts: dict[CheckedSchema, list[StagedPart]] = {}
        for checked in await asyncio.to_thread(self._store.schemas, job.id):
            found = await asyncio.to_thread(self._store.parts, job.id, checked.schema)
            if found:
                parts[checked] = found
        return parts

    async def _publish(self, job: Job, caller: Caller) -> list[SchemaState]:
        """Make the job's records visible, unless they are already."""
        parts = await self._parts(job)
        states: list[SchemaState] = []
        for attempt in range(1, ATTEMPTS + 1):
            states = [await self._schemas.fresh(caller, checked.schema) for checked in parts]
            if not states or _is_published(states[0], next(iter(parts.values()))):
                return states
            try:
                await self._commit(job, caller, states, parts)
            except MergeFirst:
                if attempt == ATTEMPTS:
                    raise
                await self._merge(caller, states)
            except (Conflict, NotFound) as error:
                # What is staged may be gone because an earlier attempt has published it.
                lost = error.reason in LOST_RACES or error.reason == "staging_gone"
                if isinstance(error, StaleDefinition) or not lost:
                    raise
                if attempt == ATTEMPTS:
                    if error.reason == "staging_gone":
                        raise StaleDefinition("what it stored ahead is there no more") from None
                    raise
                log.info("a job's commit lost a race (%s), drafting it again", error.reason)
            else:
                break
        return states

    async def _merge(self, caller: Caller, states: Sequence[SchemaState]) -> None:
        for state in states:
            while await self._merger.once(caller, state):
                pass

    async def _commit(
        self,
        job: Job,
        caller: Caller,
        states: Sequence[SchemaState],
        parts: dict[CheckedSchema, list[StagedPart]],
    ) -> None:
        async with AsyncExitStack() as held:
            # In the order of ids, so that two that write to the same schemas cannot deadlock.
            for state in sorted(states, key=lambda one: one.id):
                await held.enter_async_context(state.lock)
            await self._committer.ready(caller, states)
            drafts: list[tuple[SchemaState, CommitUpload]] = []
            for state, (checked, staged) in zip(states, parts.items(), strict=True):
                _require_same(state, checked)
                drafts.append((state, _drafted(state, checked, staged)))
            await self._committer.store(caller, drafts, staging=job.id)


def _as_checked(state: SchemaState) -> CheckedSchema:
    ledger = state.ledger
    return CheckedSchema(
        state.id, state.definition.digest, ledger.key.version, ledger.tails.version
    )


def _require_same(state: SchemaState, checked: CheckedSchema) -> None:
    if _as_checked(state) != checked:
        raise StaleDefinition("a schema's definition or key changed after the job was checked")


def _is_published(state: SchemaState, parts: Sequence[StagedPart]) -> bool:
    """Whether the log holds the job's groups; all are published together, so one tells."""
    return parts[0].groups[0].uid in state.ledger.view().groups


def _drafted(
    state: SchemaState, checked: CheckedSchema, parts: Sequence[StagedPart]
) -> CommitUpload:
    return state.ledger.draft(
        checked.definition,
        groups=[group for part in parts for group in part.groups],
        segments=[segment for part in parts for segment in part.segments],
        staged=[part.digest for part in parts],
    )


def _passes(error: ErsError) -> bool:
    """Whether waiting may cure it."""
    return isinstance(error, Unavailable | Throttled) or error.reason == "keyring_locked"


async def _wait(job: bytes, error: ErsError, seconds: float) -> None:
    seconds = error.retry_after or seconds
    log.warning("job %s waits %s s: %s", uuid.UUID(bytes=job), seconds, error.message)
    await asyncio.sleep(seconds)


async def _together(jobs: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run all; when one fails, cancel the others and raise what it raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(_coroutine(job))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _coroutine(job: Callable[[], Awaitable[None]]) -> None:
    await job()
