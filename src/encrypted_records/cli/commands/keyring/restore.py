"""``ers keyring restore``: a keyring from its phrases, or from a file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from encrypted_records.cli.commands.keyring.secrets import backup_in, passphrase
from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.terminal import ask, say

#: Words of a phrase.
_WORDS = 24
#: Characters of all phrases; a hundred versions have a fifth of that.
_MOST_TYPED = 100_000


@click.command(short_help="Bring a keyring here from its backup.")
@click.option(
    "--replace", is_flag=True, help="Take the place of another keyring here; its file is kept."
)
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file that ers keyring backup wrote.",
)
@connected()
async def restore(session: Session, replace: bool, file: Path | None) -> None:
    """Bring a keyring to this proxy from its recovery phrases, or from a file.

    One phrase for each version, the oldest first, asked for or read from stdin; with --file the
    passphrase. A keyring here that has the same keys or fewer is brought up to date; one that has
    others is left alone unless you say --replace.

    Example: ers keyring restore < phrases.txt
    """
    if file is not None:
        content, secret = backup_in(file), passphrase("Passphrase of the backup")
        found = await session.client.restore_keyring_file(content, secret, replace=replace)
    else:
        phrases = _typed_phrases() if sys.stdin.isatty() else _phrases(sys.stdin.read(_MOST_TYPED))
        found = await session.client.restore_keyring(phrases, replace=replace)
    say(f"The keyring {found.fingerprint} is here, with {_versions(len(found.versions))}.")


def _versions(count: int) -> str:
    return "1 version" if count == 1 else f"{count} versions"


def _typed_phrases() -> list[str]:
    phrases: list[str] = []
    while True:
        what = f"The 24 words of version {len(phrases) + 1} (they do not show)"
        if phrases:
            what += ", or Enter if there is none"
        typed = ask(what, hide_input=True, default="" if phrases else None, show_default=False)
        if not typed:
            return phrases
        phrases.append(typed)


def _phrases(text: str) -> list[str]:
    """Phrase after phrase; what is not made of whole phrases is left to the proxy to refuse."""
    words = text.split()
    if len(words) % _WORDS:
        return [text]
    return [" ".join(words[at : at + _WORDS]) for at in range(0, len(words), _WORDS)]
