"""The log of a schema: its state as text, and the commands for one that is damaged.

``ers schema verify`` and ``sign`` check that what is stored, and called, is as it was signed;
``ers schema repair`` makes a schema whole again of which the API has lost something;
``ers salvage`` saves all records that open, even where the log is broken.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from encrypted_records.cli.commands.selection import (
    file_format,
    safe_cells_option,
    schema_id_option,
)
from encrypted_records.cli.input.files import open_result
from encrypted_records.cli.login.session import SCHEMA, CommandSession, connected
from encrypted_records.cli.terminal import DONE, REFUSED, confirm, format_count, say, warn
from encrypted_records.errors import ApiFailed

if TYPE_CHECKING:
    from encrypted_records.client.proxy.connection import ShownSchema
    from encrypted_records.client.proxy.schema_logs import Acceptance, Head, LogStanding


_MEANING = {
    "whole": "it contains everything that this proxy has seen",
    "older": "it is older than what this proxy has seen",
    "forked": "it has diverged from what this proxy has seen",
    "unclear": "it lacks what this proxy has seen",
    "broken": "it is damaged from here on",
}
_HINTS = {
    "older": "restore the API's newest backup; if this is the newest: ers schema accept-log",
    "forked": "ask who changed the schema since, and compare heads; ers schema accept-log --forked",
    "unclear": "restore the API's newest backup; if this is the newest: ers schema accept-log"
    " --forked",
    "broken": "restore the API's newest backup, or save what can be decrypted: ers salvage",
}


def show_standing(standing: LogStanding) -> None:
    """A line for each thing; the digests are whole."""
    say(f"state    {standing.state}: {_MEANING.get(standing.state, 'of a newer proxy')}")
    say(f"version  {standing.version}")
    say(f"digest   {standing.digest}")
    say(f"records  {standing.records}")
    say(f"changed  {standing.changed or 'never'}")
    if standing.at is not None:
        say(f"at {_head(standing.at)}")
    if standing.accepted is not None:
        say(f"accepted {_acceptance(standing.accepted)}")
        if not standing.accepted.writer:
            warn(
                "note: you accepted this log as a reader: this counts for you alone; ask"
                " somebody who"
                " may write the schema whether it is the right log"
            )
    for other in standing.accepted_by_others:
        say(f"accepted by {other.user}: {_acceptance(other)}")
    if standing.state != "whole":
        if standing.seen is not None:
            say(f"seen     {_head(standing.seen)}")
        say(f"common   version {standing.common}")
        if standing.fault is not None:
            say(f"fault    {standing.fault.detail} ({standing.fault.code})")
        warn(f"hint: {_HINTS.get(standing.state, 'update ers')}")


def lost_change_lines(standing: LogStanding) -> Iterator[str]:
    """Lines about the changes that are given up by accepting the log."""
    when = f" of {standing.changed}" if standing.changed else ""
    yield (
        f"The API's log is at version {standing.version}{when}, with {standing.records} records:"
        f" {standing.digest}"
    )
    assert standing.seen is not None
    yield f"This proxy has seen {_head(standing.seen)}."
    first, last = standing.common + 1, standing.seen.version
    changes = f"version {last}" if first == last else f"versions {first} to {last}"
    if standing.state == "older":
        yield f"Accepting it gives up the changes in {changes}."
        return
    known = (
        f"Up to version {standing.common} they are the same" if standing.common else "They differ"
    )
    yield f"{known}. Accepting it gives up what this proxy has seen in {changes}."
    if standing.version > standing.common:
        yield f"It has {standing.version - standing.common} other changes instead."


def _acceptance(accepted: Acceptance) -> str:
    return (
        f"version {accepted.version} instead of {accepted.seen.version}, {accepted.time}:"
        f" {accepted.digest}"
    )


def _head(head: Head) -> str:
    return f"version {head.version}: {head.digest}"


@click.command()
@click.argument("schema", type=SCHEMA)
@click.option(
    "--file",
    type=click.Path(dir_okay=False),
    help="File to write (default: standard output).",
)
@click.option(
    "--output",
    "-o",
    "--format",
    "form",
    type=click.Choice(["csv", "ndjson"]),
    help="ndjson, with ids, or csv, which can be imported (default: by the file's name).",
)
@safe_cells_option
@schema_id_option
@click.option(
    "--without-ended",
    is_flag=True,
    help="Leave out records that the API, without proof, reports as changed or deleted.",
)
@connected(organization=True)
async def salvage(
    session: CommandSession,
    schema: str,
    file: str | None,
    form: str | None,
    safe_cells: bool,
    with_schema_id: bool,
    without_ended: bool,
) -> int:
    """Save the newest version of every record that can be decrypted, even if the log of the schema
    is damaged or lost. Store them in a new schema to go on with them.

    Records that the log proves are as good as an export. For others, only this is certain: they
    were stored like that. Deleted records and old versions may be among them, and records may be
    missing. The command says what is not certain; the exit code is 4 if something could not be
    decrypted or is missing.

    \b
    Example:
      ers salvage patient --file patient.csv
    """
    form = file_format(form, file, safe_cells=safe_cells, schema_id=with_schema_id)
    resource = await session.names.schema(schema)
    # Always as NDJSON: CSV has no room for the report.
    stream = session.client.salvage(resource.url, ended=not without_ended)
    report: Mapping[str, Any] | None = None
    with open_result(file) as out:
        line_of = _writer(
            form, resource, safe=safe_cells, with_schema_id=with_schema_id, head=out.write
        )
        async with stream as pieces:
            async for line in lines_of(pieces):
                members = _parse(line)
                if "salvage" in members:
                    report = members["salvage"]
                else:
                    out.write(line_of(line, members))
        if report is None:
            raise ApiFailed(
                "the salvage did not finish", hint="the result is not complete; try again"
            )
    return _say(report)


async def lines_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole lines without their ends. Empty lines, which only keep the connection open, are left
    out."""
    unfinished: list[bytes] = []
    async for piece in pieces:
        first, *others = piece.split(b"\n")
        unfinished.append(first)
        for other in others:
            if line := b"".join(unfinished):
                yield line
            unfinished = [other]
    if any(unfinished):
        raise ApiFailed("the salvage was interrupted", hint="the result is not complete; try again")


