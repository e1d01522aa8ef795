"""The format, the charset and the layout of an upload, and the parser for it.

The sender's media type or file name decides the format, never the content alone. Content that
contradicts it is refused with a clear message: the parser of the wrong format would only report an
error in row 1.

The parsers accept only UTF-8. CSV in another charset is decoded while it is read, from any
position, with little memory: a :class:`Transcoder` converts the upload to UTF-8 and maps positions
of the text to positions in the upload, so that a worker finds the rows of a chunk in the file
without reading the rows before them.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import replace

from encrypted_records.errors import BadInput, InvalidRecords, Malformed
from encrypted_records.ingest import parsing
from encrypted_records.ingest.blocks import CellBlock, Parser, RecordBlock, RecordStart
from encrypted_records.ingest.reading.parser import FileHead, head_of, parser_by
from encrypted_records.ingest.reading.recipe import Recipe
from encrypted_records.model.record_formats import Charset, Format

#: First bytes of files that are often sent by mistake.
_OTHERS = {
    b"PK\x03\x04": "an archive or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"%PDF": "a PDF document",
    b"\x1f\x8b": "compressed with gzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"BZh": "compressed with bzip2",
    b"PAR1": "a Parquet file",
}
_SAVE = "save it as CSV or JSON in UTF-8; for CSV, another charset can be declared"
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
_DECLARED_WIDE = frozenset({Charset.UTF_16, Charset.UTF_16LE, Charset.UTF_16BE})
_BOM = b"\xef\xbb\xbf"
#: Minimum number of bytes to recognize any of these.
SHORTEST = 4


def other_file(start: bytes) -> BadInput | None:
    """The error for a file that begins like one of another kind, such as an archive; None if it may
    be CSV or JSON. A column of CSV may have a name like that.
    """
    for magic, name in _OTHERS.items():
        if start.startswith(magic):
            hint = "unpack it, and send what is in it" if name.startswith("compressed") else _SAVE
            return _contradicted(f"the file is {name}", hint)
    return None


def check_start(start: bytes, kind: Format | None, charset: Charset | None = None) -> None:
    """Check the first bytes of an upload against the sender's format.

    Args:
        charset: of CSV, as declared by the sender; None is UTF-8.

    Raises:
        BadInput: ``file_type``; the file has another format, or the sender named no format.
    """
    if (other := other_file(start)) is not None:
        raise other
    if charset not in _DECLARED_WIDE and start.startswith(_WIDE_MARKS):
        raise _contradicted("the file is text in UTF-16", _SAVE)
    if kind is None:
        raise _contradicted(
            "the file is neither JSON nor CSV by its type or its name",
            "send filetype text/csv, application/json or application/x-ndjson in Upload-Metadata",
        )
    text = start.removeprefix(_BOM).lstrip()
    looks_like_json = text[:1] in (b"[", b"{")
    if text and kind is Format.CSV and looks_like_json:
        raise _contradicted(
            "the file is declared as CSV and begins like JSON", "send its actual type"
        )
    if text and kind is not Format.CSV and not looks_like_json:
        raise _contradicted(
            "the file is declared as JSON and does not begin like JSON", "send its actual type"
        )


def _contradicted(message: str, hint: str) -> BadInput:
    return BadInput(message, code="file_type", hint=hint)


#: Maximum bytes of UTF-8 per byte.
GROWTH = 3
#: Bytes of a whole file that are decoded at once, because other tasks wait meanwhile.
_PIECE = 1 << 20
_UTF16_MARKS = {b"\xff\xfe": Charset.UTF_16LE, b"\xfe\xff": Charset.UTF_16BE}
_CODECS = {
    Charset.ASCII: "ascii",
    Charset.LATIN_1: "iso8859-1",
    Charset.LATIN_9: "iso8859-15",
    Charset.WINDOWS_1252: "cp1252",
    Charset.UTF_16LE: "utf-16-le",
    Charset.UTF_16BE: "utf-16-be",
}
_WIDE = frozenset({Charset.UTF_16LE, Charset.UTF_16BE})
_CONTROLS = re.compile("[\x80-\x9f]")


def settle(charset: Charset | None, start: bytes, *, final: bool) -> Charset | None:
    """Determine the charset from the first bytes of an upload.

    Args:
        charset: as declared by the sender; None is UTF-8.
        start: the first bytes; all of them when ``final``.

    Returns:
        The declared charset; for UTF-16 its byte order, or UTF-16 itself if ``start`` is too short.

    Raises:
        BadInput: ``file_type``; the file begins like a file in another charset.
    """
    mark = start[:2]
    if charset is Charset.UTF_16:
        if len(mark) < 2 and not final:
            return charset
        if mark not in _UTF16_MARKS:
            raise BadInput(
                "the file is declared as UTF-16 and does not begin with a byte order mark",
                code="file_type",
                hint="send charset=utf-16le or charset=utf-16be, which say the order",
            )
        return _UTF16_MARKS[mark]
    if charset not in _WIDE and mark in _UTF16_MARKS:
        raise _begins_as("UTF-16")
    if charset is not None and start.startswith(_BOM):
        raise _begins_as("UTF-8")
    return charset


def _begins_as(name: str) -> BadInput:
    return BadInput(
        f"the file begins like text in {name}, and another charset is declared",
        code="file_type",
        hint="declare its charset: Content-Type: text/csv; charset=...",
    )


class Transcoder:
    """Converts bytes from ``charset`` to UTF-8, starting at any character boundary."""

    def __init__(self, charset: Charset) -> None:
        self._charset = charset
        errors = "surrogatepass" if charset in _WIDE else "surrogateescape"
        self._decoder = codecs.getincrementaldecoder(_CODECS[charset])(errors)

    def feed(self, data: bytes) -> bytes:
        text = self._decoder.decode(data)
        if self._charset is Charset.LATIN_1 and _CONTROLS.search(text):
            text = _CONTROLS.sub(lambda found: chr(0xDC00 + ord(found[0])), text)
        return text.encode("utf-8", "surrogatepass")

    def finish(self) -> bytes:
        """The text of the last bytes; an incomplete character is invalid."""
        try:
            return self._decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return b"\xff"

    def size_as_sent(self, text: bytes) -> int:
        """The number of bytes from which ``text``, which consists of whole characters, was
        decoded.
        """
        characters = text.decode("utf-8", "surrogatepass")
        if self._charset not in _WIDE:
            return len(characters)
        return len(characters.encode("utf-16-le", "surrogatepass"))


class TranscodedParser:
    """A parser of bytes in another charset; the offsets of its blocks are of the bytes as sent.

    Args:
        parser: accepts UTF-8, from ``start`` on.
    """

    def __init__(self, parser: Parser, charset: Charset, start: RecordStart) -> None:
        self._parser = parser
        self._transcoder = Transcoder(charset)
        self._sent = self._seen = start.offset
        #: the input of the parser, from ``_seen`` on
        self._text = bytearray()

    def feed(self, data: bytes) -> Sequence[RecordBlock | CellBlock]:
        """
        Raises:
            BadInput: as the parser.
        """
        text = self._transcoder.feed(data)
        self._text += text
        return self._placed(self._parser.feed(text))

    def finish(self) -> Sequence[RecordBlock | CellBlock]:
        """
        Raises:
            BadInput: as the parser.
        """
        text = self._transcoder.finish()
        self._text += text
        blocks = self._parser.feed(text) if text else []
        return self._placed([*blocks, *self._parser.finish()])

    def _placed(
        self, blocks: Sequence[RecordBlock | CellBlock]
    ) -> Sequence[RecordBlock | CellBlock]:
        placed: list[RecordBlock | CellBlock] = []
        for block in blocks:
            behind = block.start.offset - self._seen
            self._sent += self._transcoder.size_as_sent(bytes(self._text[:behind]))
            self._seen += behind
            del self._text[:behind]
            placed.append(replace(block, start=RecordStart(self._sent, block.start.row)))
        return placed


def to_utf8(data: bytes, charset: Charset | None) -> bytes:
    """A whole file as UTF-8. Bytes that are invalid in its charset become invalid UTF-8.

    Raises:
        BadInput: as :func:`settle`.
    """
    settled = settle(charset, data, final=True)
    if settled is None:
        return data
    transcoder = Transcoder(settled)
    pieces = [transcoder.feed(data[at : at + _PIECE]) for at in range(0, len(data), _PIECE)]
    return b"".join([*pieces, transcoder.finish()])


Layout = parsing.Header | FileHead | parsing.Layout


def recognize(
    start: bytes,
    kind: Format,
    *,
    final: bool,
    charset: Charset | None = None,
    reading: Recipe | None = None,
) -> tuple[Layout, RecordStart] | None:
    """The layout, and the beginning of the first record; None if ``start`` is too short.

    Args:
        start: the upload's first bytes; all of it when ``final``.
        kind: CSV or JSON; the first bytes show the layout of JSON.
        charset: of CSV, as declared by the sender.
        reading: the recipe for a file that is not read strictly by its format.

    Raises:
        InvalidRecords: ``csv_header``; ``reading``: the file has other columns.
        Malformed: the file is empty, or begins with neither an array nor an object.
        BadInput: ``file_type``; CSV begins like text in another charset, or it is a file of another
            kind.
    """
    if reading is not None:
        head = head_of(start, reading, final=final)
        return None if head is None else (head, head.start)
    try:
        if kind is Format.CSV:
            return _recognize_csv(start, settle(charset, start, final=final), final=final)
        layout = parsing.layout_of(start)
    except (InvalidRecords, Malformed):
        if (other := other_file(start)) is not None:
            raise other from None
        raise
    if layout is None and (final or len(start) > parsing.MAX_HEADER_BYTES):
        raise Malformed("the upload is empty, or begins with a MiB of whitespace")
    return layout


def _recognize_csv(
    start: bytes, charset: Charset | None, *, final: bool
) -> tuple[parsing.Header, RecordStart] | None:
    if charset is None:
        header = parsing.read_header(start, final=final)
        return None if header is None else (header, RecordStart(header.size, 1))
    if charset is Charset.UTF_16:
        return None
    transcoder = Transcoder(charset)
    text = transcoder.feed(start) + (transcoder.finish() if final else b"")
    header = parsing.read_header(text, final=final, charset=charset.value)
    if header is None:
        return None
    return header, RecordStart(transcoder.size_as_sent(text[: header.size]), 1)


def parser_for(
    layout: Layout,
    start: RecordStart,
    *,
    schema_named: bool,
    charset: Charset | None = None,
    reading: Recipe | None = None,
) -> Parser:
    """The parser of an upload's layout, from ``start`` on.

    Args:
        charset: of CSV, as returned by :func:`settle`.
    """
    if isinstance(layout, FileHead):
        assert reading is not None
        return parser_by(reading, layout, start)
    if isinstance(layout, parsing.Header):
        if charset is None:
            return parsing.CsvParser(layout, start)
        return TranscodedParser(
            parsing.CsvParser(layout, start, charset=charset.value), charset, start
        )
    parser = parsing.ArrayParser if layout == "array" else parsing.LinesParser
    return parser(start, schema_named=schema_named)
