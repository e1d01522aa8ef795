"""The command ``ers``: arguments and dispatch."""

from __future__ import annotations

import os
import sys

import click

from encrypted_records import __version__
from encrypted_records.cli import terminal
from encrypted_records.cli.command_group import STANDARD, CommandLimits, LazyGroup, Unread
from encrypted_records.errors import ErsError
from encrypted_records.heap import forbid_dumps

COMMANDS = {
    "The service": {
        "up": "Start API and proxy together.",
        "api": "Run the API alone, or send any request: ers api GET PATH.",
        "proxy": "Run the proxy alone, for an API on another machine.",
        "demo": "Start API and proxy, store a thousand records, search them.",
        "backup": "Copy the data folder while the service is running.",
        "restore": "Create a data folder from a backup.",
        "storage": "Move or reconcile the API's stored objects, as its operator.",
    },
    "Your account": {
        "register": "Create an account with its own organization.",
        "verify": "Confirm an account by the link in its message, or check stored data.",
        "login": "Log in.",
        "logout": "Log out on this machine.",
        "user": "Show, change or delete your account.",
        "token": "Create, list or revoke tokens for other programs.",
        "share": "Share datasets with people, and show who reads and writes what.",
        "service": "Create, list or delete services: programs with their own keys.",
        "organization": "List or rename organizations; manage members, invitations, audit log.",
    },
    "Your data": {
        "dataset": "List, create, change or delete datasets.",
        "schema": "List, create, change, infer or delete schemas; check their logs.",
        "record": "Store, search, read, change or delete records.",
        "watch": "Follow the changes of a schema's records.",
        "webhook": "Send the changes of a schema to an address.",
        "sql": "Run SELECT over your records.",
        "subject": "Erase a person from all schemas of a dataset.",
        "retention": "Delete records past their schema's retention period.",
        "import": "Store a file or a PostgreSQL table, in a new schema or an existing one.",
        "job": "Follow or cancel the jobs that store files.",
        "mcp": "Let an agent query your records, over MCP.",
        "keyring": "Show, back up, restore or rotate your keyring.",
        "device": "List, register or revoke devices that may use your keyring.",
        "mirror": "Copy log and encrypted data to a folder or bucket that needs no trust.",
        "salvage": "Save every record that can still be decrypted when a schema's log is damaged.",
    },
    "Help": {
        "doctor": "Check the installation, and say how to fix problems.",
        "status": "Check whether proxy and API answer.",
        "config": "Show or change profiles: proxy, output and default names.",
        "completion": "Print the shell completion script for ers.",
        "help": "Show help for a command.",
    },
}

#: Modules of ``commands`` with several commands. Any other command has a module of its name.
MODULES = {
    "account": ("register", "login", "logout", "user", "token"),
    "backup": ("backup", "restore", "storage", "mirror", "verify"),
    "changes": ("watch", "webhook"),
    "config": ("config", "completion", "help"),
    "doctor": ("doctor", "status"),
    "erasure": ("retention", "subject"),
    "organization": ("organization", "service"),
    "schema_log": ("salvage",),
    "sql": ("sql", "mcp"),
    "up": ("up", "demo", "proxy"),
}


@click.group(
    cls=LazyGroup,
    sections=COMMANDS,
    modules=MODULES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="docs/cli.md describes every command, docs/operations.md every setting.",
)
@click.version_option(__version__, "-V", "--version", prog_name="ers")
@terminal.debug_option
def ers() -> None:
    """Encrypted Records Service: search records on a server that cannot read them."""


def main() -> None:
    forbid_dumps()  # passwords, words of keyrings and records pass through here
    # numpy's linear algebra, which nothing uses, starts a thread for every core of the machine, in
    # this process and in each of its children; each thread waits busily at first.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    terminal.open_streams()
    code = run(sys.argv[1:])
    terminal.drop_unwritten()
    sys.exit(code)


def run(arguments: list[str], limits: CommandLimits = STANDARD) -> int:
    """Run one command line; returns its exit code."""
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
