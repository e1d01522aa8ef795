"""``ers record create``: store the records of a file, and print their ids."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import click

from encrypted_records.cli.commands.record.options import (
    FILE,
    dataset_option,
    default_schema_option,
)
from encrypted_records.cli.commands.upload_job import (
    JobOrder,
    again_option,
    finish,
    going_on,
    send_pieces,
    warn_of_rounding,
)
from encrypted_records.cli.input.files import objects_in
from encrypted_records.cli.input.record_batches import records_from
from encrypted_records.cli.input.upload_sources import KINDS, lines_of
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.client import MAX_DIRECT
from encrypted_records.errors import InvalidRecords, UploadedBefore


@click.command(short_help="Store the records of a JSON file, and print their ids.")
@default_schema_option
@dataset_option
@again_option
@click.option(
    "--file", type=FILE, required=True, help="File with JSON or NDJSON; - for standard input."
)
@connected(organization=True)
@takes_output
async def create(
    session: CommandSession,
    schema: str | None,
    dataset: str | None,
    again: bool,
    file: str,
    output: Output,
) -> int | None:
    """Store the records of a file: all of them, or none.

    A record is an object of field names and values, or an object with data and schema, as in the
    HTTP API. The ids of up to 100 records are printed, in the order of the file; larger files
    become a batch job, and the command waits for its end. ers import stores files of other formats.

    \b
    Example:
      ers record create --organization acme --dataset medical --schema patient --file patients.json
    """
    default = None
    if schema is not None:
        default = (await session.names.schema(schema, dataset))["url"]
    records = records_from(objects_in(file), default, session.names, session.limits.at_once)
    first_ones = await anext(records, None)
    if first_ones is None:
        raise InvalidRecords("the file has no records", hint="nothing was stored")
    if len(first_ones) > MAX_DIRECT:
        pieces = _lines(first_ones, records)
        try:
            job = await send_pieces(session, pieces, KINDS["ndjson"], JobOrder(again=again))
        except UploadedBefore as error:
            job = await going_on(session, error)
        return await finish(session, job, output)
    created = await session.client.ingest_records(first_ones)

    async def things() -> AsyncIterator[Mapping[str, Any]]:
        for record in created:
            rounded = {"rounded": record.rounded} if record.rounded else {}
            yield {"id": record.id, "url": record.url, **rounded}

    await output.many(things(), ("id", "url"), called="records")
    warn_of_rounding(name for record in created for name in record.rounded)
    return None


async def _lines(
    first_ones: list[dict[str, Any]], more: AsyncIterator[list[dict[str, Any]]]
) -> AsyncIterator[bytes]:
    for piece in lines_of(iter(first_ones)):
        yield piece
    async for records in more:
        for piece in lines_of(iter(records)):
            yield piece
