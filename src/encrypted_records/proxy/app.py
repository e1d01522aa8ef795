"""The proxy's settings and wiring; nothing else constructs its parts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from encrypted_records import logs, metrics
from encrypted_records.client.api import Api
from encrypted_records.client.transport import Transport
from encrypted_records.errors import ErsError, Startup
from encrypted_records.proxy import answers
from encrypted_records.proxy.access import Access
from encrypted_records.proxy.aggregating import Aggregates
from encrypted_records.proxy.asking import Asker
from encrypted_records.proxy.batch_jobs import BatchJobs
from encrypted_records.proxy.cache import SegmentCache
from encrypted_records.proxy.changer import Changer
from encrypted_records.proxy.committing import Committer
from encrypted_records.proxy.desk import Desks
from encrypted_records.proxy.figures import Figures
from encrypted_records.proxy.guard import Guard, OwnNames
from encrypted_records.proxy.hardening import harden
from encrypted_records.proxy.heads import Heads
from encrypted_records.proxy.job_runner import JobRunner
from encrypted_records.proxy.job_secrets import JobSecrets
from encrypted_records.proxy.job_store import JobStore
from encrypted_records.proxy.keyrings import Keyrings
from encrypted_records.proxy.lingering import Lingering
from encrypted_records.proxy.merge_builds import MergeBuilds
from encrypted_records.proxy.merger import Merger
from encrypted_records.proxy.pager import Pager
from encrypted_records.proxy.parts import Parts
from encrypted_records.proxy.progress import Progress
from encrypted_records.proxy.reader import Reader
from encrypted_records.proxy.routes import (
    changes,
    exports,
    files,
    forward,
    jobs,
    keyring,
    questions,
    records,
    reference,
    schemas,
    web,
)
from encrypted_records.proxy.runner import Runner
from encrypted_records.proxy.schemas import Schemas
from encrypted_records.proxy.sealed_pages import SealedPages
from encrypted_records.proxy.search import Search
from encrypted_records.proxy.spool import Spool
from encrypted_records.proxy.unlocking import secrets_from
from encrypted_records.proxy.upload_store import UploadStore
from encrypted_records.proxy.uploads import Uploads
from encrypted_records.proxy.workers import Workers

log = logging.getLogger(__name__)

#: Open requests get this long to end after a signal.
GRACEFUL_SECONDS = 5


@dataclass(frozen=True)
class ProxySettings:
    """``base_url`` is the API's. ``allowed_hosts`` are further names of this proxy.

    ``page_cache`` is the budget of sealed index pages on disk, in MiB. Without ``metrics_port``
    there are no metrics.
    """

    data_dir: Path
    host: str
    port: int
    base_url: str
    log_format: str = "text"
    allowed_hosts: tuple[str, ...] = ()
    page_cache: int = 2048
    metrics_port: int | None = None


def create_app(settings: ProxySettings) -> Starlette:
    """The ASGI application.

    Raises:
        Startup: the proxy's folder cannot be used, or its keys or their passphrase cannot.
    """
    folder = settings.data_dir / "proxy"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        keyrings = Keyrings(folder, *secrets_from(os.environ, folder))
        heads = Heads(folder / "heads.sqlite3")
        spool = Spool(folder / "spool")
        job_store = JobStore(folder / "jobs.sqlite3")
        stored = SealedPages(folder / "pages.sqlite3", settings.page_cache << 20)
        upload_store = UploadStore(folder / "uploads.sqlite3")
    except OSError as error:
        raise Startup(
            f"cannot use the folder {folder}: {(error.strerror or 'it fails').lower()}",
            hint="choose another with --data-dir, or make it writable",
        ) from None
    registry = CollectorRegistry()
    names = OwnNames(settings.host, settings.port, settings.allowed_hosts)
    transport = Transport(settings.base_url)
    api = Api(transport)
    access = Access(api)
    known_schemas = Schemas(api, keyrings, heads)
    segments = SegmentCache()
    pager = Pager(api, segments, stored)
    reader = Reader(api, segments, pager)
    committer = Committer(api, known_schemas)
    workers, progress, secrets = Workers(), Progress(), JobSecrets(keyrings)
    merger = Merger(MergeBuilds(api, reader, pager, workers), pager, committer)
    job_runner = JobRunner(
        api=api,
        schemas=known_schemas,
        keyrings=keyrings,
        committer=committer,
        merger=merger,
        store=job_store,
        secrets=secrets,
        spool=spool,
        workers=workers,
        progress=progress,
        own_origins=names.origins,
    )
    batch_jobs = BatchJobs(
        api=api,
        schemas=known_schemas,
        keyrings=keyrings,
        store=job_store,
        secrets=secrets,
        spool=spool,
        runner=job_runner,
        progress=progress,
    )
    uploads = Uploads(upload_store, spool, keyrings, batch_jobs, names)
    asker = Asker(api, known_schemas, reader)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        await batch_jobs.start()
        sweeping = [asyncio.create_task(one.sweep()) for one in (batch_jobs, uploads)]
        registry.register(
            Figures(
                loop=asyncio.get_running_loop(),
                schemas=known_schemas,
                merger=merger,
                cache=segments,
                pages=stored,
                jobs=job_store,
            )
        )
        with metrics.serving(settings.metrics_port, registry):
            yield
        for task in sweeping:
            task.cancel()
        await batch_jobs.stop()
        await merger.close()
        await workers.close()
        await transport.close()
        job_store.close()
        uploads.close()
        heads.close()
        stored.close()

    app = Starlette(
        routes=[
            *changes.routes,
            *questions.routes,
            *exports.routes,
            *records.routes,
            *schemas.routes,
            *jobs.routes,
            *keyring.routes,
            *reference.routes,
            *files.routes,
            *forward.routes,
            *web.routes,
        ],
        middleware=[
            Middleware(Lingering),
            Middleware(Guard, names=names, requests=metrics.Requests(registry)),
        ],
        exception_handlers={
            ErsError: answers.on_error,
            HTTPException: answers.on_http_error,
            Exception: answers.on_bug,
        },
        lifespan=lifespan,
    )
    app.state.parts = Parts(
        api=api,
        access=access,
        keyrings=keyrings,
        schemas=known_schemas,
        merger=merger,
        segments=segments,
        jobs=batch_jobs,
        spool=spool,
        uploads=uploads,
        asker=asker,
        aggregates=Aggregates(asker),
        changer=Changer(api, known_schemas, asker, committer, merger),
        runner=Runner(known_schemas, committer, merger, own_origins=names.origins),
        search=Search(asker),
        own_origins=names.origins,
        desks=Desks(),
    )
    return app


def run(settings: ProxySettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        Startup: the port is taken, or as :func:`create_app`.
    """
    _log_to_stderr(settings.log_format)
    harden()
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
        http="encrypted_records.proxy.reading:Reading",
        ws="websockets-sansio",
    )
    listening = _listen(settings.host, settings.port)
    log.info("the proxy listens on http://%s:%d", settings.host, settings.port)
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=2048)
    except OSError as error:
        raise Startup(
            f"cannot listen on {host}:{port}: {(error.strerror or 'it fails').lower()}",
            hint="stop what uses the port, or choose another with --proxy-port",
        ) from None


def _log_to_stderr(form: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logs.formatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # uvicorn logs exceptions with their text, which answers.on_bug keeps out of the log.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
