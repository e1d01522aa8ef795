"""Mirrors of a test: copied by ``Copier``, read by a proxy."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from encrypted_records.client.transport import Transport
from encrypted_records.mirror.copier import Copier, CopyTotals
from encrypted_records.mirror.layout import MirrorFolder
from encrypted_records.mirror.layout import Store as Objects
from encrypted_records.mirror.serving import serving_inline
from encrypted_records.mirror.verifying import MirrorVerifier
from encrypted_records.proxy.settings import MirrorPlace
from tests.support.proxies import running_proxy
from tests.support.store import Store


def basic(member: str, secret: str) -> str:
    """What a reader of a mirror shows."""
    return "Basic " + base64.b64encode(f"{member}:{secret}".encode()).decode()


@dataclass(frozen=True)
class Place:
    """A mirror in a folder, and the data folder of the proxy that reads it."""

    path: Path
    data_dir: Path

    @property
    def folder(self) -> MirrorFolder:
        return MirrorFolder(self.path)

    def copy(self, store: Store, folder: Objects | None = None) -> CopyTotals:
        """What one run of ``ers mirror`` does for the store's account."""
        return self.copy_from(store.service.base_url, store.account.auth, folder)

    def copy_from(
        self, base_url: str, auth: str, folder: Objects | None = None, *, forget: bool = False
    ) -> CopyTotals:
        async def run() -> CopyTotals:
            async with Transport(base_url, auth=auth) as transport:
                copier = Copier(transport, folder or self.folder, forget=forget)
                await copier.run()
                return copier.copied

        return asyncio.run(run())

    @contextmanager
    def read(self, store: Store, *, accept_stale: bool = False) -> Iterator[Store]:
        """The store, by way of a proxy that reads the mirror and no API."""
        with (
            serving_inline(self.folder) as (url, secret),
            running_proxy(
                url, self.data_dir, mirror=MirrorPlace(str(self.path), secret, accept_stale)
            ) as proxy,
        ):
            service = replace(store.service, base_url="http://127.0.0.1:9", proxy_url=proxy.url)
            yield replace(store, service=service)

    def flaws(self) -> list[str]:
        """What ``ers verify --mirror`` finds."""
        return MirrorVerifier(self.folder, lambda _line: None).run().flaws

    def contents(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.path)): path.read_bytes() for path in self.files()}

    def files(self) -> list[Path]:
        return sorted(path for path in self.path.rglob("*") if path.is_file())
