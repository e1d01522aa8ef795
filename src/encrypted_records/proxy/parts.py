"""The parts that endpoints use, as app.py wired them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from starlette.requests import HTTPConnection

from encrypted_records.client.api import Api
from encrypted_records.proxy.access import Access, Caller, credentials_of
from encrypted_records.proxy.aggregating import Aggregates
from encrypted_records.proxy.asking import Asker
from encrypted_records.proxy.batch_jobs import BatchJobs
from encrypted_records.proxy.cache import SegmentCache
from encrypted_records.proxy.changer import Changer
from encrypted_records.proxy.desk import Desks
from encrypted_records.proxy.keyrings import Keyrings
from encrypted_records.proxy.merger import Merger
from encrypted_records.proxy.runner import Runner
from encrypted_records.proxy.schemas import Schemas
from encrypted_records.proxy.search import Search
from encrypted_records.proxy.spool import Spool
from encrypted_records.proxy.uploads import Uploads


@dataclass(frozen=True)
class Parts:
    api: Api
    access: Access
    keyrings: Keyrings
    schemas: Schemas
    merger: Merger
    segments: SegmentCache
    asker: Asker
    aggregates: Aggregates
    changer: Changer
    runner: Runner
    search: Search
    jobs: BatchJobs
    spool: Spool
    uploads: Uploads
    own_origins: tuple[str, ...]
    desks: Desks

    async def caller(self, connection: HTTPConnection) -> Caller:
        """Who sends this request, or opens this WebSocket.

        Raises:
            NotAuthenticated: nobody that the API knows.
            NotAllowed: a change by session without the CSRF token.
        """
        return await self.access.caller(credentials_of(connection))


def parts_of(connection: HTTPConnection) -> Parts:
    return cast(Parts, connection.app.state.parts)