def _parse(line: bytes) -> Mapping[str, Any]:
    from encrypted_records.model import strict_json  # noqa: PLC0415 - slow to import

    members = strict_json.loads(line)
    if not isinstance(members, dict):
        raise ApiFailed("a line of the salvage has an unexpected form")
    return members


def _writer(
    form: str,
    schema: ShownSchema,
    *,
    safe: bool,
    with_schema_id: bool,
    head: Callable[[bytes], object],
) -> Callable[[bytes, Mapping[str, Any]], bytes]:
    """Write the head of a file of this form; returns the function that makes a record's line."""
    if form == "ndjson":
        return lambda line, _: line + b"\n"
    from encrypted_records.model import record_formats  # noqa: PLC0415 - slow to import

    columns = record_formats.CsvColumns.of(list(schema.definition["properties"]), (), safe=safe)
    head(columns.header(schema.id if with_schema_id else None))
    return lambda _, record: columns.record(record["data"])


def _say(report: Mapping[str, Any]) -> int:
    """Tell what became of everything; the exit code."""
    count = report["records"]
    warn(f"{format_count(count, 'record')}, {report['proven']} of them proven by the log")
    for name, text in _REMARKS.items():
        if report[name]:
            warn(f"{text}: {report[name]}")
    fault = report["fault"]
    if fault is not None:
        warn(f"the log is valid up to version {report['version']}: {fault['detail']}")
        for sentence in report["unknown"]:
            warn(f"not certain: {sentence}")
    return REFUSED if any(report[name] for name in _LOST) else DONE


_REMARKS = {
    "ended": "rows left out: their records were changed or deleted according to the log",
    "older": "rows left out: a newer version of the record can be decrypted",
    "left_out": "rows left out: the API reports them as changed or deleted",
    "beyond": "rows left out: the log does not contain them, or not yet",
    "incomplete": "records without some field, which they may have had",
    "unopened": "rows that cannot be decrypted",
    "without_key": "rows under a key that is not in this keyring (ers keyring restore)",
    "missing": "records of the log that the API did not return, or that cannot be decrypted",
}
_LOST = ("unopened", "without_key", "missing")


