"""The services that endpoints use, and their construction from the settings; their metrics.

Each folder has a function that builds its services; nothing else constructs them. Tests replace
parts by :class:`Overrides`.

Metrics for Prometheus are read at each request for them (:class:`Figures`). All values are sums
over all users and schemas: no label distinguishes them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import HTTPConnection

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.client.limits import MIRROR_TIMING
from encrypted_records.client.proxy.records import MirrorAge
from encrypted_records.errors import OutOfSpace, Startup
from encrypted_records.fair_queue import FairQueue
from encrypted_records.listening import pace
from encrypted_records.proxy import disk, process
from encrypted_records.proxy.admission import Admission, Door, Proofs
from encrypted_records.proxy.auth import Access, Caller, credentials_of
from encrypted_records.proxy.feed import Feed
from encrypted_records.proxy.http.guard import OwnNames, RunningRequests
from encrypted_records.proxy.http.sessions import Desks, cookie_name
from encrypted_records.proxy.jobs.job import JobSecrets
from encrypted_records.proxy.jobs.publisher import Undo
from encrypted_records.proxy.jobs.runner import JobRunner
from encrypted_records.proxy.jobs.service import BatchJobs, Reseals
from encrypted_records.proxy.jobs.store import JobDependencies, JobStore, Progress
from encrypted_records.proxy.keyrings.devices import AccessStore, Enrolment
from encrypted_records.proxy.keyrings.files import secrets_from
from encrypted_records.proxy.keyrings.holder import Circumstances, Holder, decide_policy
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.mirrored import Mirrored
from encrypted_records.proxy.retention import NOTE_SECONDS, DailyRetention, Retainer, WatchedClock
from encrypted_records.proxy.saved_questions import KeptReadings, QuestionLinks, SavedQuestions
from encrypted_records.proxy.schemas.differences import SchemaSigning, Standings
from encrypted_records.proxy.schemas.logs import NEVER
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.search.caches import DiskCache, MemoryCache, RowCache
from encrypted_records.proxy.search.context import DatasetSchemas, QueryRunner
from encrypted_records.proxy.search.fetcher import Fetcher, PageFetcher
from encrypted_records.proxy.search.row_fetcher import RowFetcher
from encrypted_records.proxy.search.salvage import Salvager
from encrypted_records.proxy.search.search import Aggregates, SearchService
from encrypted_records.proxy.settings import Overrides, ProxySettings
from encrypted_records.proxy.sharing.settling import Sharing, VerifiedHead
from encrypted_records.proxy.sharing.shown_names import ShownNames
from encrypted_records.proxy.spool import Spool
from encrypted_records.proxy.stores import Stores
from encrypted_records.proxy.uploads.service import SWEEP_SECONDS, UploadService
from encrypted_records.proxy.webhooks import Status, Webhooks
from encrypted_records.proxy.workers.pool import WorkerPool
from encrypted_records.proxy.write.committer import Committer
from encrypted_records.proxy.write.compactor import Compactor
from encrypted_records.proxy.write.definitions import DefinitionChanger
from encrypted_records.proxy.write.erasure import Eraser, OlderKeys
from encrypted_records.proxy.write.ingest import DirectIngest
from encrypted_records.proxy.write.merge_executor import MergeExecutor
from encrypted_records.proxy.write.merge_scheduler import MergeScheduler
from encrypted_records.proxy.write.repair import LogVerifier, Repairer
from encrypted_records.proxy.write.unique import UniqueKeys
from encrypted_records.proxy.write.update import Updater, Upserter

log = logging.getLogger(__name__)


#: Seconds that the proxy may be too busy to answer.
_METRICS_SECONDS = 10.0


class Figures(Collector):
    """Collected in threads; the values are read in the event loop, which changes them."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        schemas: Schemas,
        merger: MergeScheduler,
        cache: MemoryCache,
        pages: DiskCache,
        jobs: JobStore,
        clock: WatchedClock,
        feed: Feed,
        webhooks: Webhooks,
    ) -> None:
        self._loop = loop
        self._schemas = schemas
        self._merger = merger
        self._cache = cache
        self._pages = pages
        self._jobs = jobs
        self._clock = clock
        self._feed = feed
        self._webhooks = webhooks

    def collect(self) -> Iterator[Metric]:
        """
        Raises:
            TimeoutError: the proxy is too busy.
        """
        samples = asyncio.run_coroutine_threadsafe(self._index(), self._loop)
        yield from samples.result(_METRICS_SECONDS)
        yield from self._caches()
        jobs = GaugeMetricFamily(
            "ers_jobs", "Batch jobs in the proxy's store, by state.", labels=["state"]
        )
        for state, count in self._jobs.counts().items():
            jobs.add_metric([state], count)
        yield jobs
        yield from self._sent()
        yield GaugeMetricFamily(
            "ers_clock_doubtful_seconds",
            "Seconds by which the clock jumped ahead without evidence; retention ignores them.",
            self._clock.doubtful,
        )

    def _sent(self) -> Iterator[Metric]:
        webhooks = GaugeMetricFamily("ers_webhooks", "Webhooks, by status.", labels=["status"])
        for status in Status:
            webhooks.add_metric([status], self._webhooks.counts[status])
        sent = CounterMetricFamily(
            "ers_webhook_deliveries", "Deliveries of webhooks, by outcome.", labels=["outcome"]
        )
        for outcome in ("delivered", "failed"):
            sent.add_metric([outcome], self._webhooks.deliveries[outcome])
        yield from (webhooks, sent)

    async def _index(self) -> list[Metric]:
        segments = pending = 0
        states = self._schemas.in_use()
        for state in states:
            segments += len(state.ledger.snapshot().segments)
            pending += self._merger.pending(state)
            await runtime.sleep(0)  # queries go first
        return [
            GaugeMetricFamily(
                "ers_schemas_in_use", "Schemas whose log the proxy has in memory.", len(states)
            ),
            GaugeMetricFamily(
                "ers_live_segments", "Live index segments of schemas in use.", segments
            ),
            GaugeMetricFamily(
                "ers_pending_merges", "Schemas in use that have segments to merge.", pending
            ),
            GaugeMetricFamily(
                "ers_feed_waiting", "Requests that are waiting for changes.", self._feed.waiting
            ),
            GaugeMetricFamily(
                "ers_running_merges", "Merges running in the background.", self._merger.running
            ),
        ]

    def _caches(self) -> Iterator[Metric]:
        entries = GaugeMetricFamily("ers_cache_entries", "Entries in a cache.", labels=["cache"])
        size = GaugeMetricFamily("ers_cache_bytes", "Size of a cache, in bytes.", labels=["cache"])
        lookups = CounterMetricFamily(
            "ers_cache_lookups", "Lookups in a cache, by outcome.", labels=["cache", "outcome"]
        )
        for name, use in (*self._cache.uses.items(), ("disk", self._pages.use)):
            entries.add_metric([name], use.count)
            size.add_metric([name], use.bytes)
            lookups.add_metric([name, "hit"], use.hits)
            lookups.add_metric([name, "miss"], use.misses)
        yield from (entries, size, lookups)
        budget = self._cache.pool.budget
        yield GaugeMetricFamily(
            "ers_memory_budget_bytes", "Limit for all caches in memory together, in bytes.", budget
        )


