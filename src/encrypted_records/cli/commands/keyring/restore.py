"""``ers keyring restore``: a keyring from its phrases, or from a file."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from encrypted_records.cli.commands.keyring.secrets import backup_in
from encrypted_records.cli.login.proofs import ask_secret, call_with_proof
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.terminal import ask, say
from encrypted_records.client.proxy.devices import Proof
from encrypted_records.client.proxy.keyring import KeyringInfo
from encrypted_records.errors import NotAuthenticated

#: Words of a phrase.
_WORDS = 24
#: Characters of all phrases; a hundred versions have a fifth of that.
_MOST_TYPED = 100_000


@click.command(short_help="Restore a keyring from its backup.")
@click.option(
    "--replace", is_flag=True, help="Replace another keyring on this proxy; its file is kept."
)
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that ers keyring backup has written.",
)
@click.option(
    "--older-keys",
    is_flag=True,
    help="Trust organizations that know an older version of your keys.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only compare the backup with the keyring on this proxy, and change nothing.",
)
@connected()
async def restore(
    session: CommandSession, replace: bool, file: Path | None, older_keys: bool, dry_run: bool
) -> None:
    """Restore a keyring to this proxy from its recovery phrases, or from a file.

    Enter one phrase for each version, oldest first, on the terminal or standard input; with --file,
    the passphrase. A keyring on this proxy with the same or fewer keys is completed; a keyring with
    other keys is replaced only with --replace. If there is a keyring, the command needs the same
    proof as ers keyring backup; the words of its newest version are a proof, so they also open a
    keyring whose passphrase is lost.

    Organizations follow a new key version once its backup is confirmed. If you never confirmed it,
    they know an older version and are refused here (roster_unknown) unless you use --older-keys: do
    so only if nobody else can have the older phrases.

    Over a mirror no login is needed: the proxy finds you in the signed rosters by the keys of the
    backup, and registers this machine.

    With --dry-run, try the backup: the command opens it, compares it with the keyring on this proxy
    and changes no key. The proxy remembers when that succeeded last.

    \b
    Examples:
      ers keyring restore < phrases.txt
      ers keyring restore --dry-run --file keyring.backup
    """
    if dry_run:
        await _try(session, file)
        return
    if file is not None:
        content, secret = backup_in(file), ask_secret("Passphrase of the backup")
        keyring = await _taking_in(
            session,
            lambda proof: session.client.restore_keyring_file(
                content, secret, replace=replace, older_keys=older_keys, proof=proof
            ),
        )
    else:
        phrases = _typed_phrases()
        keyring = await _taking_in(
            session,
            lambda proof: session.client.restore_keyring(
                phrases, replace=replace, older_keys=older_keys, proof=proof
            ),
            words=phrases[-1] if phrases else None,
        )
    say(f"The keyring {keyring.fingerprint} is restored, with {_versions(len(keyring.versions))}.")


async def _try(session: CommandSession, file: Path | None) -> None:
    if file is not None:
        content, secret = backup_in(file), ask_secret("Passphrase of the backup")
        keyring = await session.client.try_backup_file(content, secret)
    else:
        keyring = await session.client.try_backup(_typed_phrases())
    count = _versions(len(keyring.versions))
    say(f"The backup would restore the keyring {keyring.fingerprint}, with {count}.")
    say("Nothing was changed.")


def _typed_phrases() -> list[str]:
    return _ask_phrases() if sys.stdin.isatty() else _phrases(sys.stdin.read(_MOST_TYPED))


async def _taking_in(
    session: CommandSession,
    call: Callable[[Proof | None], Awaitable[KeyringInfo]],
    words: str | None = None,
) -> KeyringInfo:
    """Restore; what is restored takes this machine in where the proxy asks for a device."""
    try:
        return await call_with_proof(session, call, words=words)
    except NotAuthenticated as error:
        if error.reason != "device_needed":
            raise
    session.make_device()
    return await call_with_proof(session, call, words=words)


def _versions(count: int) -> str:
    return "1 version" if count == 1 else f"{count} versions"


def _ask_phrases() -> list[str]:
    phrases: list[str] = []
    while True:
        what = f"The 24 words of version {len(phrases) + 1} (input is hidden)"
        if phrases:
            what += ", or Enter without one"
        text = ask(what, hide_input=True, default="" if phrases else None, show_default=False)
        if not text:
            return phrases
        phrases.append(text)


def _phrases(text: str) -> list[str]:
    """Phrase after phrase; what is not made of whole phrases is left to the proxy to refuse."""
    words = text.split()
    if len(words) % _WORDS:
        return [text]
    return [" ".join(words[at : at + _WORDS]) for at in range(0, len(words), _WORDS)]
