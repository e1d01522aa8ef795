"""``ers keyring``: see, write down and bring back the keys, through a running proxy.

Passwords and phrases are asked for, or come by environment or stdin: arguments show in ``ps``. The
words of a phrase are printed to a terminal alone, where nothing keeps them by itself.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from encrypted_records.cli.settings import LOCAL, Origin
from encrypted_records.cli.terminal import say, table
from encrypted_records.client.proxy import KeyringInfo, ProxyClient
from encrypted_records.errors import BadInput, InvalidSetting

Found = TypeVar("Found")
#: How many words of the phrase are asked for.
_ASKED = 3
_SEALED_WITH = {
    "passphrase": "a passphrase",
    "machine_key": "a key beside it: whoever can read the proxy's folder can read the records",
}

_proxy_url = click.option(
    "--proxy-url",
    type=Origin(),
    default=f"http://{LOCAL}:8080",
    envvar="ERS_PROXY_URL",
    show_envvar=True,
    show_default=True,
    help="The proxy that holds the keyring.",
)


@click.group(short_help="Show, back up or restore your keyring.")
def keyring() -> None:
    """Your keyring: the keys that open your records. The proxy must be running.

    Who you are comes from ERS_EMAIL and ERS_PASSWORD, or is asked for.

    Example: ers keyring backup
    """


@keyring.command(short_help="Show fingerprints and dates.")
@_proxy_url
def show(proxy_url: str) -> None:
    """Show the keyring's fingerprints, dates, and what each key protects; never a key.

    Example: ERS_EMAIL=ada@example.org ers keyring show
    """
    found = _ask(proxy_url, lambda client: client.keyring())
    say(f"fingerprint  {found.fingerprint}")
    say(f"sealed with  {_SEALED_WITH.get(found.wrapping, found.wrapping)}")
    say(f"backup       {_confirmed(found)}")
    say()
    for line in table(_rows(found), ("version", "created", "fingerprint", "protects")):
        say(line)


def _confirmed(found: KeyringInfo) -> str:
    return "confirmed" if found.backup_confirmed else "not confirmed; run: ers keyring backup"


def _rows(found: KeyringInfo) -> list[dict[str, Any]]:
    newest = max(one.version for one in found.versions)
    return [
        {
            "version": one.version,
            "created": f"{datetime.fromtimestamp(one.created, UTC):%Y-%m-%d}"
            if one.created
            else "",
            "fingerprint": one.fingerprint,
            "protects": "records stored since then"
            if one.version == newest
            else "records stored while it was the newest",
        }
        for one in found.versions
    ]


@keyring.command(short_help="Show the recovery phrase, to write it down.")
@_proxy_url
@click.option("--force", is_flag=True, help="Print the words even where that is no terminal.")
def backup(proxy_url: str, force: bool) -> None:
    """Show the recovery phrase, 24 words to write down on paper, then ask for three of them.

    Whoever has the words can read the records; without them a lost keyring is lost for good.

    Example: ers keyring backup --proxy-url http://127.0.0.1:8080
    """
    if not (sys.stdout.isatty() or force):
        raise InvalidSetting(
            "the recovery phrase is shown on a terminal only, and this output goes elsewhere",
            hint="run it in a terminal, or with --force if you know where the output is kept",
        )
    email, password = _credentials()
    words = _run(proxy_url, email, password, lambda client: client.backup_phrase()).split()
    for number, word in enumerate(words, 1):
        say(f"{number:2}  {word}")
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        click.echo("not confirmed: there is no terminal to ask for the words", err=True)
        return
    say()
    click.prompt(
        "Write the words down, in this order. Then press Enter",
        default="",
        show_default=False,
        prompt_suffix=" ",
    )
    click.clear()
    for place in sorted(random.SystemRandom().sample(range(len(words)), _ASKED)):
        answer: str = click.prompt(f"Word {place + 1}")
        if answer.strip().lower() != words[place]:
            raise BadInput(
                f"that is not word {place + 1}, so the backup is not confirmed",
                code="invalid_phrase",
                hint="compare what you wrote down with the words: run ers keyring backup again",
            )
    phrase = " ".join(words)
    _run(proxy_url, email, password, lambda client: client.confirm_backup(phrase))
    say("The backup is confirmed. Keep the words where no one else finds them.")


@keyring.command(short_help="Bring a keyring here from its recovery phrase.")
@_proxy_url
@click.option(
    "--replace", is_flag=True, help="Take the place of the keyring that is here; its file is kept."
)
def restore(proxy_url: str, replace: bool) -> None:
    """Bring a keyring to this proxy from its recovery phrase, asked for or read from stdin.

    Example: ers keyring restore < phrase.txt
    """
    email, password = _credentials()
    if sys.stdin.isatty():
        phrase = click.prompt("The 24 words (they do not show)", hide_input=True, err=True)
    else:
        phrase = sys.stdin.read(10_000)
    found = _run(
        proxy_url, email, password, lambda client: client.restore_keyring(phrase, replace=replace)
    )
    say(f"The keyring {found.fingerprint} is here.")


def _ask(proxy_url: str, question: Callable[[ProxyClient], Awaitable[Found]]) -> Found:
    return _run(proxy_url, *_credentials(), question)


def _credentials() -> tuple[str, str]:
    """E-mail and password, from the environment or asked for.

    Raises:
        InvalidSetting: neither there nor a terminal to ask on.
    """
    email, password = os.environ.get("ERS_EMAIL"), os.environ.get("ERS_PASSWORD")
    if not (email and password) and not sys.stdin.isatty():
        raise InvalidSetting(
            "who you are is not known, and there is no terminal to ask on",
            hint="set ERS_EMAIL and ERS_PASSWORD",
        )
    email = email or click.prompt("E-mail", err=True)
    password = password or click.prompt("Password", hide_input=True, err=True)
    return str(email), str(password)


def _run(
    proxy_url: str,
    email: str,
    password: str,
    question: Callable[[ProxyClient], Awaitable[Found]],
) -> Found:
    async def ask() -> Found:
        async with ProxyClient(proxy_url, email=email, password=password) as client:
            return await question(client)

    return asyncio.run(ask())
