"""The server's view: the stored bytes of records, next to which pages show the plaintext."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from encrypted_records.errors import NotFound
from encrypted_records.proxy.pages.page import Visit

#: Bytes of a sealed value that are shown of it.
START_BYTES = 4


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


@dataclass(frozen=True, slots=True)
class OpenRecord:
    """A record as it is by now."""

    version: int
    content: dict[str, Any] = field(repr=False)

    @property
    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = self.content["data"]
        return data


async def open_records(visit: Visit, ids: Sequence[str]) -> dict[str, OpenRecord]:
    """The present state of these records by id, decrypted; without those that are gone."""
    if not ids:
        return {}
    try:
        sealed = await visit.ask("POST", "/api/records/sealed/", {"ids": list(ids)})
    except NotFound:
        if len(ids) == 1:
            return {}
        each = [await open_records(visit, [record_id]) for record_id in ids]
        return {name: record for found in each for name, record in found.items()}
    opened = await visit.ask("POST", "/api/records/decrypt/", sealed)
    return {
        shown["id"]: OpenRecord(int(stored["version"]), shown)
        for stored, shown in zip(sealed, opened, strict=True)
    }


def _describe(sealed: bytes) -> SealedValue:
    return SealedValue(sealed[:START_BYTES].hex(), len(sealed))
