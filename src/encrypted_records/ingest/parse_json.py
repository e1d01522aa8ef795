"""JSON bodies -> raw records, as the interface's record objects."""

from __future__ import annotations

from typing import Any

from encrypted_records.errors import Flaw, InvalidRecords, TooLarge
from encrypted_records.ingest.blocks import RawRecord
from encrypted_records.model import record_formats, strict_json
from encrypted_records.model.strict_json import escape_pointer

MAX_DIRECT_RECORDS = 100
#: Of one record so many are named.
_MOST_UNKNOWN = 10


def parse_records(body: bytes, *, limit: int = MAX_DIRECT_RECORDS) -> list[RawRecord]:
    """A JSON array of 1 to ``limit`` record objects.

    Raises:
        Malformed: not strict JSON.
        TooLarge: more than ``limit`` records, or than ``strict_json.MAX_VALUES`` values.
        InvalidRecords: not an array of objects with ``schema`` and ``data``.
    """
    strict_json.refuse_many(body)
    items = strict_json.loads(body, halves=True)
    if not isinstance(items, list) or not items:
        detail = "expected a JSON array of at least one record object"
        raise InvalidRecords(detail, flaws=(Flaw("type", detail, pointer=""),))
    if len(items) > limit:
        raise TooLarge(
            f"{len(items)} records in one request; the limit is {limit}",
            code="too_many_records",
            hint="send them in several requests",
        )
    records: list[RawRecord] = []
    errors: list[Flaw] = []
    for row, item in enumerate(items, 1):
        members: dict[str, Any] = item if isinstance(item, dict) else {}
        unknown = [name for name in members if name not in record_formats.RECORD_MEMBERS]
        wrong = list(record_formats.misplaced_members(members))
        problem = shape_problem(item, schema_named=False)
        if unknown or wrong:
            detail = "there is no such member; a record has only schema and data"
            found = [("unknown_member", name, detail) for name in unknown[:_MOST_UNKNOWN]]
            found += [("read_only", name, what) for name, what in wrong]
            errors += [
                Flaw(code, what, f"/{row - 1}/{escape_pointer(name)}", row)
                for code, name, what in found
            ]
        elif problem is not None:
            errors.append(Flaw("record", problem, pointer=f"/{row - 1}", row=row))
        else:
            records.append(RawRecord(row, item["schema"], item["data"]))
    if errors:
        raise InvalidRecords("not every record has the right form", flaws=tuple(errors))
    return records


def shape_problem(item: Any, *, schema_named: bool) -> str | None:
    """The reason why an item is not a record object; None if it is one.

    Args:
        schema_named: whether the request names the schema, so that a record need not.
    """
    if not isinstance(item, dict):
        return "expected an object with schema and data"
    sent = item.keys() - record_formats.READ_ONLY_MEMBERS
    if sent != record_formats.SENT_MEMBERS and not (schema_named and sent == {"data"}):
        return "a record object has exactly schema and data"
    if not isinstance(item["data"], dict):
        return "data must be an object"
    return None
