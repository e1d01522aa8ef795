"""How an upload is laid out, as its first bytes show, and the parser for it."""

from __future__ import annotations

from encrypted_records.errors import Malformed
from encrypted_records.ingest import parse_json_stream
from encrypted_records.ingest.blocks import Parser, Place
from encrypted_records.ingest.parse_csv import CsvParser, Header, read_header
from encrypted_records.ingest.parse_json_stream import ArrayParser, LinesParser

Layout = Header | parse_json_stream.Layout


def recognize(start: bytes, *, csv: bool, final: bool) -> tuple[Layout, Place] | None:
    """The layout, and where the first record begins; None where ``start`` does not show it yet.

    Args:
        start: the upload's first bytes; all of it when ``final``.
        csv: whether it is to be CSV, and not JSON.

    Raises:
        InvalidRecords: ``csv_header``.
        Malformed: neither an array nor an object begins here, or nothing does.
    """
    if csv:
        header = read_header(start, final=final)
        return None if header is None else (header, Place(header.size, 1))
    found = parse_json_stream.layout_of(start)
    if found is None and final:
        raise Malformed("the upload is empty")
    return found


def parser_for(layout: Layout, place: Place, *, schema_named: bool) -> Parser:
    """The parser of an upload's layout, from ``place`` on."""
    if isinstance(layout, Header):
        return CsvParser(layout, place)
    kind = ArrayParser if layout == "array" else LinesParser
    return kind(place, schema_named=schema_named)
