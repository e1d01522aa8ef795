"""``ers up``: API and proxy together; ``ers demo``: the same service, with data to look at."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from encrypted_records import __version__
from encrypted_records.cli.settings import FolderPath, Settings, takes_settings, without_password
from encrypted_records.cli.supervise.supervisor import serve_both
from encrypted_records.cli.terminal import say
from encrypted_records.errors import InvalidSetting

#: What API and proxy together can be told; the proxy's base URL is then a given.
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


@click.command(short_help="Start API and proxy together.")
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


@click.command(short_help="Start API and proxy, store a thousand records, search them.")
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
