"""The parts that endpoints use, as app.py wired them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from starlette.requests import Request

from encrypted_records.client.api import Api
from encrypted_records.errors import NotAuthenticated
from encrypted_records.proxy.access import Access, Caller
from encrypted_records.proxy.cache import SegmentCache
from encrypted_records.proxy.keyrings import Keyrings
from encrypted_records.proxy.runner import Runner
from encrypted_records.proxy.schemas import Schemas
from encrypted_records.proxy.search import Search


@dataclass(frozen=True)
class Parts:
    api: Api
    access: Access
    keyrings: Keyrings
    schemas: Schemas
    segments: SegmentCache
    runner: Runner
    search: Search
    own_origins: tuple[str, ...]

    async def caller(self, request: Request) -> Caller:
        """Who sends this request.

        Raises:
            NotAuthenticated: nobody that the API knows.
        """
        authorization = request.headers.get("authorization")
        if authorization is None and "sessionid" in request.cookies:
            raise NotAuthenticated(
                "a session cookie is not taken here in this version",
                hint="send Basic credentials or a Bearer access token",
            )
        return await self.access.caller(authorization)


def parts_of(request: Request) -> Parts:
    return cast(Parts, request.app.state.parts)