@dataclass(frozen=True, slots=True)
class _IdentityServices:
    """Services that identify callers and the keys that they may use."""

    access: Access
    enrolment: Enrolment
    keyrings: Keyrings
    door: Door
    admission: Admission
    proofs: Proofs

    def close(self) -> None:
        self.enrolment.close()
        self.door.close()


def _build_identity(settings: ProxySettings, folder: Path, api: Api) -> _IdentityServices:
    """
    Raises:
        OSError: the folder cannot be used.
        Startup: its keys or their passphrase cannot be used.
    """
    enrolment = _build_enrolment(settings, folder)
    keyrings = Keyrings(
        folder,
        *secrets_from(os.environ, folder),
        enrolment=enrolment,
        unlocked_seconds=60.0 * settings.lock_after,
    )
    door = Door(settings.door)
    access = Access(api, None if settings.mirror is None else settings.mirror.secret)
    admission = Admission(access, keyrings, enrolment, door)
    proofs = Proofs(api, admission, keyrings)
    return _IdentityServices(access, enrolment, keyrings, door, admission, proofs)


def _build_enrolment(settings: ProxySettings, folder: Path) -> Enrolment:
    """The devices of this proxy; its level is logged, and recorded for each user."""
    policy = decide_policy(
        Circumstances(
            access=settings.access,
            host=settings.host,
            allowed_hosts=settings.allowed_hosts,
            own_api=settings.own_api,
            keyrings=len(list((folder / "keyrings").glob("*.keyring"))),
        )
    )
    enrolment = Enrolment(AccessStore(folder / "access.sqlite3"), policy)
    enrolment.note(b"", "started", detail=policy.level)
    if policy.exposed:
        log.warning(
            "this proxy can be reached from other machines and works at level api: anybody"
            " whom the API declares to be a user can use that user's keys. --access device"
            " prevents that"
        )
    log.info("level %s%s", policy.level, ", for one user" if policy.lone else "")
    return enrolment


