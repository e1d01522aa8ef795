"""A schema for a table that is imported: what its columns are declared as."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from encrypted_records.cli.input.importer import Shape, SourceTable, remembered_imports
from encrypted_records.cli.input.proposed_rules import WantedRules, tell_of
from encrypted_records.cli.login.session import CommandSession
from encrypted_records.cli.terminal import warn
from encrypted_records.client.proxy.resources import Resource
from encrypted_records.client.sdk.names import as_sent
from encrypted_records.errors import Conflict, NotFound
from encrypted_records.model import field_types


def definition_of(shape: Shape, asked: WantedRules) -> dict[str, Any]:
    """The definition that is proposed for a table; what to look at is said on stderr.

    Raises:
        InvalidSetting: what is asked for names no column, or not one of the right kind.
    """
    definition = field_types.propose_definition(dict(shape.fields), shape.required)
    notes = {name: {"note": shape.notes.get(name)} for name in shape.fields}
    asked.apply(definition, notes)
    tell_of(notes, definition)
    return definition


async def make_schema(
    session: CommandSession,
    table: SourceTable,
    dataset: str | None,
    name: str | None,
    asked: WantedRules,
) -> Resource:
    """A new schema for a table, in a dataset that is made if it is missing.

    Raises:
        Conflict: ``slug_taken``; there is one of that name, which this import did not begin.
    """
    definition = definition_of(await table.shape(), asked)
    return await create_schema(
        session,
        dataset or table.group,
        name or table.name,
        definition,
        hint="choose another name with --name; only the machine that began an import can continue"
        " it",
    )


async def create_schema(
    session: CommandSession, dataset: str, name: str, definition: Mapping[str, Any], *, hint: str
) -> Resource:
    """A new schema, in a dataset that is made if it is missing.

    One of that name is taken where it has this definition and no records, and no other import has
    begun to fill it: a command that was interrupted may have made it.

    Args:
        hint: what to do where there is another schema of that name.

    Raises:
        Conflict: ``slug_taken``; there is one.
    """
    try:
        parent = await session.names.dataset(dataset)
    except NotFound:
        if "/" in dataset:
            raise
        organization = (await session.names.organization())["url"]
        parent = await session.client.create("datasets", name=dataset, organization=organization)
    async for resource in session.client.listing("schemas", dataset=parent["id"], name=name):
        path = f"{parent['slug']}/{resource['slug']}"
        if await _is_unused(session, resource, definition):
            warn(f"continuing with the schema {path}, which has no records yet")
            return resource
        raise Conflict(f"a schema {path} already exists", code="slug_taken", hint=hint)
    return await session.client.create(
        "schemas", name=name, dataset=parent["url"], schema=definition
    )


async def _is_unused(
    session: CommandSession, schema: Resource, definition: Mapping[str, Any]
) -> bool:
    """Whether a schema has this definition, and neither records nor an import that brings some."""
    begun = {remembered.schema for remembered in remembered_imports().read().values()}
    if schema["url"] in begun or as_sent(schema["schema"]) != as_sent(definition):
        return False
    return (await session.client.search(schema["url"], limit=0)).count == 0
