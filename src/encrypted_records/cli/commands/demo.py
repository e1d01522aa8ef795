"""``ers demo``: the same service as ``ers up``, with data to look at."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from encrypted_records.cli.commands.up import SETTINGS_OF_BOTH, say_where
from encrypted_records.cli.settings import FolderPath, Settings, takes_settings
from encrypted_records.cli.supervise.supervisor import serve_both
from encrypted_records.cli.terminal import say
from encrypted_records.errors import InvalidSetting


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
