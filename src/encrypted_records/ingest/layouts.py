"""The layout of an upload, from its first bytes, and the parser for it."""

from __future__ import annotations

from encrypted_records.errors import Malformed
from encrypted_records.ingest import parse_json_stream
from encrypted_records.ingest.blocks import Parser, RecordStart
from encrypted_records.ingest.charsets import TranscodedParser, Transcoder, settle
from encrypted_records.ingest.parse_csv import MAX_HEADER_BYTES, CsvParser, Header, read_header
from encrypted_records.ingest.parse_json_stream import ArrayParser, LinesParser
from encrypted_records.ingest.reading.containers import head_of, parser_by
from encrypted_records.ingest.reading.parser import FileHead
from encrypted_records.ingest.reading.recipe import Recipe
from encrypted_records.model.record_formats import Charset, Format

Layout = Header | FileHead | parse_json_stream.Layout


def recognize(
    start: bytes,
    kind: Format,
    *,
    final: bool,
    charset: Charset | None = None,
    reading: Recipe | None = None,
) -> tuple[Layout, RecordStart] | None:
    """The layout, and where the first record begins; None if ``start`` is too short to show it.

    Args:
        start: the upload's first bytes; all of it when ``final``.
        kind: CSV, or JSON; the first bytes show which layout of JSON it is.
        charset: of CSV, as the sender declares it.
        reading: how the file is read, where it is not read as the formats demand.

    Raises:
        InvalidRecords: ``csv_header``; ``reading``: its columns are others.
        Malformed: neither an array nor an object begins here, or nothing does.
        BadInput: ``file_type``; CSV begins as text in another charset.
    """
    if reading is not None:
        head = head_of(start, reading, final=final)
        return None if head is None else (head, head.start)
    if kind is Format.CSV:
        return _recognize_csv(start, settle(charset, start, final=final), final=final)
    layout = parse_json_stream.layout_of(start)
    if layout is None and (final or len(start) > MAX_HEADER_BYTES):
        raise Malformed("the upload is empty, or begins with a MiB of whitespace")
    return layout


def _recognize_csv(
    start: bytes, charset: Charset | None, *, final: bool
) -> tuple[Header, RecordStart] | None:
    if charset is None:
        header = read_header(start, final=final)
        return None if header is None else (header, RecordStart(header.size, 1))
    if charset is Charset.UTF_16:
        return None
    transcoder = Transcoder(charset)
    text = transcoder.feed(start) + (transcoder.finish() if final else b"")
    header = read_header(text, final=final, charset=charset.value)
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
        charset: of CSV, as :func:`settle` gives it.
    """
    if isinstance(layout, FileHead):
        assert reading is not None
        return parser_by(reading, layout, start)
    if isinstance(layout, Header):
        if charset is None:
            return CsvParser(layout, start)
        return TranscodedParser(CsvParser(layout, start, charset=charset.value), charset, start)
    parser = ArrayParser if layout == "array" else LinesParser
    return parser(start, schema_named=schema_named)
