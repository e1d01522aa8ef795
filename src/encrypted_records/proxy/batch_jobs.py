"""Takes batch jobs in and answers for them: beginning, receiving, listing, cancelling, resuming.

A job is its owner's alone: for everybody else it does not exist.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any

from encrypted_records.client.api import Api
from encrypted_records.errors import (
    Conflict,
    ErsError,
    Flaw,
    Malformed,
    NotAuthenticated,
    NotFound,
    Unavailable,
)
from encrypted_records.ingest.layouts import Layout, recognize
from encrypted_records.ingest.parse_csv import Header, bad_header, check_columns
from encrypted_records.model import ids
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.job_runner import JobRunner
from encrypted_records.proxy.job_secrets import JobSecrets
from encrypted_records.proxy.job_store import JobStore
from encrypted_records.proxy.jobs import ENDED, Job, Order, in_words
from encrypted_records.proxy.keyrings import Keyrings
from encrypted_records.proxy.progress import PAUSE_SECONDS, Progress
from encrypted_records.proxy.schemas import Schemas
from encrypted_records.proxy.spool import Spool

log = logging.getLogger(__name__)

#: Seconds for which an ended job can be asked about.
KEPT_SECONDS = 30 * 86_400
SWEEP_SECONDS = 600.0
#: Bytes of an upload that are gathered before they go to the spool.
GATHERED_BYTES = 1 << 20


class BatchJobs:
    def __init__(
        self,
        *,
        api: Api,
        schemas: Schemas,
        keyrings: Keyrings,
        store: JobStore,
        secrets: JobSecrets,
        spool: Spool,
        runner: JobRunner,
        progress: Progress,
    ) -> None:
        self._api = api
        self._schemas = schemas
        self._keyrings = keyrings
        self._store = store
        self._secrets = secrets
        self._spool = spool
        self._runner = runner
        self._progress = progress
        self._running: dict[bytes, asyncio.Task[None]] = {}

    # --- taking in --------------------------------------------------------------------------

    async def begin(self, caller: Caller, order: Order) -> Job:
        """A new job in state ``uploading``, with an empty upload in the spool.

        The caller's credentials are traded for the job's token now, so that the job can go on when
        they have expired.

        Raises:
            ErsError: the API refuses or is away, the keyring does not open, the disk is full.
        """
        job = Job(
            id=uuid.uuid4().bytes,
            user=caller.user,
            order=order,
            state="uploading",
            phase="check",
            size=0,
            processed=0,
            total=0,
            flawed=0,
            listed=0,
            error=None,
            created=time.time(),
            finished=None,
        )
        keyring = await asyncio.to_thread(self._keyrings.of, caller.user)
        await asyncio.to_thread(self._store.add, job, await self._token(caller, job.id))
        try:
            await asyncio.to_thread(self._spool.create, job.id, keyring)
        except ErsError as error:
            await self.abandon(job.id, error)
            raise
        return job

    async def _token(self, caller: Caller, job: bytes) -> bytes:
        token = await self._api.job_token(job, caller.auth)
        return await asyncio.to_thread(self._secrets.seal_token, caller.user, job, token)

    async def receive(self, caller: Caller, job: Job, body: AsyncIterable[bytes]) -> int:
        """Put an upload that comes in one piece into the spool; how many bytes it has.

        What its first bytes show to be wrong ends it at once.

        Raises:
            BadInput: ``csv_header``, or no JSON.
            OutOfSpace, Unavailable: the disk does not take it.
        """
        keyring = await asyncio.to_thread(self._keyrings.of, caller.user)
        recognized = False
        start = b""
        with await asyncio.to_thread(self._spool.append, job.id, keyring, 0) as appending:
            async for piece in _gathered(body):
                if not recognized:
                    start += piece
                    recognized = await self.look(caller, job.order, start, final=False)
                await asyncio.to_thread(appending.write, piece)
            if not recognized:
                await self.look(caller, job.order, start, final=True)
            return await asyncio.to_thread(appending.finish)

    async def look(self, caller: Caller, order: Order, start: bytes, *, final: bool) -> bool:
        """Whether the first bytes of an upload show how it is laid out; of CSV, hold the header
        against the schema.

        Raises:
            BadInput: as :meth:`receive`.
            NotFound: the caller reaches no schema of the id that the header names.
        """
        found = recognize(start, csv=order.csv, final=final)
        if found is not None:
            await self._check_header(caller, order, found[0])
        return found is not None

    async def _check_header(self, caller: Caller, order: Order, layout: Layout) -> None:
        if not isinstance(layout, Header):
            return
        schema = schema_of_header(layout, order.named)
        state = await self._schemas.known(caller, schema)
        check_columns(layout.names, state.definition)

    async def received(self, caller: Caller | None, job: bytes, size: int) -> None:
        """All bytes are in the spool: process them.

        Args:
            caller: who brought the last ones; None where that is not known any more.

        Raises:
            Conflict: ``job_ended``; it was cancelled meanwhile.
            Unavailable: the API cannot be asked for a token; nothing has changed.
        """
        if caller is not None:
            # It may have taken longer than a token lasts; or longer than the caller's own does,
            # and then the job's must do.
            with suppress(NotAuthenticated):
                await asyncio.to_thread(self._store.renew, job, await self._token(caller, job))
        await asyncio.to_thread(self._store.received, job, size)
        self._progress.changed(job)
        self._start(job)

    async def abandon(self, job: bytes, error: ErsError) -> None:
        """The upload will not come: fail the job.

        Raises:
            Conflict: ``job_ended``; it has ended already.
        """
        try:
            await asyncio.to_thread(self._store.failed, job, in_words(error), time.time())
        except Unavailable:
            # What the disk has no room for, deleting the upload makes room for, or somebody else.
            await asyncio.to_thread(self._spool.delete, job)
            self._track(job, self._fail(job, error))
            return
        await self._ended(job)

    async def _fail(self, job: bytes, error: ErsError) -> None:
        await self._runner.fail(job, error)
        await self._runner.tidy(job)

    async def _ended(self, job: bytes) -> None:
        self._progress.changed(job)
        await self._runner.tidy(job)

    # --- answering --------------------------------------------------------------------------

    async def find(self, user: bytes, name: str) -> Job:
        """The user's job of this name, a UUID.

        Raises:
            NotFound: the user has none.
        """
        try:
            found = await asyncio.to_thread(self._store.get, uuid.UUID(name).bytes)
        except ValueError:
            found = None
        if found is None or found.user != user:
            raise NotFound("there is no such job, or it is not yours")
        return found

    async def awaited(self) -> list[Job]:
        """Jobs whose upload may still go on."""
        unfinished = await asyncio.to_thread(self._store.unfinished)
        return [job for job in unfinished if job.state == "uploading" and job.order.resumable]

    async def of_user(self, user: bytes, *, offset: int, limit: int) -> tuple[int, list[Job]]:
        return await asyncio.to_thread(self._store.of_user, user, offset=offset, limit=limit)

    async def flaws(self, job: Job) -> list[Flaw]:
        """What is wrong with the job's rows, the first 10,000."""
        sealed = await asyncio.to_thread(self._store.flaws, job.id)
        return await asyncio.to_thread(self._secrets.open_flaws, job, sealed)

    async def watch(self, job: bytes) -> AsyncIterator[Job]:
        """The job as it is now, then as it changes, at most ten times a second; last when ended."""
        with self._progress.watching(job) as changed:
            while True:
                changed.clear()
                found = await asyncio.to_thread(self._store.get, job)
                if found is None:
                    return
                yield found
                if found.state in ENDED:
                    return
                await asyncio.sleep(PAUSE_SECONDS)
                await changed.wait()

    async def cancel(self, caller: Caller, job: Job) -> None:
        """End a job of which nothing is visible yet; forget one that has ended.

        Raises:
            Conflict: ``job_ended``; it completed before it could be cancelled.
            Unavailable: the API, which may have published it, cannot be asked, or the disk is
                full; the job goes on.
        """
        if job.state in ENDED:
            await asyncio.to_thread(self._store.forget, job.id)
            return
        task = self._running.get(job.id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        try:
            if not await self._withdrawn(caller, job.id):
                await asyncio.to_thread(self._store.completed, job.id, time.time())
            await asyncio.to_thread(
                self._store.failed, job.id, "cancelled by its owner (job_cancelled)", time.time()
            )
        except Conflict:
            await self._ended(job.id)
            raise
        except ErsError:
            if task is not None:
                self._start(job.id)
            raise
        await self._ended(job.id)

    async def _withdrawn(self, caller: Caller, name: bytes) -> bool:
        job = await asyncio.to_thread(self._store.get, name)
        if job is None or job.state in ENDED or job.phase != "publish":
            return True
        return await self._runner.withdraw(job, caller)

    # --- going on ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Go on with what an earlier process has left."""
        for job in await asyncio.to_thread(self._store.unfinished):
            if job.state == "processing":
                log.info("going on with a job of %d bytes", job.size)
                self._start(job.id)
            elif not job.order.resumable:
                lost = Unavailable("the upload broke off", code="upload_broken_off", hint="")
                await asyncio.to_thread(self._store.failed, job.id, in_words(lost), time.time())

    async def sweep(self) -> None:
        """Once in a while, from the start on: drop what ended jobs have left, at the API too, and
        forget those that ended long ago."""
        while True:
            try:
                for job in await asyncio.to_thread(self._store.with_leftovers):
                    if job.id not in self._running:
                        self._track(job.id, self._runner.tidy(job.id))
                await asyncio.to_thread(self._store.forget_before, time.time() - KEPT_SECONDS)
            except Unavailable as error:
                log.warning("ended jobs were not cleared away: %s", error.message)
            await asyncio.sleep(SWEEP_SECONDS)

    async def knows(self, job: bytes) -> bool:
        """Whether there is such a job, of whoever."""
        return await asyncio.to_thread(self._store.get, job) is not None

    def _start(self, job: bytes) -> None:
        self._track(job, self._runner.run(job))

    def _track(self, job: bytes, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running[job] = task
        task.add_done_callback(lambda _: self._running.pop(job, None))

    async def stop(self) -> None:
        """End all work; the next process goes on with it."""
        for task in self._running.values():
            task.cancel()
        if self._running:
            await asyncio.wait(self._running.values())


def schema_of_header(header: Header, named: bytes | None) -> bytes:
    """The schema of a CSV upload.

    Raises:
        InvalidRecords: ``csv_header``; neither header nor request name one, or two different ones.
    """
    if header.schema is None:
        if named is None:
            raise bad_header("its last entry must be schema_id:<schema id>")
        return named
    try:
        found = ids.from_text(header.schema)
    except Malformed:
        raise bad_header("its last entry names no schema: schema_id:<schema id>") from None
    if named not in (None, found):
        raise bad_header("it names another schema than the request")
    return found


async def _gathered(body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The body in pieces of about a MiB: a change of threads for every network packet costs more
    than sealing it."""
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
