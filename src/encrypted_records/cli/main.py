"""The command ``ers``: arguments and dispatch."""

from __future__ import annotations

import sys

import click

from encrypted_records import __version__
from encrypted_records.cli import terminal
from encrypted_records.cli.lazy_group import LazyGroup, Unread
from encrypted_records.cli.limits import STANDARD, CommandLimits
from encrypted_records.errors import ErsError

COMMANDS = {
    "The service": {
        "up": "Start API and proxy together.",
        "api": "Run the API alone; or send any request: ers api GET PATH.",
        "proxy": "Run the proxy alone, for an API elsewhere.",
        "demo": "Start both, store a thousand records, search them.",
        "backup": "Copy the data folder while the service runs on it.",
        "restore": "Make a data folder of a backup.",
        "storage": "As the API's operator, move what it has stored.",
    },
    "Who you are": {
        "register": "Open an account with an organization of its own.",
        "verify": "Confirm an account by the link of its message; or check all that is stored.",
        "login": "Log in, and stay logged in.",
        "logout": "End the login that is kept here.",
        "user": "Show your account, change or reset its password.",
        "token": "Make, list, revoke tokens for other programs.",
        "share": "Share datasets with people; see who reads and writes what.",
        "service": "Make, list, delete services: programs with keys of their own.",
        "organization": "List, show, rename organizations; members, invitations, audit log.",
    },
    "Your data": {
        "dataset": "List, make, change or delete datasets.",
        "schema": "List, make, change or delete schemas; infer one; look after its log.",
        "record": "Store, search, read records.",
        "subject": "Erase somebody from all schemas of a dataset.",
        "retention": "Delete the records that are older than their schema lets them be.",
        "job": "Upload any number of records, and follow the jobs that store them.",
        "import": "Make a schema of a file or a table, and store its rows.",
        "file": "Upload a file so that it goes on after an interruption.",
        "keyring": "Show, back up, restore or rotate your keyring.",
        "device": "List, take in or revoke the devices that may use your keyring.",
        "salvage": "Write to a file what opens of a schema whose log is broken.",
    },
    "Help": {
        "doctor": "Look for what is wrong, and say what to do.",
        "status": "Say whether proxy and API answer.",
        "config": "Show or change profiles: proxy, output, names that commands use.",
        "completion": "Print what makes your shell complete ers.",
        "help": "Say what a command does.",
    },
}


@click.group(
    cls=LazyGroup,
    sections=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="docs/cli.md describes every command, docs/operations.md every setting.",
)
@click.version_option(__version__, "-V", "--version", prog_name="ers")
@terminal.debug_option
def ers() -> None:
    """Encrypted Records Service: records that stay searchable on a server without keys."""


def main() -> None:
    terminal.open_streams()
    code = run(sys.argv[1:])
    terminal.drop_unwritten()
    sys.exit(code)


def run(arguments: list[str], limits: CommandLimits = STANDARD) -> int:
    """Run one command line; its exit code."""
    try:
        code = ers.main(arguments, prog_name="ers", standalone_mode=False, obj=limits)
    except click.exceptions.NoArgsIsHelpError as error:
        terminal.say(error.format_message())
        return terminal.MISUSED
    except click.ClickException as error:
        return terminal.report_misuse(error)
    except (click.Abort, KeyboardInterrupt):
        return terminal.INTERRUPTED
    except ErsError as error:
        return terminal.report(error)
    except Unread:
        return terminal.UNREAD
    except OSError as error:
        return terminal.report_system(error)
    except Exception as error:
        return terminal.report_bug(error)
    return code if isinstance(code, int) else terminal.DONE


if __name__ == "__main__":
    main()
