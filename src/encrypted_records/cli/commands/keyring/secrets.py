"""Protection of keyrings: passphrases, and files that a passphrase opens."""

from __future__ import annotations

import sys
from pathlib import Path

from encrypted_records.cli.input import files
from encrypted_records.cli.login.proofs import ask_secret
from encrypted_records.cli.terminal import ask

#: Of a backup file; one of a hundred versions has far less.
_MOST_BYTES = 1 << 20


def new_passphrase(label: str) -> str:
    """:func:`ask_secret`, which a terminal asks for twice."""
    if sys.stdin.isatty():
        return ask(label, hide_input=True, confirmation_prompt=True)
    return ask_secret(label)


def backup_in(file: Path) -> bytes:
    """
    Raises:
        InvalidSetting: the file cannot be read, or is too large to be a backup.
    """
    return files.read(str(file), _MOST_BYTES)
