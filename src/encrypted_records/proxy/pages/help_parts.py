"""Documents in Markdown, parsed: their anchors, and parts short enough for a page.

A long document is shown on several pages, ``http-api``, ``http-api-2`` and so on. A part begins
with a heading, so that each section is in one part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from encrypted_records.proxy.pages.help_contents import name_of

#: Copies of the documents, made by scripts/copy-documents.
_PACKAGED = Path(__file__).parent / "help_texts"
_CHECKOUT = Path(__file__).parents[4]
#: Bytes of HTML after which a page ends with the next heading. With its frame a page stays below
#: 120 kB (tests/browser/test_help.py).
_ENOUGH = 55_000
#: A heading of the second level begins a page earlier.
_ENOUGH_FOR_H2 = 40_000
PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")


@dataclass(frozen=True, slots=True)
class HelpOutline:
    """``parts`` are the tokens of each page; ``places`` says which page has an anchor."""

    name: str
    title: str
    parts: tuple[tuple[str, Sequence[Token]], ...]
    places: Mapping[str, str]
    #: the larger headings: page, anchor, text
    contents: tuple[tuple[str, str, str], ...]


@cache
def list_files() -> dict[str, Path]:
    """Each document's name and its file: in the checkout that this runs from, or the package."""
    folder = find_folder()
    paths = [*folder.glob("*.md"), *(folder / "docs").rglob("*.md")]
    return {name_of(path.relative_to(folder).as_posix()): path for path in paths}


@cache
def list_images() -> dict[str, Path]:
    """The name and the file of each picture that the documents show."""
    return {path.name: path for path in (find_folder() / "docs" / "images").glob("*.*")}


def find_folder() -> Path:
    return _CHECKOUT if (_CHECKOUT / "docs" / "web-ui.md").is_file() else _PACKAGED


@cache
def load_outline(name: str) -> HelpOutline:
    """
    Raises:
        KeyError: there is no such document.
    """
    tokens = PARSER.parse(list_files()[name].read_text("utf-8"))
    title, contents = _give_anchors(tokens, name)
    parts = tuple(
        (name if number == 1 else f"{name}-{number}", part)
        for number, part in enumerate(_cut(tokens), 1)
    )
    places = {
        str(token.attrGet("id")): page
        for page, part in parts
        for token in part
        if token.type == "heading_open"
    }
    listed = tuple((places[anchor], anchor, text) for anchor, text in contents)
    return HelpOutline(name, title, parts, places, listed)


def list_pages() -> dict[str, str]:
    """Each page's name and that of its document. Parses all of them."""
    return {page: name for name in list_files() for page, _ in load_outline(name).parts}


def find_document(page: str) -> str | None:
    """The name of the document that a page is of; None where there is no such page."""
    if page in list_files():
        return page
    name = re.sub(r"-[1-9][0-9]?$", "", page)
    if name not in list_files():
        return None
    return name if page in dict(load_outline(name).parts) else None


def find_address(name: str, anchor: str) -> str | None:
    """``page/#anchor`` of a section; None where the document has no such one."""
    page = load_outline(name).places.get(anchor) if name in list_files() else None
    return f"{page}/#{anchor}" if page else None


def make_anchor(text: str) -> str:
    """The anchor of a heading in the form that links in the documents use (that of GitHub)."""
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def read_plain(token: Token) -> str:
    """The text of an inline token, without its marks."""
    children = token.children or []
    return "".join(child.content if not child.children else read_plain(child) for child in children)


def _give_anchors(tokens: Sequence[Token], name: str) -> tuple[str, list[tuple[str, str]]]:
    """The document's title, which is taken out, and its larger headings with their anchors."""
    title, contents, used = name, list[tuple[str, str]](), dict[str, int]()
    levels = [token for token in tokens if token.type in ("heading_open", "heading_close")]
    if sum(token.tag == "h1" for token in levels) > 2:  # it has parts; a page has one h1
        for token in levels[2:]:
            token.tag = f"h{int(token.tag[1:]) + 1}"
    for at, token in enumerate(tokens):
        if token.type != "heading_open":
            continue
        text = read_plain(tokens[at + 1])
        slug = make_anchor(text)
        count = used[slug] = used.get(slug, -1) + 1
        anchor = f"{slug}-{count}" if count else slug
        token.attrSet("id", anchor)
        if token.tag == "h1" and title == name:
            title = text
            token.hidden = tokens[at + 2].hidden = True
            tokens[at + 1].children = []
        elif token.tag == "h2":
            contents.append((anchor, text))
    return title, contents


def _cut(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The tokens of each page."""
    begin = length = 0
    for start, end in _sections(tokens):
        tag = tokens[start].tag
        if length > (_ENOUGH_FOR_H2 if tag == "h2" else _ENOUGH):
            yield tokens[begin:start]
            begin, length = start, 0
        length += len(PARSER.renderer.render(tokens[start:end], PARSER.options, {}))
    yield tokens[begin:]


def _sections(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """The bounds of each section of the second or third level."""
    begins = [
        at
        for at, token in enumerate(tokens)
        if token.type == "heading_open" and token.tag in ("h2", "h3") and token.level == 0
    ]
    return zip([0, *begins], [*begins, len(tokens)], strict=True)
