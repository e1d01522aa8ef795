"""The server's view: the stored bytes of records, next to which pages show the plaintext."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from encrypted_records.proxy.pages.page import Visit

#: Bytes of a sealed value that are shown of it.
START_BYTES = 6


@dataclass(frozen=True, slots=True)
class SealedValue:
    """``start`` are its first bytes in hex, ``size`` is in bytes."""

    start: str
    size: int


#: By record and field.
SealedValues = dict[str, dict[str, SealedValue]]


async def fetch(visit: Visit, ids: Sequence[str]) -> SealedValues:
    """The real stored bytes, which this proxy has fetched, and opened, for the same answer.

    A field that a record lacks is sealed as well: the server cannot tell.
    """
    if not ids:
        return {}
    records = await visit.ask("POST", "/api/records/sealed/", {"ids": list(ids)})
    return {
        record["id"]: {
            name: _describe(base64.b64decode(text)) for name, text in record["fields"].items()
        }
        for record in records
    }


async def open_records(visit: Visit, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The present state of these records, decrypted, in the requested order."""
    sealed = await visit.ask("POST", "/api/records/sealed/", {"ids": list(ids)})
    records: list[dict[str, Any]] = await visit.ask("POST", "/api/records/decrypt/", sealed)
    return records


def _describe(sealed: bytes) -> SealedValue:
    return SealedValue(sealed[:START_BYTES].hex(), len(sealed))
