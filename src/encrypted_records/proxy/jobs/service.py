"""The service of batch jobs: begin, receive, list, watch, cancel, resume.

Only its owner can see a job. Jobs that reseal all records of a schema are begun here as well; each
schema has at most one at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import msgspec

from encrypted_records import runtime
from encrypted_records.client.proxy.jobs import JobReading, UnreadCell
from encrypted_records.errors import (
    BadInput,
    Closed,
    Conflict,
    ErsError,
    Flaw,
    Malformed,
    NotAuthenticated,
    NotFound,
    Unavailable,
)
from encrypted_records.ingest.check import MAX_ERRORS
from encrypted_records.ingest.layouts import Layout, recognize
from encrypted_records.ingest.parsing import Header, bad_schema, check_columns, no_schema
from encrypted_records.ingest.reading.parser import CellReport, FileHead, check_fields
from encrypted_records.ingest.reading.recipe import Recipe, read_recipe
from encrypted_records.model import ids
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.record_formats import Format
from encrypted_records.proxy.jobs.job import (
    END_BYTES,
    ENDED,
    Examples,
    FileNote,
    JobOptions,
    StoredJob,
    in_words,
    uploaded_before,
)
from encrypted_records.proxy.jobs.runner import JobRunner, WithoutToken
from encrypted_records.proxy.jobs.store import PAUSE_SECONDS, JobDependencies
from encrypted_records.proxy.jobs.tables import SealTarget
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import JOBS, Background
from encrypted_records.proxy.workers.messages import LOST
from encrypted_records.proxy.write.definitions import DefinitionPlan

log = logging.getLogger(__name__)


#: Seconds for which an ended job is kept.
KEPT_SECONDS = 30 * 86_400
#: Seconds between two sweeps of the leftovers of ended jobs.
SWEEP_SECONDS = 600.0
#: The scheme of a job's token in an Authorization header, and the number of its random bytes.
JOB_SCHEME, TOKEN_BYTES = "Job ", 32
#: Flaws of cells and rows that do not fit the recipe, and the maximum number that is reported.
_UNREAD = ("reading", "csv_row")
_MOST_UNREAD = 100
#: An upload of this many bytes has several chunks, and so work for all workers.
_SEVERAL_CHUNKS = 8 << 20


class BatchJobs:
    def __init__(
        self,
        dependencies: JobDependencies,
        runner: JobRunner,
        certain_time: Callable[[], Awaitable[float]],
        background: Background,
    ) -> None:
        """
        Args:
            certain_time: the latest time that is not in doubt, by which jobs are deleted; in
                seconds since 1970.
        """
        self._uses = dependencies
        self.runner = runner
        self._certain_time = certain_time
        self._background = background
        #: by job, the task that began last
        self._running: dict[bytes, asyncio.Task[None]] = {}
        self._accepting = asyncio.Lock()

    # --- receiving --------------------------------------------------------------------------

    async def begin(
        self, caller: Holder, options: JobOptions, note: FileNote | None = None
    ) -> StoredJob:
        """A new job in state ``uploading``, with an empty upload in the spool.

        The job gets its token now, so that it can continue after the caller's credentials have
        expired.

        Args:
            note: the sender's note on the file.

        Raises:
            ErsError: the API refuses, or does not answer; the keyring does not open; the disk is
                full.
        """
        job = StoredJob(
            id=runtime.uuid4().bytes,
            user=caller.user,
            options=options,
            state="uploading",
            phase="check",
            size=0,
            processed=0,
            total=0,
            bad_rows=0,
            error=None,
            created=runtime.wall(),
            finished=None,
            began=caller.began,
        )
        keyring = await runtime.in_thread(self._uses.keyrings.of, caller)
        token, kept = await self._make_token(caller, job.id)
        await self._enter_token(caller, job.id, token)
        if options.reading is not None:
            reading = await runtime.in_thread(
                self._uses.secrets.seal_reading, caller, job.id, options.reading
            )
            job = replace(job, sealed_reading=reading)
        sealed = None
        if note is not None:
            sealed = await runtime.in_thread(self._uses.secrets.seal_note, caller, job.id, note)
        await runtime.in_thread(self._uses.store.add, job, kept, sealed)
        try:
            await runtime.in_thread(self._uses.spool.create, job.id, keyring)
        except ErsError as error:
            await self.abandon(job.id, error)
            raise
        return job

    async def _enter_token(self, caller: Holder, job: bytes, token: str) -> None:
        await self._uses.api.enter_job_token(job, token.removeprefix(JOB_SCHEME), caller.auth)

    async def _renew_token(self, caller: Holder, job: StoredJob) -> None:
        """Extend the job's token by a week. The token stays the same, so a lost answer does no
        harm, and a request that arrives late changes nothing.

        Raises:
            ErsError: the API refuses, or does not answer.
        """
        try:
            await self._enter_token(caller, job.id, await self.runner.authorization_of(job))
        except Conflict as error:
            if error.reason != "job_token_spent":
                raise
            # The password, or the API's secret key, has changed since.
            await self._replace_token(caller, job)

    async def _replace_token(self, caller: Holder, job: StoredJob) -> None:
        """Give the job another token: it is on disk here before the API has it.

        Raises:
            ErsError: as :meth:`_renew_token`.
        """
        token, kept = await self._make_token(caller, job.id)
        await runtime.in_thread(self._uses.store.renew, job.id, kept)
        await self._enter_token(caller, job.id, token)

    async def _make_token(self, caller: Holder, job: bytes) -> tuple[str, bytes]:
        """A new token as an Authorization value, and sealed."""
        token = JOB_SCHEME + runtime.random_text(TOKEN_BYTES)
        return token, await runtime.in_thread(self._uses.secrets.seal_token, caller, job, token)

    def notice(self, caller: Holder) -> None:
        """Give new tokens to jobs that wait for a request of this caller."""
        for waiting in self.runner.without_token.values():
            job = waiting.job
            # A login does not revive a job of an API token, whose limits apply to the job.
            if (job.user, job.began) == (caller.user, caller.began) and not waiting.is_asking:
                waiting.is_asking = True
                self._background.start(JOBS, partial(self._revive, caller, waiting))

    async def _revive(self, caller: Holder, waiting: WithoutToken) -> None:
        try:
            await self._replace_token(caller, waiting.job)
        except ErsError as error:
            log.info("a job does not get another token: %s", error.message)
        finally:
            waiting.answered.set()

    async def receive(self, caller: Holder, job: StoredJob, body: AsyncIterable[bytes]) -> int:
        """Write an upload that comes in one piece to the spool; returns its size in bytes.

        An error in its first bytes ends the upload at once.

        Raises:
            BadInput: ``csv_header``, or not JSON.
            OutOfSpace, Unavailable: the disk cannot store it.
        """
        keyring = await runtime.in_thread(self._uses.keyrings.of, caller)
        recognized = prepared = False
        start, size = b"", 0
        with await runtime.in_thread(self._uses.spool.append, job.id, keyring, 0) as appending:
            async for piece in gather(body):
                if not recognized:
                    start += piece
                    recognized = await self.look(caller, job.options, start, final=False)
                await runtime.in_thread(appending.write, piece)
                size += len(piece)
                if size >= _SEVERAL_CHUNKS and not prepared:
                    prepared = True
                    self.runner.workers.prepare()
            if not recognized:
                await self.look(caller, job.options, start, final=True)
            return await runtime.in_thread(appending.finish)

    async def look(self, caller: Holder, options: JobOptions, start: bytes, *, final: bool) -> bool:
        """Whether the first bytes of an upload show its layout. A CSV header is checked against the
        schema.

        Raises:
            BadInput: as :meth:`receive`; also if the caller cannot read a schema with the id that
                the header or the request names.
        """
        reading = None if options.reading is None else read_recipe(options.reading)
        recognized = await runtime.in_thread(
            recognize,
            start,
            options.kind,
            final=final,
            charset=options.charset,
            reading=reading,
        )
        if recognized is not None:
            await self._check_header(caller, options, recognized[0], reading)
        return recognized is not None

    async def options_of(self, job: StoredJob) -> JobOptions:
        """The options of a job, including the sealed options."""
        reading = await runtime.in_thread(self._uses.secrets.open_reading, job)
        return replace(job.options, reading=reading)

    async def _check_header(
        self, caller: Holder, options: JobOptions, layout: Layout, reading: Recipe | None
    ) -> None:
        if not isinstance(layout, Header | FileHead):
            return
        schema = options.named if reading else None
        if schema is None:
            assert isinstance(layout, Header)
            schema = schema_of_header(layout, options.named)
        try:
            state = await self._uses.schemas.load(caller, schema)
        except NotFound:
            detail, code = "names no schema that you can reach", "unknown_reference"
            if isinstance(layout, Header) and layout.schema is not None:
                raise bad_schema(detail, code) from None
            flaws = (Flaw(code, detail, parameter="schema"),)
            raise BadInput(f"the request {detail}", flaws=flaws) from None
        try:
            _check_names(layout, reading, state.definition)
        except BadInput:
            # The definition may have changed since: only the current definition may refuse.
            fresh = await self._uses.schemas.refresh(caller, schema)
            _check_names(layout, reading, fresh.definition)

    async def mark_received(self, caller: Holder | None, job: StoredJob, size: int) -> None:
        """Process an upload whose bytes are all in the spool.

        Args:
            caller: who sent the last bytes; None if that is no longer known.

        Raises:
            Conflict: ``job_ended``; it was cancelled in the meantime.
            Unavailable: the API issues no token; nothing has changed.
        """
        await self._renew(caller, job)
        await self._process(job, size)

    async def accept(
        self, caller: Holder | None, job: StoredJob, size: int, *, once: bool = False
    ) -> None:
        """:meth:`mark_received` for a file, which is recognized later by its bytes.

        Args:
            once: whether the file is refused if it was stored before.

        Raises:
            UploadedBefore, ErsError: as :meth:`refuse_repeated`.
        """
        owner = caller or Holder.of_accepted_work(job.user, await self.runner.authorization_of(job))
        ends = await runtime.in_thread(self._digest_of_ends, owner, job.id, size)
        note_of_sender = await self.note_of(owner, job) or FileNote()
        note = msgspec.structs.replace(note_of_sender, ends=ends)
        sealed = await runtime.in_thread(self._uses.secrets.seal_note, owner, job.id, note)
        await self._renew(caller, job)
        # If the same file comes twice at the same time, one upload is refused.
        async with self._accepting:
            if once:
                await self.refuse_repeated(owner, job.options, size, note)
            await self._process(job, size, sealed)

    def _digest_of_ends(self, owner: Holder, job: bytes, size: int) -> str:
        keyring = self._uses.keyrings.of(owner)
        digest = hashlib.sha256()
        for start, end in ((0, min(END_BYTES, size)), (max(size - END_BYTES, 0), size)):
            for piece in self._uses.spool.read(job, keyring, start=start, size=end):
                digest.update(piece)
        return digest.hexdigest()

    async def _renew(self, caller: Holder | None, job: StoredJob) -> None:
        """Renew the job's token, because the upload may have outlived it. If the upload has also
        outlived the caller's token, the job's token is left unchanged."""
        if caller is not None:
            known = await runtime.in_thread(self._uses.store.get, job.id)
            if known is not None:
                with suppress(NotAuthenticated):
                    await self._renew_token(caller, known)

    async def _process(self, job: StoredJob, size: int, file: bytes | None = None) -> None:
        if size >= _SEVERAL_CHUNKS:
            self.runner.workers.prepare()
        await runtime.in_thread(self._uses.store.mark_received, job.id, size, file)
        self._uses.progress.announce(job.id)
        self._start(job.id)

    async def abandon(self, job: bytes, error: ErsError) -> None:
        """Fail a job whose upload will not come.

        Raises:
            Conflict: ``job_ended``; it has ended already.
        """
        try:
            await runtime.in_thread(
                self._uses.store.mark_failed, job, in_words(error), runtime.wall()
            )
        except Unavailable:
            # The disk is full. Deleting the upload may free enough space to store the failure.
            await runtime.in_thread(self._uses.spool.delete, job)
            self._track(job, partial(self._fail, error=error))
            return
        await self._finish(job)

    async def _fail(self, job: bytes, error: ErsError) -> None:
        await self.runner.fail(job, error)
        await self.runner.tidy(job)

    async def _finish(self, job: bytes) -> None:
        self._uses.progress.announce(job)
        await self.runner.tidy(job)

    # --- reading ----------------------------------------------------------------------------

    async def find(self, caller: Holder, name: str) -> StoredJob:
        """The caller's job of this name, a UUID.

        Raises:
            NotFound: the caller has no such job; for an API token, no such job that it began.
        """
        try:
            job = await runtime.in_thread(self._uses.store.get, uuid.UUID(name).bytes)
        except ValueError:
            job = None
        if job is None or not caller.owns(job.user, job.began):
            raise NotFound("there is no such job, or it is not yours")
        return job

    async def list_awaited(self) -> list[StoredJob]:
        """Jobs whose upload may still continue."""
        unfinished = await runtime.in_thread(self._uses.store.list_unfinished)
        return [job for job in unfinished if job.state == "uploading" and job.options.resumable]

    async def of_user(
        self, caller: Holder, *, schema: bytes | None = None, offset: int, limit: int
    ) -> tuple[int, list[StoredJob]]:
        return await runtime.in_thread(
            self._uses.store.of_user,
            caller.user,
            schema=schema,
            began=caller.began,
            offset=offset,
            limit=limit,
        )

    async def list_schemas(self, job: StoredJob) -> list[bytes]:
        """The schemas of the job's records, as far as they are known."""
        stored = await runtime.in_thread(self._uses.store.stored_groups, job.id)
        return list(stored) or ([job.options.named] if job.options.named else [])

    def why_waiting(self, job: StoredJob) -> str | None:
        """The reason why a job is idle at the moment; None if it works, or has ended."""
        return None if job.state in ENDED else self._uses.progress.why_waiting(job.id)

    async def note_of(self, caller: Holder, job: StoredJob) -> FileNote | None:
        """The sender's note on the file of the caller's job; None if there is none, or no key opens
        it.
        """
        sealed = await runtime.in_thread(self._uses.store.file, job.id)
        if sealed is None:
            return None
        try:
            return await runtime.in_thread(self._uses.secrets.open_note, caller, job.id, sealed)
        except Closed:
            return None

    async def refuse_repeated(
        self, caller: Holder, options: JobOptions, size: int, note: FileNote
    ) -> None:
        """
        Raises:
            UploadedBefore: a job of the caller's has stored this file in this schema, or is
                storing it.
            ErsError: the log does not show whether a job's records are there.
        """
        for job in await runtime.in_thread(self._uses.store.of_size, caller.user, size):
            known = await self.note_of(caller, job)
            is_repeated = job.options.named == options.named and known and known.is_same(note)
            if is_repeated and not await self.runner.publisher.is_lost(job, caller):
                raise uploaded_before(job)

    async def errors(self, caller: Holder, job: StoredJob) -> list[Flaw]:
        """Errors in the rows of the caller's job, the first 10,000."""
        sealed = await runtime.in_thread(self._uses.store.errors, job.id)
        flaws = await runtime.in_thread(self._uses.secrets.open_errors, caller, job, sealed)
        sealed = await runtime.in_thread(self._uses.store.fates.errors, job.id)
        if sealed:
            open_errors = self._uses.secrets.open_errors
            flaws += await runtime.in_thread(open_errors, caller, job, sealed, "conflicts")
            flaws.sort(key=lambda flaw: flaw.row or 0)
        return flaws[:MAX_ERRORS]

    async def list_examples(self, caller: Holder, job: StoredJob) -> Examples:
        """Some of the rows of the caller's job that do not fit: their numbers and cells."""
        sealed = await runtime.in_thread(self._uses.store.examples, job.id)
        if sealed is None:
            return []
        return await runtime.in_thread(self._uses.secrets.open_examples, caller, job, sealed)

    async def report_reading(self, caller: Holder, job: StoredJob) -> JobReading:
        """The recipe for the file of the caller's job, and the outcome for its cells.

        Raises:
            NotFound: the job has no recipe, or is not checked yet.
        """
        sealed = await runtime.in_thread(self._uses.store.report, job.id)
        if sealed is None:
            raise NotFound("there is no reading of this job's file, or the file is not checked yet")
        opened = await runtime.in_thread(self._uses.secrets.open_report, caller, job, sealed)
        report = msgspec.json.decode(opened, type=CellReport)
        unread = [flaw for flaw in await self.errors(caller, job) if flaw.code in _UNREAD]
        return JobReading(
            **msgspec.structs.asdict(report),
            above=report.reading.above,
            below=report.reading.below or 0,
            bad_rows=job.bad_rows,
            rounded=job.rounded_now,
            unread=[
                UnreadCell(flaw.row, flaw.field, flaw.detail) for flaw in unread[:_MOST_UNREAD]
            ],
        )

    async def watch(self, job: bytes) -> AsyncIterator[StoredJob]:
        """The job's state now and after changes, at most ten times a second, until it has ended."""
        with self._uses.progress.watching(job) as changed:
            while True:
                changed.clear()
                state = await runtime.in_thread(self._uses.store.get, job)
                if state is None:
                    return
                yield state
                if state.state in ENDED:
                    return
                await runtime.sleep(PAUSE_SECONDS)
                await changed.wait()

    async def cancel(self, caller: Holder, job: StoredJob) -> None:
        """Cancel a job of which nothing is visible yet; delete a job that has ended.

        Raises:
            Conflict: ``job_ended``; it completed before it could be cancelled.
            Unavailable: the API, which may have published it, does not answer, or the disk is
                full; the job continues.
        """
        if job.state in ENDED:
            await runtime.in_thread(self._uses.store.forget, job.id)
            return
        task = self._running.get(job.id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        try:
            if not await self._withdraw(caller, job.id):
                await runtime.in_thread(self._uses.store.mark_completed, job.id, runtime.wall())
            await runtime.in_thread(
                self._uses.store.mark_failed,
                job.id,
                "cancelled by its owner (job_cancelled)",
                runtime.wall(),
            )
        except Conflict:
            await self._finish(job.id)
            raise
        except ErsError:
            if task is not None:
                self._start(job.id)
            raise
        await self._finish(job.id)

    async def forget(self, job: bytes) -> None:
        """Delete a job that has ended."""
        await runtime.in_thread(self._uses.store.forget, job)

    async def _withdraw(self, caller: Holder, name: bytes) -> bool:
        job = await runtime.in_thread(self._uses.store.get, name)
        if job is None or job.state in ENDED or job.phase != "publish":
            return True
        return await self.runner.publisher.withdraw(job, caller)

    # --- resuming ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Resume the jobs of an earlier process."""
        for job in await runtime.in_thread(self._uses.store.list_unfinished):
            if job.state == "processing":
                log.info("resuming a job of %d bytes", job.size)
                self._start(job.id)
            elif not job.options.resumable:
                lost = Unavailable("the upload was interrupted", code="upload_broken_off", hint="")
                await runtime.in_thread(
                    self._uses.store.mark_failed, job.id, in_words(lost), runtime.wall()
                )

    async def sweep(self) -> None:
        """Delete the leftovers of ended jobs, at the API too, and jobs that ended long ago.

        Raises:
            ErsError: the disk cannot be read or written; the next sweep tries again.
        """
        for job in await runtime.in_thread(self._uses.store.with_leftovers):
            if job.id not in self._running:
                self._track(job.id, self.runner.tidy)
        old = await self._certain_time() - KEPT_SECONDS
        await runtime.in_thread(self._uses.store.forget_before, old)

    async def knows(self, job: bytes) -> bool:
        """Whether there is such a job, of any user."""
        return await runtime.in_thread(self._uses.store.get, job) is not None

    def _start(self, job: bytes) -> None:
        self._track(job, self.runner.run)

    def _track(self, job: bytes, work: Callable[[bytes], Awaitable[None]]) -> None:
        task = self._background.start(JOBS, partial(work, job))
        self._running[job] = task
        task.add_done_callback(partial(self._end, job))

    def _end(self, job: bytes, task: asyncio.Task[None]) -> None:
        # Other work of the same job may have begun before this task ended.
        if self._running.get(job) is task:
            del self._running[job]

    async def stop(self) -> None:
        """Stop all work; the next process resumes it."""
        await self._background.stop(JOBS)


#: Bytes of an upload that are gathered before they go to the spool.
GATHERED_BYTES = 1 << 20


def _check_names(layout: Layout, reading: Recipe | None, definition: SchemaDefinition) -> None:
    """
    Raises:
        BadInput: the file's columns are not fields of the schema, or a required field is missing.
    """
    if isinstance(layout, Header):
        check_columns(layout.names, definition)
    elif reading is not None:
        check_fields(reading, list(definition.fields), sorted(definition.required))


def schema_of_header(header: Header, named: bytes | None) -> bytes:
    """The schema of a CSV upload.

    Raises:
        InvalidRecords: ``csv_header``; neither header nor request name a schema, or two different
            schemas.
    """
    if header.schema is None:
        if named is None:
            raise no_schema(header.names)
        return named
    try:
        schema = ids.from_text(header.schema)
    except Malformed:
        raise bad_schema(
            "is not a schema's id: schema_id:<schema id>", "invalid_reference"
        ) from None
    if named not in (None, schema):
        raise bad_schema("names a different schema than the request", "invalid_reference")
    return schema


async def gather(body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The body in pieces of about a MiB: switching threads for every network packet costs more than
    sealing it."""
    pieces: list[bytes] = []
    size = 0
    async for piece in body:
        pieces.append(piece)
        size += len(piece)
        if size >= GATHERED_BYTES:
            yield b"".join(pieces)
            pieces, size = [], 0
    if pieces:
        yield b"".join(pieces)


#: The current definition, whatever it is.
PRESENT = SealTarget(b"", b"")


def target_of(plan: DefinitionPlan) -> SealTarget:
    """The target of a plan that needs all records resealed."""
    assert plan.present is not None
    had, new, target = plan.present.by_id, plan.new.fields, plan.target
    origins = [
        (spec.id, new[name].id) for name, spec in target.fields.items() if new[name].id in had
    ]
    # Dropped values have no field in the new definition, so :data:`LOST` takes its place.
    fields = plan.present.fields
    origins += [(LOST, fields[name].id) for name in plan.dropped if name in fields]
    return SealTarget(target.canonical, plan.present.digest, origins=tuple(origins))


class Reseals:
    def __init__(self, dependencies: JobDependencies, jobs: BatchJobs) -> None:
        self._uses = dependencies
        self._jobs = jobs
        #: held from the check for another job until this job has begun
        self._beginning = asyncio.Lock()

    async def with_seconds(
        self, caller: Holder, schema: bytes, plan: DefinitionPlan
    ) -> DefinitionPlan:
        """The plan with an estimate of how long resealing all records takes, measured now.

        Raises:
            ErsError: as :meth:`Schemas.refresh`; rows do not open.
        """
        target = target_of(plan)
        seconds = await self._jobs.runner.resealing.measure(caller, schema, target)
        return replace(plan, seconds=seconds)

    async def begin(
        self,
        caller: Holder,
        schema: bytes,
        target: SealTarget = PRESENT,
    ) -> StoredJob:
        """Begin a job that reseals all records of the schema.

        Args:
            target: the definition to seal for.

        Raises:
            Conflict: ``reseal_under_way``; ``nothing_to_reseal`` if nothing was ever stored.
            NotAllowed: ``not_writer``.
            ErsError: as :meth:`Schemas.refresh_ready` and :meth:`BatchJobs.begin`.
        """
        state = await self._uses.schemas.refresh_ready(caller, schema)
        if not state.ledger.snapshot().stored:
            raise Conflict(
                "the schema has no records to re-encrypt",
                code="nothing_to_reseal",
                hint="nothing needs to be done: new records are encrypted under the current key",
            )
        options = JobOptions(kind=Format.JSON, named=schema, work="reseal")
        async with self._beginning:
            if await runtime.in_thread(self._uses.store.targets.under_way, schema):
                raise Conflict(
                    "the records of this schema are already being re-encrypted",
                    code="reseal_under_way",
                    hint="wait for that job, or cancel it: ers job list",
                )
            job = await self._jobs.begin(caller, options)
            try:
                await runtime.in_thread(self._uses.store.targets.add, job.id, target)
                await self._jobs.mark_received(caller, job, 0)
            except ErsError as error:
                # Otherwise it would wait for an upload, and no other job could begin.
                await self._jobs.abandon(job.id, error)
                raise
        return job
