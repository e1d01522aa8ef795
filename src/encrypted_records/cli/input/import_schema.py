"""A schema for an imported table: from the declared columns, and from rules beyond names and types
that only the table's owner can decide.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from encrypted_records.cli.input.importer import Shape, SourceTable, remembered_imports
from encrypted_records.cli.login.session import CommandSession
from encrypted_records.cli.terminal import format_count, warn
from encrypted_records.client.proxy.connection import Resource
from encrypted_records.client.sdk.names import as_sent
from encrypted_records.errors import Conflict, InvalidSetting, NotFound
from encrypted_records.model import field_types
from encrypted_records.model.field_types import proposed_type


@dataclass(frozen=True)
class WantedRules:
    """The fields that get a list of allowed values, are unique, or are required; and whether bounds
    are close to the observed values.
    """

    enum: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    tight: bool = False

    def apply(self, definition: dict[str, Any], notes: Mapping[str, Mapping[str, Any]]) -> None:
        """Add the wanted rules to a definition.

        Args:
            notes: observations of each field: the number of rows without it (``absent``), its texts
                if they are few (``values``), and whether all are distinct (``unique``).

        Raises:
            InvalidSetting: there is no such field, or the observed rows contradict a rule.
        """
        fields = definition["properties"]
        for name in (*self.enum, *self.unique, *self.required):
            if name not in fields:
                raise InvalidSetting(f"the file has no field {name}")
        for name in self.enum:
            values = notes[name].get("values")
            if not proposed_type(fields[name]).is_text or not values:
                raise InvalidSetting(
                    f"{name} is not a text column with few values", hint=f"leave out --enum {name}"
                )
            fields[name] = {"type": "string", "enum": values}
        for name in self.required:
            if notes[name].get("absent"):
                rows = format_count(notes[name]["absent"], "row")
                raise InvalidSetting(f"{name} is missing in {rows}: it cannot be required")
        for name in self.unique:
            if not notes[name].get("unique", True):
                raise InvalidSetting(
                    f"a value of {name} occurs more than once: it cannot be unique"
                )
        if self.required:
            definition["required"] = list(dict.fromkeys(self.required))
        if self.unique:
            definition["unique"] = [[name] for name in dict.fromkeys(self.unique)]


def asked_for(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of :class:`WantedRules`, which the command gets as ``asked``."""

    @click.option(
        "--enum",
        multiple=True,
        metavar="FIELD",
        help="Allow only the file's values in this field; the API can read this list.",
    )
    @click.option(
        "--unique",
        multiple=True,
        metavar="FIELD",
        help="Refuse two records with the same value of this field.",
    )
    @click.option(
        "--required", multiple=True, metavar="FIELD", help="Require this field in every record."
    )
    @click.option("--tight", is_flag=True, help="Propose bounds close to the file's numbers.")
    @functools.wraps(command)
    def with_asked(
        *arguments: Any,
        enum: tuple[str, ...],
        unique: tuple[str, ...],
        required: tuple[str, ...],
        tight: bool,
        **options: Any,
    ) -> Any:
        return command(*arguments, asked=WantedRules(enum, unique, required, tight), **options)

    return with_asked


def tell_of(notes: Mapping[str, Mapping[str, Any]], definition: Mapping[str, Any]) -> None:
    """Print remarks about fields on stderr, and how many values of each the API can read."""
    for name, note in notes.items():
        listed = definition["properties"][name].get("enum", [])
        if listed:
            warn(
                f"{name}: the API can read its {format_count(len(listed), 'value')} in the"
                " definition; a record with another value is refused"
            )
        elif note.get("note"):
            warn(f"{name}: {note['note']}")


def definition_of(shape: Shape, asked: WantedRules) -> dict[str, Any]:
    """The proposed definition for a table; remarks are printed on stderr.

    Raises:
        InvalidSetting: a wanted rule names no column, or a column of the wrong type.
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
    """Create a schema for a table, and its dataset if it is missing.

    Raises:
        Conflict: ``slug_taken``; a schema with that name exists, and this import did not create it.
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
    """Create a schema, and its dataset if it is missing.

    An existing schema of that name is used if it has this definition and no records, and no other
    import has begun to fill it: an interrupted command may have created it.

    Args:
        hint: the next step if another schema has that name.

    Raises:
        Conflict: ``slug_taken``; another schema has that name.
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
    """Whether a schema has this definition, no records, and no running import."""
    begun = {remembered.schema for remembered in remembered_imports().read().values()}
    if schema["url"] in begun or as_sent(schema["schema"]) != as_sent(definition):
        return False
    return (await session.client.search(schema["url"], limit=0)).count == 0