#: Maximum seconds between two checks for unused keyrings.
MOST_LOCK_SECONDS = 30.0
#: Seconds between two checks for unused cache entries.
FORGET_SECONDS = 60.0
#: Memory in bytes of all SQL statements that pages run at once.
SQL_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Reading:
    """Services that find and decrypt records."""

    schemas: Schemas
    segments: MemoryCache
    rows: RowFetcher
    pager: PageFetcher
    fetcher: Fetcher
    query_runner: QueryRunner


@dataclass(frozen=True, slots=True)
class Writing:
    """Services that store records, and merge segments."""

    committer: Committer
    merger: MergeScheduler
    changer: Updater
    definitions: DefinitionChanger
    direct_ingest: DirectIngest
    upserter: Upserter


@dataclass(frozen=True)
class Services:
    #: all work that no request waits for
    background: process.Background
    api: Api
    stores: Stores
    access: Access
    admission: Admission
    proofs: Proofs
    keyrings: Keyrings
    sharing: Sharing
    schemas: Schemas
    standings: Standings
    merger: MergeScheduler
    segments: MemoryCache
    rows: RowFetcher
    pager: PageFetcher
    fetcher: Fetcher
    query_runner: QueryRunner
    aggregates: Aggregates
    changer: Updater
    eraser: Eraser
    repairer: Repairer
    older_keys: OlderKeys
    clock: WatchedClock
    retainer: Retainer
    daily: DailyRetention
    definitions: DefinitionChanger
    direct_ingest: DirectIngest
    upserter: Upserter
    search: SearchService
    feed: Feed
    webhooks: Webhooks
    salvager: Salvager
    verifier: LogVerifier
    signing: SchemaSigning
    jobs: BatchJobs
    reseals: Reseals
    undo: Undo
    progress: Progress
    spool: Spool
    uploads: UploadService
    #: for batch jobs and merges
    workers: WorkerPool
    #: for what requests wait for
    readers: WorkerPool
    names: OwnNames
    desks: Desks
    crowd: RunningRequests
    #: turns of exports
    turns: process.Turns
    #: turns of SQL statements on pages
    sql_turns: FairQueue
    saved_questions: SavedQuestions
    question_links: QuestionLinks
    kept_readings: KeptReadings
    cookie_name: str
    identity: _IdentityServices
    #: the mirror's description of itself, if a mirror replaces the API
    mirrored: Mirrored | None
    #: between two sweeps of leftovers of ended jobs
    sweep_seconds: float

    @property
    def own_origins(self) -> tuple[str, ...]:
        return self.names.origins

    async def caller(self, connection: HTTPConnection) -> Caller:
        """The sender of this request or WebSocket, for operations that use no keys.

        The body of an authenticated caller may arrive slowly.

        Raises:
            NotAuthenticated: the API does not know the caller.
            NotAllowed: a change by session without the CSRF token.
        """
        if self.mirrored is not None:
            await self.mirrored.look()
            holder = await self.admission.holder(connection)
            return Caller(holder.user, holder.auth, service=holder.service)
        caller = await self.access.caller(credentials_of(connection))
        pace.know(connection.scope)
        return caller

    async def holder(self, connection: HTTPConnection) -> Holder:
        """The holder who may use their keyring for this request.

        Raises:
            NotAuthenticated, NotAllowed: as for :meth:`Admission.holder`.
        """
        if self.mirrored is not None:
            await self.mirrored.look()
        holder = await self.admission.holder(connection)
        pace.know(connection.scope)
        if self.mirrored is None:
            self.sharing.attending.notice(holder)
            self.jobs.notice(holder)
        return holder

    @asynccontextmanager
    async def running(self, registry: CollectorRegistry) -> AsyncIterator[None]:
        """Resume jobs, and sweep expired data; at the end, stop and close everything.

        Args:
            registry: registry of the metrics, which can be read meanwhile.
        """
        # Long work that no request starts has a queue, too.
        self.access.lines.enter(b"")
        if self.mirrored is None:
            await self.jobs.start()
            await self.uploads.start()
            await self.webhooks.start()
        self._repeat()
        registry.register(self._figures())
        yield
        # Each task is atomic at the API, wherever it is cancelled.
        await self.background.stop(
            *(process.JOB_SWEEP, process.UPLOAD_SWEEP, process.CLOCK),
            *(process.LOCKING, process.FORGETTING),
            *(process.ATTENDING, process.RETENTION, process.CHECKPOINTING),
            process.WEBHOOKS,
        )
        await self.jobs.stop()
        await self.merger.close()
        await self.schemas.close()
        await asyncio.gather(self.workers.close(), self.readers.close(), self.rows.close())
        await self.background.stop()
        await self.webhooks.close()
        await self.api.transport.close()
        self.uploads.close()
        self.stores.close()
        self.identity.close()

    async def describe_copy(self, holder: Holder, schema: bytes) -> MirrorAge | None:
        """The age of an answer from a mirror, as in :meth:`Mirrored.describe`; None without one."""
        if self.mirrored is None:
            return None
        state = self.schemas.get_cached(holder, schema)
        return await self.mirrored.describe(0 if state is None else state.ledger.past.last)

    def forget(self, user: bytes) -> None:
        """Drop all data that was decrypted with the user's keyring."""
        self.schemas.forget_user(user)
        self.sharing.forget_user(user)
        self.segments.clear()

    def _repeat(self) -> None:
        repeat = self.background.every
        if self.mirrored is None:
            repeat(self.sweep_seconds, process.JOB_SWEEP, self.jobs.sweep)
            repeat(SWEEP_SECONDS, process.UPLOAD_SWEEP, self.uploads.sweep)
        repeat(NOTE_SECONDS, process.CLOCK, self._watch_clock)
        lock_seconds = min(MOST_LOCK_SECONDS, self.keyrings.unlocked_seconds / 4)
        repeat(lock_seconds, process.LOCKING, self._lock_unused, at_once=False)
        repeat(FORGET_SECONDS, process.FORGETTING, self._forget_unused, at_once=False)

    async def _watch_clock(self) -> None:
        await self.clock.look()

    async def _lock_unused(self) -> None:
        """Lock unused keyrings, so that keys do not stay in memory longer than they may be used."""
        for user in self.keyrings.close_unused():
            self.forget(user)

    async def _forget_unused(self) -> None:
        """Remove dropped data from the files, and drop unused data."""
        await runtime.in_thread(self.stores.pages.drop_unused)

    def _figures(self) -> Figures:
        return Figures(
            loop=asyncio.get_running_loop(),
            schemas=self.schemas,
            merger=self.merger,
            cache=self.segments,
            pages=self.stores.pages,
            jobs=self.stores.jobs,
            clock=self.clock,
            feed=self.feed,
            webhooks=self.webhooks,
        )


