"""Documents and code are in plain English, for readers whose second language it is."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TEMPLATES = sorted((ROOT / "src").rglob("*.html"))
WIDTH = 100

#: What is not written, and what is written instead.
INSTEAD = {
    "held against": "checked against, compared with",
    "hold against": "check against",
    "holds against": "checks against",
    "held apart": "kept separate",
    "held to": "checked against",
    "in the place of": "instead of",
    "by way of": "through",
    "anew": "again",
    "for good": "permanently",
    "stored ahead": "staged",
    "sees to it": "ensures",
    "see to it": "ensure",
    "comes to it": "reaches it",
    "is none": "there is no, is not one",
    "are none": "there are no",
    "whoever": "the caller, the user who",
    "in earnest": "in production",
    "with less ado": "more simply",
    "the house": "the project",
    "has gone wrong": "failed",
    "goes on by itself": "continues",
}
_LISTED = "|".join(re.escape(words) for words in INSTEAD).replace(r"\ ", r"\s+")
_WORDS = re.compile(rf"\b(?:{_LISTED})\b(?! of)", re.IGNORECASE)


def listed_in(text: str) -> list[str]:
    """What is listed, in order. "There is none" is plain, and None is a value."""
    found = [(" ".join(match[0].split()), text[: match.start()]) for match in _WORDS.finditer(text)]
    return [
        words.lower()
        for words, before in found
        if not words.endswith("None") and not re.search(r"\bthere\s+$", before, re.IGNORECASE)
    ]


#: From Python 3.12 on, what is between the braces of an f-string is a token of its own.
_TEXT = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))


def comments_and_strings(source: Path) -> Iterator[tuple[int, str]]:
    with tokenize.open(source) as lines:
        for token in tokenize.generate_tokens(lines.readline):
            if token.type in _TEXT:
                yield token.start[0], token.string


def unplain(text: str) -> list[str]:
    return [f"{words!r}, say: {INSTEAD[words]}" for words in listed_in(text)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_is_in_plain_words(document: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", document.read_text(), flags=re.DOTALL)
    assert unplain(prose) == []


def test_the_code_is_in_plain_words() -> None:
    found = [
        f"{source.relative_to(ROOT)}:{line}: {words}"
        for source in SOURCES
        for line, text in comments_and_strings(source)
        for words in unplain(text)
    ]
    assert found == []


def test_the_pages_are_in_plain_words() -> None:
    assert [
        f"{template.name}: {words}"
        for template in TEMPLATES
        for words in unplain(re.sub(r"{[{%].*?[}%]}", "", template.read_text(), flags=re.DOTALL))
    ] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_lines_of_a_document_are_short(document: Path) -> None:
    """But for rows of tables, links, blocks of code, and what is made of the commands' own help."""
    prose = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    if document.name == "cli.md":
        prose = prose.partition("\n## Reference\n")[0]
    long = [
        line
        for line in prose.splitlines()
        if len(line) > WIDTH and not line.startswith("|") and " " in line.strip()[:WIDTH]
    ]
    assert long == []
