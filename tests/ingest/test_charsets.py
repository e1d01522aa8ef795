"""CSV in other charsets is read as what its sender meant, from any row on, or named bad."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import BadInput, InvalidRecords, Unsupported
from encrypted_records.ingest import layouts
from encrypted_records.ingest.blocks import (
    CellBlock,
    RawRecord,
    RecordBlock,
    RecordStart,
    UnreadRow,
)
from encrypted_records.ingest.layouts import parser_for, recognize
from encrypted_records.model.record_formats import (
    Charset,
    Format,
    charset_named,
    charset_of,
    require_utf8,
)

CODECS = {
    Charset.LATIN_1: "iso8859-1",
    Charset.LATIN_9: "iso8859-15",
    Charset.WINDOWS_1252: "cp1252",
    Charset.UTF_16LE: "utf-16-le",
    Charset.UTF_16BE: "utf-16-be",
    Charset.UTF_16: "utf-16",
}
#: Letters that all of these have; UTF-16 has more.
COMMON = "aé,ß;ø ÿ€" * 3


def text_for(charset: Charset) -> str:
    return COMMON.replace("€", "") if charset is Charset.LATIN_1 else COMMON


def parsed(
    data: bytes, charset: Charset | None, *, piece: int = 1 << 20, start: RecordStart | None = None
) -> list[RecordBlock | CellBlock]:
    recognized = recognize(data, Format.CSV, final=True, charset=charset)
    assert recognized is not None
    layout, first = recognized
    begin = start or first
    settled = layouts.settle(charset, data, final=True)
    parser = parser_for(layout, begin, schema_named=True, charset=settled)
    blocks: list[RecordBlock | CellBlock] = []
    for at in range(begin.offset, len(data), piece):
        blocks += parser.feed(data[at : at + piece])
    return [*blocks, *parser.finish()]


def records(blocks: Sequence[RecordBlock | CellBlock]) -> list[RawRecord | UnreadRow]:
    return [record for block in blocks for record in block.records]


@pytest.mark.parametrize("charset", CODECS, ids=lambda one: one.value)
@pytest.mark.parametrize("piece", [1, 2, 3, 1 << 20])
def test_each_charset_is_decoded_as_it_was_written(charset: Charset, piece: int) -> None:
    value = text_for(charset)
    data = f'naïve,b\n"{value}",1\n"x\n""{value}",\n'.encode(CODECS[charset])
    first, second = records(parsed(data, charset, piece=piece))
    assert isinstance(first, RawRecord)
    assert isinstance(second, RawRecord)
    assert first.data == {"naïve": value, "b": "1"}
    assert second.data == {"naïve": f'x\n"{value}'}


@given(
    rows=st.lists(st.text(st.characters(codec="cp1252", exclude_characters='",\r\n'), max_size=9)),
    charset=st.sampled_from([Charset.WINDOWS_1252, Charset.UTF_16LE, Charset.UTF_16BE]),
    piece=st.integers(1, 7),
)
def test_what_follows_any_block_is_found_from_its_offset(
    rows: list[str], charset: Charset, piece: int
) -> None:
    data = "".join(["é,b\n", *(f"{row},{number}\n" for number, row in enumerate(rows))]).encode(
        CODECS[charset]
    )
    whole = parsed(data, charset, piece=piece)
    for number, block in enumerate(whole):
        later = parsed(data, charset, start=block.start)
        assert records(later) == records(whole[number:])


@pytest.mark.parametrize(
    ("charset", "bad"),
    [
        (Charset.WINDOWS_1252, b"\x81"),
        (Charset.ASCII, b"\xe9"),
        (Charset.UTF_16LE, b"\x00\xd8"),
        (Charset.UTF_16BE, b"\xdc\x00"),
        # What is called ISO-8859-1 and has these is Windows-1252: guessed wrong, it would be stored
        # wrong without a word.
        (Charset.LATIN_1, b"\x80"),
    ],
    ids=str,
)
def test_what_the_charset_does_not_have_is_a_bad_row_and_not_another_text(
    charset: Charset, bad: bytes
) -> None:
    codec = CODECS.get(charset, "ascii")
    head, good, end = (text.encode(codec) for text in ("a,b\n1,", "\nx,2\n", "\nz,3\n"))
    found = records(parsed(head + b"" + bad + good + "y,4".encode(codec) + end, charset))
    assert isinstance(found[0], UnreadRow)
    assert found[0].error.code == "csv_row"
    assert charset.value in found[0].error.detail
    rest = [one.data for one in found[1:] if isinstance(one, RawRecord)]
    assert rest == [{"a": "x", "b": "2"}, {"a": "y", "b": "4"}, {"a": "z", "b": "3"}]


def test_half_a_character_at_the_end_is_a_bad_row() -> None:
    (row,) = records(parsed("a\nxy".encode("utf-16-le")[:-1], Charset.UTF_16LE))
    assert isinstance(row, UnreadRow)


def test_a_header_that_is_not_of_its_charset_is_refused() -> None:
    with pytest.raises(InvalidRecords) as caught:
        recognize(b"a\x81\n", Format.CSV, final=True, charset=Charset.WINDOWS_1252)
    assert "Windows-1252" in caught.value.message


@pytest.mark.parametrize(
    ("start", "charset"),
    [
        (b"\xef\xbb\xbfa\n", Charset.LATIN_1),
        (b"\xff\xfea\x00\n\x00", Charset.WINDOWS_1252),
        (b"\xff\xfea\x00\n\x00", None),
        (b"a\x00\n\x00", Charset.UTF_16),
        (b"", Charset.UTF_16),
    ],
    ids=str,
)
def test_a_file_that_begins_as_another_charset_is_refused(
    start: bytes, charset: Charset | None
) -> None:
    with pytest.raises(BadInput) as caught:
        layouts.to_utf8(start, charset)
    assert caught.value.reason == "file_type"


def test_the_first_byte_of_utf16_says_nothing_yet() -> None:
    assert recognize(b"\xff", Format.CSV, final=False, charset=Charset.UTF_16) is None


@pytest.mark.parametrize(
    ("content_type", "charset"),
    [
        ("text/csv", None),
        ("text/csv; charset=utf-8", None),
        ('text/csv;header=present; CHARSET="UTF-8"', None),
        ("text/csv; charset=iso-8859-1", Charset.LATIN_1),
        ("text/csv; charset=Latin1", Charset.LATIN_1),
        ('text/csv; charset = "windows-1252"', Charset.WINDOWS_1252),
        ("text/csv;charset=utf-16", Charset.UTF_16),
        ("text/csv;charset=utf-8;charset=UTF-8", None),
    ],
)
def test_a_declared_charset_is_found(content_type: str, charset: Charset | None) -> None:
    assert charset_of(content_type) is charset


@pytest.mark.parametrize(
    "content_type",
    ["text/csv; charset=ebcdic", "text/csv; charset=", "text/csv;charset=utf-8;charset=latin1"],
)
def test_a_charset_that_is_not_read_is_refused_by_name(content_type: str) -> None:
    with pytest.raises(Unsupported) as caught:
        charset_of(content_type)
    assert caught.value.reason == "unsupported_charset"


def test_json_is_utf8_or_its_part_ascii() -> None:
    require_utf8(charset_of("application/json; charset=utf8"))
    require_utf8(charset_named("us-ascii"))
    with pytest.raises(Unsupported):
        require_utf8(Charset.LATIN_1)
