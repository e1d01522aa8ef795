"""``ers proxy``: the proxy alone; and what a proxy does when it is told to."""

from __future__ import annotations

import click

from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.settings import Settings, takes_settings
from encrypted_records.cli.terminal import say, warn
from encrypted_records.cli.up import run_proxy

_SETTINGS = (
    "data_dir",
    "base_url",
    "proxy_host",
    "proxy_port",
    "allowed_hosts",
    "page_cache",
    "proxy_metrics_port",
    "log_format",
)


@click.group(short_help="Run the proxy alone, for an API elsewhere.", invoke_without_command=True)
@takes_settings(*_SETTINGS)
def proxy(settings: Settings) -> None:
    """Run the proxy alone, in the foreground, for an API that runs elsewhere.

    It holds the keys, and needs no database server.

    \b
    Example:
      ers proxy --data-dir ./keys --base-url https://records.example.org
    """
    if click.get_current_context().invoked_subcommand is None:
        run_proxy(settings)


@proxy.command(short_help="Have index segments merged now.")
@click.argument("schema", nargs=-1)
@click.option("--once", is_flag=True, required=True, help="End when nothing is left to merge.")
@connected(organization=True)
async def merge(session: Session, schema: tuple[str, ...], once: bool) -> None:
    """Have a running proxy merge index segments until that is no longer worth it.

    Proxies do so by themselves after records were stored. It is needed where they could not: after
    `merge_first`, or to be rid of what deleted records left in the index. Without names, of all
    schemas that you reach.

    \b
    Example:
      ers proxy merge --once
    """
    if schema:
        found = [await session.names.schema(name) for name in schema]
    else:
        found = [one async for one in session.client.listing("schemas")]
    for one in found:
        count = 0
        while not (step := await session.client.merge(one["url"])).done:
            count += step.merged
            warn(f"{one['slug']}: {step.merged} segments, {step.records} records")
        say(f"{one['slug']}: {count} segments merged, {step.segments} left")
