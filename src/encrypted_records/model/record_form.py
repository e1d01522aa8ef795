"""The members of a record object: those that are sent, and those that answers add to them.

An answer's record can be sent back as it is. Its read-only members change nothing; they are refused
where they cannot be what an answer had, so that a field beside ``data`` is not lost in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from encrypted_records.errors import Malformed
from encrypted_records.model import ids

SENT = frozenset({"schema", "data"})
#: Of a record that is shown; ``rounded`` of one that was changed, ``version`` and ``proven`` of one
#: that a salvage found.
READ_ONLY = frozenset({"id", "url", "rounded", "version", "proven"})
MEMBERS = SENT | READ_ONLY


def misplaced(item: Mapping[str, Any], record: str | None = None) -> Iterator[tuple[str, str]]:
    """The read-only members of a record object that no answer had, and what is wrong with them.

    Args:
        record: the id of the record that is changed; None where a new one is made.
    """
    named = item.get("id", record)
    if "id" in item and not (named == record if record else _is_id(named)):
        yield "id", "is the id of another record" if record else _GIVEN
    elif "url" in item and not _is_url(item["url"], named):
        yield "url", "is the path of another record"
    if type(item.get("version", 1)) is not int:
        yield "version", _GIVEN
    if type(item.get("proven", True)) is not bool:
        yield "proven", _GIVEN
    if "rounded" in item and not _are_fields(item["rounded"], item.get("data")):
        yield "rounded", _GIVEN


def is_exported(item: Mapping[str, Any]) -> bool:
    """Whether an object is a record as this service exports it, whose fields are in ``data``."""
    schema = item.get("schema", "/api/schemas/")
    return (
        isinstance(item.get("data"), Mapping)
        and item.keys() <= MEMBERS
        and isinstance(schema, str)
        and "/api/schemas/" in schema
        and not any(misplaced(item))
    )


_URL = re.compile(r"\A/api/records/(\w+)/\Z")
_GIVEN = "is set by the service; put values of fields into data"


def _are_fields(value: object, data: object) -> bool:
    names = value if isinstance(value, list) else [None]
    return isinstance(data, Mapping) and all(
        isinstance(name, str) and name in data for name in names
    )


def _is_id(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(ids.from_text(value))
    except Malformed:
        return False


def _is_url(value: object, named: str | None) -> bool:
    if named is not None:
        return value == ids.reference("records", named)
    return isinstance(value, str) and any(map(_is_id, _URL.findall(value)))
