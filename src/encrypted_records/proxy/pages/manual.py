"""Help: the project's documents as pages, a search in them, and the reference of all endpoints.

Everyone who reaches the proxy may read the pages under /help/; they load nothing from elsewhere, so
help works without a network. The order of the documents is that of the site that ``make docs``
builds. A document's name follows from its path: ``docs/how-to/back-up.md`` is ``how-to-back-up``.

Documents are Markdown: those of the checkout that the proxy runs from, or the copies in a wheel.
Each is converted once, at its first request. Raw HTML in them is escaped, links between them lead
to pages, links to other sites stay, and links to files that are not documents become text. A long
document is shown on several pages, ``http-api``, ``http-api-2`` and so on. Each page begins with a
heading, so that each section is on one page.

/docs/ shows /api/openapi.json for people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from starlette.responses import Response

from encrypted_records.errors import ApiFailed, NotFound
from encrypted_records.http import openapi as reference
from encrypted_records.proxy.pages.page import PAGE_HEADERS, Visit, page
from encrypted_records.proxy.process import aside

#: Heading -> the names of documents, each with its title and a short description.
CONTENTS: dict[str, dict[str, tuple[str, str]]] = {
    "Read these five pages first": {
        "quickstart": (
            "Start",
            "install it, and try it in the browser, with commands and with curl",
        ),
        "my-data": ("Your data", "store your own file, search it, and bring in the next one"),
        "how-to-invite-a-colleague": ("Your team", "share datasets with colleagues and programs"),
        "production": ("Production", "from a wheel to a service for others"),
        "concepts-leaks": (
            "What leaks",
            "what the server can learn, in plain words, with an attack",
        ),
    },
    "How to": {
        "readme": ("About", "the product on one screen"),
        "tutorial": ("Tutorial", "from a CSV of patients to a search in ten minutes"),
        "how-to-join-a-team": ("Join a team", "what to do as an invited colleague"),
        "how-to-move-to-a-new-machine": ("Move to a new machine", "take your keyring with you"),
        "how-to-lose-a-disk": ("Lose a disk", "what is left, and how to recover it"),
        "how-to-back-up": ("Back up", "keyring, data folder and database"),
        "how-to-mirror": ("Mirror", "a copy that needs no trust, to read from anywhere"),
        "how-to-query-from-other-tools": (
            "Query from other tools",
            "psql, DBeaver, Metabase, Grafana, dbt, pandas, an agent",
        ),
        "how-to-follow-changes": (
            "Follow changes",
            "keep a copy, a warehouse or a search engine up to date",
        ),
        "upgrading": ("Upgrade", "from one version to the next"),
        "how-to-change-a-schema": (
            "Change a schema",
            "which changes are possible, and what they require",
        ),
    },
    "Concepts": {
        "concepts-searching": ("Searching what is encrypted", "how, in three pictures"),
        "concepts-keys": ("Keys", "the keyring, its versions, and what it decrypts"),
        "concepts-organizations": ("Organizations", "who can send requests, and who can read"),
        "concepts-teams": (
            "Teams and their keys",
            "a signed member list, and a key for each dataset",
        ),
        "concepts-glossary": ("Glossary", "the terms of code and specification"),
        "performance": ("How fast", "what was measured, with charts"),
        "scale": ("How it grows", "what is bounded for many records, and what is missing"),
        "comparison": ("Compared with others", "what each of them does better"),
    },
    "Reference": {
        "web-ui": ("The web interface", "what each page does, and how little it leaves behind"),
        "cli": ("The command line", "every command with every option"),
        "python": ("From Python", "storing and searching from a program"),
        "sql": ("SQL", "joins, windows and groups over records that the server cannot read"),
        "http-api": ("The HTTP API", "every endpoint of API and proxy"),
        "errors": ("Errors", "every code, its meaning and what to do"),
        "operations": ("Operations", "settings, backups, restoring, sizes"),
        "tus": ("Resumable uploads", "the supported parts of the protocol"),
        "spec": ("Specification", "every byte of keys, encryption, index and log"),
        "security": ("Security", "what is protected, and what is not"),
        "leakage": ("Who learns what", "what the server can find out all the same"),
        "threat-model": ("Threat model", "possible attackers, and what stops them"),
    },
    "The project": {
        "architecture": ("Architecture", "the parts of the program, and the path of a record"),
        "contributing": ("Contributing", "what a change must fulfil"),
        "changelog": ("Changes", "what is new"),
    },
}
#: The heading of the decisions; its documents need no title here.
DECISIONS = "Decisions"
IS_DECISION = "decisions-"

TITLES: dict[str, tuple[str, str]] = {
    name: title for section in CONTENTS.values() for name, title in section.items()
}


def document_name(relative: str) -> str:
    """A document's name from its path in the project."""
    stem = relative.removeprefix("docs/").removesuffix(".md")
    return stem.replace("/", "-").replace("_", "-").lower()


# --- documents, parsed ----------------------------------------------------------------------------

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
    """Each document's name and its file: in the checkout that the proxy runs from, or in the
    package.
    """
    folder = find_folder()
    paths = [*folder.glob("*.md"), *(folder / "docs").rglob("*.md")]
    return {document_name(path.relative_to(folder).as_posix()): path for path in paths}


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
        for number, part in enumerate(_cut_parts(tokens), 1)
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
    """The name of a page's document; None if there is no such page."""
    if page in list_files():
        return page
    name = re.sub(r"-[1-9][0-9]?$", "", page)
    if name not in list_files():
        return None
    return name if page in dict(load_outline(name).parts) else None


