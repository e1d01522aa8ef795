"""``ers proxy``: the proxy alone."""

from __future__ import annotations

import click

from encrypted_records.cli.settings import Settings, takes_settings
from encrypted_records.cli.up import run_proxy


@click.command(short_help="Run the proxy alone, for an API elsewhere.")
@takes_settings("data_dir", "base_url", "proxy_host", "proxy_port", "allowed_hosts", "log_format")
def proxy(settings: Settings) -> None:
    """Run the proxy alone, in the foreground, for an API that runs elsewhere.

    It holds the keys, and needs no database server.

    \b
    Example:
      ers proxy --data-dir ./keys --base-url https://records.example.org
    """
    run_proxy(settings)
