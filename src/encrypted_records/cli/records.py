"""Records as people write them -> record objects as the service takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from encrypted_records.cli.names import Names
from encrypted_records.errors import Flaw, InvalidRecords

#: Records of one request that is stored whole or not at all; more are a batch job's.
MAX_DIRECT = 100


async def records_from(
    items: Sequence[Any], default: str | None, names: Names
) -> list[dict[str, Any]]:
    """Objects with ``schema`` (a path) and ``data``.

    Args:
        items: such objects, with or without ``schema`` (then by any name), or plain objects of
            field names and values. No field has an object for a value, so they cannot be mixed up.
        default: the schema of items that name none.

    Raises:
        InvalidRecords: an item is no record, or names no schema and there is no default.
        NotFound, InvalidSetting: as :meth:`Names.schema`.
    """
    flaws: list[Flaw] = []
    paths: dict[str | None, str | None] = {None: default}
    records = []
    for row, item in enumerate(items, 1):
        if not isinstance(item, dict):
            flaws.append(Flaw("record", "expected an object", row=row))
            continue
        whole = isinstance(item.get("data"), dict) and set(item) <= {"schema", "data"}
        named, data = (item.get("schema"), item["data"]) if whole else (None, item)
        if named is not None and not isinstance(named, str):
            flaws.append(Flaw("record", "expected the name of a schema", row=row, field="schema"))
            continue
        if named not in paths:
            paths[named] = (await names.schema(str(named)))["url"]
        if paths[named] is None:
            flaws.append(Flaw("record", "names no schema; --schema names one for all", row=row))
        records.append({"schema": paths[named], "data": data})
    if flaws or not records:
        what = "not every item is a record" if flaws else "there are no records"
        raise InvalidRecords(what, flaws=tuple(flaws), hint="nothing was stored")
    return records