@click.command(short_help="Compare everything stored with what was signed.")
@click.argument("schema", type=SCHEMA)
@connected(organization=True)
async def verify(session: CommandSession, schema: str) -> int:
    """Fetch every row and index page of a schema, and compare them with the digests in the signed
    log. Members who can read a schema could otherwise, together with the API, replace data
    unnoticed. Nothing is changed.

    Each difference is named; the exit code is then 4.

    \b
    Example:
      ers schema verify patient
    """
    from encrypted_records.model import strict_json  # noqa: PLC0415 - slow to import

    resource = await session.names.schema(schema)
    report: dict[str, Any] | None = None
    async with session.client.verify_schema(resource.url) as pieces:
        async for line in lines_of(pieces):
            members = strict_json.loads(line)
            if isinstance(members, dict) and isinstance(members.get("verify"), dict):
                report = members["verify"]
            elif isinstance(members, dict) and isinstance(members.get("altered"), str):
                say(members["altered"])
            else:
                raise ApiFailed("a line of the answer has an unexpected form")
    if report is None:
        raise ApiFailed(
            "the comparison did not finish", hint="the result is not complete; try again"
        )
    compared = f"{report['rows']} rows and {report['pages']} pages, up to version"
    if report["altered"]:
        warn(f"Compared {compared} {report['version']}: {report['altered']} places were altered.")
        warn("hint: restore the API's newest backup, or store these records again")
        return REFUSED
    say(f"Compared {compared} {report['version']}: nothing was altered.")
    return DONE


@click.command(short_help="Sign a schema as the API shows it.")
@click.argument("schema", type=SCHEMA)
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def sign(session: CommandSession, schema: str, yes: bool) -> None:
    """Sign slug, name and, before its first record, definition of a schema as the API shows them,
    if it was created at the API or a change was interrupted. The command shows all differences from
    what was signed, and asks.

    \b
    Example:
      ers schema sign patient
    """
    resource = await session.names.schema(schema)
    seen = await session.client.sign_schema(resource.url, dry_run=True)
    if not seen.changes:
        say("There is nothing to sign: names and definition are as signed.")
        return
    for name in seen.changes:
        before = "nothing" if seen.signed is None else getattr(seen.signed, name) or "nothing"
        warn(f"{name}: {before} was signed, and the API shows {getattr(seen.shown, name)}")
    confirm("Sign what the API shows?", yes=yes, undone="nothing was signed")
    await session.client.sign_schema(resource.url, seen=seen.shown)
    say("Signed.")


@click.command(short_help="Rebuild a lost index, and delete records that are lost.")
@click.argument("schema", type=SCHEMA)
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def repair(session: CommandSession, schema: str, yes: bool) -> None:
    """Repair a schema of which the API has lost data, as after restoring its database or its
    objects alone. A lost index is built again from the records; records that are lost altogether
    are deleted after you confirm their number. The operator has to run ers storage reconcile first.

    \b
    Example:
      ers schema repair patient
    """
    resource = await session.names.schema(schema)
    if not await repair_schema(session, resource, yes=yes):
        say(f"{resource.slug}: nothing is lost.")


async def repair_schema(session: CommandSession, schema: ShownSchema, *, yes: bool) -> bool:
    """Whether something of the schema was lost, and is repaired."""
    slug, url = schema.slug, schema.url
    loss = await session.client.lost_of(url)
    if loss.done:
        return False
    if loss.records:
        warn(
            f"{slug}: the API has lost {format_count(loss.records, 'record')} entirely: they were"
            " erased after the restored moment, or their objects are lost."
        )
        confirm(
            f"Delete {format_count(loss.records, 'record')} of {slug}?",
            yes=yes,
            undone="nothing was deleted",
        )
    if loss.segments:
        segments, rows = format_count(loss.segments, "segment"), format_count(loss.rows, "record")
        warn(f"{slug}: {segments} of the index, with {rows}, was rebuilt.")
    while not (await session.client.repair(url, confirm=loss.records)).done:
        pass
    say(f"Repaired: {slug}, {format_count(loss.records, 'lost record')} deleted.")
    return True
