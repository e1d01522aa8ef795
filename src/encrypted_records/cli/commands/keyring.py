"""``ers keyring``: see, write down and bring back the keys, through a running proxy.

Passwords and phrases are asked for, or come by environment or stdin: arguments show in ``ps``. The
words of a phrase are printed to a terminal alone, where nothing keeps them by itself.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import click

from encrypted_records.cli.settings import LOCAL, Origin
from encrypted_records.cli.terminal import printable, say, table
from encrypted_records.client.keyring import KeyringInfo, SealedSchema
from encrypted_records.client.proxy import ProxyClient
from encrypted_records.errors import BadInput, InvalidSetting

Found = TypeVar("Found")
#: Words of a phrase, and how many of them are asked for.
_WORDS, _ASKED = 24, 3
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


@click.group(short_help="Show, back up, restore or rotate your keyring.")
def keyring() -> None:
    """Your keyring: the keys that open your records. The proxy must be running.

    Who you are comes from ERS_EMAIL and ERS_PASSWORD, or is asked for.

    Example: ers keyring backup
    """


@keyring.command(short_help="Show fingerprints, dates, and what each key protects.")
@_proxy_url
def show(proxy_url: str) -> None:
    """Show the keyring's fingerprints, dates, and what each key protects; never a key.

    The newest version seals what is stored from now on. A schema goes over to it with the next
    record; what was stored before stays under the version of its time.

    Example: ERS_EMAIL=ada@example.org ers keyring show
    """

    async def ask(client: ProxyClient) -> tuple[KeyringInfo, list[SealedSchema]]:
        return await client.keyring(), await client.sealed_schemas()

    found, schemas = _ask(proxy_url, ask)
    say(f"fingerprint  {found.fingerprint}")
    say(f"sealed with  {_SEALED_WITH.get(found.wrapping, found.wrapping)}")
    confirmed = "confirmed" if found.backup_confirmed else "not confirmed; run: ers keyring backup"
    say(f"backup       {confirmed}")
    say()
    rows = [
        {
            "version": one.version,
            "created": _date(one.created),
            "fingerprint": one.fingerprint,
            "backup": "confirmed" if one.backup_confirmed else "not confirmed",
            "protects": _protects(one.version, schemas),
        }
        for one in found.versions
    ]
    for line in table(rows, ("version", "created", "fingerprint", "backup", "protects")):
        say(line)
    foreign = [schema for schema in schemas if not schema.held]
    if foreign:
        say()
        say("Sealed with keys that are not in this keyring:")
        for line in table(
            [
                {"key": one.key_id, "version": one.key_version, "schema": _name(one)}
                for one in foreign
            ],
            ("key", "version", "schema"),
        ):
            say(line)


def _date(created: int) -> str:
    return f"{datetime.fromtimestamp(created, UTC):%Y-%m-%d}" if created else ""


def _protects(version: int, schemas: Sequence[SealedSchema]) -> str:
    """The schemas whose records may be sealed under ``version``."""
    held = [one for one in schemas if one.held]
    new = [_name(one) for one in held if one.key_version == version]
    old = [_name(one) for one in held if one.first_key_version <= version < one.key_version]
    parts = [("new records of", new), ("older records of", old)]
    said = "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)
    return said or "nothing yet"


def _name(schema: SealedSchema) -> str:
    return printable(schema.name)


@keyring.command(short_help="Seal new records under a new key.")
@_proxy_url
@click.option("--yes", is_flag=True, help="Do not ask.")
def rotate(proxy_url: str, yes: bool) -> None:
    """Add a key version, under which everything is sealed that is stored from now on.

    Do this when a key or a recovery phrase may have been seen by others, or by a schedule. The old
    keys stay: they open what was stored before, for whoever else has them, too. The new version
    needs a backup of its own, and other machines that use this keyring need the new phrase.

    Example: ers keyring rotate && ers keyring backup
    """
    email, password = _credentials()
    if not yes:
        click.confirm(
            "Seal new records under a new key, which needs a new backup?", abort=True, err=True
        )
    found = _run(proxy_url, email, password, lambda client: client.rotate_keyring())
    say(f"New records are sealed under version {found.versions[-1].version}, {found.fingerprint}.")
    say("It has no backup yet; run: ers keyring backup")


@keyring.command(short_help="Show recovery phrases, to write them down.")
@_proxy_url
@click.option("--force", is_flag=True, help="Print the words even where that is no terminal.")
@click.option("--all", "everything", is_flag=True, help="Of all versions, confirmed ones too.")
def backup(proxy_url: str, force: bool, everything: bool) -> None:
    """Show a recovery phrase, 24 words to write down on paper, then ask for three of them.

    Each key version has its phrase; those that you confirmed before are left out. Whoever has the
    words can read the records; without them a lost keyring is lost for good.

    Example: ers keyring backup --proxy-url http://127.0.0.1:8080
    """
    if not (sys.stdout.isatty() or force):
        raise InvalidSetting(
            "the recovery phrase is shown on a terminal only, and this output goes elsewhere",
            hint="run it in a terminal, or with --force if you know where the output is kept",
        )
    email, password = _credentials()
    phrases = _run(
        proxy_url, email, password, lambda client: client.backup_phrases(all_versions=everything)
    )
    if not phrases:
        say("The backup of every version is confirmed. To see the words again: --all")
    asking = sys.stdout.isatty() and sys.stdin.isatty()
    for one in phrases:
        # On stderr, so that what --force prints is nothing but the words.
        click.echo(f"The words of version {one.version}:", err=True)
        words = one.phrase.split()
        for number, word in enumerate(words, 1):
            say(f"{number:2}  {word}")
        if asking:
            _check_written_down(words)
            _run(proxy_url, email, password, partial(_confirm, one.phrase))
            say(f"The backup of version {one.version} is confirmed.")
    if phrases and asking:
        say("Keep the words where no one else finds them, each version with its number.")
    elif phrases:
        click.echo("not confirmed: there is no terminal to ask for the words", err=True)


async def _confirm(phrase: str, client: ProxyClient) -> None:
    await client.confirm_backup(phrase)


def _check_written_down(words: Sequence[str]) -> None:
    """Hide the words and ask for some of them.

    Raises:
        BadInput: an answer is wrong.
    """
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


@keyring.command(short_help="Bring a keyring here from its recovery phrases.")
@_proxy_url
@click.option(
    "--replace", is_flag=True, help="Take the place of another keyring here; its file is kept."
)
def restore(proxy_url: str, replace: bool) -> None:
    """Bring a keyring to this proxy from its recovery phrases, asked for or read from stdin.

    One phrase for each version, the oldest first. A keyring here that has the same keys or fewer is
    brought up to date; one that has others is left alone unless you say --replace.

    Example: ers keyring restore < phrases.txt
    """
    email, password = _credentials()
    phrases = _typed_phrases() if sys.stdin.isatty() else _phrases(sys.stdin.read(100_000))
    found = _run(
        proxy_url, email, password, lambda client: client.restore_keyring(phrases, replace=replace)
    )
    say(f"The keyring {found.fingerprint} is here, with {_versions(len(found.versions))}.")


def _versions(count: int) -> str:
    return "1 version" if count == 1 else f"{count} versions"


def _typed_phrases() -> list[str]:
    phrases: list[str] = []
    while True:
        what = f"The 24 words of version {len(phrases) + 1} (they do not show)"
        if phrases:
            what += ", or Enter if there is none"
        typed = click.prompt(
            what, hide_input=True, err=True, default="" if phrases else None, show_default=False
        )
        if not typed:
            return phrases
        phrases.append(typed)


def _phrases(text: str) -> list[str]:
    """Phrase after phrase; what is not made of whole phrases is left to the proxy to refuse."""
    words = text.split()
    if len(words) % _WORDS:
        return [text]
    return [" ".join(words[at : at + _WORDS]) for at in range(0, len(words), _WORDS)]


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
