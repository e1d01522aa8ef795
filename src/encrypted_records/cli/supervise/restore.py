"""Make a data folder of a backup, where none is yet."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import msgspec

from encrypted_records.cli.supervise.copying import (
    FORM,
    MANIFEST,
    Manifest,
    copy,
    named,
    whole_or_nothing,
)
from encrypted_records.errors import InvalidSetting, Unavailable


def restore(source: Path, data_dir: Path) -> Manifest:
    """Make a data folder of a backup: all of it, as it was copied, or none.

    Raises:
        InvalidSetting: ``folder_taken``, or ``backup_damaged`` of what is no backup; the folder is
            there already, and nothing is overwritten.
        Unavailable: ``backup_damaged``; a file is missing, or differs from the copy.
        OutOfSpace, Startup: it cannot be read or written.
    """
    manifest = _manifest(source)
    with whole_or_nothing(data_dir) as partial, named(data_dir):
        for name, wanted in manifest.files.items():
            try:
                copied = copy(source / name, partial / name)
            except FileNotFoundError:
                raise _damaged(f"{name} is not there") from None
            if copied != wanted:
                raise _damaged(f"{name} differs from the copy")
    return manifest


def _manifest(source: Path) -> Manifest:
    with named(source):
        try:
            manifest = msgspec.json.decode((source / MANIFEST).read_bytes(), type=Manifest)
        except (FileNotFoundError, NotADirectoryError):
            raise InvalidSetting(
                f"{source} is not a complete backup: it has no {MANIFEST}",
                hint="name a folder that ers backup has made",
                code="backup_damaged",
            ) from None
        except msgspec.DecodeError:
            raise _damaged(f"{MANIFEST} cannot be read") from None
    if manifest.form != FORM:
        raise InvalidSetting(
            f"this version cannot read backups of form {manifest.form}",
            hint=f"restore it with the version that made it, {manifest.version}",
            code="backup_damaged",
        )
    for name in manifest.files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise _damaged(f"{MANIFEST} names a file that is outside of it")
    return manifest


def _damaged(what: str) -> Unavailable:
    return Unavailable(
        f"the backup is damaged: {what}",
        hint="restore another one; nothing was changed",
        code="backup_damaged",
    )