def services_of(connection: HTTPConnection) -> Services:
    return cast(Services, connection.app.state.services)


class _LateLogHeads:
    """The sharing services need the heads of logs, and reading logs needs the rights from sharing:
    so the schemas are set last.
    """

    schemas: Schemas

    async def read_before(self, holder: Holder, schema: bytes, epoch: int) -> VerifiedHead:
        return await self.schemas.read_before(holder, schema, epoch)

    async def remembered(self, holder: Holder, schema: bytes) -> VerifiedHead | None:
        return await self.schemas.remembered(holder, schema)


def build_services(settings: ProxySettings, overrides: Overrides) -> Services:
    """
    Raises:
        Startup: the proxy's folder, its keys or their passphrase cannot be used.
    """
    api = Api(overrides.transport(settings.base_url))
    if settings.mirror is not None:
        api.transport.timing = MIRROR_TIMING
    folder = settings.data_dir / "proxy"
    try:
        disk.make_folder(folder)
        disk.drop_ballast_if_full(folder)
        identity = _build_identity(settings, folder, api)
        stale = settings.mirror is not None and settings.mirror.accept_stale
        stores = Stores.in_folder(folder, settings.page_cache << 20, forgetful=stale)
        disk.keep_ballast(folder)
    except OutOfSpace:
        raise Startup(
            f"the disk that holds {folder} is full",
            hint="free some space there, then start again",
        ) from None
    except OSError as error:
        raise Startup(
            f"the folder {folder} cannot be used: {(error.strerror or 'it fails').lower()}",
            hint="choose another with --data-dir, or make it writable",
        ) from None
    if settings.mirror is not None:
        overrides = replace(overrides, checkpointing=NEVER)
    names = OwnNames(settings.host, settings.port, settings.allowed_hosts, settings.base_url)
    beside = overrides.background()
    workers = overrides.workers(beside)
    heads = _LateLogHeads()
    shared = (api.transport, identity.keyrings, stores.rosters)
    clock = WatchedClock(stores.heads, overrides.clock, overrides.real_time, overrides.boot)
    identity.enrolment.certain_now = clock.certain_now
    sharing = Sharing.of(*shared, heads, beside, overrides.attend_seconds, clock.certain)
    memory = MemoryCache.within(settings.memory_cache << 20)
    reading = _build_reading(
        *(api, identity.keyrings, stores, sharing, names, memory, beside, overrides)
    )
    heads.schemas = reading.schemas
    named = (sharing.shown_names, names.origins)
    writing = _build_writing(api, reading, workers, stores.spool, named, beside, overrides)
    progress = Progress()
    job_dependencies = _gather_job_dependencies(api, identity.keyrings, stores, reading, progress)
    runner = JobRunner(
        job_dependencies,
        committer=writing.committer,
        merger=writing.merger,
        workers=workers,
        fetcher=reading.fetcher,
        pager=reading.pager,
        own_origins=names.origins,
        packing=overrides.packing,
    )
    jobs = BatchJobs(job_dependencies, runner, clock.certain, beside)
    datasets = reading.query_runner.datasets
    eraser = Eraser(
        *(api, reading.schemas, writing.merger, writing.changer, datasets, stores.pages),
        *(stores.ledgers, overrides.erasing_seconds),
    )
    # Retention has a separate runner that notifies nothing: otherwise a check for expired records
    # would start a deletion.
    asking = QueryRunner(api, reading.schemas, reading.fetcher, datasets, names.origins)
    feed = Feed(reading.schemas, reading.query_runner)
    crowd = RunningRequests(overrides.few_requests, overrides.answer_seconds)
    retainer = Retainer(api, reading.schemas, asking, writing.changer, clock)
    daily = DailyRetention(retainer, beside)
    mirrored = None if settings.mirror is None else Mirrored(settings.mirror.name, api)
    if mirrored is None:
        reading.query_runner.notice = writing.committer.notice = daily.notice
    return Services(
        background=beside,
        sweep_seconds=overrides.sweep_seconds,
        api=api,
        stores=stores,
        access=identity.access,
        admission=identity.admission,
        proofs=identity.proofs,
        keyrings=identity.keyrings,
        sharing=sharing,
        schemas=reading.schemas,
        standings=Standings(reading.schemas),
        merger=writing.merger,
        segments=reading.segments,
        rows=reading.rows,
        pager=reading.pager,
        fetcher=reading.fetcher,
        query_runner=reading.query_runner,
        aggregates=Aggregates(reading.query_runner),
        changer=writing.changer,
        eraser=eraser,
        repairer=Repairer(api, reading.schemas, writing.merger, writing.changer),
        older_keys=OlderKeys(api, reading.schemas, sharing, datasets, eraser),
        clock=clock,
        retainer=retainer,
        daily=daily,
        definitions=writing.definitions,
        direct_ingest=writing.direct_ingest,
        upserter=writing.upserter,
        search=SearchService(reading.query_runner),
        feed=feed,
        webhooks=Webhooks(
            *(stores.webhooks, identity.keyrings, feed),
            *(overrides.webhook_sender(settings.webhooks), identity.admission.readmit, beside),
        ),
        salvager=Salvager(
            api,
            reading.schemas,
            answer_bytes=overrides.salvaged_bytes,
            temporary_pages=overrides.salvage_pages,
        ),
        verifier=LogVerifier(api, reading.schemas),
        signing=SchemaSigning(reading.schemas, sharing),
        jobs=jobs,
        reseals=Reseals(job_dependencies, jobs),
        undo=Undo(stores.jobs, reading.schemas, writing.changer),
        progress=progress,
        spool=stores.spool,
        uploads=UploadService(stores.uploads, stores.spool, identity.keyrings, jobs, names, clock),
        workers=workers,
        readers=overrides.workers(beside),
        names=names,
        desks=Desks(),
        crowd=crowd,
        turns=process.Turns(crowd.was_busy),
        sql_turns=FairQueue(SQL_BYTES),
        saved_questions=SavedQuestions(stores.questions, identity.keyrings),
        question_links=QuestionLinks(stores.questions),
        kept_readings=KeptReadings(stores.questions, identity.keyrings),
        cookie_name=cookie_name(settings.port),
        identity=identity,
        mirrored=mirrored,
    )


