"""Prometheus metrics of both sides: counts and durations only, no names and no values.

The values of labels come from the code: a method, the template of a path, a status, a state. Labels
never contain input of callers, and thus no value, id or name of theirs, so the number of series is
bounded.

Metrics are served on a separate port, to this machine only, and only if that port was configured.
The Host header must name the address listened on, so that pages in a browser on this machine cannot
read the metrics.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, Counter, Histogram, make_wsgi_app

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
PATH = "/metrics"
#: Labels for a request without a route, and for a method that HTTP does not define.
NONE, OTHER = "none", "other"
METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS WEBSOCKET".split())
#: Seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
#: Seconds until a connection without a request is closed.
_PATIENCE = 10


class Requests:
    """Requests by method, template of their path, and status; and how long they took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._count = Counter(
            "ers_requests",
            "Answered requests.",
            ("method", "route", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "ers_request_seconds",
            "Time to answer a request, in seconds; for a WebSocket, until it closed.",
            ("method", "route"),
            buckets=BUCKETS,
            registry=registry,
        )

    def observe(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count one request.

        Args:
            route: the template of its path, from the code; None where it has none.
        """
        method = method if method in METHODS else OTHER
        self._count.labels(method, route or NONE, status).inc()
        self._seconds.labels(method, route or NONE).observe(seconds)


class ClosedConnections:
    """Connections that a side has closed because the peer was slow or silent, or over the limit."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._count = Counter(
            "ers_closed_connections",
            "Connections closed by this side: slow or silent peers, or too many.",
            ("reason",),
            registry=registry,
        )

    def observe(self, reason: str) -> None:
        """Count a connection; ``reason`` is a word of :class:`.listening.pace.ConnectionWatch`."""
        self._count.labels(reason).inc()


def serve(port: int, registry: CollectorRegistry) -> WSGIServer:
    """Serve the metrics of ``registry`` at ``/metrics`` on ``port`` of this machine, in a thread.

    Raises:
        OSError: the port is not available.
    """
    server = make_server(HOST, port, _Answering(registry), _MetricsServer, _Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


@contextmanager
def serving(port: int | None, registry: CollectorRegistry) -> Iterator[None]:
    """Serve metrics during the block, if a port is given. See :func:`serve`."""
    if port is None:
        yield
        return
    with serve(port, registry) as server:
        yield
        server.shutdown()


class _Answering:
    """A WSGI application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._metrics = make_wsgi_app(registry)

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ.get("HTTP_HOST", "").rpartition(":")[0] != HOST:
            return _refusal(start, "403 Forbidden")
        if environ["PATH_INFO"] != PATH or environ["REQUEST_METHOD"] != "GET":
            return _refusal(start, "404 Not Found")
        try:
            body: Iterable[bytes] = self._metrics(environ, start)
        except Exception as error:
            log.exception("metrics cannot be collected: %s", type(error).__name__)
            return _refusal(start, "503 Service Unavailable")
        return body


def _refusal(start: StartResponse, status: str) -> list[bytes]:
    start(status, [("Content-Type", "text/plain")])
    return [f"{status}\n".encode()]


class _MetricsServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE

    def log_message(self, *_args: object) -> None:
        """Disable the log of requests by Prometheus."""
