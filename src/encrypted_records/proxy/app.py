"""The proxy as an ASGI application: routes, middleware and error handlers around its services."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect

from encrypted_records import logs, metrics
from encrypted_records.errors import ErsError
from encrypted_records.heap import bound_heap
from encrypted_records.listening.connections import Lingering
from encrypted_records.listening.pace import ServerLimits
from encrypted_records.listening.serving import (
    Server,
    listening,
    require_descriptors,
    room_for_connections,
    settle,
)
from encrypted_records.listening.socket_protocol import Socket
from encrypted_records.proxy import pages
from encrypted_records.proxy.api import ROUTES
from encrypted_records.proxy.api.endpoint import FixedPaths
from encrypted_records.proxy.api.forward import NO_SOCKET
from encrypted_records.proxy.http import messages
from encrypted_records.proxy.http.guard import Guard, LoadLimit, Private
from encrypted_records.proxy.http.sessions import PagePaths
from encrypted_records.proxy.mirrored import AgeHeader
from encrypted_records.proxy.process import harden
from encrypted_records.proxy.services import Services
from encrypted_records.proxy.settings import Overrides, ProxySettings

log = logging.getLogger(__name__)

#: Seconds that open requests get to end after a signal.
GRACEFUL_SECONDS = 5
#: 64 connections of clients, 160 to the API, and files and workers' pipes.
LEAST_DESCRIPTORS = 320
#: Known callers upload over slow connections, and :mod:`.uploads.store` ends silent uploads
#: earlier. A reader of an export may pause.
LIMITS = ServerLimits(known_grace_seconds=75.0, unread_seconds=600.0)


def create_app(settings: ProxySettings, overrides: Overrides | None = None) -> Starlette:
    """The ASGI application.

    Raises:
        Startup: as :class:`Services`.
    """
    overrides = overrides or Overrides()
    services = Services(settings, overrides)
    registry = CollectorRegistry()

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with services.running(registry):
            with metrics.serving(settings.metrics_port, registry):
                yield

    app = Starlette(
        routes=[FixedPaths(ROUTES), *ROUTES, *pages.routes, NO_SOCKET],
        middleware=[
            Middleware(PagePaths, name=services.cookie_name),
            Middleware(Lingering),
            Middleware(AgeHeader, mirrored=services.mirrored),
            Middleware(Guard, names=services.names, requests=metrics.Requests(registry)),
            Middleware(Private, secret=settings.inline_secret),
            Middleware(LoadLimit, crowd=services.crowd),
        ],
        exception_handlers={
            ErsError: messages.on_error,
            HTTPException: messages.on_http_error,
            ClientDisconnect: messages.on_disconnect,
            Exception: messages.on_bug,
        },
        lifespan=lifespan,
    )
    app.state.closed = metrics.ClosedConnections(registry)
    app.state.services = services
    return app


def run(settings: ProxySettings, overrides: Overrides | None = None) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        Startup: the port is taken, there are too few descriptors, or as :func:`create_app`.
    """
    logs.log_to_stderr(settings.log_format, force=True)
    logs.log_uncaught()
    require_descriptors(LEAST_DESCRIPTORS)
    harden()
    bound_heap()
    app = create_app(settings, overrides)
    with listening(settings.host, settings.port, "--proxy-port") as sockets:
        log.info("the proxy listens on http://%s:%d", settings.host, settings.port)
        server = server_of(app)
        settle()
        server.run(sockets=sockets)


def server_of(app: Starlette) -> Server:
    """The server of an application from :func:`create_app`."""
    limits = replace(LIMITS, connections=room_for_connections(LIMITS.connections))
    return Server(
        app,
        limits,
        stop_seconds=GRACEFUL_SECONDS,
        closed=app.state.closed.observe,
        sockets=Socket,
        proxy_headers=True,
    )
