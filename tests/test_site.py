"""The documents as a site: it builds with every warning an error, and shows what /help/ shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mkdocs.exceptions import Abort

from encrypted_records.http.problem import type_of
from encrypted_records.proxy.pages import manual
from encrypted_records.proxy.pages.manual import IS_DECISION, TITLES
from scripts.site import build_site, copy_documents

ROOT = Path(__file__).parents[1]
CODES = re.findall(r"^## ([a-z_]+)$", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site; to build it is a test by itself."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    copy_documents(source)
    build_site(source, folder)
    return folder


def page_of(site: Path, name: str) -> str:
    """The page of a document, by the name that it has under /help/."""
    path = manual.list_files()[name].relative_to(ROOT).as_posix().removeprefix("docs/")
    stem = path.removesuffix(".md").removesuffix("README")
    return (site / stem / "index.html").read_text()


def test_links_that_lead_nowhere_fail_the_build(tmp_path: Path) -> None:
    source = tmp_path / "source"
    copy_documents(source)
    with (source / "docs" / "tutorial.md").open("a") as tutorial:
        tutorial.write("\n[a](no.md) [b](cli.md#no) [c](#no) ![d](images/no.svg)\n")
    with pytest.raises(Abort, match="4 warnings"):
        build_site(source, tmp_path / "site")


def test_every_document_has_a_title_and_every_title_a_document() -> None:
    names = {name for name in manual.list_files() if not name.startswith(IS_DECISION)}
    assert names == set(TITLES)


def test_the_type_of_every_error_leads_to_a_page(site: Path) -> None:
    errors = page_of(site, "errors")
    for code in CODES:
        path = type_of(code).removeprefix("/help/")
        leads = (site / path / "index.html").read_text()
        assert f'url=../#{code}"' in leads
        assert f'id="{code}"' in errors


def test_nothing_of_the_site_comes_from_another_host(site: Path) -> None:
    loaded = re.compile(r"""<(?:script|img|iframe)[^>]*\bsrc=["']?(?:https?:)?//""")
    style = re.compile(
        r"""<link[^>]*rel=["']?(?:stylesheet|preconnect|icon)[^>]*href=["']?(?:https?:)?//"""
    )
    pages = [path.read_text() for path in site.rglob("*.html")]
    assert len(pages) > 60
    assert [text[:80] for text in pages if loaded.search(text) or style.search(text)] == []


@pytest.mark.parametrize("name", manual.list_names())
def test_both_parsers_find_the_same_in_a_document(site: Path, name: str) -> None:
    """One reads it for the site, another for /help/."""
    page = page_of(site, name)
    article = page.partition("<article")[2].partition("</article>")[0]
    pages = [one for one, _ in manual.load_outline(name).parts]
    ours = "".join(manual.load_document(page).html for page in pages)
    for tag in ("pre", "table", "img", "li", "h[1-6]"):
        found = len(re.findall(rf"<{tag}\b", article))
        title = tag == "h[1-6]"  # which the frame of a page under /help/ has
        assert found == len(re.findall(rf"<{tag}\b", ours)) + title, tag
