"""The charset of a text, from its bytes: certain where they say it, else a guess that is said."""

from __future__ import annotations

import re
from dataclasses import dataclass

from encrypted_records.errors import Flaw, InvalidRecords

BYTE_ORDER_MARKS = {
    b"\xef\xbb\xbf": "utf-8",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
#: Charsets by one byte a letter of Latin script, with the letters that are usual there.
# ruff: noqa: RUF001 - these letters are meant
_LATIN = {
    "cp1252": "äöüßÄÖÜéèêëàâáãçñíìîïóòôõúùûÉÈÀÁÇÑÍÓÚÔåøæÅØÆœŒÿıº°ª€£µ§«»–—’‘“”…·²³½¼¾±×®©™¡¿",
    "cp1250": "ąćęłńóśźżĄĆĘŁŃÓŚŹŻčďěňřšťůžČĎĚŇŘŠŤŮŽáéíúýäöüőűŐŰ€„”–ßÄÖÜ°§",
    "cp1254": "çğıöşüÇĞİÖŞÜâîûéáäß€–’“”",
    "mac_roman": "äöüßÄÖÜéèêëàâáçñíìîïóòôúùûÉÀÇÑåøæÅØÆ’“”–°",
}
_SCRIPTS = {
    "cp1251": "\u0400-\u04ff",
    "koi8_r": "\u0430-\u044f\u0410-\u042f\u0401\u0451",
    "cp1253": "\u0370-\u03ff",
    "cp1255": "\u05d0-\u05ea",
    "cp1256": "\u0620-\u064a",
}
_EAST = {
    "cp932": "\u3040-\u30ff\u4e00-\u9fff",
    "gb18030": "\u4e00-\u9fff",
    "cp949": "\uac00-\ud7a3",
    "big5": "\u4e00-\u9fff",
}
CHARSETS = ("utf-8", "utf-16-le", "utf-16-be", *_LATIN, *_SCRIPTS, *_EAST)
_GOOD = 0.8
_UTF8_SEQUENCE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
#: From here on UTF-8 has three bytes a letter, and all letters of the scripts above.
_THREE_BYTES = "\u0800"
_ASCII = bytes(range(128))
_TYPOGRAPHIC = re.compile(rb"\xe2\x80[\x80-\xbf]|\xc3[\x80-\xbf]")
#: From the beginning of a word alone, so that a long run of letters is looked at once.
_WORD = re.compile(r"(?<![^\W\d_])[A-Za-z]*+[^\W\d_\x00-\x7f][^\W\d_]*")
#: What is looked at of a legacy charset.
_SCORED_BYTES = 64 << 10
_WORDS = 3


@dataclass(frozen=True, slots=True)
class DetectedCharset:
    """``mark`` is the length of a byte order mark; ``words`` are some that tell if a guess is
    right."""

    name: str
    mark: int = 0
    guessed: bool = False
    words: tuple[str, ...] = ()


def find_charset(sample: bytes, *, whole: bool) -> DetectedCharset:
    """
    Args:
        sample: the file's first bytes; all of them if ``whole``.

    Raises:
        InvalidRecords: ``reading``; two charsets are mixed in it, or it is not text.
    """
    for mark, name in BYTE_ORDER_MARKS.items():
        if sample.startswith(mark):
            return DetectedCharset(name, len(mark))
    if (wide := _wide(sample)) is not None:
        return DetectedCharset(wide)
    if b"\x00" in sample:
        raise refused("the file contains zero bytes, and is not text")
    cut = sample if whole else sample[: max(0, len(sample) - 3)]
    try:
        _decode_utf8(sample, whole=whole)
    except UnicodeDecodeError as error:
        return _legacy(cut, sample.count(b"\n", 0, error.start) + 1)
    return DetectedCharset("utf-8")


def _decode_utf8(sample: bytes, *, whole: bool) -> None:
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        # Where the sample is cut, a character may be.
        if whole or error.start < len(sample) - 3 or error.reason != "unexpected end of data":
            raise


def was_utf8(cell: str, encoding: str) -> bool:
    """Whether a cell of a legacy charset is more likely text in UTF-8, such as ``MÃ¼ller`` for
    Müller in Windows-1252: the charset changes in the middle of a file. A single pair of bytes may
    be either, such as 女 and Ů: it is UTF-8 only of a letter that its charset of one byte has."""
    try:
        meant = cell.encode(encoding).decode("utf-8")
    except UnicodeError:
        return False
    letters = [letter for letter in meant if not letter.isascii()]
    if encoding in _EAST:
        return len(letters) > 1 and all(letter >= _THREE_BYTES for letter in letters)
    try:
        meant.encode(encoding)
    except UnicodeError:
        return len(letters) > 1
    return bool(letters)


def _wide(sample: bytes) -> str | None:
    """UTF-16 without a mark: text has a zero in every second place."""
    pairs = min(len(sample) // 2, 2048)
    if pairs < 4:
        return None
    evens, odds = sample[: 2 * pairs : 2].count(0), sample[1 : 2 * pairs : 2].count(0)
    if odds > 0.7 * pairs and evens == 0:
        return "utf-16-le"
    return "utf-16-be" if evens > 0.7 * pairs and odds == 0 else None


def _legacy(sample: bytes, line: int) -> DetectedCharset:
    good = sum(len(run) for run in _UTF8_SEQUENCE.findall(sample))
    bad = len(sample.translate(None, _ASCII)) - good
    scores = {name: _score(name, sample) for name in (*_LATIN, *_SCRIPTS, *_EAST)}
    best = max(scores, key=lambda name: scores[name])
    typographic = len(_TYPOGRAPHIC.findall(sample)) >= 3
    if good > 3 * bad or (typographic and scores[best] < _GOOD):
        raise refused(f"UTF-8 and another charset are mixed, first in line {line}", "", "encoding")
    if scores[best] <= 0:
        best = "cp1252"
    words: dict[str, None] = {}
    for found in _WORD.finditer(sample.decode(best, errors="replace")):
        words[found[0]] = None
        if len(words) == _WORDS:
            break
    return DetectedCharset(best, guessed=True, words=tuple(words))


def is_likely(name: str, sample: bytes, guess: str) -> bool:
    """Whether letters beyond ASCII are as a legacy charset's languages have them, or no worse than
    in the charset that was guessed."""
    return _score(name, sample) >= min(_score(guess, sample), _GOOD)


def _score(name: str, sample: bytes) -> float:
    """From 0 to 1: how many of the letters beyond ASCII are as that charset's languages have
    them; less than 0 where a byte stands for nothing."""
    try:
        text = sample[: _around(sample)].decode(name, errors="strict")
    except UnicodeDecodeError as error:
        if error.start < min(len(sample), _SCORED_BYTES) - 4:
            return -1.0
        text = sample[: error.start].decode(name, errors="ignore")
    high = [at for at, character in enumerate(text) if character > "\x7f"]
    if not high:
        return -1.0
    if name in _LATIN:
        usual = frozenset(_LATIN[name])
        return sum(_latin(text, at, usual) for at in high) / len(high)
    runs = re.compile(f"[{(_SCRIPTS | _EAST)[name]}]{{2,}}")
    inside = sum(len(run) for run in runs.findall(text))
    share = inside / len(high)
    if name in _SCRIPTS:
        # A small letter before a capital one is no word of these languages.
        jumps = sum(1 for at in high if at and text[at].isupper() and text[at - 1].islower())
        return share - jumps / len(high)
    # Two bytes a character: a text of another charset has few that all are of the script.
    return share * 0.97


def _around(sample: bytes) -> int:
    return min(len(sample), _SCORED_BYTES)


def _latin(text: str, at: int, usual: frozenset[str]) -> float:
    character = text[at]
    before = text[at - 1] if at else " "
    after = text[at + 1] if at + 1 < len(text) else " "
    if character == "\xa0":
        return 1.0 if before.isdigit() or after.isdigit() else 0.5
    if character not in usual:
        return 0.0
    if not character.isalpha():
        return 0.7
    if before.isdigit() or after.isdigit():
        return 0.2
    if character.isupper() and before.islower():
        return 0.0
    near = (before.isascii() and before.isalpha()) or (after.isascii() and after.isalpha())
    return 1.0 if near else 0.6


def refused(detail: str, hint: str = "", member: str | None = None) -> InvalidRecords:
    """A file that is not read, whatever one might guess of it.

    Args:
        member: of what can be said of a reading, that may help; each interface names its own way
            to say it.
    """
    flaws = () if member is None else (Flaw("reading", detail, f"/{member}", header="X-Reading"),)
    return InvalidRecords(detail, code="reading", hint=hint, flaws=flaws)
