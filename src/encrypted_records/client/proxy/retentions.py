"""Records that go by the retention of their schema's definition."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from encrypted_records.client.proxy.connection import Connection
from encrypted_records.model import strict_json

#: Ids of all records are read the first time, and many may be deleted.
RETENTION_SECONDS = 900.0


class Retentions(Connection):
    async def look_at_retention(self, schema: str) -> dict[str, Any]:
        """How many ``records`` of a schema, named by its path, are old enough to go: those whose
        day is ``before`` that one. ``retention`` is the rule, None where there is none. ``held``
        counts further ones that stay, because the proxy's clock went ahead; ``doubt`` says why."""
        return await self._retention("GET", schema)

    async def carry_out_retention(
        self, schema: str, *, clock_is_right: bool = False
    ) -> dict[str, Any]:
        """Delete the records that are old enough; how many were ``deleted``, and how many are
        ``held`` back, because the proxy's clock went ahead; ``doubt`` says why.

        Args:
            clock_is_right: delete those too: the clock is right.

        Raises:
            Conflict: ``no_retention``, ``clock_wrong``; nothing was deleted.
            NotAllowed: ``not_writer``.
        """
        return await self._retention(
            "POST", schema, {"clock_is_right": "true"} if clock_is_right else {}
        )

    async def _retention(
        self, method: str, schema: str, params: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, Any]:
        answer = await self._transport.request(
            method, f"{schema}retention/", params=params, timeout=RETENTION_SECONDS
        )
        found: dict[str, Any] = strict_json.loads(answer.body)
        return found
