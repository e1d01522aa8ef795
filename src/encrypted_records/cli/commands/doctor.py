"""``ers doctor``: why is it slow, why are there no rows, why is it refused."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any

import click

from encrypted_records.cli.commands.conditions import question
from encrypted_records.cli.commands.doctor_checks import LOG_IN, Finding, findings, stored_findings
from encrypted_records.cli.limits import STANDARD, CommandLimits
from encrypted_records.cli.login.session import (
    NOBODY,
    SCHEMA,
    CommandSession,
    connected,
)
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.settings import Settings, takes_settings
from encrypted_records.cli.terminal import DONE, say
from encrypted_records.errors import InvalidSetting, NotAuthenticated


@takes_output
@connected(organization=True, login_optional=True)
async def _look(
    session: CommandSession, schema: str | None, why: str | None, output: Output
) -> int:
    if why is not None:
        if session.who == NOBODY:
            raise NotAuthenticated("you are not logged in", hint=LOG_IN)
        return await _explain(session, schema, why, output)
    return await _say(findings(session, schema), output)


async def _each(every: list[Finding]) -> AsyncIterator[Finding]:
    for finding in every:
        yield finding


@click.command(short_help="Check the installation, and say how to fix problems.")
@click.option("--schema", type=SCHEMA, metavar="NAME", help="Check only this schema.")
@click.option(
    "--why",
    metavar="CONDITION",
    help="Show what each comparison of the condition finds by itself; requires --schema.",
)
@click.option(
    "--stored",
    is_flag=True,
    help="Check the API's database and object store instead, as its operator.",
)
@takes_settings("data_dir", "database_url", "replica_url", "bulk_url", "bulk_before")
@functools.wraps(_look, assigned=(), updated=("__dict__",))
def doctor(
    settings: Settings, *, schema: str | None, why: str | None, stored: bool, **where: Any
) -> int:
    """Check versions, disk, proxy, API, clock, account, keyring, and each schema and its index, and
    say how to fix problems. Nothing is changed. Without a login, only the first five are checked. A
    schema without problems has one line; with --schema, each check of it has one.

    With --stored, for the operator of an API, on a machine that reaches its database and object
    store: check that both can be read and written and have room, how far a replica follows, whether
    a sample of objects exists, and whether deleted data is really gone.

    The exit code is 0 if no check failed, otherwise that of the first failure.

    \b
    Examples:
      ers doctor
      ers doctor --schema patient --output json
      ers doctor --schema patient --why 'city = "Roma" and age > 30'
    """
    if not stored:
        return int(_look(schema=schema, why=why, **where))
    if schema is not None or why is not None:
        raise click.UsageError("--stored takes neither --schema nor --why")
    limits = click.get_current_context().find_object(CommandLimits) or STANDARD
    found = stored_findings(settings, limits.little_space)
    return asyncio.run(_say(_each(found), where["output"]))


async def _say(every: AsyncIterator[Finding], output: Output) -> int:
    seen: list[Finding] = []

    async def things() -> AsyncIterator[dict[str, Any]]:
        async for finding in every:
            seen.append(finding)
            yield {
                "check": finding.check,
                "state": finding.state,
                "found": finding.message,
                "hint": finding.hint,
            }

    if output.form == "table":
        async for line in things():
            say(f"{line['state']:<8} {line['check']:<10} {line['found']}")
            if line["hint"]:
                say(f"{'':<8} {'':<10} hint: {line['hint']}")
    else:
        await output.many(things(), ("check", "state", "found", "hint"), called="findings")
    return next((finding.code for finding in seen if finding.code != DONE), DONE)


_COLUMNS = ("comparison", "count", "folded", "trimmed", "never")


async def _explain(session: CommandSession, name: str | None, why: str, output: Output) -> int:
    if name is None:
        raise InvalidSetting("--why is about one schema", hint="name it by --schema")
    schema, where, _ = await question(session, name, None, why, None)
    assert where is not None
    found = await session.client.explain_nothing(schema["url"], where)

    async def lines() -> AsyncIterator[dict[str, Any]]:
        for comparison in found["comparisons"]:
            yield {"comparison": f"{comparison['field']} {comparison['op']}", **comparison}
        whole = dict.fromkeys(_COLUMNS)
        yield whole | {"comparison": "all of it", "count": found["count"]}

    await output.many(lines(), _COLUMNS, called="comparisons")
    return DONE
