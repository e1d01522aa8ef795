"""The services that endpoints use, and their construction from the settings; their metrics.

Nothing but :class:`Services` constructs them. Tests replace parts by :class:`Overrides`.

Metrics for Prometheus are read at each request for them (:class:`Figures`). All values are sums
over all users and schemas: no label distinguishes them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
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
from encrypted_records.proxy.jobs.store import JobDependencies, Progress
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
from encrypted_records.proxy.search.caches import MemoryCache, RowCache
from encrypted_records.proxy.search.context import DatasetSchemas, QueryRunner
from encrypted_records.proxy.search.fetcher import Fetcher, PageFetcher
from encrypted_records.proxy.search.row_fetcher import RowFetcher
from encrypted_records.proxy.search.salvage import Salvager
from encrypted_records.proxy.search.search import Aggregates, SearchService
from encrypted_records.proxy.settings import Overrides, ProxySettings
from encrypted_records.proxy.sharing.settling import Sharing, VerifiedHead
from encrypted_records.proxy.stores import Stores
from encrypted_records.proxy.uploads.service import SWEEP_SECONDS, UploadService
from encrypted_records.proxy.webhooks import Status, Webhooks
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

    def __init__(self, services: Services, loop: asyncio.AbstractEventLoop) -> None:
        self._services = services
        self._loop = loop

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
        for state, count in self._services.stores.jobs.counts().items():
            jobs.add_metric([state], count)
        yield jobs
        yield from self._sent()
        yield GaugeMetricFamily(
            "ers_clock_doubtful_seconds",
            "Seconds by which the clock jumped ahead without evidence; retention ignores them.",
            self._services.clock.doubtful,
        )

    def _sent(self) -> Iterator[Metric]:
        webhooks = GaugeMetricFamily("ers_webhooks", "Webhooks, by status.", labels=["status"])
        for status in Status:
            webhooks.add_metric([status], self._services.webhooks.counts[status])
        sent = CounterMetricFamily(
            "ers_webhook_deliveries", "Deliveries of webhooks, by outcome.", labels=["outcome"]
        )
        for outcome in ("delivered", "failed"):
            sent.add_metric([outcome], self._services.webhooks.deliveries[outcome])
        yield from (webhooks, sent)

    async def _index(self) -> list[Metric]:
        services = self._services
        segments = pending = 0
        states = services.schemas.in_use()
        for state in states:
            segments += len(state.ledger.snapshot().segments)
            pending += services.merger.pending(state)
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
                "ers_feed_waiting", "Requests that are waiting for changes.", services.feed.waiting
            ),
            GaugeMetricFamily(
                "ers_running_merges", "Merges running in the background.", services.merger.running
            ),
        ]

    def _caches(self) -> Iterator[Metric]:
        entries = GaugeMetricFamily("ers_cache_entries", "Entries in a cache.", labels=["cache"])
        size = GaugeMetricFamily("ers_cache_bytes", "Size of a cache, in bytes.", labels=["cache"])
        lookups = CounterMetricFamily(
            "ers_cache_lookups", "Lookups in a cache, by outcome.", labels=["cache", "outcome"]
        )
        memory, disk_use = self._services.segments, self._services.stores.pages.use
        for name, use in (*memory.uses.items(), ("disk", disk_use)):
            entries.add_metric([name], use.count)
            size.add_metric([name], use.bytes)
            lookups.add_metric([name, "hit"], use.hits)
            lookups.add_metric([name, "miss"], use.misses)
        yield from (entries, size, lookups)
        budget = memory.pool.budget
        yield GaugeMetricFamily(
            "ers_memory_budget_bytes", "Limit for all caches in memory together, in bytes.", budget
        )


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


class _LateLogHeads:
    """The sharing services need the heads of logs, and reading logs needs the rights from sharing:
    so the schemas are set last.
    """

    schemas: Schemas

    async def read_before(self, holder: Holder, schema: bytes, epoch: int) -> VerifiedHead:
        return await self.schemas.read_before(holder, schema, epoch)

    async def remembered(self, holder: Holder, schema: bytes) -> VerifiedHead | None:
        return await self.schemas.remembered(holder, schema)


class Services:
    """
    Raises:
        Startup: the proxy's folder, its keys or their passphrase cannot be used.
    """

    def __init__(self, settings: ProxySettings, overrides: Overrides) -> None:
        self.api = Api(overrides.transport(settings.base_url))
        #: the mirror's description of itself, if a mirror replaces the API
        self.mirrored: Mirrored | None = None
        if settings.mirror is not None:
            self.api.transport.timing = MIRROR_TIMING
            overrides = replace(overrides, checkpointing=NEVER)
            self.mirrored = Mirrored(settings.mirror.name, self.api)
        self._open(settings, settings.data_dir / "proxy")
        #: all work that no request waits for
        self.background = overrides.background()
        #: for batch jobs and merges
        self.workers = overrides.workers(self.background)
        #: for what requests wait for
        self.readers = overrides.workers(self.background)
        self.names = OwnNames(
            *(settings.host, settings.port, settings.allowed_hosts, settings.base_url)
        )
        #: between two sweeps of leftovers of ended jobs
        self.sweep_seconds = overrides.sweep_seconds
        self._find_records(settings, overrides)
        self._store_records(overrides)
        self._delete_records(overrides)
        self._run_jobs(overrides)
        self._serve(settings, overrides)

    def _open(self, settings: ProxySettings, folder: Path) -> None:
        stale = settings.mirror is not None and settings.mirror.accept_stale
        try:
            disk.make_folder(folder)
            disk.drop_ballast_if_full(folder)
            self._identify_callers(settings, folder)
            self.stores = Stores(folder, settings.page_cache << 20, forgetful=stale)
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

    def _identify_callers(self, settings: ProxySettings, folder: Path) -> None:
        enrolment = _build_enrolment(settings, folder)
        self.keyrings = Keyrings(
            folder,
            *secrets_from(os.environ, folder),
            enrolment=enrolment,
            unlocked_seconds=60.0 * settings.lock_after,
        )
        self._door = Door(settings.door)
        self.access = Access(self.api, None if settings.mirror is None else settings.mirror.secret)
        self.admission = Admission(self.access, self.keyrings, enrolment, self._door)
        self.proofs = Proofs(self.api, self.admission, self.keyrings)

    def _find_records(self, settings: ProxySettings, overrides: Overrides) -> None:
        api, stores, origins = self.api, self.stores, self.names.origins
        self.clock = WatchedClock(
            *(stores.heads, overrides.clock, overrides.real_time, overrides.boot)
        )
        self.admission.enrolment.certain_now = self.clock.certain_now
        heads = _LateLogHeads()
        self.sharing = Sharing(
            *(api.transport, self.keyrings, stores.rosters, heads, self.background),
            *(overrides.attend_seconds, self.clock.certain),
        )
        self.segments = MemoryCache.within(settings.memory_cache << 20)
        sealed_rows = RowCache(self.segments, stores.pages)
        self.schemas = heads.schemas = Schemas(
            *(api, self.keyrings, stores.heads, stores.ledgers, sealed_rows, self.sharing),
            *(self.background, overrides.keeping, overrides.checkpointing),
        )
        self.pager = PageFetcher(self.segments, stores.pages)
        self.rows = RowFetcher(sealed_rows, self.background)
        memory = FairQueue(overrides.question_memory)
        self.fetcher = Fetcher(self.segments, self.pager, self.rows, memory)
        self.datasets, limits = DatasetSchemas(api, self.sharing), overrides.of_questions
        self.query_runner = QueryRunner(
            *(api, self.schemas, self.fetcher, self.datasets, origins), *limits
        )
        self.aggregates = Aggregates(self.query_runner)
        self.search = SearchService(self.query_runner)
        self.feed = Feed(self.schemas, self.query_runner)
        self.standings = Standings(self.schemas)
        self.signing = SchemaSigning(self.schemas, self.sharing)
        self.verifier = LogVerifier(api, self.schemas)
        self.salvager = Salvager(
            api, self.schemas, overrides.salvaged_bytes, overrides.salvage_pages
        )

    def _store_records(self, overrides: Overrides) -> None:
        api, schemas = self.api, self.schemas
        self.committer = Committer(api, schemas, self.fetcher.keep_built)
        unique, pages = UniqueKeys(api, self.fetcher), overrides.pages_at_once
        self.merger = MergeScheduler(
            MergeExecutor(
                *(api, self.fetcher, self.pager, self.workers, self.stores.spool.folder, pages)
            ),
            *(self.pager, self.committer, self.background),
            *(overrides.tiers, overrides.most_dead, overrides.room_seconds),
            Compactor(
                *(api, schemas, self.committer, self.workers, overrides.crowds),
                most_with_commit=overrides.most_with_commit,
            ),
            overrides.lanes(),
        )
        stored = (schemas, self.committer, self.merger, unique)
        # A record names its schema by a slug, or by an absolute URL of an origin of this proxy.
        named = (self.sharing.shown_names, self.names.origins)
        self.direct_ingest = DirectIngest(*stored, *named)
        self.upserter = Upserter(*stored, *named)
        self.changer = Updater(
            *(api, schemas, self.query_runner, self.committer, self.merger, unique)
        )
        self.definitions = DefinitionChanger(api, schemas, self.committer, self.query_runner)
        self.repairer = Repairer(api, schemas, self.merger, self.changer)

    def _delete_records(self, overrides: Overrides) -> None:
        api, schemas = self.api, self.schemas
        self.eraser = Eraser(
            *(api, schemas, self.merger, self.changer, self.datasets, self.stores.pages),
            *(self.stores.ledgers, overrides.erasing_seconds),
        )
        self.older_keys = OlderKeys(api, schemas, self.sharing, self.datasets, self.eraser)
        # Retention has a separate runner that notifies nothing: otherwise a check for expired
        # records would start a deletion.
        asking = QueryRunner(api, schemas, self.fetcher, self.datasets, self.names.origins)
        self.retainer = Retainer(api, schemas, asking, self.changer, self.clock)
        if self.mirrored is None:
            daily = DailyRetention(self.retainer, self.background)
            self.query_runner.notice = self.committer.notice = daily.notice

    def _run_jobs(self, overrides: Overrides) -> None:
        stores = self.stores
        self.spool = stores.spool
        self.progress = Progress()
        dependencies = JobDependencies(
            *(self.api, self.schemas, self.keyrings, stores.jobs),
            *(JobSecrets(self.keyrings), self.spool, self.progress),
        )
        runner = JobRunner(
            dependencies,
            committer=self.committer,
            merger=self.merger,
            workers=self.workers,
            fetcher=self.fetcher,
            pager=self.pager,
            own_origins=self.names.origins,
            packing=overrides.packing,
        )
        self.jobs = BatchJobs(dependencies, runner, self.clock.certain, self.background)
        self.reseals = Reseals(dependencies, self.jobs)
        self.undo = Undo(stores.jobs, self.schemas, self.changer)
        self.uploads = UploadService(
            *(stores.uploads, self.spool, self.keyrings, self.jobs, self.names, self.clock)
        )

    def _serve(self, settings: ProxySettings, overrides: Overrides) -> None:
        sender, questions = overrides.webhook_sender(settings.webhooks), self.stores.questions
        self.webhooks = Webhooks(
            *(self.stores.webhooks, self.keyrings, self.feed),
            *(sender, self.admission.readmit, self.background),
        )
        self.desks = Desks()
        self.crowd = RunningRequests(overrides.few_requests, overrides.answer_seconds)
        #: turns of exports
        self.turns = process.Turns(self.crowd.was_busy)
        #: turns of SQL statements on pages
        self.sql_turns = FairQueue(SQL_BYTES)
        self.saved_questions = SavedQuestions(questions, self.keyrings)
        self.question_links = QuestionLinks(questions)
        self.kept_readings = KeptReadings(questions, self.keyrings)
        self.cookie_name = cookie_name(settings.port)

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
        registry.register(Figures(self, asyncio.get_running_loop()))
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
        self.admission.enrolment.close()
        self._door.close()

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


def services_of(connection: HTTPConnection) -> Services:
    return cast(Services, connection.app.state.services)
