"""Metrics of the API for Prometheus: its requests, and the total stored data of all
organizations.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Literal

from django.contrib.admindocs.views import simplify_regex
from django.db import connection
from django.db.models import Sum
from django.http import HttpRequest
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from encrypted_records.metrics import Requests

_PART = re.compile(r"<(?:\w+:)?(\w+)>")

registry = CollectorRegistry()
requests = Requests(registry)


def count_refused(method: str, status: int, seconds: float) -> None:
    """Count a request that did not reach Django."""
    requests.observe(method, None, status, seconds)


def template(request: HttpRequest) -> str | None:
    """The route pattern of a request's path, such as ``/api/schemas/{pk}/``."""
    match = request.resolver_match
    return None if match is None else _readable(match.route)


@functools.cache
def _readable(route: str) -> str:
    return _PART.sub(r"{\1}", simplify_regex(route))


class BlockCacheCounts:
    """Counts of cache lookups of a remote store's ranges, in all processes of an API."""

    def __init__(self) -> None:
        self._lookups = Counter(
            "ers_block_cache_lookups",
            "Lookups of object ranges in the block cache.",
            ("outcome",),
            registry=registry,
        )
        self._dropped = Counter(
            "ers_block_cache_dropped",
            "Ranges dropped from the block cache: object deleted, or cache full.",
            ("reason",),
            registry=registry,
        )
        self._bytes = Gauge(
            "ers_block_cache_bytes",
            "Size of the block cache, in bytes.",
            registry=registry,
            multiprocess_mode="livesum",
        )

    def looked_up(self, hits: int, misses: int) -> None:
        self._lookups.labels("hit").inc(hits)
        self._lookups.labels("miss").inc(misses)

    def dropped(self, reason: Literal["gone", "room"], ranges: int) -> None:
        self._dropped.labels(reason).inc(ranges)

    def holds(self, size: int) -> None:
        self._bytes.set(size)


block_cache = BlockCacheCounts()


class Stored(Collector):
    """Queried from the database for each scrape; only small tables, not those of rows or pages."""

    def collect(self) -> Iterator[Metric]:
        # Models can be imported only once Django is set up.
        from encrypted_records.server.datasets.models import Schema  # noqa: PLC0415
        from encrypted_records.server.records.models import IndexSegment, Staging  # noqa: PLC0415

        try:
            live = IndexSegment.objects.filter(superseded_at=None, staging=None)
            rows = Schema.objects.aggregate(rows=Sum("live_rows", default=0))["rows"]
            yield GaugeMetricFamily("ers_live_records", "Live records of all organizations.", rows)
            yield GaugeMetricFamily(
                "ers_live_segments", "Live index segments of all organizations.", live.count()
            )
            yield GaugeMetricFamily(
                "ers_stagings",
                "Jobs and merges that have stored data ahead of their commit.",
                Staging.objects.count(),
            )
        finally:
            # Each scrape runs in a new thread, whose connection would stay open.
            connection.close()


registry.register(Stored())
