"""``ers keyring backup``: the keys on paper, or in a file that a passphrase seals."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from encrypted_records.cli.commands.keyring.secrets import backup_in, new_passphrase
from encrypted_records.cli.login.proofs import call_with_proof
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.terminal import ask, say, warn
from encrypted_records.errors import BadInput, InvalidSetting

#: Words of a phrase that are asked for.
_ASKED = 3


@click.command(short_help="Show recovery phrases to write down.")
@click.option("--force", is_flag=True, help="Print the words even if the output is not a terminal.")
@click.option(
    "--all", "everything", is_flag=True, help="Show all versions, including confirmed ones."
)
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a passphrase-protected file instead of showing words.",
)
@connected()
async def backup(session: CommandSession, force: bool, everything: bool, file: Path | None) -> None:
    """Show a recovery phrase, 24 words to write down on paper, then ask for three of them.

    Each key version has its own phrase; confirmed ones are skipped. Anybody with the words can read
    the records; without them a lost keyring is lost permanently.

    With --file, write all versions to a file instead, protected by a passphrase that is asked for
    or read from the first line of standard input. The file alone and the passphrase alone decrypt
    nothing.

    On another machine than the proxy's, the command needs your password or the keyring's
    passphrase: asked for, or ERS_PASSWORD, or the next line of standard input.

    Example: ers keyring backup --file keyring.backup
    """
    if file is not None:
        await _backup_to(file, session)
        return
    if not (sys.stdout.isatty() or force):
        raise InvalidSetting(
            "the recovery phrase is shown only on a terminal, and the output is not one",
            hint="run it in a terminal, or with --force if you know where the output is stored",
        )
    phrases = await call_with_proof(
        session,
        lambda proof: session.client.backup_phrases(all_versions=everything, proof=proof),
    )
    if not phrases:
        say("The backup of every version is confirmed. To see the words again: --all")
    asking = sys.stdout.isatty() and sys.stdin.isatty()
    for phrase in phrases:
        # On stderr, so that what --force prints is nothing but the words.
        warn(f"The words of version {phrase.version}:")
        words = phrase.phrase.split()
        for number, word in enumerate(words, 1):
            say(f"{number:2}  {word}")
        if asking:
            _check_written_down(words)
            await session.client.confirm_backup(phrase.phrase)
            say(f"The backup of version {phrase.version} is confirmed.")
    if phrases and asking:
        say("Keep the words where nobody else finds them, each version with its number.")
    elif phrases:
        warn("not confirmed: no terminal to ask for the words")


async def _backup_to(file: Path, session: CommandSession) -> None:
    passphrase = new_passphrase("Passphrase of the backup")
    content = await call_with_proof(
        session, lambda proof: session.client.backup_file(passphrase, proof=proof)
    )
    _write_new(file, content)
    # What is on the disk counts, not what was sent.
    await session.client.confirm_backup_file(backup_in(file), passphrase)
    say(f"The backup of all versions is in {file}. It opens with its passphrase.")
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
    ask(
        "Write the words down, in this order. Then press Enter",
        default="",
        show_default=False,
        prompt_suffix=" ",
        err=False,
    )
    click.clear()
    for offset in sorted(random.SystemRandom().sample(range(len(words)), _ASKED)):
        answer = ask(f"Word {offset + 1}", err=False)
        if answer.strip().lower() != words[offset]:
            raise BadInput(
                f"that is not word {offset + 1}, so the backup is not confirmed",
                code="invalid_phrase",
                hint="compare what you wrote down with the words: run ers keyring backup again",
            )
