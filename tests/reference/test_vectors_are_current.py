"""The vector files are what the reference implementation makes, and it stands alone."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.reference.loading import VECTORS
from tests.vectors import make

HERE = Path(__file__).parent
_REFERENCE = (
    "definitions",
    "fields",
    "grants",
    "hpke",
    "identity",
    "invitations",
    "kept",
    "keyring",
    "keys",
    "links",
    "log",
    "msgpack",
    "paged",
    "phrase",
    "requests",
    "roster",
    "roster_form",
    "segments",
    "spool",
    "__init__",
)
STORED = sorted(path.name for path in VECTORS.glob("*.json"))


@cache
def made() -> dict[str, str]:
    return {name: make.text(content) for name, content in make.build().items()}


@pytest.mark.parametrize("name", STORED)
def test_making_a_vector_file_again_changes_nothing(name: str) -> None:
    assert (VECTORS / name).read_text() == made()[name]


def test_there_is_no_vector_file_that_is_not_made() -> None:
    assert set(STORED) == set(made())


def test_the_readme_lists_every_vector_file() -> None:
    readme = (VECTORS / "README.md").read_text()
    assert [name for name in STORED if f"`{name}`" not in readme] == []


@pytest.mark.parametrize(
    "path", [*(HERE / f"{name}.py" for name in _REFERENCE), *VECTORS.glob("*.py")], ids=str
)
def test_the_reference_implementation_imports_nothing_of_the_package(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        assert not [name for name in names if name.startswith("encrypted_records")]


@pytest.mark.parametrize("name", ["bindings.json", "definitions.json"])
def test_entries_that_mean_different_things_have_different_digests(name: str) -> None:
    key = "binding" if name == "bindings.json" else "digest"
    digests = [entry[key] for entry in make.build()[name]]
    assert len(set(digests)) == len(digests)