def _build_reading(
    api: Api,
    keyrings: Keyrings,
    stores: Stores,
    sharing: Sharing,
    names: OwnNames,
    segments: MemoryCache,
    beside: process.Background,
    overrides: Overrides,
) -> Reading:
    sealed_rows = RowCache(segments, stores.pages)
    kept = (stores.heads, stores.ledgers, sealed_rows)
    policies = (overrides.keeping, overrides.checkpointing)
    schemas = Schemas(api, keyrings, *kept, sharing, beside, *policies)
    pager = PageFetcher(segments, stores.pages)
    rows = RowFetcher(sealed_rows, beside)
    fetcher = Fetcher(segments, pager, rows, FairQueue(overrides.question_memory))
    datasets, limits = DatasetSchemas(api, sharing), overrides.of_questions
    runner = QueryRunner(api, schemas, fetcher, datasets, names.origins, *limits)
    return Reading(schemas, segments, rows, pager, fetcher, runner)


def _build_writing(
    api: Api,
    reading: Reading,
    pool: WorkerPool,
    spool: Spool,
    named: tuple[ShownNames, tuple[str, ...]],
    beside: process.Background,
    overrides: Overrides,
) -> Writing:
    """
    Args:
        named: resolves the schema that a record names, and knows the origins of absolute URLs here.
    """
    schemas = reading.schemas
    fetcher = reading.fetcher
    committer, unique = Committer(api, schemas, fetcher.keep_built), UniqueKeys(api, fetcher)
    executor = MergeExecutor(
        api, fetcher, reading.pager, pool, spool.folder, overrides.pages_at_once
    )
    merger = MergeScheduler(
        executor,
        reading.pager,
        committer,
        beside,
        overrides.tiers,
        overrides.most_dead,
        overrides.room_seconds,
        Compactor(
            *(api, schemas, committer, pool, overrides.crowds),
            most_with_commit=overrides.most_with_commit,
        ),
        overrides.lanes(),
    )
    return Writing(
        committer,
        merger,
        changer=Updater(api, schemas, reading.query_runner, committer, merger, unique),
        definitions=DefinitionChanger(api, schemas, committer, reading.query_runner),
        direct_ingest=DirectIngest(schemas, committer, merger, unique, *named),
        upserter=Upserter(schemas, committer, merger, unique, *named),
    )


def _gather_job_dependencies(
    api: Api, keyrings: Keyrings, stores: Stores, reading: Reading, progress: Progress
) -> JobDependencies:
    return JobDependencies(
        *(api, reading.schemas, keyrings, stores.jobs),
        *(JobSecrets(keyrings), stores.spool, progress),
    )
