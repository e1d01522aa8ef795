"""The state of resumable uploads, in SQLite; their bytes are in the spool.

The sender's metadata of an upload (its file's name and type) is kept sealed. An upload that has
ended stays in the store for a while, so that its address can report that.

A sealed note contains the headers Upload-Metadata and Upload-Concat as they were sent
(docs/SPEC.md, section 11, kind 3).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto import spooling
from encrypted_records.crypto.keys import Keyring
from encrypted_records.model import record_formats
from encrypted_records.model.record_formats import Charset, Format
from encrypted_records.proxy.disk import Database
from encrypted_records.proxy.uploads.tus import Kind, UploadStatus

_TABLE = """
CREATE TABLE IF NOT EXISTS upload (
    id BLOB PRIMARY KEY,
    owner BLOB NOT NULL,
    kind TEXT NOT NULL,
    length INTEGER,
    offset INTEGER NOT NULL,
    state TEXT NOT NULL,
    expires REAL NOT NULL,
    note BLOB NOT NULL,
    -- SHA-256 of the API token that began it
    began BLOB
) WITHOUT ROWID
"""
_COLUMNS = "id, owner, kind, length, offset, state, expires, note, began"


class UploadState(Enum):
    """``VERIFYING``: the checksum of the bytes after the offset is not compared yet."""

    OPEN = "open"
    VERIFYING = "verifying"
    EXPIRED = "expired"
    TERMINATED = "terminated"

    @property
    def has_ended(self) -> bool:
        return self in (UploadState.EXPIRED, UploadState.TERMINATED)


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload.

    ``id`` is also the id of the job that uses its bytes; partial uploads have no job. ``offset`` is
    the last acknowledged length in bytes, ``expires`` is in seconds since 1970, ``note`` is
    encrypted (docs/SPEC.md, section 11, kind 3). ``began`` is the digest of the API token that
    began it, if one did.
    """

    id: bytes
    owner: bytes
    kind: Kind
    length: int | None
    offset: int
    expires: float
    note: bytes
    state: UploadState = UploadState.OPEN
    began: bytes | None = None

    @property
    def is_complete(self) -> bool:
        return self.offset == self.length

    @property
    def has_job(self) -> bool:
        return self.kind is not Kind.PARTIAL

    @property
    def may_expire(self) -> bool:
        """Whether it has not ended and its bytes are not a job's."""
        return not self.state.has_ended and not (self.has_job and self.is_complete)

    @property
    def due(self) -> float | None:
        """The expiry time in seconds since 1970, if any."""
        return self.expires if self.may_expire else None


class UploadStore:
    """Safe to use from several threads; every change is on disk when its call returns.

    Every method raises OutOfSpace where the disk is full, and Unavailable (``proxy_store_failed``)
    where the file fails otherwise.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            Startup: the file is damaged, or cannot be opened.
        """
        self._database = Database(
            path,
            _TABLE,
            code="proxy_store_failed",
            message="this proxy's list of uploads cannot be read or written",
            loss="unfinished resumable uploads are then forgotten, and their jobs fail: send"
            " those files again",
            later={"upload": {"began": "BLOB"}},
        )

    def put(self, upload: Upload) -> None:
        """Store a new upload, or the new state of a known one."""
        with self._database.asking() as database:
            database.execute(
                f"INSERT OR REPLACE INTO upload ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our own names
                (
                    upload.id,
                    upload.owner,
                    upload.kind.value,
                    upload.length,
                    upload.offset,
                    upload.state.value,
                    upload.expires,
                    upload.note,
                    upload.began,
                ),
            )

    def get(self, upload: bytes) -> Upload | None:
        uploads = self._select("WHERE id = ?", upload)
        return uploads[0] if uploads else None

    def list_expired(self, now: float) -> list[Upload]:
        """Uploads whose time is over, both open and ended ones."""
        return self._select("WHERE expires < ?", now)

    def sum_owed(self) -> int:
        """The number of bytes that are announced and not yet received."""
        with self._database.asking() as database:
            (owed,) = database.execute(
                "SELECT coalesce(sum(length - offset), 0) FROM upload"
                " WHERE length IS NOT NULL AND state IN ('open', 'verifying')"
            ).fetchone()
        return int(owed)

    def forget(self, upload: bytes) -> None:
        with self._database.asking() as database:
            database.execute("DELETE FROM upload WHERE id = ?", (upload,))

    def close(self) -> None:
        self._database.close()

    def _select(self, where: str, *values: object) -> list[Upload]:
        with self._database.asking() as database:
            cursor = database.cursor()
            cursor.row_factory = sqlite3.Row
            rows = cursor.execute(
                f"SELECT {_COLUMNS} FROM upload {where}",  # noqa: S608 - our own names
                values,
            ).fetchall()
        return [
            Upload(
                id=row["id"],
                owner=row["owner"],
                kind=Kind(row["kind"]),
                length=row["length"],
                offset=row["offset"],
                state=UploadState(row["state"]),
                expires=row["expires"],
                note=row["note"],
                began=row["began"],
            )
            for row in rows
        ]


def seal_note(upload: bytes, keyring: Keyring, status: UploadStatus) -> bytes:
    note = msgspec.msgpack.encode([status.metadata or "", status.concat or ""])
    return spooling.seal_whole(fmt.SPOOL_NOTE, keyring.spool(upload), note)


def status_of(upload: Upload, keyring: Keyring) -> UploadStatus:
    """The upload's state, with the headers from its note.

    Raises:
        DoesNotOpen, KeyMissing: the note is altered, or sealed under another keyring version.
    """
    version = spooling.read_head(upload.note).version
    note = spooling.open_whole(fmt.SPOOL_NOTE, keyring.spool(upload.id, version), upload.note)
    metadata, concat = msgspec.msgpack.decode(note, type=tuple[str, str])
    return UploadStatus(
        kind=upload.kind,
        offset=upload.offset,
        length=upload.length,
        expires=upload.due,
        metadata=metadata or None,
        concat=concat or None,
    )


def charset_of(metadata: Mapping[str, bytes]) -> Charset | None:
    """The charset in an upload's metadata, as ``charset`` or in ``filetype``; None for UTF-8, and
    if no charset is declared.

    Raises:
        Unsupported: ``unsupported_charset``: an unsupported charset, or two charsets.
    """
    declared = metadata.get("charset", b"").decode(errors="replace")
    kind = metadata.get("filetype", b"").decode(errors="replace")
    return record_formats.charset_of(f"{kind}; charset={declared}" if declared else kind)


def format_of(metadata: Mapping[str, bytes]) -> Format | None:
    """The format that an upload's metadata names; None if it names none."""
    filetype, filename = (
        metadata.get(name, b"").decode(errors="replace") for name in ("filetype", "filename")
    )
    return Format.of_upload(filetype, filename)
