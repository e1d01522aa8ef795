"""The kinds of files that hold records, and their media types, suffixes and first bytes. Pure."""

from __future__ import annotations

from enum import Enum
from pathlib import PurePath

_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"


class Format(Enum):
    """A kind of file that holds records. Its value is its name in requests and on the command line.

    ``JSON`` is one array of records, ``NDJSON`` one record per line.
    """

    CSV = "csv"
    JSON = "json"
    NDJSON = "ndjson"

    @property
    def media_type(self) -> str:
        """Without parameters."""
        return _MEDIA_TYPES[self]

    @classmethod
    def of_media_type(cls, media_type: str) -> Format | None:
        """The format whose own media type this is, written exactly so."""
        return _BY_MEDIA_TYPE.get(media_type)

    @classmethod
    def of_name(cls, filename: str) -> Format | None:
        """The format by the suffix of a file's name, case-insensitive."""
        return _SUFFIXES.get(PurePath(filename).suffix.lower())

    @classmethod
    def of_content(cls, start: bytes) -> Format:
        """The format by the first bytes of a file: JSON begins with a bracket, and everything else
        is CSV.
        """
        first = start.removeprefix(_BOM).lstrip(_BLANK)[:1]
        return {b"[": cls.JSON, b"{": cls.NDJSON}.get(first, cls.CSV)

    @classmethod
    def of_file(cls, filename: str, start: bytes) -> Format:
        """The format by a file's name, or else by its first bytes."""
        return cls.of_name(filename) or cls.of_content(start)

    @classmethod
    def of_upload(cls, media_type: str, filename: str) -> Format | None:
        """The format by the upload's metadata; None if neither value names a format.

        Args:
            media_type: with or without parameters; other names in use are known, too.
            filename: counts if the media type is none of these.
        """
        name = media_type.partition(";")[0].strip().lower()
        return cls.of_media_type(name) or _ALIASES.get(name) or cls.of_name(filename)


_MEDIA_TYPES = {
    Format.CSV: "text/csv",
    Format.JSON: "application/json",
    Format.NDJSON: "application/x-ndjson",
}
_BY_MEDIA_TYPE = {media_type: kind for kind, media_type in _MEDIA_TYPES.items()}
#: Other media types that browsers and tools send for these files.
_ALIASES = {
    "application/csv": Format.CSV,
    "application/vnd.ms-excel": Format.CSV,  # what Windows calls *.csv if Excel is installed
    "text/json": Format.JSON,
    "application/x-jsonlines": Format.NDJSON,
    "application/jsonl": Format.NDJSON,
}
_SUFFIXES = {
    ".csv": Format.CSV,
    ".json": Format.JSON,
    ".ndjson": Format.NDJSON,
    ".jsonl": Format.NDJSON,
}
#: What an error says to send.
MEDIA_TYPES = ", ".join(_BY_MEDIA_TYPE)
