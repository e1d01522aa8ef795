"""Run batch jobs: check -> seal -> publish, in steps that are safe to repeat.

A job resumes when this process starts again, whether it stopped or crashed. Work that the store
marks as done is kept. All other work is done again, under new uids and record ids. This is safe
because nothing of a job is visible before its publication, and the verified log shows whether that
has happened (:mod:`.publisher`). So no record is lost, and none is stored twice.

While the API does not answer, or the keyring is locked, a job waits. A job whose token the API does
not know waits for the next request of its user. Other errors fail the job.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from encrypted_records import errors, runtime
from encrypted_records.proxy.jobs.conflicts import (
    Conflicts,
    FatesChanged,
    SchemaToCheck,
    decode_fates,
    require_set,
)
from encrypted_records.proxy.jobs.job import StoredJob, in_words
from encrypted_records.proxy.jobs.packing import PACKING, JobPacking, Packing, PackingPolicy
from encrypted_records.proxy.jobs.publisher import Publisher, as_checked, require_same
from encrypted_records.proxy.jobs.resealing import Resealing
from encrypted_records.proxy.jobs.store import CheckedSchema, JobDependencies
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import run_together
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.fetcher import Fetcher, PageFetcher
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.pool import WorkerPool
from encrypted_records.proxy.write.committer import Committer
from encrypted_records.proxy.write.merge_scheduler import MergeScheduler, log_errors
from encrypted_records.proxy.write.unique import LOG_MOVED

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds between the attempts of a waiting job; the last pause repeats.
WAITS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
#: The same after a worker process was lost: memory may be short for a while.
LOST_WAITS = (*WAITS, 60.0, 120.0, 300.0)
#: How often a job without progress may lose a worker while workers do other work, before it fails:
#: some 20 minutes by :data:`LOST_WAITS`. While no worker works, the job waits without limit.
MOST_LOST = 12
#: Why a job waits for its user.
_WAITS_FOR_USER = (
    "the API does not know the job's token, or it has expired: the job continues with its"
    " user's next request to this proxy"
)
#: How often a step may raise an unexpected error before the job fails.
STRIKES = 3


@dataclass(slots=True, eq=False)
class WithoutToken:
    """A job that waits for a request of its user, which gives it another token.

    Attributes:
        is_asking: whether a request came, and the API is being asked.
        answered: set once the API has answered, or failed to.
    """

    job: StoredJob
    is_asking: bool = False
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class JobRunner:
    def __init__(
        self,
        dependencies: JobDependencies,
        *,
        committer: Committer,
        merger: MergeScheduler,
        workers: WorkerPool,
        fetcher: Fetcher,
        pager: PageFetcher,
        own_origins: tuple[str, ...],
        packing: PackingPolicy = PACKING,
        waits: Sequence[float] = WAITS,
    ) -> None:
        self._uses = dependencies
        self.workers = workers
        self._own_origins = own_origins
        #: seconds between two attempts of a waiting job; the last pause repeats
        self.waits = waits
        #: the same after a worker was lost
        self.lost_waits: Sequence[float] = LOST_WAITS
        #: jobs whose token the API does not know
        self.without_token: dict[bytes, WithoutToken] = {}
        self._conflicts = Conflicts(dependencies, fetcher, workers)
        self._packing = Packing(dependencies, workers, packing)
        uses = (dependencies.api, dependencies.schemas, dependencies.store)
        self.publisher = Publisher(*uses, committer, merger, self._conflicts)

        self.resealing = Resealing(dependencies, committer=committer, workers=workers, pager=pager)

    async def run(self, job: bytes) -> None:
        """Run a job whose upload is complete, until it is completed or has failed."""
        try:
            await self._run(job)
        finally:
            self.without_token.pop(job, None)

    async def _run(self, job: bytes) -> None:
        waits = strikes = lost = 0
        while True:
            before = await self._read(job)
            failure: errors.ErsError
            try:
                await self._advance(before)
                break
            except FatesChanged:
                log.info(
                    "a job is partly re-encrypted: others have stored values of its rows in"
                    " the meantime"
                )
                continue
            except errors.StaleDefinition as error:
                log.info("a job is being checked again: %s", error.message)
                self._conflicts.forget(job)
                await self._run_step(job, self._uses.store.check_again, job)
                continue
            except errors.ErsError as error:
                failure = error
            except Exception as error:
                log.exception("unexpected %s in a job", type(error).__name__)
                failure = errors.ErsError("an internal error occurred in the proxy; see its log")
            if await self._read(job) != before:
                # The job made progress between two failures, so it need not wait longer.
                waits = strikes = lost = 0
            strikes += _is_strike(failure)
            if _lacks_token(failure):
                await self._wait_for_user(before, _at(self.waits, waits))
            elif failure.reason == "worker_lost":
                # An input that ends its worker each time must fail. A machine without memory ends
                # every worker, but may have memory again later.
                works = await self.workers.works()
                lost += works
                if lost == MOST_LOST:
                    await self.fail(job, _lost(failure))
                    break
                seconds = _at(self.lost_waits, waits)
                await self._wait(job, _losing(failure, lost if works else None, seconds), seconds)
            elif strikes > STRIKES or not (_passes(failure) or _is_strike(failure)):
                await self.fail(job, failure)
                break
            else:
                await self._wait(job, failure, _at(self.waits, waits))
            waits += 1
        await self.tidy(job)

    async def _run_step(
        self, job: bytes, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The result of a step of the store; a full disk only delays it."""
        for seconds in itertools.chain(self.waits, itertools.repeat(self.waits[-1])):
            try:
                return await runtime.in_thread(step, *args, **kwargs)
            except errors.Unavailable as error:
                await self._wait(job, error, seconds)
        raise AssertionError("the loop has no end")

    async def _wait(self, job: bytes, error: errors.ErsError, seconds: float) -> None:
        seconds = error.retry_after or seconds
        log.warning("job %s waits %s s: %s", uuid.UUID(bytes=job), seconds, error.message)
        self._uses.progress.note_waiting(job, error.message)
        await runtime.sleep(seconds)

    async def _wait_for_user(self, job: StoredJob, seconds: float) -> None:
        """Wait until a request of the job's user gives it another token, or for some seconds,
        because the API may have been restored meanwhile."""
        # The entry stays while the job tries again, so that no request of its user is missed.
        waiting = self.without_token.setdefault(job.id, WithoutToken(job))
        log.warning("job %s waits for its user: %s", uuid.UUID(bytes=job.id), _WAITS_FOR_USER)
        self._uses.progress.note_waiting(job.id, _WAITS_FOR_USER)
        with suppress(TimeoutError):
            await asyncio.wait_for(waiting.answered.wait(), seconds)
        if waiting.is_asking:
            await waiting.answered.wait()  # the API may not have the stored token yet
            del self.without_token[job.id]

    async def _read(self, job: bytes) -> StoredJob:
        stored = await self._run_step(job, self._uses.store.get, job)
        assert stored is not None
        return stored

    async def fail(self, job: bytes, error: errors.ErsError) -> None:
        """Store the reason why the job failed, as soon as the disk has space.

        Raises:
            Conflict: ``job_ended``; it has ended in another way.
        """
        log.info("a job failed: %s", error.reason)
        await self._run_step(
            job, self._uses.store.mark_failed, job, in_words(error), runtime.wall()
        )
        self._uses.progress.announce(job)

    async def tidy(self, job: bytes) -> None:
        """Delete the leftovers of an ended job in the spool and at the API, now or later."""
        self._conflicts.forget(job)
        self.publisher.forget(job)
        try:
            ended = await runtime.in_thread(self._uses.store.get, job)
            if ended is None:
                return  # its owner has deleted it
            await runtime.in_thread(self._uses.spool.delete, job)
            try:
                await self._uses.api.drop_job(job, (await self._caller(ended)).auth)
            except errors.ErsError as error:
                if _passes(error):
                    raise
                # Its token has expired, and its staged data expires with it.
            await runtime.in_thread(self._uses.store.mark_tidied, job)
        except errors.ErsError as error:
            log.info("staged data of a job is not deleted yet: %s", error.message)

    async def authorization_of(self, job: StoredJob) -> str:
        """The Authorization value of the job's token.

        Raises:
            ErsError: as :meth:`JobSecrets.open_token`.
        """
        token = await runtime.in_thread(self._uses.store.token, job.id)
        return await runtime.in_thread(self._uses.secrets.open_token, job, token)

    async def _caller(self, job: StoredJob) -> Holder:
        return Holder.of_accepted_work(job.user, await self.authorization_of(job))

    async def _advance(self, job: StoredJob) -> None:
        caller = await self._caller(job)
        try:
            states = await self._store_records(job, caller)
        except FatesChanged:
            if not self.publisher.may_be_on_its_way(job.id):
                await self._seal_again(job, everything=False)
                raise
            if await self.publisher.withdraw(job, caller):
                await self._seal_again(job, everything=True)
                raise
            states = []
        except errors.StaleDefinition:
            if (await self._read(job.id)).phase != "publish":
                raise
            # An earlier request may still be on its way. It must not publish a first copy in
            # addition to the copy that is sealed next.
            if await self.publisher.withdraw(job, caller):
                raise
            states = []
        await runtime.in_thread(self._uses.store.mark_completed, job.id, runtime.wall())
        self._uses.progress.announce(job.id)
        log.info("a job of %d records is completed", (await self._read(job.id)).total)
        # Before tidy() ends the job's token.
        with log_errors():
            await self.publisher.merge(caller, states)

    async def _store_records(self, job: StoredJob, caller: Holder) -> list[SchemaState]:
        """Do the job's work until its commits are in the log."""
        if job.options.work == "reseal":
            return [await self.resealing.run(job, caller)]
        if job.phase == "check":
            job = await self._check(job, caller)
        if job.phase == "seal":
            await self._seal(job, caller)
        return await self.publisher.publish(job, caller, lambda: self._prepare(job, caller))

    async def _prepare(self, job: StoredJob, caller: Holder) -> None:
        schemas = await self._checked(job, caller)
        if _any_unique(schemas):
            await self._conflicts.prepare(job, caller, await self._source(job), schemas)

    async def _seal_again(self, job: StoredJob, *, everything: bool) -> None:
        seal_again = self._uses.store.fates.seal_again
        await runtime.in_thread(seal_again, job.id, everything=everything)

    async def _source(self, job: StoredJob) -> messages.UploadSource:
        keyring = await runtime.in_thread(self._uses.keyrings.of, Holder.of_accepted_work(job.user))
        keys = await runtime.in_thread(self._uses.spool.keys, job.id, keyring)
        return messages.UploadSource(
            folder=str(self._uses.spool.folder),
            upload=job.id,
            size=job.size,
            keys=[(key.upload, key.version, key.hand_over()) for key in keys],
            kind=job.options.kind,
            named=job.options.named,
            own_hosts=self._own_origins,
            charset=job.options.charset,
            reading=await runtime.in_thread(self._uses.secrets.open_reading, job),
        )

    # --- check ------------------------------------------------------------------------------

    async def _check(self, job: StoredJob, caller: Holder) -> StoredJob:
        """
        Raises:
            BadInput: the input as a whole is not valid, or rows do not fit and the job does not
                skip them.
        """
        checked: dict[bytes, CheckedSchema] = {}

        async def listen(message: messages.Interim) -> messages.DefinitionReply | None:
            if isinstance(message, messages.RowCount):
                await runtime.in_thread(self._uses.store.mark_counted, job.id, message.rows)
                self._uses.progress.announce(job.id)
                return None
            assert isinstance(message, messages.DefinitionRequest)
            try:
                state = await self._uses.schemas.refresh_ready(caller, message.schema)
            except errors.NotFound:
                # Rows of a missing schema are bad rows, which are named and counted.
                return messages.DefinitionReply(None)
            require_set(state.definition, job.options)
            checked[message.schema] = as_checked(state)
            return messages.DefinitionReply(state.definition.canonical)

        report = await self.workers.run(messages.CheckTask(await self._source(job)), listen)
        assert isinstance(report, messages.CheckReport)
        await runtime.in_thread(
            self._uses.store.mark_checked,
            job.id,
            rows=report.rows,
            bad_rows=report.bad_rows,
            errors=await runtime.in_thread(self._uses.secrets.seal_errors, job, report.errors),
            examples=await runtime.in_thread(
                self._uses.secrets.seal_examples, job, report.examples
            ),
            rounded=report.rounded,
            report=await runtime.in_thread(self._uses.secrets.seal_report, job, report.reading),
            chunks=report.chunks,
            schemas=checked.values(),
        )
        self._uses.progress.announce(job.id)
        if report.bad_rows and not job.options.skip:
            verb = "does" if report.bad_rows == 1 else "do"
            raise errors.BadInput(
                f"{report.bad_rows} of {report.rows} records {verb} not match the schema;"
                " nothing was stored",
                code="invalid_records",
                hint="the job's errors list them; skip invalid rows to store the others",
            )
        return await self._read(job.id)

    # --- seal -------------------------------------------------------------------------------

    async def _seal(self, job: StoredJob, caller: Holder) -> None:
        """Seal and stage every open chunk until the outcomes are final, and pack the chunks."""
        schemas = await self._checked(job, caller)
        source = await self._source(job)
        keys = [schema.keys for schema in schemas]
        packing = await self._packing.begin(job, caller, source, keys)
        if not _any_unique(schemas):
            await self._seal_open(job, caller, source, keys, packing)
        else:
            # The rows that are left out may change until all are sealed, so nothing is packed.
            await self._conflicts.settle(job, caller, source, schemas)
            while await self._seal_open(job, caller, source, keys, None):
                # Sealing takes long, and others may have stored values meanwhile.
                await self._conflicts.settle(job, caller, source, schemas)
        await packing.finish()
        await runtime.in_thread(self._uses.store.mark_sealed, job.id)
        self.publisher.expect_none(job.id)

    async def _seal_open(
        self,
        job: StoredJob,
        caller: Holder,
        source: messages.UploadSource,
        keys: list[messages.SchemaKeyBytes],
        packing: JobPacking | None,
    ) -> bool:
        """Seal and stage every open chunk, several concurrently; returns whether there was any."""
        open_chunks = await runtime.in_thread(self._uses.store.open_chunks, job.id)
        fates = await runtime.in_thread(self._uses.store.fates.get, job.id)
        chunks = iter(open_chunks)
        indexed = not self._packing.policy.takes(job)
        follows = not indexed and packing is not None

        async def seal_chunks() -> None:
            for chunk in chunks:
                chunk_fates = decode_fates(fates[chunk.number]) if chunk.number in fates else []
                task = messages.SealTask(source, chunk, keys, job.id, chunk_fates, indexed, follows)
                sealed = await self.workers.run(task)
                assert isinstance(sealed, messages.SealedChunk)
                # A request of an earlier attempt may still be on its way.
                attempt = await runtime.in_thread(self._uses.store.next_attempt, job.id)
                for part in sealed.parts:
                    await self._uses.api.stage(part.schema, part.body, caller.auth, attempt=attempt)
                await runtime.in_thread(self._uses.store.done, job.id, chunk, sealed.parts)
                self._uses.progress.announce(job.id)
                if packing is not None:
                    packing.note_sealed(chunk, sealed.parts)

        # One more than there are workers, so that no worker waits for the API.
        steps = [seal_chunks] * (self.workers.count + 1)
        await run_together([*steps, packing.follow] if packing else steps)
        return bool(open_chunks)

    async def _checked(self, job: StoredJob, caller: Holder) -> list[SchemaToCheck]:
        return [
            await self._schema_keys(caller, checked)
            for checked in await runtime.in_thread(self._uses.store.schemas, job.id)
        ]

    async def _schema_keys(self, caller: Holder, checked: CheckedSchema) -> SchemaToCheck:
        """
        Raises:
            StaleDefinition: the keys are not those of the check, or a new definition has stricter
                rules.
        """
        state = await self._uses.schemas.refresh_ready(caller, checked.schema)
        definition = require_same(state, checked)
        key, tails = state.ledger.key, state.ledger.tails
        keys = messages.SchemaKeyBytes(
            schema=state.id,
            organization=key.organization,
            definition=definition.canonical,
            key=key.hand_over(),
            key_version=key.version,
            tails=tails.hand_over(),
            tails_version=tails.version,
        )
        return SchemaToCheck(state, keys, definition)


