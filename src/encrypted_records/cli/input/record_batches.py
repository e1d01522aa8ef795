"""Records as people write them -> record objects as the service takes them, some at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Any

from encrypted_records.client.sdk.names import Names
from encrypted_records.errors import Flaw, InvalidRecords
from encrypted_records.model.record_formats import RECORD_MEMBERS


async def batches(items: Iterator[Any], at_once: int) -> AsyncIterator[list[Any]]:
    """Yield batches of up to ``at_once`` items; reading them does not block the event loop."""
    while batch := await asyncio.to_thread(lambda: list(islice(items, at_once))):
        yield batch


async def records_from(
    items: Iterator[Any], default: str | None, names: Names, at_once: int
) -> AsyncIterator[list[dict[str, Any]]]:
    """Objects with ``schema`` (a path) and ``data``, in batches of ``at_once``, the last maybe
    smaller.

    Args:
        items: such objects, with or without ``schema`` (then by any name), and maybe with what
            answers have beside these; or plain objects of field names and values. No field has an
            object for a value, so they cannot be mixed up.
        default: the schema of items that name none.

    Raises:
        InvalidRecords: an item is no record, or names no schema and there is no default.
        NotFound, InvalidSetting: as :meth:`Names.schema`.
    """
    paths: dict[str | None, str | None] = {None: default}
    before = 0
    async for batch in batches(items, at_once):
        flaws: list[Flaw] = []
        records = []
        for row, item in enumerate(batch, before + 1):
            if not isinstance(item, dict):
                flaws.append(Flaw("record", "expected an object", row=row))
                continue
            whole = isinstance(item.get("data"), dict) and item.keys() <= RECORD_MEMBERS
            named, data = (item.get("schema"), item["data"]) if whole else (None, item)
            if named is not None and not isinstance(named, str):
                flaws.append(
                    Flaw("record", "expected the name of a schema", row=row, field="schema")
                )
                continue
            if named not in paths:
                paths[named] = (await names.schema(str(named)))["url"]
            if paths[named] is None:
                flaws.append(Flaw("record", "names no schema; --schema names one for all", row=row))
            records.append({"schema": paths[named], "data": data})
        if flaws:
            raise InvalidRecords(
                "not every item is a record", flaws=tuple(flaws), hint="nothing was stored"
            )
        before += len(batch)
        yield records