def find_address(name: str, anchor: str) -> str | None:
    """``page/#anchor`` of a section; None if the document has no such section."""
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
    """The document's title, which is removed from the tokens, and its larger headings with their
    anchors.
    """
    title, contents, used = name, list[tuple[str, str]](), dict[str, int]()
    levels = [token for token in tokens if token.type in ("heading_open", "heading_close")]
    if sum(token.tag == "h1" for token in levels) > 2:  # the document has parts; a page has one h1
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


def _cut_parts(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The tokens of each page."""
    begin = length = 0
    for start, end in _section_bounds(tokens):
        tag = tokens[start].tag
        if length > (_ENOUGH_FOR_H2 if tag == "h2" else _ENOUGH):
            yield tokens[begin:start]
            begin, length = start, 0
        length += len(PARSER.renderer.render(tokens[start:end], PARSER.options, {}))
    yield tokens[begin:]


def _section_bounds(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """The bounds of each section of the second or third level."""
    begins = [
        at
        for at, token in enumerate(tokens)
        if token.type == "heading_open" and token.tag in ("h2", "h3") and token.level == 0
    ]
    return zip([0, *begins], [*begins, len(tokens)], strict=True)


# --- documents as HTML ----------------------------------------------------------------------------

_EXTERNAL = re.compile(r"https?://")
_MOST_FOUND = 30


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of a document and the text below it, for the search."""

    page: str
    document: str
    heading: str
    anchor: str
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """A page of a document. ``html`` is safe.

    ``contents`` are the larger headings of the whole document, each with page and anchor; ``pages``
    are all its pages.
    """

    name: str
    title: str
    html: str
    contents: tuple[tuple[str, str, str], ...]
    sections: tuple[Section, ...]
    pages: tuple[str, ...]


def list_names() -> list[str]:
    """Documents by the names of their first pages: documents with a title come first."""
    files = list_files()
    return [name for name in TITLES if name in files] + sorted(set(files) - set(TITLES))


def list_documents() -> dict[str, list[tuple[str, str, str]]]:
    """Under each heading, every document's name, its title and its description."""
    files = list_files()
    listed = {
        heading: [(name, *title) for name, title in section.items() if name in files]
        for heading, section in CONTENTS.items()
    }
    decisions = [name for name in sorted(files) if name.startswith(IS_DECISION)]
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


def find_sections(wanted: str) -> list[Section]:
    """Sections that contain every word, in any case; sections with all words in the heading come
    first.
    """
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
    """An excerpt of the section's text around the first of the words."""
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
        link.attrs.pop("href", None)  # not a document
        return
    target_page = other.places.get(anchor, other.name)
    after = f"#{anchor}" if anchor else ""
    link.attrSet("href", after if after and target_page == page else f"../{target_page}/{after}")


def _resolve(outline: HelpOutline, path: str) -> HelpOutline | None:
    """The document that a relative path leads to."""
    resolved = (list_files()[outline.name].parent / path).resolve()
    for other, file in list_files().items():
        if file.resolve() == resolved:
            return load_outline(other)
    return None


def _show(image: Token) -> None:
    """The picture, or its description if the package does not have it."""
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


# --- pages ----------------------------------------------------------------------------------------

_PICTURES = {".svg": "image/svg+xml", ".webp": "image/webp", ".png": "image/png"}


async def start(visit: Visit) -> Response:
    """All documents, or search results. The search text is only in the form's body."""
    wanted = visit.text("wanted").strip()[:100]
    found = await aside(find_sections, wanted) if wanted else []
    # As HTML, which is escaped there.
    results = [(section, mark_words(cut_snippet(section, wanted), wanted)) for section in found]
    listed = await aside(list_documents)
    return visit.render("help.html", wanted=wanted, results=results, documents=listed)


async def show(visit: Visit) -> Response:
    """A page of a document."""
    shown = await aside(_load, visit.part("name"))
    name = shown.pages[0]
    number = shown.pages.index(shown.name) + 1
    return visit.render("help_page.html", document=shown, title=find_title(name), number=number)


def _load(name: str) -> Document:
    try:
        return load_document(name)
    except KeyError:
        raise NotFound("there is no such page") from None


async def lead(visit: Visit) -> Response:
    """Redirect to a section, on its page. The types of errors end like this:
    ``errors/not_found``.
    """
    address = await aside(find_address, visit.part("name"), visit.part("anchor"))
    if address is None:
        raise NotFound("there is no such section")
    return visit.go(f"/help/{address}")


async def picture(visit: Visit) -> Response:
    """Serve a picture of the documents."""
    path = list_images().get(visit.part("name"))
    kind = _PICTURES.get(path.suffix) if path else None
    if path is None or kind is None:
        raise NotFound("there is no such picture")
    return Response(await aside(path.read_bytes), headers=PAGE_HEADERS, media_type=kind)


# --- the reference of all endpoints ---------------------------------------------------------------


async def reference_page(visit: Visit) -> Response:
    document = json.loads((await visit.answer("GET", "/api/openapi.json")).body)
    try:
        html = reference.page(document)
    except (AttributeError, KeyError, TypeError, IndexError):
        raise ApiFailed(
            "the API's document is not an OpenAPI document", code="api_answer"
        ) from None
    return visit.show(html, reference.CONTENT_SECURITY_POLICY)


routes = [
    page("/help/", start, methods=("GET", "POST"), public=True),
    page("/help/{name}/", show, public=True),
    page("/help/images/{name}", picture, public=True),
    page("/help/{name}/{anchor}/", lead, public=True),
    page("/docs/", reference_page),
]
