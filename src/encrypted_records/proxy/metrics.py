"""Prometheus metrics of the proxy's services, read at each request for metrics.

All values are sums over all users and schemas: no label distinguishes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from encrypted_records import runtime
from encrypted_records.proxy.feed import Feed
from encrypted_records.proxy.jobs.store import JobStore
from encrypted_records.proxy.retention import WatchedClock
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.search.caches import DiskCache, MemoryCache
from encrypted_records.proxy.webhooks import Status, Webhooks
from encrypted_records.proxy.write.merge_scheduler import MergeScheduler

#: Seconds that the proxy may be too busy to answer.
_PATIENCE = 10.0


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
        asked = asyncio.run_coroutine_threadsafe(self._index(), self._loop)
        yield from asked.result(_PATIENCE)
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
        every = GaugeMetricFamily("ers_webhooks", "Webhooks, by status.", labels=["status"])
        for status in Status:
            every.add_metric([status], self._webhooks.counts[status])
        sent = CounterMetricFamily(
            "ers_webhook_deliveries", "Deliveries of webhooks, by outcome.", labels=["outcome"]
        )
        for outcome in ("delivered", "failed"):
            sent.add_metric([outcome], self._webhooks.deliveries[outcome])
        yield from (every, sent)

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
