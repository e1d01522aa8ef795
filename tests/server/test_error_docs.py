"""Every code the API can answer with has its paragraph, and every route its line."""

from __future__ import annotations

import re
from pathlib import Path

from encrypted_records import errors
from tests.server.api import Account

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "src/encrypted_records/server").rglob("*.py"), Path(errors.__file__)]


def test_every_error_code_has_a_paragraph() -> None:
    text = "\n".join(path.read_text() for path in SOURCES)
    used = set(re.findall(r'\bcode = "([a-z_]+)"', text))
    used |= set(re.findall(r'\bcode="([a-z_]+)"', text))
    used |= set(re.findall(r'_document\(\s*\d+, "([a-z_]+)"', text))
    explained = (ROOT / "docs/errors.md").read_text()
    headings = set(re.findall(r"^## ([a-z_]+)$", explained, re.MULTILINE))
    flaws = set(re.findall(r"`([a-z_]+)`", explained.partition("# Codes of single places")[2]))
    assert used - headings - flaws == set()


def test_every_path_is_described(ada: Account) -> None:
    described = (ROOT / "docs/http-api.md").read_text()
    paths = ada.call("GET", "/api/openapi.json").json()["paths"]
    slugged = (path.replace("{slug}", "<slug>") for path in paths)
    written = {re.sub(r"\{\w+\}", "<id>", path) for path in slugged}
    assert {path for path in written if path not in described} == set()
