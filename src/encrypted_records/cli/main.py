"""The command ``ers``: arguments and dispatch."""

from __future__ import annotations

import sys

import click

from encrypted_records import __version__
from encrypted_records.cli import terminal
from encrypted_records.cli.lazy import LazyGroup
from encrypted_records.errors import ErsError

COMMANDS = {
    "The service": {
        "up": "Start API and proxy together.",
        "api": "Run the API alone.",
        "proxy": "Run the proxy alone, for an API elsewhere.",
        "demo": "Start both, store a thousand records, search them.",
    },
    "Who you are": {
        "register": "Open an account with an organization of its own.",
        "login": "Log in, and stay logged in.",
        "logout": "End the login that is kept here.",
        "user": "Show your account, change its password.",
        "token": "Get or check access tokens, for use with curl.",
        "organization": "List, show, rename organizations; members, invitations, audit log.",
    },
    "Your data": {
        "dataset": "List, make, change or delete datasets.",
        "schema": "List, make, change or delete schemas; infer one from data.",
        "record": "Store, search, read records.",
        "job": "Upload any number of records, and follow the jobs that store them.",
        "file": "Upload a file so that it goes on after an interruption.",
        "keyring": "Show, back up, restore or rotate your keyring.",
    },
    "Help": {
        "doctor": "Look for what is wrong, and say what to do.",
        "status": "Say whether proxy and API answer.",
        "completion": "Print what makes your shell complete ers.",
    },
}


@click.group(
    cls=LazyGroup,
    sections=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="docs/cli.md describes every command, docs/operations.md every setting.",
)
@click.version_option(__version__, prog_name="ers")
@terminal.debug_option
def ers() -> None:
    """Encrypted Records Service: records that stay searchable on a server without keys."""


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
