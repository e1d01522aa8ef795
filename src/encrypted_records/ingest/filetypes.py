"""What kind of file an upload is: by the type it was sent under, by its name, by its first bytes.

Nothing is guessed from content alone. What was said decides, and content that contradicts it is
refused in words that help, since the parser of the wrong kind would only complain about row 1.
"""

from __future__ import annotations

from pathlib import PurePath

from encrypted_records.errors import BadInput

_TYPES = {
    "text/csv": True,
    "application/csv": True,
    "application/vnd.ms-excel": True,  # what Windows calls *.csv where Excel is installed
    "application/json": False,
    "text/json": False,
    "application/x-ndjson": False,
    "application/x-jsonlines": False,
    "application/jsonl": False,
}
_SUFFIXES = {".csv": True, ".json": False, ".ndjson": False, ".jsonl": False}

#: How files begin that are often sent by mistake.
_OTHERS = {
    b"PK\x03\x04": "an archive or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"%PDF": "a PDF document",
    b"\x1f\x8b": "compressed with gzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"BZh": "compressed with bzip2",
    b"PAR1": "a Parquet file",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}
_BOM = b"\xef\xbb\xbf"


def is_csv(filetype: str, filename: str) -> bool | None:
    """Whether an upload is CSV, and not JSON; None where neither type nor name says so."""
    known = _TYPES.get(filetype.partition(";")[0].strip().lower())
    return _SUFFIXES.get(PurePath(filename).suffix.lower()) if known is None else known


def check_start(start: bytes, *, csv: bool | None) -> None:
    """Hold the first bytes of an upload against what it is said to be.

    Raises:
        BadInput: ``file_type``; it is something else, or nothing was said that helps.
    """
    for magic, name in _OTHERS.items():
        if start.startswith(magic):
            raise _refused(f"the file is {name}", "save it as CSV or JSON, in UTF-8")
    if csv is None:
        raise _refused(
            "the file is neither JSON nor CSV by its type or its name",
            "send filetype text/csv, application/json or application/x-ndjson in Upload-Metadata",
        )
    text = start.removeprefix(_BOM).lstrip()
    looks_like_json = text[:1] in (b"[", b"{")
    if text and csv and looks_like_json:
        raise _refused("the file is said to be CSV and begins as JSON", "send the type it has")
    if text and not csv and not looks_like_json:
        raise _refused("the file is said to be JSON and does not begin so", "send the type it has")


def _refused(message: str, hint: str) -> BadInput:
    return BadInput(message, code="file_type", hint=hint)
