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
from pathlib import Path
from typing import TypeVar

import click

from encrypted_records.cli.settings import LOCAL, Origin
from encrypted_records.cli.terminal import printable, say, table
from encrypted_records.client.keyring import KeyringInfo, SealedSchema
from encrypted_records.client.proxy import ProxyClient
from encrypted_records.errors import BadInput, Closed, InvalidSetting

Found = TypeVar("Found")
#: Words of a phrase, and how many of them are asked for.
_WORDS, _ASKED = 24, 3
#: Of a backup file; one of a hundred versions has a twentieth of it.
_MOST_BYTES = 100_000
_SEALED_WITH = {
    "passphrase": "a passphrase",
    "keychain": "a key in the proxy's keychain",
    "vault": "a key that Vault opens",
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
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a file that a passphrase seals, in the place of words.",
)
def backup(proxy_url: str, force: bool, everything: bool, file: Path | None) -> None:
    """Show a recovery phrase, 24 words to write down on paper, then ask for three of them.

    Each key version has its phrase; those that you confirmed before are left out. Whoever has the
    words can read the records; without them a lost keyring is lost for good.

    With --file nothing is shown: all versions go into a file, sealed with a passphrase that is
    asked for, or is the first line of stdin. It is as safe as that passphrase; the file alone and
    the passphrase alone open nothing.

    Example: ers keyring backup --file keyring.backup
    """
    if file is not None:
        _backup_to(file, proxy_url)
        return
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


def _backup_to(file: Path, proxy_url: str) -> None:
    email, password = _credentials()
    passphrase = _new_passphrase("Passphrase of the backup")

    _write_new(
        file, _run(proxy_url, email, password, lambda client: client.backup_file(passphrase))
    )
    # What is on the disk counts, not what was sent.
    written = _backup_in(file)
    _run(proxy_url, email, password, lambda client: client.confirm_backup_file(written, passphrase))
    say(f"The backup of all versions is in {file}, and opens with its passphrase.")
    say("Keep it on another machine or disk than the keyring.")


def _write_new(file: Path, content: bytes) -> None:
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        raise InvalidSetting(
            f"cannot write {file}: {(error.strerror or 'it fails').lower()}",
            hint="name a new file; one that exists is never overwritten",
        ) from None


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


@keyring.command(short_help="Bring a keyring here from its backup.")
@_proxy_url
@click.option(
    "--replace", is_flag=True, help="Take the place of another keyring here; its file is kept."
)
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file that ers keyring backup wrote.",
)
def restore(proxy_url: str, replace: bool, file: Path | None) -> None:
    """Bring a keyring to this proxy from its recovery phrases, or from a file.

    One phrase for each version, the oldest first, asked for or read from stdin; with --file the
    passphrase. A keyring here that has the same keys or fewer is brought up to date; one that has
    others is left alone unless you say --replace.

    Example: ers keyring restore < phrases.txt
    """
    email, password = _credentials()
    if file is not None:
        content, passphrase = _backup_in(file), _passphrase("Passphrase of the backup")

        async def bring(client: ProxyClient) -> KeyringInfo:
            return await client.restore_keyring_file(content, passphrase, replace=replace)

    else:
        phrases = _typed_phrases() if sys.stdin.isatty() else _phrases(sys.stdin.read(100_000))

        async def bring(client: ProxyClient) -> KeyringInfo:
            return await client.restore_keyring(phrases, replace=replace)

    found = _run(proxy_url, email, password, bring)
    say(f"The keyring {found.fingerprint} is here, with {_versions(len(found.versions))}.")


def _backup_in(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST_BYTES)
    except OSError as error:
        raise InvalidSetting(
            f"cannot read {file}: {(error.strerror or 'it fails').lower()}",
            hint="name the file that ers keyring backup --file wrote",
        ) from None


@keyring.command(short_help="Open a locked keyring until the proxy ends.")
@_proxy_url
def unlock(proxy_url: str) -> None:
    """Open a keyring that a passphrase seals, for as long as the proxy runs.

    The passphrase is asked for, or is the first line of stdin. Each wrong one makes the wait until
    the next longer.

    Example: ers keyring unlock
    """
    email, password = _credentials()
    passphrase = _passphrase("Passphrase")
    found = _run(proxy_url, email, password, lambda client: client.unlock_keyring(passphrase))
    say(f"The keyring {found.fingerprint} is unlocked until the proxy ends.")


@keyring.command(short_help="Lock a keyring that was unlocked.")
@_proxy_url
def lock(proxy_url: str) -> None:
    """Let the proxy forget a keyring that was unlocked, and what it has opened.

    Example: ers keyring lock
    """
    _ask(proxy_url, lambda client: client.lock_keyring())
    say("The keyring is locked.")


@keyring.command(short_help="Give the keyring a passphrase, or another one.")
@_proxy_url
def passphrase(proxy_url: str) -> None:
    """Seal the keyring with a new passphrase. No record is touched; files that were kept of older
    keyrings are sealed anew, too.

    The present passphrase is asked for where one seals the keyring, then the new one, twice; or
    they are the lines of stdin, each once. Copies of the proxy's folder from before still open with
    the old one. If somebody may have such a copy and the old passphrase, rotate the keys as well.

    Example: ers keyring passphrase
    """
    email, password = _credentials()
    sealed = _run(proxy_url, email, password, _wrapping)
    old = _passphrase("Present passphrase") if sealed == "passphrase" else None
    new = _new_passphrase("New passphrase")
    left = _run(proxy_url, email, password, lambda client: client.change_passphrase(new, old=old))
    say("The keyring has a new passphrase.")
    say("Where the proxy is started with one, give it the new one; or run: ers keyring unlock")
    if left:
        say(f"Files of replaced keyrings that it did not open, left as they are: {left}")


async def _wrapping(client: ProxyClient) -> str:
    """How the keyring is sealed; one that is locked is so by a passphrase."""
    try:
        return (await client.keyring()).wrapping
    except Closed as error:
        if error.reason != "keyring_locked":
            raise
        return "passphrase"


def _passphrase(label: str) -> str:
    """Asked for without showing it; where there is no terminal, the next line of stdin."""
    if sys.stdin.isatty():
        return str(click.prompt(label, hide_input=True, err=True))
    return sys.stdin.readline().removesuffix("\n").removesuffix("\r")


def _new_passphrase(label: str) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(label, hide_input=True, confirmation_prompt=True, err=True))
    return _passphrase(label)


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
