"""What a file is: by what was said of it, and not against its first bytes."""

from __future__ import annotations

import gzip

import pytest

from encrypted_records.errors import BadInput, InvalidRecords
from encrypted_records.ingest.infer import read_rows
from encrypted_records.ingest.layouts import check_start, recognize
from encrypted_records.model.record_formats import Format


@pytest.mark.parametrize(
    ("filetype", "filename", "expected"),
    [
        ("text/csv", "", Format.CSV),
        ("TEXT/CSV; charset=utf-8", "people.json", Format.CSV),
        ("application/json", "people.csv", Format.JSON),
        ("application/x-ndjson", "", Format.NDJSON),
        ("application/vnd.ms-excel", "people.csv", Format.CSV),
        ("", "people.csv", Format.CSV),
        ("", "PEOPLE.CSV", Format.CSV),
        ("", "people.2026.json", Format.JSON),
        ("application/octet-stream", "people.jsonl", Format.NDJSON),
        ("", "people.ndjson", Format.NDJSON),
        ("", "people", None),
        ("", "", None),
        ("", ".csv", None),
        ("image/png", "people.png", None),
    ],
)
def test_the_type_decides_and_else_the_name(
    filetype: str, filename: str, expected: Format | None
) -> None:
    assert Format.of_upload(filetype, filename) is expected


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"name,age\n", Format.CSV),
        (b"\xef\xbb\xbfname,age\n", Format.CSV),
        (b"", Format.CSV),
        (b"", Format.JSON),
        (b'[{"schema"', Format.JSON),
        (b'{"schema"', Format.NDJSON),
        (b" \r\n\t [", Format.JSON),
        (b"\xef\xbb\xbf[", Format.JSON),
    ],
)
def test_a_file_that_begins_as_it_should_passes(start: bytes, kind: Format) -> None:
    check_start(start, kind)


@pytest.mark.parametrize(
    ("start", "kind", "says"),
    [
        (b"name,age\n", None, "neither JSON nor CSV"),
        (b"name,age\n", Format.JSON, "declared as JSON"),
        (b'[{"a": 1}]', Format.CSV, "declared as CSV"),
        (b'  {"a": 1}', Format.CSV, "declared as CSV"),
        (b"PK\x03\x04\x14\x00", Format.CSV, "Excel"),
        (b"PK\x03\x04\x14\x00", None, "Excel"),
        (b"\xd0\xcf\x11\xe0", Format.CSV, "Excel"),
        (b"%PDF-1.7", Format.JSON, "PDF"),
        (b"\x1f\x8b\x08", Format.CSV, "gzip"),
        (b"\xff\xfen\x00", Format.CSV, "UTF-16"),
    ],
)
def test_a_file_that_is_something_else_is_refused_in_words_that_help(
    start: bytes, kind: Format | None, says: str
) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        check_start(start, kind)
    assert caught.value.reason == "file_type"
    assert caught.value.hint


@pytest.mark.parametrize("kind", list(Format))
def test_a_compressed_file_that_cannot_be_read_is_told_to_be_unpacked(kind: Format) -> None:
    start = gzip.compress(b"name,age\nAda,36\n")
    with pytest.raises(BadInput, match="compressed with gzip") as caught:
        recognize(start, kind, final=True)
    assert (caught.value.reason, caught.value.hint[:9]) == ("file_type", "unpack it")


def test_a_header_that_begins_like_another_file_is_read() -> None:
    assert recognize(b"PAR1,BZh\n", Format.CSV, final=True) is not None


def test_a_sample_that_is_compressed_or_in_another_charset_is_told_so() -> None:
    with pytest.raises(BadInput, match="compressed with gzip"):
        list(read_rows(gzip.compress(b"name\nAda\n"), Format.CSV))
    with pytest.raises(InvalidRecords, match="not UTF-8") as caught:
        list(read_rows("Größe\n1\n".encode("cp1252"), Format.CSV))
    assert "charset=" in caught.value.hint
