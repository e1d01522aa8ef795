"""What MkDocs calls while it builds the site (mkdocs.yml).

- The order of pages is the product's, which shows the same documents under /help/.
- Addresses are without ``docs/``: the page of errors is at ``/errors/``, and below it each code has
  an address, which is the ``type`` of that error in answers.
- A link to a file of the project that is no document becomes text, as under /help/.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from encrypted_records.proxy.pages.manual import (
    CONTENTS,
    DECISIONS,
    IS_DECISION,
    document_name,
    make_anchor,
)

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
_ERROR = re.compile(r"^## ([a-z_]+)$", re.MULTILINE)
_REDIRECT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{code}</title>
<link rel="canonical" href="../#{code}"><meta http-equiv="refresh" content="0; url=../#{code}">
</head><body><p><a href="../#{code}">{code}</a></p></body></html>
"""


def _slug(text: str, separator: str) -> str:
    """Anchors as GitHub makes them, which is what links in the documents expect."""
    del separator
    return make_anchor(text)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the order of pages from the product."""
    folder = Path(config.docs_dir)
    paths = {
        document_name(one): one
        for one in sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))
    }
    config.nav = [
        {heading: [{title: paths[name]} for name, (title, _) in section.items()]}
        for heading, section in CONTENTS.items()
    ]
    decisions = [path for name, path in paths.items() if name.startswith(IS_DECISION)]
    config.nav[-1]["The project"].append({DECISIONS: decisions})
    config.mdx_configs["toc"]["slugify"] = _slug
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Leave ``docs/`` out of addresses."""
    del config
    for file in files:
        file.dest_uri = file.dest_uri.removeprefix("docs/")
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links to files that are no documents text; leave code as it is."""
    del config
    here = Path(page.file.src_uri).parent
    there = {file.src_uri for file in files}

    def replace(match: re.Match[str]) -> str:
        label, target, _ = match.groups()
        if "://" in target:
            return match[0]
        resolved = (ROOT / here / target).resolve()
        if not resolved.exists() or resolved.relative_to(ROOT).as_posix() in there:
            return match[0]
        return label

    parts = _CODE.split(markdown)
    return "".join(part if at % 2 else _LINK.sub(replace, part) for at, part in enumerate(parts))


def on_post_build(config: MkDocsConfig) -> None:
    """An address for each error's code, where ``type`` in its answers leads."""
    text = (Path(config.docs_dir) / "docs" / "errors.md").read_text("utf-8")
    for code in _ERROR.findall(text):
        folder = Path(config.site_dir) / "errors" / quote(code)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.html").write_text(_REDIRECT.format(code=code), "utf-8")
