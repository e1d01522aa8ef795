"""Endings of uploads whose file did not become a job, and what is said of them then."""

from __future__ import annotations

from encrypted_records.errors import Gone
from encrypted_records.proxy.uploads.store import Upload, UploadState


def refuse_ended(upload: Upload) -> None:
    """
    Raises:
        Gone: ``upload_expired`` or ``upload_terminated``; the upload has ended so.
    """
    if upload.state is UploadState.EXPIRED:
        raise expired()
    if upload.state is UploadState.TERMINATED:
        raise Gone(
            "the upload was terminated", code="upload_terminated", hint="send the file again"
        )


def expired() -> Gone:
    return Gone(
        "the upload was not completed in time, and has expired",
        code="upload_expired",
        hint="send the file again",
    )
