"""Atomic files: written completely or not at all, and on disk when the call returns.

Content is written to a temporary name and synced, and only then gets its own name. An interruption
leaves the old file readable, and at worst an unused temporary file.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from encrypted_records import runtime


def write_once(path: Path, content: bytes) -> bool:
    """Create ``path`` (0600) unless it exists; whether it was this call that did."""
    temporary = _write_beside(path, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync_folder(path.parent)
    return True


def replace(path: Path, content: bytes) -> None:
    """Replace the content of ``path`` (0600); the old content is gone then."""
    temporary = _write_beside(path, content)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink()
        raise
    sync_folder(path.parent)


def replace_and_keep(path: Path, content: bytes) -> Path:
    """Replace a file, as :func:`replace` does, and keep what ``path`` held under another name.

    Returns:
        That name: the first of ``.previous``, ``.previous-2``, ... that is free, so that nothing
        kept before is overwritten.
    """
    kept = _keep(path)
    sync_folder(path.parent)
    replace(path, content)
    return kept


def list_kept(path: Path) -> list[Path]:
    """Files that :func:`replace_and_keep` has kept of ``path``."""
    return sorted(path.parent.glob(f"{path.name}.previous*"))


def _keep(path: Path) -> Path:
    for number in itertools.count(1):
        kept = path.with_name(f"{path.name}.previous" + (f"-{number}" if number > 1 else ""))
        try:
            os.link(path, kept)
        except FileExistsError:
            continue
        return kept
    raise AssertionError("there is always a next number")


def _write_beside(path: Path, content: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{runtime.random_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink()
        raise
    return temporary


def sync_folder(folder: Path) -> None:
    """Put on disk which names ``folder`` has."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
