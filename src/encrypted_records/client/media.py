"""What kind of records a file holds."""

from __future__ import annotations

from pathlib import Path

#: Media types by ending; the rest is recognised by its first bytes.
_ENDINGS = {
    ".csv": "text/csv",
    ".json": "application/json",
    ".ndjson": "application/x-ndjson",
    ".jsonl": "application/x-ndjson",
}


def media_type(path: str, beginning: bytes) -> str:
    """What kind of records a file holds: by its name, else by its first bytes."""
    named = _ENDINGS.get(Path(path).suffix.lower())
    if named is not None:
        return named
    first = beginning.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    return {b"[": "application/json", b"{": "application/x-ndjson"}.get(first, "text/csv")


def media_type_of(file: Path) -> str:
    """:func:`media_type` of a file that is there."""
    with file.open("rb") as opened:
        return media_type(str(file), opened.read(1 << 10))
