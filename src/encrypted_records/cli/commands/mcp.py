"""``ers mcp``: tools for an agent, over standard input and output."""

from __future__ import annotations

import click

from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.sql.extra import require_mcp


@click.command(short_help="Let an agent query your records, over MCP.")
@connected()
async def mcp(session: CommandSession) -> None:
    """Serve the tools list_schemas, describe_schema, query and why_nothing to an agent, by the
    Model Context Protocol over standard input and output.

    ERS_TOKEN must hold an API token with the scope read; the agent sees the datasets of that token
    and gets no key. Everything that a tool shows to the agent leaves this machine with it, for the
    provider of the agent's model.

    \b
    Example:
      ERS_TOKEN="$(cat agent.token)" ers mcp
    """
    require_mcp()
    from encrypted_records.sql.agent import Tools, refuse_wide_token  # noqa: PLC0415 - optional
    from encrypted_records.sql.engine import Engine  # noqa: PLC0415 - optional

    refuse_wide_token(await session.who.login() if session.who.login else "")
    async with Engine(session.client) as engine:
        await Tools(session.client, engine).server().run_stdio_async()
