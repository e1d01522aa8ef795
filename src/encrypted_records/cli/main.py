"""The command ``ers``: arguments and dispatch."""

from __future__ import annotations

import sys

import click

from encrypted_records import __version__
from encrypted_records.cli import terminal
from encrypted_records.cli.commands.api import api
from encrypted_records.cli.commands.demo import demo
from encrypted_records.cli.commands.keyring import keyring
from encrypted_records.cli.commands.proxy import proxy
from encrypted_records.cli.commands.up import up
from encrypted_records.errors import ErsError


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each setting comes from its flag, else its variable, else the config file, else its"
    " default. docs/operations.md lists them all.",
)
@click.version_option(__version__, prog_name="ers")
def ers() -> None:
    """Encrypted Records Service: records that stay searchable on a server without keys."""


for command in (up, api, proxy, demo, keyring):
    ers.add_command(command)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; its exit code."""
    try:
        code = ers.main(arguments, prog_name="ers", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        terminal.say(error.format_message())
        return terminal.MISUSED
    except click.ClickException as error:
        return terminal.report_misuse(error)
    except (click.Abort, KeyboardInterrupt):
        return terminal.INTERRUPTED
    except ErsError as error:
        return terminal.report(error)
    except Exception as error:
        return terminal.report_bug(error)
    return code if isinstance(code, int) else terminal.DONE


if __name__ == "__main__":
    main()
