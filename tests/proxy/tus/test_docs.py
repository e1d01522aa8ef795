"""docs/tus.md names tests that exist, and all extensions that are announced."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from encrypted_records.proxy.uploads.tus import EXTENSIONS

HERE = Path(__file__).parent
DOCUMENT = (HERE.parents[2] / "docs" / "tus.md").read_text()


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {
        f"{path.name}::{node.name}"
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_test_that_the_document_names_exists() -> None:
    there = {name for path in HERE.glob("test_*.py") for name in names_in(path)}
    named = set(re.findall(r"`(test_\w+\.py::test_\w+)`", DOCUMENT))
    assert named - there == set()


def test_every_line_of_the_protocol_has_a_test() -> None:
    rows = [line for line in DOCUMENT.splitlines() if line.startswith("| ")]
    lines = [row for row in rows if "Held by" not in row]
    assert len(lines) > 50
    assert [row for row in lines if "::test_" not in row] == []


def test_every_extension_that_is_announced_is_in_the_document() -> None:
    assert [name for name in EXTENSIONS if f"`{name}`" not in DOCUMENT] == []
