"""The number of records of each schema, as last seen by pages of this session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from encrypted_records import runtime
from encrypted_records.proxy.http.sessions import Desk

#: Seconds; other programs may store records meanwhile.
KNOWN_FOR = 600.0


@dataclass(frozen=True, slots=True)
class _Count:
    records: int
    heard_at: float


def keep_count(desk: Desk, schema: str, records: int) -> None:
    """
    Args:
        schema: its identifier.
    """
    desk.put(("count", schema), _Count(records, runtime.monotonic()))


def find_count(desk: Desk, schema: Mapping[str, Any]) -> int | None:
    """The cached number of records; None if it was not counted, or if records may have been stored
    or deleted since.
    """
    known = desk.find(("count", str(schema.get("id"))), _Count)
    oldest = max(desk.changed_at, runtime.monotonic() - KNOWN_FOR)
    return None if known is None or known.heard_at < oldest else known.records
