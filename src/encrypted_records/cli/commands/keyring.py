"""``ers keyring``: see, write down and bring back the keys.

Passwords and phrases are asked for, or come by environment or stdin: arguments show in ``ps``. The
words of a phrase are printed to a terminal alone, where nothing keeps them by itself.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.input import files
from encrypted_records.cli.login.proofs import (
    DEVICE,
    ask_secret,
    call_with_proof,
    devices_of,
    register_device,
    with_proof,
)
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, row_of, takes_output
from encrypted_records.cli.terminal import (
    ask,
    confirm,
    day,
    format_count,
    printable,
    say,
    table,
    warn,
)
from encrypted_records.client.proxy.keyring import KeyringInfo, Proof, SealedSchema
from encrypted_records.errors import BadInput, InvalidSetting, NotAuthenticated

#: Maximum bytes of a backup file; a file of a hundred versions is much smaller.
_MOST_BYTES = 1 << 20


def new_passphrase(label: str) -> str:
    """:func:`ask_secret`, which a terminal asks for twice."""
    if sys.stdin.isatty():
        return ask(label, hide_input=True, confirmation_prompt=True)
    return _passphrase(label)


def _passphrase(label: str) -> str:
    """
    Raises:
        InvalidSetting: none is given.
    """
    given = ask_secret(label)
    if not given:
        raise InvalidSetting(
            f"missing: {label[:1].lower()}{label[1:]}",
            hint="give it as the next line of standard input, or run the command in a terminal",
        )
    return given


def backup_in(file: Path) -> bytes:
    """
    Raises:
        InvalidSetting: the file cannot be read, or is too large to be a backup.
    """
    return files.read(str(file), _MOST_BYTES)


_SEALED_WITH = {
    "passphrase": "a passphrase",
    "keychain": "a key in the proxy's keychain",
    "vault": "a key that Vault decrypts",
    "aws_kms": "a key that AWS KMS decrypts",
    "google_kms": "a key that Google Cloud KMS decrypts",
    "azure_key_vault": "a key that Azure Key Vault decrypts",
    "pkcs11": "a key that a PKCS#11 token decrypts",
    "machine_key": "a key beside it: anyone who can read the proxy's folder can read the records",
}


@click.command(short_help="Show fingerprints, dates and what each key protects.")
@connected()
@takes_output
async def get(session: CommandSession, output: Output) -> None:
    """Show the keyring's fingerprints, dates and what each key protects; never a key.

    The newest version protects new records. A schema changes to it with its next record; earlier
    records stay under their version.

    Without a terminal, or with --output, print the answer of the HTTP API, including schemas.

    \b
    Examples:
      ers keyring get
      ers keyring get --output json
    """
    keyring, schemas = await session.client.keyring(), await session.client.sealed_schemas()
    if output.form != "table":
        output.write_object({**row_of(keyring), "schemas": [row_of(schema) for schema in schemas]})
        return
    say(f"fingerprint  {keyring.fingerprint}")
    say(f"protected by {_SEALED_WITH.get(keyring.wrapping, keyring.wrapping)}")
    confirmed = (
        "confirmed" if keyring.backup_confirmed else "not confirmed; run: ers keyring backup"
    )
    say(f"backup       {confirmed}")
    tried = day(keyring.restore_tried) if keyring.restore_tried else "never"
    say(f"tried        {tried}; to try the backup: ers keyring restore --dry-run")
    say(f"devices      {(await session.client.devices()).count}; ers device list shows them")
    say()
    rows = [
        {
            "version": version.version,
            "created": day(version.created),
            "fingerprint": version.fingerprint,
            "backup": "confirmed" if version.backup_confirmed else "not confirmed",
            "protects": _protects(version.version, schemas),
        }
        for version in keyring.versions
    ]
    for line in table(rows, ("version", "created", "fingerprint", "backup", "protects")):
        say(line)
    foreign = [schema for schema in schemas if not schema.held]
    if foreign:
        say()
        say("Encrypted with keys that this keyring does not open (ers doctor says why):")
        for line in table(
            [
                {"key": schema.key_id, "version": schema.key_version, "schema": _name(schema)}
                for schema in foreign
            ],
            ("key", "version", "schema"),
        ):
            say(line)


def _protects(version: int, schemas: Sequence[SealedSchema]) -> str:
    """The schemas whose records may be sealed under ``version``."""
    with_key = [schema for schema in schemas if schema.held]
    new = [_name(holder) for holder in with_key if holder.key_version == version]
    old = [
        _name(holder)
        for holder in with_key
        if holder.first_key_version <= version < holder.key_version
    ]
    parts = [("new records of", new), ("older records of", old)]
    sentence = "; ".join(f"{label} {', '.join(names)}" for label, names in parts if names)
    return sentence or "nothing yet"


def _name(schema: SealedSchema) -> str:
    return printable(schema.name)


@click.command(short_help="Rotate the key for new records.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected()
async def rotate(session: CommandSession, yes: bool) -> None:
    """Add a key version for all new records.

    Rotate when a key or a recovery phrase may have been seen by others, or on a schedule. The old
    keys stay: they decrypt earlier records, for anybody else who has them as well. The new version
    needs its own backup, and other machines with this keyring need the new phrase. The command
    needs the same proof as ers keyring backup.

    Example: ers keyring rotate && ers keyring backup
    """
    confirm("Encrypt new records under a new key, which needs a new backup?", yes=yes)
    keyring = await with_proof(session, session.client.rotate_keyring)
    version = keyring.versions[-1].version
    say(f"New records are encrypted under version {version}, {keyring.fingerprint}.")
    say("It has no backup yet: run ers keyring backup")


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
    phrases = await with_proof(session, session.client.backup_phrases, all_versions=everything)
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
    content = await with_proof(session, session.client.backup_file, passphrase)
    _write_new(file, content)
    # The file on the disk is confirmed, not the response.
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
        content, secret = backup_in(file), _passphrase("Passphrase of the backup")
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
    count = format_count(len(keyring.versions), "version")
    say(f"The keyring {keyring.fingerprint} is restored, with {count}.")


async def _try(session: CommandSession, file: Path | None) -> None:
    if file is not None:
        content, secret = backup_in(file), _passphrase("Passphrase of the backup")
        keyring = await session.client.try_backup_file(content, secret)
    else:
        keyring = await session.client.try_backup(_typed_phrases())
    count = format_count(len(keyring.versions), "version")
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


def _ask_phrases() -> list[str]:
    phrases: list[str] = []
    while True:
        prompt = f"The 24 words of version {len(phrases) + 1} (input is hidden)"
        if phrases:
            prompt += ", or Enter without one"
        text = ask(prompt, hide_input=True, default="" if phrases else None, show_default=False)
        if not text:
            return phrases
        phrases.append(text)


def _phrases(text: str) -> list[str]:
    """Phrase after phrase; what is not made of whole phrases is left to the proxy to refuse."""
    words = text.split()
    if len(words) % _WORDS:
        return [text]
    return [" ".join(words[at : at + _WORDS]) for at in range(0, len(words), _WORDS)]


@click.command(short_help="Unlock a keyring.")
@connected()
async def unlock(session: CommandSession) -> None:
    """Unlock a passphrase-protected keyring for the commands of this machine, until it is locked,
    unused for long (--lock-after of the proxy), or the proxy ends.

    The passphrase is asked for, or read from the first line of standard input. Each wrong
    passphrase lengthens the wait before the next try. The right one registers this machine.

    Example: ers keyring unlock
    """
    keyring = await session.client.unlock_keyring(ask_secret("Passphrase"))
    if keyring.device is not None and session.client.device is not None:
        session.keep_device(session.client.device)
    say(f"The keyring {keyring.fingerprint} is unlocked until ers keyring lock,")
    say("some hours without use, or the end of the proxy.")


@click.command(short_help="Lock an unlocked keyring.")
@connected()
async def lock(session: CommandSession) -> None:
    """Lock an unlocked keyring: the proxy forgets its keys and everything decrypted with them.

    Example: ers keyring lock
    """
    await session.client.lock_keyring()
    say("The keyring is locked.")


@click.command("passphrase", short_help="Set or change the keyring's passphrase.")
@connected()
async def change_passphrase(session: CommandSession) -> None:
    """Set or change the keyring's passphrase. Records are not touched; kept files of older keyrings
    are protected by the new passphrase as well. From then on every request needs a registered
    device, and each device the passphrase; this machine is registered now.

    The current passphrase, if there is one, is asked for, then the new one twice; or both are read
    from lines of standard input. Earlier copies of the proxy's folder can still be opened with the
    old passphrase. If somebody may have such a copy and the old passphrase, rotate the keys as
    well.

    Example: ers keyring passphrase
    """
    devices = await devices_of(session)
    known = devices.keyring
    if known is not None and known.passphrase:
        old: str | None = ask_secret("Current passphrase")
        if not devices.enrolled:
            await register_device(session, passphrase=old or "")
    else:
        sealed = (await session.client.keyring()).wrapping
        old = ask_secret("Current passphrase") if sealed == "passphrase" else None
        if not devices.enrolled and devices.level != DEVICE and await session.client.has_door():
            # From now on a device is needed, and it has to be one of this machine.
            await register_device(session)
    new = new_passphrase("New passphrase")
    left = await with_proof(session, session.client.change_passphrase, new, old=old)
    say("The keyring has a new passphrase, and is unlocked here.")
    say(
        "If the proxy is started with a passphrase, give it the new one; otherwise run: ers"
        " keyring unlock"
    )
    if left:
        say(f"Files of replaced keyrings that the passphrase did not open, left unchanged: {left}")


@click.group(cls=CommandGroup)
def keyring() -> None:
    """Manage your keyring: the keys that decrypt your records. The proxy holds it; with --inline it
    is in ERS_DATA_DIR.

    Example: ers keyring get
    """


for command in (get, rotate, backup, restore, unlock, lock, change_passphrase):
    keyring.add_command(command)
