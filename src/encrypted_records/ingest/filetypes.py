"""Check the first bytes of an upload against the format that its sender names.

The content alone never decides the format. The sender's media type or file name does, and content
that contradicts it is refused with a clear message: the parser of the wrong format would only
report an error in row 1.
"""

from __future__ import annotations

from encrypted_records.errors import BadInput
from encrypted_records.model.record_formats import Charset, Format

#: How files begin that are often sent by mistake.
_OTHERS = {
    b"PK\x03\x04": "an archive or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"%PDF": "a PDF document",
    b"\x1f\x8b": "compressed with gzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"BZh": "compressed with bzip2",
    b"PAR1": "a Parquet file",
}
_UTF16 = {b"\xff\xfe": "text in UTF-16", b"\xfe\xff": "text in UTF-16"}
_WIDE = frozenset({Charset.UTF_16, Charset.UTF_16LE, Charset.UTF_16BE})
_BOM = b"\xef\xbb\xbf"
#: Fewer bytes do not show any of these.
SHORTEST = 4


def check_start(start: bytes, kind: Format | None, charset: Charset | None = None) -> None:
    """Check the first bytes of an upload against the format that its sender names.

    Args:
        charset: of CSV, as its sender declares it; None is UTF-8.

    Raises:
        BadInput: ``file_type``; the file is something else, or the sender named no format.
    """
    for magic, name in (_OTHERS if charset in _WIDE else _OTHERS | _UTF16).items():
        if start.startswith(magic):
            raise _refused(
                f"the file is {name}",
                "save it as CSV or JSON in UTF-8; for CSV, another charset can be declared",
            )
    if kind is None:
        raise _refused(
            "the file is neither JSON nor CSV by its type or its name",
            "send filetype text/csv, application/json or application/x-ndjson in Upload-Metadata",
        )
    text = start.removeprefix(_BOM).lstrip()
    looks_like_json = text[:1] in (b"[", b"{")
    if text and kind is Format.CSV and looks_like_json:
        raise _refused("the file is declared as CSV and begins like JSON", "send its actual type")
    if text and kind is not Format.CSV and not looks_like_json:
        raise _refused(
            "the file is declared as JSON and does not begin like JSON", "send its actual type"
        )


def _refused(message: str, hint: str) -> BadInput:
    return BadInput(message, code="file_type", hint=hint)