def _any_unique(schemas: Sequence[SchemaToCheck]) -> bool:
    return any(schema.state.definition.unique for schema in schemas)


def _passes(error: errors.ErsError) -> bool:
    """Whether waiting may help."""
    # The next attempt at a part has a higher number.
    waits = error.reason in ("keyring_locked", LOG_MOVED, "part_overtaken")
    return waits or isinstance(error, errors.Unavailable | errors.Throttled)


def _lacks_token(error: errors.ErsError) -> bool:
    """Whether a request of the job's user helps: ``job_revoked`` is final."""
    return isinstance(error, errors.NotAuthenticated) and error.reason != "job_revoked"


def _is_strike(error: errors.ErsError) -> bool:
    """Whether every further attempt may fail in the same way."""
    return type(error) is errors.ErsError


def _losing(error: errors.ErsError, times: int | None, seconds: float) -> errors.ErsError:
    """The reason of a waiting job that has lost a worker.

    Args:
        times: how often it has while workers do other work; None if they do not.
    """
    if times is None:
        why = "no worker process is working, perhaps because the machine has no memory left"
    else:
        why = f"{times} of {MOST_LOST} attempts before the job fails"
    return errors.Unavailable(
        f"{error.message}: {why}; the next try is in {seconds:g} s", code=error.reason
    )


def _lost(error: errors.ErsError) -> errors.ErsError:
    return errors.Unavailable(
        f"{error.message}, {MOST_LOST} times, while other work succeeded",
        code=error.reason,
        hint="check these rows, or give the machine more memory; then start the job again",
    )


def _at(waits: Sequence[float], number: int) -> float:
    """The pause in seconds that follows ``number`` other pauses; the last pause repeats."""
    return waits[min(number, len(waits) - 1)]
