"""What is imported, and what never is: by the API, and by commands that must start at once."""

from __future__ import annotations

import re
import subprocess
import sys

import grimp
import pytest

from encrypted_records import __version__
from encrypted_records.cli import main

PACKAGE = "encrypted_records"

#: Lines of our modules by which the API reaches ``cryptography``, by module. Signatures are
#: verified; whatever encrypts or decrypts has no place here.
ALLOWED: dict[str, set[str]] = {
    f"{PACKAGE}.server.signatures": {
        "from cryptography.exceptions import InvalidSignature",
        "from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey",
    }
}


def reached(graph: grimp.ImportGraph, room: str) -> set[str]:
    """Our modules that are imported where ``room`` is, directly or by others."""
    todo = [f"{PACKAGE}.{room}", *graph.find_descendants(f"{PACKAGE}.{room}")]
    found: set[str] = set()
    while todo:
        module = todo.pop()
        if module in found or not module.startswith(PACKAGE):
            continue
        found.add(module)
        todo += graph.find_modules_directly_imported_by(module)
        todo.append(module.rpartition(".")[0])
    return found


def test_the_api_imports_nothing_of_cryptography_but_what_is_allowed() -> None:
    graph = grimp.build_graph(PACKAGE, include_external_packages=True, cache_dir=None)
    modules = reached(graph, "server")
    assert {f"{PACKAGE}.model.wire", f"{PACKAGE}.listening.serving"} <= modules
    lines = {
        importer: {
            detail["line_contents"]
            for detail in graph.get_import_details(importer=importer, imported="cryptography")
        }
        for importer in graph.find_modules_that_directly_import("cryptography")
    }
    assert any(name.startswith(f"{PACKAGE}.crypto.") for name in lines)
    assert {name: said for name, said in lines.items() if name in modules} == ALLOWED


LOADED = """
import sys
from encrypted_records.__main__ import main
sys.argv[1:] = {arguments}
try:
    main()
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


def loaded(*arguments: str) -> tuple[str, set[str]]:
    """What the program says, and the modules that it has imported for that."""
    program = LOADED.format(arguments=list(arguments))
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout, set(done.stderr.split())


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_said_before_anything_large_is_imported(flag: str) -> None:
    said, modules = loaded(flag)
    assert said == f"ers, version {__version__}\n"
    assert {name for name in modules if name.startswith(PACKAGE)} == {
        PACKAGE,
        f"{PACKAGE}.__main__",
    }
    started = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    # typing and what it needs; click alone brings more than a hundred.
    more = modules - set(started.stdout.split())
    assert len(more) < 40


def test_the_version_among_other_arguments_reads_the_same() -> None:
    assert loaded("--debug", "--version")[0] == loaded("--version")[0]


def test_the_help_imports_no_command_and_nothing_that_speaks_http() -> None:
    said, modules = loaded("--help")
    assert re.search(r"^  up +Start API and proxy together\.", said, re.MULTILINE)
    slow = {"aiohttp", "asyncio", "cryptography", "msgspec", "numpy", "rich", "re2", "ssl"}
    assert modules & slow == set()
    assert not any(name.startswith(f"{PACKAGE}.cli.commands") for name in modules)


@pytest.mark.parametrize("group", main.COMMANDS["Your data"])
def test_the_help_of_a_command_imports_nothing_that_sends_requests(group: str) -> None:
    """The completion of a command's name imports the same."""
    _, modules = loaded(group, "--help")
    slow = {"aiohttp", "cryptography", "duckdb", "numpy", "pandas", "pyarrow", "yarl"}
    assert modules & slow == set()
