"""Run the service: ``ers up``, API and proxy together; ``ers proxy``, the proxy alone.

``ers demo`` is the former with data to look at. A running proxy merges, or accepts what was
restored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from encrypted_records import __version__
from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.schema_log import lost_change_lines, repair_schema
from encrypted_records.cli.login.proofs import Proven
from encrypted_records.cli.login.session import SCHEMA, CommandSession, connected
from encrypted_records.cli.settings import FolderPath, Settings, takes_settings, without_password
from encrypted_records.cli.supervise.supervisor import run_proxy, serve_both
from encrypted_records.cli.terminal import DONE, REFUSED, confirm, say, warn
from encrypted_records.errors import InvalidSetting

if TYPE_CHECKING:
    from encrypted_records.client.proxy.schema_logs import LostEntry, RosterStanding


#: Settings of API and proxy together; the proxy's base URL follows from them.
SETTINGS_OF_BOTH = (
    "data_dir",
    "api_host",
    "api_port",
    "proxy_host",
    "proxy_port",
    "workers",
    "database_url",
    "replica_url",
    "bulk_url",
    "bulk_before",
    "keep_replaced",
    "erase_within",
    "email_url",
    "public_url",
    "allowed_hosts",
    "access",
    "admin",
    "page_cache",
    "memory_cache",
    "lock_after",
    "webhooks",
    "api_metrics_port",
    "proxy_metrics_port",
    "log_format",
)


@click.command()
@takes_settings(*SETTINGS_OF_BOTH)
def up(settings: Settings) -> int:
    """Start API and proxy together, in the foreground, until Ctrl-C or SIGTERM.

    \b
    Example:
      ers up --data-dir ./data --proxy-port 9090
    """

    async def ready() -> None:
        say_where(settings)
        say("  stop      Ctrl-C")

    return asyncio.run(serve_both(settings, ready))


def say_where(settings: Settings) -> None:
    """The lines that tell where everything is, free of passwords."""
    folder = settings.data_dir.absolute()
    database = settings.database_url and without_password(settings.database_url)
    mail = settings.email_url and without_password(settings.email_url)
    mail_folder = f"{folder / 'mail'}   (one file per message)"
    say(f"Encrypted Records Service {__version__} is ready")
    say(f"  proxy     {settings.proxy_url}   (plaintext goes in and out here)")
    say(f"  API       {settings.api_url}   (ciphertext only)")
    say(f"  data      {folder}")
    say(f"  database  {database or 'SQLite in the data folder'}")
    if settings.bulk_url is not None:
        say(f"  objects   {without_password(settings.bulk_url)}")
    say(f"  mail      {mail or mail_folder}")


@click.command()
@takes_settings(*SETTINGS_OF_BOTH)
@click.option(
    "--examples",
    type=FolderPath(),
    default=None,
    show_default="the data of the package",
    help="Folder with your own census.csv and census.schema.json.",
)
def demo(settings: Settings, examples: Path | None) -> int:
    """Start API and proxy, create a demo account, store a thousand real records and search them.

    The service then runs until Ctrl-C or SIGTERM.

    \b
    Example:
      ers demo --data-dir ./demo
    """
    from encrypted_records.cli.supervise.demo import Example, show  # noqa: PLC0415 - slow to import

    if settings.email_url is not None:
        raise InvalidSetting(
            "the demo reads its mail from the data folder, and --email-url sends mail elsewhere",
            hint="leave out --email-url, and unset ERS_EMAIL_URL and email_url in the config file",
        )
    example = Example.of_the_package() if examples is None else Example.load(examples)
    log_file = settings.data_dir.absolute() / "demo.log"

    async def ready() -> None:
        say_where(settings)
        say(f"  log       {log_file}")
        say()
        await show(settings, example)
        say()
        say("The service keeps running. Stop it with Ctrl-C.")

    return asyncio.run(serve_both(settings, ready, log_file=log_file))


SETTINGS_OF_PROXY = (
    "data_dir",
    "base_url",
    "proxy_host",
    "proxy_port",
    "allowed_hosts",
    "access",
    "page_cache",
    "memory_cache",
    "lock_after",
    "mirror",
    "webhooks",
    "proxy_metrics_port",
    "log_format",
)


@click.group(cls=CommandGroup, invoke_without_command=True)
@takes_settings(*SETTINGS_OF_PROXY)
@click.option(
    "--accept-stale", is_flag=True, help="Read a mirror that is older than what was seen here."
)
def proxy(settings: Settings, accept_stale: bool) -> None:
    """Run the proxy alone, in the foreground, for an API on another machine.

    The proxy holds the keys and needs no database server.

    With --mirror it reads from a copy that ers mirror has made, also offline, and changes nothing.
    A caller is known by a device that is registered here, since a mirror knows no passwords.

    \b
    Examples:
      ers proxy --data-dir ./keys --base-url https://records.example.org
      ers proxy --data-dir ./keys --mirror /mnt/nas/records
    """
    if accept_stale and settings.mirror is None:
        raise click.UsageError("--accept-stale is for a proxy that reads a mirror: --mirror")
    if click.get_current_context().invoked_subcommand is None:
        run_proxy(settings, accept_stale=accept_stale)


@proxy.command(short_help="Merge index segments now.")
@click.argument("schema", type=SCHEMA, nargs=-1)
@click.option("--once", is_flag=True, required=True, help="Exit when nothing is left to merge.")
@connected(organization=True)
async def merge(session: CommandSession, schema: tuple[str, ...], once: bool) -> None:
    """Have a running proxy merge index segments until merging gains nothing more.

    Proxies merge by themselves after records are stored. Use this command after the error
    merge_first, or to remove deleted records from the index. Without names, it covers all schemas
    that you can reach.

    \b
    Example:
      ers proxy merge --once
    """
    if schema:
        resources = [await session.names.schema(name) for name in schema]
    else:
        resources = [resource async for resource in session.names.schemas()]
    for resource in resources:
        count = 0
        while not (step := await session.client.merge(resource.url)).done:
            count += step.merged
            warn(f"{resource.slug}: {step.merged} segments, {step.records} records")
        say(f"{resource.slug}: {count} segments merged, {step.segments} left")


@proxy.command("accept-rollback", short_help="Accept the restored database of an API.")
@click.option("--forked", is_flag=True, help="Also accept logs that have diverged since.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def accept_rollback(session: CommandSession, forked: bool, yes: bool) -> int:
    """Accept an organization as the API has it after its database was restored to an earlier
    moment: the roster, and the logs of all schemas. The command shows what is lost and asks. Accept
    only if you know of the restore: an API that hides a removal looks the same. Data that cannot be
    verified is never accepted.

    People who were removed since the backup are members again: remove them before anything is
    stored. Schemas whose loss the operator has recorded with ers storage reconcile are repaired, as
    by ers schema repair.

    \b
    Example:
      ers proxy accept-rollback --yes
    """
    organization = await session.names.organization()
    roster = await session.client.roster_standing(organization.url)
    proven = Proven(session)
    if roster.state != "whole":
        for line in _roster_loss_lines(roster):
            warn(line)
        confirm(
            "Accept this roster, and then the older logs of this organization?",
            yes=yes,
            undone="nothing was accepted",
        )
        await proven(
            partial(
                session.client.accept_rollback,
                organization.url,
                number=roster.number,
                digest=roster.digest,
                forked=forked,
            )
        )
        say(f"Accepted: the roster of {organization.slug} is at entry {roster.number}.")
    count = left = repaired = 0
    for schema in [schema async for schema in session.names.schemas()]:
        standing = await session.client.log_standing(schema.url)
        if standing.state == "whole":
            repaired += await repair_schema(session, schema, yes=yes)
            continue
        if standing.state == "older" or (forked and standing.state in ("forked", "unclear")):
            warn(f"{schema.slug}:")
            for line in lost_change_lines(standing):
                warn(f"  {line}")
            if roster.state == "whole":
                confirm("Accept this log?", yes=yes, undone="this log was not accepted")
            await proven(
                partial(
                    session.client.accept_log,
                    schema.url,
                    version=standing.version,
                    digest=standing.digest,
                    forked=forked,
                )
            )
            say(f"Accepted: {schema.slug} is at version {standing.version}.")
            repaired += await repair_schema(session, schema, yes=yes)
            count += 1
        else:
            warn(f"{schema.slug} is not accepted, its log is {standing.state}")
            left += 1
    if roster.state == "whole" and not (count or left or repaired):
        say("There is nothing to accept: the API has everything that this proxy has seen.")
    return REFUSED if left else DONE


def _roster_loss_lines(standing: RosterStanding) -> Iterator[str]:
    assert standing.seen is not None
    yield (
        f"The API's roster is at entry {standing.number}, with {standing.members} people and"
        f" services; this proxy has seen entry {standing.seen.number}."
    )
    if standing.state != "older":
        yield f"Both are the same up to entry {standing.common}; beyond that nothing is known."
    for lost in standing.lost:
        yield f"Lost: {_lost_text(lost)}."
    unknown = standing.seen.number - standing.common - len(standing.lost)
    if unknown > 0:
        yield f"Lost: {unknown} entries whose content this proxy has not kept."


def _lost_text(lost: LostEntry) -> str:
    who, day = lost.who or "somebody", (lost.time or "an unknown day").partition("T")[0]
    by = f" by {lost.by}" if lost.by else ""
    texts = {
        "founded": "the organization was founded",
        "invited": f"{who} was invited",
        "stood": f"{who} was admitted, or got other rights or keys",
        "removed": f"{who} was removed, and is a member again",
        "dataset": f"the dataset {who} was created, renamed, or got a new key",
        "schema": "schemas were added or changed",
    }
    return f"{texts.get(lost.what, lost.what)}, on {day}{by}"
