"""The project's documents as HTML, and finding words in them.

Documents are Markdown: those of the checkout that this runs from, or the copies that a wheel has.
Each is converted once, when it is first asked for. Raw HTML in them is escaped, links between them
lead to pages, those to other sites stay, and those to files that are no documents become text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from markdown_it.token import Token

from encrypted_records.proxy.pages.help_contents import (
    CONTENTS,
    DECISIONS,
    IS_DECISION,
    TITLES,
)
from encrypted_records.proxy.pages.help_parts import (
    PARSER,
    HelpOutline,
    find_document,
    list_files,
    list_images,
    load_outline,
    read_plain,
)

_EXTERNAL = re.compile(r"https?://")
_MOST_FOUND = 30


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of a document and the text below it, for finding."""

    page: str
    document: str
    heading: str
    anchor: str
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """A page of a document. ``html`` is safe as it is.

    ``contents`` are the larger headings of the whole document, each with page and anchor;
    ``pages`` all pages of it.
    """

    name: str
    title: str
    html: str
    contents: tuple[tuple[str, str, str], ...]
    sections: tuple[Section, ...]
    pages: tuple[str, ...]


def list_names() -> list[str]:
    """Documents as their first pages are called: those with a title first."""
    there = list_files()
    return [name for name in TITLES if name in there] + sorted(set(there) - set(TITLES))


def list_documents() -> dict[str, list[tuple[str, str, str]]]:
    """Under each heading, every document's name, its title and what to expect there."""
    there = list_files()
    listed = {
        heading: [(name, *title) for name, title in section.items() if name in there]
        for heading, section in CONTENTS.items()
    }
    decisions = [name for name in sorted(there) if name.startswith(IS_DECISION)]
    return listed | {DECISIONS: [(name, find_title(name), "") for name in decisions]}


def find_title(name: str) -> str:
    return TITLES[name][0] if name in TITLES else load_outline(name).title


@cache
def load_document(page: str) -> Document:
    """
    Raises:
        KeyError: there is no such page.
    """
    name = find_document(page)
    if name is None:
        raise KeyError(page)
    outline = load_outline(name)
    tokens = dict(outline.parts)[page]
    _prepare(tokens, outline, page)
    html = PARSER.renderer.render(tokens, PARSER.options, {})
    html = html.replace("<table>", '<div class="scroll" tabindex="0"><table>')
    html = html.replace("</table>", "</table></div>").replace("<pre>", '<pre tabindex="0">')
    pages = tuple(part for part, _ in outline.parts)
    sections = tuple(_sections(tokens, page, outline.title))
    return Document(page, outline.title, html, outline.contents, sections, pages)


def find(wanted: str) -> list[Section]:
    """Sections that have every word, in any case; those with all of them in the heading first."""
    words = wanted.casefold().split()[:8]
    if not words:
        return []
    found = [
        section
        for name in list_names()
        for page, _ in load_outline(name).parts
        for section in load_document(page).sections
        if all(word in f"{section.heading} {section.text}".casefold() for word in words)
    ]
    found.sort(key=lambda section: not all(word in section.heading.casefold() for word in words))
    return found[:_MOST_FOUND]


def cut_snippet(section: Section, wanted: str, width: int = 180) -> str:
    """A stretch of the section's text around the first of the words."""
    words = wanted.casefold().split()
    folded = section.text.casefold()
    at = min((place for word in words if (place := folded.find(word)) >= 0), default=0)
    start = max(0, at - width // 3)
    cut = section.text[start : start + width]
    return f"{'…' if start else ''}{cut}{'…' if start + width < len(section.text) else ''}"


def _prepare(tokens: Sequence[Token], outline: HelpOutline, page: str) -> None:
    """Give links and pictures their addresses, as seen from this page."""
    for token in tokens:
        if token.type in ("th_open", "td_open"):
            token.attrs.pop("style", None)  # the policy of the pages allows no inline style
        for child in token.children or []:
            if child.type == "link_open":
                _aim(child, outline, page)
            elif child.type == "image":
                _show(child)


def _aim(link: Token, outline: HelpOutline, page: str) -> None:
    target = str(link.attrGet("href") or "")
    if _EXTERNAL.match(target):
        link.attrSet("rel", "noreferrer")
        return
    path, _, anchor = target.partition("#")
    other = _resolve(outline, path) if path else outline
    if other is None:
        link.attrs.pop("href", None)  # a file that is no document
        return
    there = other.places.get(anchor, other.name)
    after = f"#{anchor}" if anchor else ""
    link.attrSet("href", after if after and there == page else f"../{there}/{after}")


def _resolve(outline: HelpOutline, path: str) -> HelpOutline | None:
    """The document that a relative path leads to."""
    resolved = (list_files()[outline.name].parent / path).resolve()
    for other, file in list_files().items():
        if file.resolve() == resolved:
            return load_outline(other)
    return None


def _show(image: Token) -> None:
    """The picture, or what it shows in words where the package does not have it."""
    name = Path(str(image.attrGet("src") or "")).name
    if name in list_images():
        image.attrSet("src", f"../images/{name}")
        image.attrSet("loading", "lazy")
        return
    image.type, image.tag, image.nesting = "text", "", 0
    image.content = f"({read_plain(image)})"
    image.children = []


def _sections(tokens: Sequence[Token], page: str, title: str) -> Iterator[Section]:
    heading, anchor, texts = title, "", list[str]()
    for at, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag in ("h2", "h3", "h4"):
            yield Section(page, title, heading, anchor, " ".join(texts))
            heading, anchor, texts = read_plain(tokens[at + 1]), str(token.attrGet("id")), []
        elif token.type == "inline" and tokens[at - 1].type != "heading_open":
            texts.append(" ".join(read_plain(token).split()))
        elif token.type in ("fence", "code_block"):
            texts.append(" ".join(token.content.split()))
    yield Section(page, title, heading, anchor, " ".join(texts))


def mark_words(text: str, wanted: str) -> str:
    """The text as HTML, with the words in <mark>."""
    words = "|".join(re.escape(escape(word)) for word in wanted.split()[:8])
    safe = escape(text)
    return re.sub(f"({words})", r"<mark>\1</mark>", safe, flags=re.IGNORECASE) if words else safe
