"""A proxy in this process, beside those that run, whose parts can be looked at and replaced."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from encrypted_records.client.api import KnownState
from encrypted_records.index.segments.builder import STANDARD, SegmentLimits
from encrypted_records.index.segments.merge_policy import CrowdSizes, Tier
from encrypted_records.ingest.seal import seal
from encrypted_records.model import ids
from encrypted_records.model.queries import parse_query
from encrypted_records.model.records import PageRef, PlainRecord
from encrypted_records.proxy.app import create_app
from encrypted_records.proxy.auth import RequestCredentials
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import Background
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.context import QueryContext
from encrypted_records.proxy.search.upstream import Upstream
from encrypted_records.proxy.services import Services
from encrypted_records.proxy.settings import Overrides, ProxySettings
from encrypted_records.proxy.workers.pool import WorkerPool
from encrypted_records.proxy.write.committer import Committer
from encrypted_records.proxy.write.compactor import MOST_WITH_COMMIT, Compactor
from encrypted_records.proxy.write.merge_executor import PAGES_AT_ONCE, MergeExecutor
from encrypted_records.proxy.write.merge_scheduler import Lanes, MergeScheduler
from tests.support.background import Queued
from tests.support.pools import CopiedWorkers
from tests.support.proxies import running_proxy
from tests.support.service import Service
from tests.support.store import Store

T = TypeVar("T")


class Proxy:
    """A second proxy with the same keys, in this process, that can store more at once."""

    def __init__(
        self, store: Store, services: Services, caller: Holder, state: SchemaState
    ) -> None:
        self.services, self.caller, self.state = services, caller, state
        assert isinstance(services.background, Queued)
        #: its own work beside requests, which is put off
        self.background = services.background
        self.asked: list[Sequence[PageRef]] = []
        original = services.api.pages

        async def pages(
            schema: bytes, wanted: Sequence[PageRef], auth: str, *, known: KnownState | None = None
        ) -> Any:
            self.asked.append(wanted)
            return await original(schema, wanted, auth, known=known)

        services.api.pages = pages  # type: ignore[method-assign]

    async def ingest(
        self, records: Sequence[dict[str, Any]], limits: SegmentLimits = STANDARD
    ) -> None:
        """Store records as one group.

        Args:
            limits: from how many on their segment has pages, and these are packed.
        """
        plain = [PlainRecord(ids.new_id(), 1, record) for record in records]
        # As every writer: of two that draft at once, the API takes one.
        async with self.state.lock:
            upload = seal(self.state.ledger, self.state.definition, plain, limits=limits).upload
            (receipt,) = await self.services.api.commit([upload], self.caller.auth)
            await self.services.schemas.settle(self.caller, self.state, upload, receipt)

    async def count(self, where: Any) -> int:
        asked = parse_query({"where": where}, self.state.definition).where
        upstream = Upstream(self.services.api, self.caller, self.state, confirmed=True)
        context = QueryContext(upstream, self.services.fetcher)
        return sum(map(len, await context.match_rows(asked)))

    def merger(
        self,
        *tiers: Tier,
        pages_at_once: int = PAGES_AT_ONCE,
        sizes: CrowdSizes | None = None,
        lanes: Lanes | None = None,
        workers: WorkerPool | None = None,
        most_with_commit: int = MOST_WITH_COMMIT,
        background: Background | None = None,
    ) -> MergeScheduler:
        """One that merges by these tiers, and makes one group of many where there are ``sizes``.

        Args:
            background: where it starts what it does beside requests; at once, if none is given.
        """
        services = self.services
        committer = Committer(services.api, services.schemas, services.fetcher.keep_built)
        pager = services.pager
        builds = MergeExecutor(
            services.api,
            services.fetcher,
            pager,
            workers or services.workers,
            services.spool.folder,
            pages_at_once,
        )
        compactor = sizes and Compactor(
            services.api, services.schemas, committer, services.workers, sizes, most_with_commit
        )
        return MergeScheduler(
            *(builds, pager, committer, background or Background(), tiers),
            compactor=compactor or None,
            lanes=lanes,
        )


def with_keyrings(service: Service, data_dir: Path) -> Path:
    """A data folder with the service's keyrings, and nothing else of it."""
    own = service.data_dir / "proxy"
    (data_dir / "proxy").mkdir(parents=True)
    shutil.copytree(own / "keyrings", data_dir / "proxy" / "keyrings")
    shutil.copy(own / "machine.key", data_dir / "proxy" / "machine.key")
    return data_dir


@contextmanager
def beside(
    store: Store, base_url: str, kept: Path, data_dir: Path, overrides: Overrides
) -> Iterator[Store]:
    """The store, asked through another proxy with the keyrings of ``kept``."""
    own = with_keyrings(replace(store.service, data_dir=kept), data_dir)
    with running_proxy(base_url, own, overrides=overrides) as proxy:
        yield replace(store, service=replace(store.service, proxy_url=proxy.url))


@asynccontextmanager
async def second_proxy(store: Store, data_dir: Path) -> AsyncIterator[Proxy]:
    """Over the keyrings in ``data_dir``."""
    settings = ProxySettings(data_dir, "127.0.0.1", 1, store.service.base_url, access="api")
    app = create_app(settings, Overrides(background=Queued, workers=CopiedWorkers))
    failed: Exception | None = None
    async with app.router.lifespan_context(app):
        services: Services = app.state.services
        secret = f"{store.account.email}:{store.account.password}"
        known = await services.access.caller(RequestCredentials("basic", secret))
        caller = Holder(known.user, known.auth)
        state = await services.schemas.refresh(caller, ids.from_text(store.schema_id))
        try:
            yield Proxy(store, services, caller, state)
        except Exception as error:
            failed = error
    # The proxy ends in order first: else its workers and connections would stay.
    if failed is not None:
        raise failed


def act_as_second(store: Store, data_dir: Path, act: Callable[[Proxy], Awaitable[T]]) -> T:
    """Have a second proxy do something, which starts for it and ends."""

    async def whole() -> T:
        async with second_proxy(store, data_dir) as proxy:
            return await act(proxy)

    return asyncio.run(whole())


def store_groups(store: Store, data_dir: Path, *groups: Sequence[dict[str, Any]]) -> None:
    """Store each of these as one group, by a second proxy with the service's keyrings."""

    async def ingest(proxy: Proxy) -> None:
        for group in groups:
            await proxy.ingest(group)

    act_as_second(store, with_keyrings(store.service, data_dir), ingest)
