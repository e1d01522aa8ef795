"""Notes of senders on uploads: kept sealed, and read again from there.

A note contains the headers Upload-Metadata and Upload-Concat as they were sent (docs/SPEC.md,
section 11, kind 3).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto import spooling
from encrypted_records.crypto.keys import Keyring
from encrypted_records.model import charsets
from encrypted_records.model.charsets import Charset
from encrypted_records.model.media_types import Format
from encrypted_records.proxy.uploads.store import Upload
from encrypted_records.proxy.uploads.tus.protocol import UploadStatus


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
    """The charset that an upload's metadata declares, as ``charset`` or in ``filetype``; None is
    UTF-8, and also where it declares none.

    Raises:
        Unsupported: ``unsupported_charset``: none that is read, or two.
    """
    declared = metadata.get("charset", b"").decode(errors="replace")
    kind = metadata.get("filetype", b"").decode(errors="replace")
    return charsets.charset_of(f"{kind}; charset={declared}" if declared else kind)


def format_of(metadata: Mapping[str, bytes]) -> Format | None:
    """The format that an upload's metadata names; None if it names none."""
    filetype, filename = (
        metadata.get(name, b"").decode(errors="replace") for name in ("filetype", "filename")
    )
    return Format.of_upload(filetype, filename)
