"""``ers webhook``: have the changes of a schema sent to an address."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import click
import msgspec

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.record.options import dataset_option, schema_option
from encrypted_records.cli.commands.token import Lifetime
from encrypted_records.cli.login.proofs import ask_secret
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import say, warn
from encrypted_records.errors import ErsError, InvalidSetting

_COLUMNS = ("id", "schema", "target", "status", "reason", "tries", "delivered")
_expires_option = click.option(
    "--expires",
    type=Lifetime(),
    default="366d",
    show_default=True,
    help="Time until the token that the webhook reads with expires, at most 366d.",
)


@click.group(cls=CommandGroup, short_help="Send the changes of a schema to an address.")
def webhook() -> None:
    """Manage webhooks. The proxy sends each change of a schema's records, decrypted and signed, to
    an HTTPS address within a second, and retries for a day if it is not accepted.
    """


@webhook.command(short_help="Create a webhook, and print its secret.")
@click.argument("url")
@schema_option
@dataset_option
@click.option(
    "--from",
    "begin",
    default="now",
    show_default=True,
    metavar="CURSOR",
    help="Starting point: now, start for all records, or a cursor.",
)
@_expires_option
@connected(organization=True)
async def create(
    session: CommandSession,
    url: str,
    schema: str,
    dataset: str | None,
    begin: str,
    expires: timedelta,
) -> None:
    """Send the changes of a schema to URL from now on, and print the secret that signs them, once.

    The webhook reads with an API token that is created for it, can only read this dataset, and
    stays encrypted at the proxy. Creating it needs your password: asked for, or ERS_PASSWORD, or
    the next line of standard input. The receiver sees the records as you see them.

    Receivers verify the header webhook-signature with a library of standardwebhooks.com.

    \b
    Example:
      ers webhook create https://example.org/hooks/patients --schema patient
    """
    resource = await session.names.schema(schema, dataset)
    made = await _make_token(session, resource, expires)
    try:
        created = await session.client.create_webhook(
            resource["url"], url, token=made.token, cursor=None if begin == "start" else begin
        )
    except ErsError:
        await session.client.revoke_token(made.id)
        raise
    say(created.secret)
    warn(f"This is the secret of webhook {created.id}; it is not shown again.")
    warn(
        f"Its token {made.id} expires on {made.expires:%Y-%m-%d}; renew it with: ers webhook"
        f" resume {created.id} --renew"
    )


async def _make_token(
    session: CommandSession, schema: Mapping[str, Any], expires: timedelta
) -> Any:
    password = None
    if not session.who.password:  # which is in the request as it is
        password = os.environ.get("ERS_PASSWORD") or ask_secret("Your password")
        if not password:
            raise InvalidSetting(
                "a webhook needs a token, and creating one needs your password",
                hint="set ERS_PASSWORD, or give the password on the next line of standard input",
            )
    return await session.client.create_token(
        f"webhook {schema['slug']}",
        scope="read",
        datasets=[schema["dataset"]],
        expires_in=expires,
        password=password,
    )


@webhook.command("list", short_help="List your webhooks and how their deliveries go.")
@connected()
@takes_output
async def list_(session: CommandSession, output: Output) -> None:
    """List your webhooks at this proxy, with the error that stopped or delays each.

    \b
    Example:
      ers webhook list
    """
    named = await session.slugs("schemas") if output.form == "table" else {}

    async def things() -> AsyncIterator[Mapping[str, Any]]:
        for webhook in await session.client.webhooks():
            yield msgspec.to_builtins(webhook)

    def cells(webhook: Mapping[str, Any]) -> dict[str, Any]:
        return {**webhook, "schema": named.get(webhook["schema"], webhook["schema"].split("/")[-2])}

    await output.many(things(), _COLUMNS, cells, called="webhooks", times=("delivered",))


@webhook.command(short_help="Have a webhook try again now.")
@click.argument("id", metavar="ID")
@click.option("--renew", is_flag=True, help="Create a new token for it, with your password.")
@_expires_option
@connected(organization=True)
async def resume(session: CommandSession, id: str, renew: bool, expires: timedelta) -> None:  # noqa: A002 - as ers webhook list calls it
    """Have a webhook try again now, from where it was: nothing is lost in between. With --renew it
    reads with a new token from then on, for example because the earlier token expired.

    \b
    Example:
      ers webhook resume "$WEBHOOK_ID" --renew
    """
    token = None
    if renew:
        known = {webhook.id: webhook for webhook in await session.client.webhooks()}
        if id not in known:
            raise InvalidSetting("you have no such webhook here", hint="ers webhook list")
        resource = await session.client.resource(known[id].schema)
        token = (await _make_token(session, resource, expires)).token
    resumed = await session.client.resume_webhook(id, token=token)
    say(f"Webhook {resumed.id} is active.")


@webhook.command(short_help="Delete a webhook.")
@click.argument("id", metavar="ID")
@connected()
async def delete(session: CommandSession, id: str) -> None:  # noqa: A002 - as ers webhook list calls it
    """Delete a webhook: nothing more is sent. Revoke its token as well: ers token list shows it.

    \b
    Example:
      ers webhook delete "$WEBHOOK_ID"
    """
    await session.client.delete_webhook(id)
    say(f"Webhook {id} is deleted.")
