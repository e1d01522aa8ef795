"""A command that a hint, a message or docs/errors.md names is one that there is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

from tests.cli.tree import commands

ROOT = Path(__file__).parents[2]
KNOWN = dict(commands())
#: What follows "ers" in prose that names no command.
_PROSE = ("ers on ", "ers or ", "ers says", "ers answer", "ers caused")


def texts() -> Iterator[tuple[str, str]]:
    """Every string of the product but docstrings, and docs/errors.md, with where it is."""
    yield "docs/errors.md", (ROOT / "docs" / "errors.md").read_text()
    for path in (ROOT / "src").rglob("*.py"):
        source = path.read_text()
        if not re.search(r"(?<![\w/.-])ers\b", source):
            continue
        tree = ast.parse(source)
        documented = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or id(node) in documented:
                continue
            if isinstance(node.value, str):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def named_in(text: str) -> Iterator[str]:
    """``ers`` with up to three words behind it."""
    for match in re.finditer(r"(?<![\w/.-])ers((?: [a-z][a-z-]+){1,3})", " ".join(text.split())):
        yield match[0]


def is_known(words: str) -> bool:
    """Whether the words begin with a command that can be called, or are a group."""
    parts = words.split()
    size = max(size for size in range(1, len(parts) + 1) if " ".join(parts[:size]) in KNOWN)
    found = KNOWN[" ".join(parts[:size])]
    if isinstance(found, click.Group) and not found.invoke_without_command:
        return 1 < size == len(parts)
    return size > 1


def test_commands_that_messages_name_exist() -> None:
    missing = [
        (where, words)
        for where, text in texts()
        for words in named_in(text)
        if not f"{words} ".startswith(_PROSE) and not is_known(words)
    ]
    assert missing == []
