"""The body of an upload: its pieces as the spool takes them, and the schema of a CSV header."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

from encrypted_records.errors import Malformed
from encrypted_records.ingest.parse_csv import Header, bad_header, bad_schema
from encrypted_records.model import ids

#: Bytes of an upload that are gathered before they go to the spool.
GATHERED_BYTES = 1 << 20


def schema_of_header(header: Header, named: bytes | None) -> bytes:
    """The schema of a CSV upload.

    Raises:
        InvalidRecords: ``csv_header``; neither header nor request name one, or two different ones.
    """
    if header.schema is None:
        if named is None:
            raise bad_header("its last entry must be schema_id:<schema id>")
        return named
    try:
        schema = ids.from_text(header.schema)
    except Malformed:
        raise bad_schema("is no schema's id: schema_id:<schema id>", "invalid_reference") from None
    if named not in (None, schema):
        raise bad_schema("names another schema than the request", "invalid_reference")
    return schema


async def gather(body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The body in pieces of about a MiB: a change of threads for every network packet costs more
    than sealing it."""
    pieces: list[bytes] = []
    size = 0
    async for piece in body:
        pieces.append(piece)
        size += len(piece)
        if size >= GATHERED_BYTES:
            yield b"".join(pieces)
            pieces, size = [], 0
    if pieces:
        yield b"".join(pieces)
