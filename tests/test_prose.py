"""Documents and code are in plain English, for readers whose second language it is."""

from __future__ import annotations

import ast
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

#: Words that texts for users do not contain, and what they say instead. Code may have such names.
INSTEAD_FOR_USERS = {
    "taken in": "registered",
    "let in": "admitted, registered",
    "lets in": "admits, registers",
    "put out": "removed",
    "taken out": "removed",
    "brought here": "restored",
    "bring it here": "restore it",
    "sealed again": "re-encrypted",
    "seal again": "re-encrypt",
    "seal all": "re-encrypt all",
    "sealed with": "encrypted with, protected by",
    "sealed under": "encrypted under",
    "service's string": "service's secret key",
    "what is named": "the named values",
    "what is due": "pending changes",
    "by now": "now",
    "said to be": "declared as",
    "afresh": "again",
    "mend": "fix",
    "of ours": "of this proxy, internal",
    "cut short": "truncated",
    "lies in": "is in",
    "stands in": "is in",
    "stand in": "are in",
    "no neighbours": "not neighbours",
    "present key": "current key",
    "present password": "current password",
    "present passphrase": "current passphrase",
}
_FOR_USERS = re.compile(
    rf"\b(?:{'|'.join(re.escape(words) for words in INSTEAD_FOR_USERS)})\b", re.IGNORECASE
)
#: "It is no token", but for "there is no token", which is plain.
_IS_NO = re.compile(r"(?<!\bthere )\bis no (?!longer|more)", re.IGNORECASE)
#: A text that begins with the thing's description instead of its name.
_NO_SUBJECT = re.compile(r"(?:what|who|whose|of) [a-z]", re.IGNORECASE)
#: What these say to a function is shown to users as a text of its own.
_SHOWN = {"hint", "help", "short_help", "summary", "description", "documentation"}


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


def text_of(node: ast.expr) -> str | None:
    """The text of a string; what an f-string fills in is left out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "{}".join(
            part.value
            for part in node.values
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        )
    return None


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The strings of a module, except docstrings and messages of assertions."""
    hidden = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr | ast.Assert)
        for part in ast.walk(node.value if isinstance(node, ast.Expr) else node)
        if isinstance(node, ast.Assert) or isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and id(node) not in hidden:
            text = text_of(node)
            if text is not None and " " in text:
                yield node.lineno, " ".join(text.split())


def shown_alone(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Texts that users see as a whole: messages of errors, hints, helps and summaries."""
    for node in ast.walk(tree):
        found: list[ast.expr] = []
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            found += node.exc.args[:1]
        if isinstance(node, ast.Call):
            found += [keyword.value for keyword in node.keywords if keyword.arg in _SHOWN]
        for each in found:
            text = text_of(each)
            if text is not None:
                yield each.lineno, text


def unplain_for_users(text: str) -> list[str]:
    words = [" ".join(match[0].split()).lower() for match in _FOR_USERS.finditer(text)]
    found = [f"{each!r}, say: {INSTEAD_FOR_USERS[each]}" for each in words]
    return found + [f"{match[0]!r}, say: is not a" for match in _IS_NO.finditer(text)]


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
