"""What a file is: by what was said of it, and not against its first bytes."""

from __future__ import annotations

import pytest

from encrypted_records.errors import BadInput
from encrypted_records.ingest.filetypes import check_start, is_csv


@pytest.mark.parametrize(
    ("filetype", "filename", "expected"),
    [
        ("text/csv", "", True),
        ("TEXT/CSV; charset=utf-8", "people.json", True),
        ("application/json", "people.csv", False),
        ("application/x-ndjson", "", False),
        ("application/vnd.ms-excel", "people.csv", True),
        ("", "people.csv", True),
        ("", "PEOPLE.CSV", True),
        ("", "people.2026.json", False),
        ("application/octet-stream", "people.jsonl", False),
        ("", "people.ndjson", False),
        ("", "people", None),
        ("", "", None),
        ("", ".csv", None),
        ("image/png", "people.png", None),
    ],
)
def test_the_type_decides_and_else_the_name(
    filetype: str, filename: str, expected: bool | None
) -> None:
    assert is_csv(filetype, filename) is expected


@pytest.mark.parametrize(
    ("start", "csv"),
    [
        (b"name,age\n", True),
        (b"\xef\xbb\xbfname,age\n", True),
        (b"", True),
        (b"", False),
        (b'[{"schema"', False),
        (b'{"schema"', False),
        (b" \r\n\t [", False),
        (b"\xef\xbb\xbf[", False),
    ],
)
def test_a_file_that_begins_as_it_should_passes(start: bytes, csv: bool) -> None:
    check_start(start, csv=csv)


@pytest.mark.parametrize(
    ("start", "csv", "says"),
    [
        (b"name,age\n", None, "neither JSON nor CSV"),
        (b"name,age\n", False, "said to be JSON"),
        (b'[{"a": 1}]', True, "said to be CSV"),
        (b'  {"a": 1}', True, "said to be CSV"),
        (b"PK\x03\x04\x14\x00", True, "Excel"),
        (b"PK\x03\x04\x14\x00", None, "Excel"),
        (b"\xd0\xcf\x11\xe0", True, "Excel"),
        (b"%PDF-1.7", False, "PDF"),
        (b"\x1f\x8b\x08", True, "gzip"),
        (b"\xff\xfen\x00", True, "UTF-16"),
    ],
)
def test_a_file_that_is_something_else_is_refused_in_words_that_help(
    start: bytes, csv: bool | None, says: str
) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        check_start(start, csv=csv)
    assert caught.value.reason == "file_type"
    assert caught.value.hint
