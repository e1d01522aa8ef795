"""``ers schema infer``: a definition for the data in a file."""

from __future__ import annotations

import asyncio

import click

from encrypted_records.cli.commands.import_file import (
    NO_READING_OPTIONS,
    ReadingOptions,
    propose,
    takes_form,
)
from encrypted_records.cli.input.files import open_input, open_result, sample_of
from encrypted_records.cli.input.proposed_rules import WantedRules, asked_for, tell_of
from encrypted_records.cli.input.upload_sources import COLUMNAR, is_exact
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output
from encrypted_records.errors import InvalidSetting
from encrypted_records.model import json_text


@click.command(short_help="Propose a definition for the data in a file.")
@click.argument("file", type=click.Path(allow_dash=True, dir_okay=False))
@click.option(
    "--reading",
    "into",
    metavar="OUT.json",
    help="File to write the reading of the file to, in JSON.",
)
@asked_for
@takes_form
@connected()
async def infer(
    session: CommandSession,
    file: str,
    into: str | None,
    asked: WantedRules,
    reading: ReadingOptions,
) -> None:
    """Propose a JSON Schema for a file as people have it, of CSV in whatever form, JSON, or a
    workbook, which is read as ers import reads it. The definition goes to standard output, how the
    file is read to standard error. Nothing is stored.

    It contains no value of the file and forbids none of its type, unless options ask for more.
    Pipes and files that ers record export or search wrote are read exactly.

    \b
    Examples:
      ers schema infer people.csv > people.schema.json
      ers schema infer people.csv --enum city --required name
      ers schema infer people.csv --reading people.reading.json > people.schema.json
    """
    source = await asyncio.to_thread(open_input, file)
    if source.path.suffix.lower() in COLUMNAR:
        raise InvalidSetting(
            "columns of Parquet and Arrow have declared types",
            hint="ers import makes a schema of them: ers import FILE --dataset NAME",
        )
    if not is_exact(source, names_schema=True):
        proposed, found = await propose(session, source, reading, asked)
        if into is not None:
            with open_result(into) as out:
                out.write(json_text.encode(found["reading"]) + b"\n")
        Output("json").write_one(proposed)
        return
    if into is not None or reading != NO_READING_OPTIONS:
        raise InvalidSetting(
            "this file is read exactly: options that describe another form do not apply",
            hint="leave them out, or save the pipe to a file first",
        )
    body, media_type = await asyncio.to_thread(sample_of, source)
    inferred = await session.client.infer(body, media_type, tight=asked.tight)
    definition = dict(inferred["schema"])
    notes = {field["name"]: field for field in inferred["fields"]}
    asked.apply(definition, notes)
    Output("json").write_one(definition)
    tell_of(notes, definition)
