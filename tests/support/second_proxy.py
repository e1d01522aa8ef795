"""A proxy in this process, beside those that run, whose parts can be looked at and replaced."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from encrypted_records.client.api import Known
from encrypted_records.index.merge import Tier
from encrypted_records.index.resolve import missing, resolve
from encrypted_records.ingest.seal import seal
from encrypted_records.model import ids
from encrypted_records.model.questions import parse_query
from encrypted_records.model.records import PageRef, PlainRecord
from encrypted_records.proxy.access import Caller, Credentials
from encrypted_records.proxy.app import ProxySettings, create_app
from encrypted_records.proxy.committing import Committer
from encrypted_records.proxy.merge_builds import PAGES_AT_ONCE, MergeBuilds
from encrypted_records.proxy.merger import Merger
from encrypted_records.proxy.parts import Parts
from encrypted_records.proxy.schemas import SchemaState
from tests.support.service import Service
from tests.support.store import Store


class Proxy:
    """A second proxy with the same keys, in this process, that can store more at once."""

    def __init__(self, store: Store, parts: Parts, caller: Caller, state: SchemaState) -> None:
        self.parts, self.caller, self.state = parts, caller, state
        self.asked: list[Sequence[PageRef]] = []
        original = parts.api.pages

        async def pages(
            schema: bytes, wanted: Sequence[PageRef], auth: str, *, known: Known | None = None
        ) -> Any:
            self.asked.append(wanted)
            return await original(schema, wanted, auth, known=known)

        parts.api.pages = pages  # type: ignore[method-assign]

    async def ingest(self, records: Sequence[dict[str, Any]]) -> None:
        plain = [PlainRecord(ids.new_id(), 1, record) for record in records]
        upload = seal(self.state.ledger, self.state.definition, plain)
        (receipt,) = await self.parts.api.commit([upload], self.caller.auth)
        await self.parts.schemas.settle(self.caller, self.state, upload, receipt)

    async def count(self, where: Any) -> int:
        asked = parse_query({"where": where}, self.state.definition).where
        place = (self.state.ledger.tails, self.state.definition)
        view = self.state.ledger.view()
        segments = await self.parts.asker._reader.segments(
            self.caller, self.state, view.segments, lambda one: missing(asked, one, *place)
        )
        found = [
            resolve(asked, one, *place).certain - view.dead_rows(one.segment) for one in segments
        ]
        return sum(map(len, found))

    def merger(self, *tiers: Tier, pages_at_once: int = PAGES_AT_ONCE) -> Merger:
        parts = self.parts
        reader = parts.asker._reader
        committer = Committer(parts.api, parts.schemas)
        workers = parts.merger._builds._workers
        builds = MergeBuilds(parts.api, reader, reader._pager, workers, pages_at_once)
        return Merger(builds, reader._pager, committer, tiers)


def with_keyrings(service: Service, data_dir: Path) -> Path:
    """A data folder with the service's keyrings, and nothing else of it."""
    own = service.data_dir / "proxy"
    (data_dir / "proxy").mkdir(parents=True)
    shutil.copytree(own / "keyrings", data_dir / "proxy" / "keyrings")
    shutil.copy(own / "machine.key", data_dir / "proxy" / "machine.key")
    return data_dir


@asynccontextmanager
async def second_proxy(store: Store, data_dir: Path) -> AsyncIterator[Proxy]:
    """Over the keyrings in ``data_dir``."""
    app = create_app(ProxySettings(data_dir, "127.0.0.1", 1, store.service.base_url))
    async with app.router.lifespan_context(app):
        parts: Parts = app.state.parts
        secret = store.account.auth.removeprefix("Basic ")
        caller = await parts.access.caller(Credentials("basic", secret))
        state = await parts.schemas.fresh(caller, ids.from_text(store.schema_id))
        yield Proxy(store, parts, caller, state)
