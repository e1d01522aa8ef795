"""What keeps a keyring closed: passphrases, and files that one of them opens."""

from __future__ import annotations

import sys
from pathlib import Path

from encrypted_records.cli import files
from encrypted_records.cli.terminal import ask

#: Of a backup file; one of a hundred versions has far less.
_MOST_BYTES = 1 << 20


def passphrase(label: str) -> str:
    """Asked for without showing it; where there is no terminal, the next line of stdin."""
    if sys.stdin.isatty():
        return ask(label, hide_input=True)
    return sys.stdin.readline().removesuffix("\n").removesuffix("\r")


def new_passphrase(label: str) -> str:
    """:func:`passphrase`, which a terminal asks for twice."""
    if sys.stdin.isatty():
        return ask(label, hide_input=True, confirmation_prompt=True)
    return passphrase(label)


def backup_in(file: Path) -> bytes:
    """
    Raises:
        InvalidSetting: the file cannot be read, or is too large to be a backup.
    """
    return files.read(str(file), _MOST_BYTES)
