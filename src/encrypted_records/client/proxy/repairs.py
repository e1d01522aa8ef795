"""Making a schema whole again of which the API has lost something."""

from __future__ import annotations

import msgspec

from encrypted_records.client.proxy.connection import Connection, convert

#: A segment of 2**24 records is built again from rows, which are fetched and opened.
REPAIR_SECONDS = 24 * 3600.0


class Loss(msgspec.Struct, frozen=True):
    """``records`` of which nothing is left, and ``segments`` of the index that are lost, which have
    ``rows``; ``done`` is whether nothing is lost."""

    records: int
    segments: int
    rows: int
    done: bool


class RepairCalls(Connection):
    async def lost_of(self, schema_url: str) -> Loss:
        """The parts of a schema that the API has lost; ``schema_url`` is its path."""
        return convert(await self._ask("GET", f"{schema_url}repair/"), Loss)

    async def repair(self, schema_url: str, *, confirm: int = 0) -> Loss:
        """Have the next step done: lost records deleted, or one segment built again; what was lost
        before.

        Args:
            confirm: how many records may be deleted.

        Raises:
            Conflict: ``confirm_count``; more are lost.
        """
        answer = await self._transport.request(
            "POST",
            f"{schema_url}repair/",
            params={"confirm": str(confirm)},
            timeout=REPAIR_SECONDS,
        )
        return convert(answer.convert(dict), Loss)
