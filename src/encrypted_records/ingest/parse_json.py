"""JSON bodies -> raw records, as the interface's record objects."""

from __future__ import annotations

from typing import Any

from encrypted_records.errors import Flaw, InvalidRecords, TooLarge
from encrypted_records.ingest.blocks import RawRecord
from encrypted_records.model import strict_json

MAX_DIRECT_RECORDS = 100


def parse_records(body: bytes, *, limit: int = MAX_DIRECT_RECORDS) -> list[RawRecord]:
    """A JSON array of 1 to ``limit`` record objects.

    Raises:
        Malformed: not strict JSON.
        TooLarge: more than ``limit`` records.
        InvalidRecords: not an array of objects with ``schema`` and ``data``.
    """
    found = strict_json.loads(body)
    if not isinstance(found, list) or not found:
        detail = "expected a JSON array of at least one record object"
        raise InvalidRecords(detail, flaws=(Flaw("type", detail, pointer=""),))
    if len(found) > limit:
        raise TooLarge(
            f"{len(found)} records in one request, at most {limit} are taken",
            code="too_many_records",
            hint="send them in several requests",
        )
    records: list[RawRecord] = []
    flaws: list[Flaw] = []
    for row, item in enumerate(found, 1):
        problem = _shape_problem(item)
        if problem is not None:
            flaws.append(Flaw("record", problem, pointer=f"/{row - 1}", row=row))
        else:
            records.append(RawRecord(row, item["schema"], item["data"]))
    if flaws:
        raise InvalidRecords("not every record has the right form", flaws=tuple(flaws))
    return records


def _shape_problem(item: Any) -> str | None:
    if not isinstance(item, dict):
        return "expected an object with schema and data"
    if set(item) != {"schema", "data"}:
        return "a record object has exactly schema and data"
    if not isinstance(item["data"], dict):
        return "data must be an object"
    return None
