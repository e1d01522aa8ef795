"""What SECURITY.md, LEAKAGE.md and the threat model promise is held by tests that they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("SECURITY.md", "docs/LEAKAGE.md", "docs/threat-model.md")


def promises() -> list[tuple[str, str]]:
    """Every paragraph or list item with a "never" in it, with the document that it is in."""
    found = []
    for name in DOCUMENTS:
        parts = re.split(r"\n\s*\n|\n(?=[-*|] )", (ROOT / name).read_text())
        found += [(name, part) for part in parts if re.search(r"\bnever\b", part, re.IGNORECASE)]
    return found


@pytest.mark.parametrize(("document", "promise"), promises(), ids=lambda text: text[:60])
def test_a_promise_names_the_tests_that_hold_it(document: str, promise: str) -> None:
    named = re.search(r"\(tests?:\s+([^)]*)\)", promise)
    assert named, f"{document} promises without naming a test: {promise}"
    tests = re.findall(r"`([^`]+)`", named[1])
    assert tests
    for test in tests:
        path, _, function = test.partition("::")
        text = (ROOT / path).read_text()
        assert re.search(rf"^(async )?def {function or 'test_'}", text, re.MULTILINE), test


def test_there_are_promises() -> None:
    assert {document for document, _ in promises()} == set(DOCUMENTS)
