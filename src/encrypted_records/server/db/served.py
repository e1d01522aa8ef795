"""Databases that a data folder has served, so that a lost one is not taken for a new service.

A database that is gone would be made again, without a word and without any account in it. So the
folder remembers, in the file ``served``, of each kind of database when the one it serves was first
prepared: the time of its first migration, to the microsecond. That goes with a database into every
backup, and no two have the same.

A folder from before there was this file has its key, which is made before the database; and a
first start that is interrupted between the two leaves ``served`` without a line.
"""

from __future__ import annotations

import os
from pathlib import Path

from encrypted_records.errors import Startup

LOST = "database_lost"


class Served:
    """The memory of one folder, for the API alone that starts on it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "served"
        self._key = folder / "secret.key"

    def begin(self) -> None:
        """Before the key is made: remember that from now on a key does not mean a database."""
        if not self._key.exists() and not self._path.exists():
            self._write({})

    def check_file(self, database: Path) -> None:
        """Before SQLite opens its file: it would make one, and drop what a lost one left behind.

        Raises:
            Startup: it is gone or empty, and there was one.
        """
        gone = not database.exists()
        if not gone and database.stat().st_size > 0:
            return
        # Without the file, the folder is from before there was one.
        if "sqlite" in self._read() or (self._key.exists() and not self._path.exists()):
            raise Startup(
                f"the database {database} is {'gone' if gone else 'empty'}, but this folder"
                " has already been used with a database",
                hint=f"restore it from a backup; to begin a new service here, delete {self._key}"
                f" and {self._path}, or name another folder with --data-dir",
                code=LOST,
            )

    def check(self, kind: str, name: str, prepared: str | None) -> None:
        """Once the database answers, and before it is prepared.

        Args:
            kind: sqlite or postgresql.
            name: what to call it.
            prepared: when it was first prepared; None of an empty one.

        Raises:
            Startup: it is another one than the folder served.
        """
        known = self._read().get(kind)
        if known in (None, prepared):
            return
        what = "empty" if prepared is None else "another one"
        raise Startup(
            f"the database {name} is {what}, and not the one that this folder was used with",
            hint="check ERS_DATABASE_URL, or restore the database from a backup; to serve this one"
            f" from here, delete {self._path}",
            code=LOST,
        )

    def remember(self, kind: str, prepared: str) -> None:
        known = self._read()
        if known.get(kind) != prepared:
            self._write(known | {kind: prepared})

    def _read(self) -> dict[str, str]:
        try:
            lines = self._path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return {}
        return {kind: when for kind, _, when in (line.partition(" ") for line in lines)}

    def _write(self, known: dict[str, str]) -> None:
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with draft.open("w") as stream:
            stream.writelines(f"{kind} {when}\n" for kind, when in sorted(known.items()))
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(self._path)
