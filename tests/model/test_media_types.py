"""The kinds of files: one table, which the upload page has to agree with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from encrypted_records.model.record_formats import Format

_PAGE = Path(__file__).parents[2] / "web" / "src" / "file_row.js"


@pytest.mark.parametrize("kind", list(Format))
def test_a_format_is_found_by_its_own_media_type_and_suffix(kind: Format) -> None:
    assert Format.of_media_type(kind.media_type) is kind
    assert Format.of_upload(f"{kind.media_type}; charset=utf-8", "") is kind
    assert Format.of_name(f"records.{kind.value}") is kind


@pytest.mark.parametrize("other", ["", "text/json", "text/csv; charset=utf-8", "text/plain"])
def test_a_request_must_name_a_media_type_exactly(other: str) -> None:
    assert Format.of_media_type(other) is None


@pytest.mark.parametrize(
    ("filename", "start", "expected"),
    [
        ("a.csv", b"[", Format.CSV),
        ("a.jsonl", b"", Format.NDJSON),
        ("-", b'\xef\xbb\xbf \r\n[{"a": 1}]', Format.JSON),
        ("-", b' {"a": 1}', Format.NDJSON),
        ("-", b"name,age", Format.CSV),
        ("-", b"", Format.CSV),
    ],
)
def test_the_name_decides_and_else_the_first_bytes(
    filename: str, start: bytes, expected: Format
) -> None:
    assert Format.of_file(filename, start) is expected


def test_the_upload_page_names_the_same_media_types() -> None:
    table = re.search(r"const TYPES = \{(.*?)\};", _PAGE.read_text(), re.DOTALL)
    assert table is not None
    entries = dict(re.findall(r'(\w+): "([^"]+)"', table[1]))
    assert {"csv", "json", "ndjson", "jsonl"} <= entries.keys()
    for suffix, media_type in entries.items():
        kind = Format.of_name(f"a.{suffix}")
        assert kind is not None
        assert kind.media_type == media_type
