"""A schema for a table that is imported: proposed from its columns and a sample of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from encrypted_records.cli.input.importer import SAMPLE_BYTES, Row, Shape, SourceTable, is_finite
from encrypted_records.cli.login.session import CommandSession
from encrypted_records.cli.terminal import warn
from encrypted_records.client.proxy.resources import Resource
from encrypted_records.client.sdk.rows import encode_row
from encrypted_records.errors import (
    Conflict,
    InvalidSetting,
    NotFound,
)

#: How the note of a field begins that is proposed as unique.
_ON_UNIQUE = "no value of the sample is there twice"


async def definition_of(session: CommandSession, shape: Shape) -> dict[str, Any]:
    """The definition that is proposed for a table; what to look at is said on stderr.

    Raises:
        InvalidSetting: there is no row to infer from.
    """
    if not shape.sample:
        raise InvalidSetting("there are no rows", hint="make the schema by hand: ers schema create")
    body = bytearray()
    for place, row in enumerate(shape.sample, 1):
        known = {
            name: value
            for name, value in row.items()
            if not isinstance(value, float | Decimal) or is_finite(value)
        }
        # The extremes behind the first row are no rows of the table.
        line = encode_row(known, place if place == 1 else max(1, place - shape.extremes))[1]
        if len(body) + len(line) > SAMPLE_BYTES:
            break
        body += line
    # No enum: rows that the sample does not have would be refused.
    inferred = await session.client.infer(bytes(body), "application/x-ndjson", enum=False)
    definition: dict[str, Any] = dict(inferred["schema"])
    fields = definition["properties"]
    definition["required"] = [name for name in fields if name in shape.required]
    if not definition["required"]:
        del definition["required"]
    # Nor unique fields: the table may hold equal values beyond the sample.
    definition.pop("unique", None)
    for field in inferred["fields"]:
        note = (field["note"] or "").partition(_ON_UNIQUE)[0].removesuffix("; ")
        if note:
            warn(f"{field['name']}: {note}")
    return definition


async def make_schema(
    session: CommandSession, table: SourceTable, dataset: str | None, name: str | None
) -> Resource:
    """A new schema for a table, in a dataset that is made if it is missing.

    Raises:
        Conflict: ``slug_taken``; there is one of that name, which this import did not begin.
    """
    shape = await table.shape()
    called, group = name or table.name, dataset or table.group
    try:
        parent = await session.names.dataset(group)
    except NotFound:
        if "/" in group:
            raise
        organization = (await session.names.organization())["url"]
        parent = await session.client.create("datasets", name=group, organization=organization)
    async for resource in session.client.listing("schemas", dataset=parent["id"], name=called):
        raise Conflict(
            f"a schema {parent['slug']}/{resource['slug']} already exists",
            code="slug_taken",
            hint="choose another name with --name; an import continues by itself only where this"
            " machine began it",
        )
    definition = await definition_of(session, shape)
    return await session.client.create(
        "schemas", name=called, dataset=parent["url"], schema=definition
    )


def make_shape(
    rows: list[Row],
    names: Sequence[str],
    numbers: Mapping[str, Sequence[Any]],
    required: list[str],
) -> Shape:
    """A shape whose sample has the values of each column that bounds, precision and format have to
    admit. Its first row names all columns, in their order.

    Args:
        rows: the first rows of the table.
        required: columns that have a value in every row.
    """
    if not rows:
        return Shape([], required)
    first = {name: rows[0].get(name) for name in names}
    most = max(map(len, numbers.values()), default=0)
    extremes = [
        {name: values[at] for name, values in numbers.items() if at < len(values)}
        for at in range(most)
    ]
    return Shape([first, *extremes, *rows[1:]], required, most)
