"""CSV in charsets other than UTF-8: decoded while it is read, from any position, with little
memory.

The parsers accept only UTF-8. A :class:`Transcoder` converts the upload to UTF-8 and maps positions
of the text to positions in the upload, so that a worker finds the rows of a chunk in the file
without reading the rows before them. A byte that is invalid in the charset becomes a byte that is
invalid in UTF-8: the parser then reports the row, and the job may skip it. Thus nothing is stored
that was not sent.

In ISO-8859-1, bytes 80 to 9F are control characters that do not occur in practice. A file that
contains them is really Windows-1252, so they are treated as invalid bytes.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import replace

from encrypted_records.errors import BadInput
from encrypted_records.ingest.blocks import CellBlock, Parser, RecordBlock, RecordStart
from encrypted_records.model.record_formats import Charset

#: How many bytes of UTF-8 one byte becomes, at most.
GROWTH = 3
#: What is decoded at once of a whole file, since others wait meanwhile.
_PIECE = 1 << 20
_UTF8_MARK = b"\xef\xbb\xbf"
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
    """The charset that the first bytes of an upload are in, as far as they tell.

    Args:
        charset: what the sender says; None is UTF-8.
        start: the first bytes; all of them when ``final``.

    Returns:
        The same, and of UTF-16 which of its two forms it is. UTF-16 itself while ``start`` is too
        short.

    Raises:
        BadInput: ``file_type``; the file begins as one of another charset.
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
    if charset is not None and start.startswith(_UTF8_MARK):
        raise _begins_as("UTF-8")
    return charset


def _begins_as(name: str) -> BadInput:
    return BadInput(
        f"the file begins like text in {name}, and another charset is declared",
        code="file_type",
        hint="declare its charset: Content-Type: text/csv; charset=...",
    )


class Transcoder:
    """Bytes in ``charset`` in, UTF-8 out; begins anywhere between two characters."""

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
        parser: takes UTF-8, from ``start`` on.
    """

    def __init__(self, parser: Parser, charset: Charset, start: RecordStart) -> None:
        self._parser = parser
        self._transcoder = Transcoder(charset)
        self._sent = self._seen = start.offset
        #: what the parser was given, from ``_seen`` on
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
    """A whole file as UTF-8. What is no text of its charset is no UTF-8 either.

    Raises:
        BadInput: as :func:`settle`.
    """
    settled = settle(charset, data, final=True)
    if settled is None:
        return data
    transcoder = Transcoder(settled)
    pieces = [transcoder.feed(data[at : at + _PIECE]) for at in range(0, len(data), _PIECE)]
    return b"".join([*pieces, transcoder.finish()])
