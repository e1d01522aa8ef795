"""``ers api``: the API alone."""

from __future__ import annotations

import click

from encrypted_records.cli.settings import Settings, takes_settings
from encrypted_records.cli.up import run_api


@click.command(short_help="Run the API alone.")
@takes_settings(
    "data_dir",
    "api_host",
    "api_port",
    "database_url",
    "email_url",
    "public_url",
    "allowed_hosts",
    "admin",
    "api_metrics_port",
    "log_format",
)
def api(settings: Settings) -> None:
    """Run the API alone, in the foreground. It holds ciphertext and no key.

    \b
    Example:
      ers api --data-dir ./data --api-port 9000
    """
    run_api(settings)
