"""Documents that can fail: what they say of settings and dependencies is what the code has."""

from __future__ import annotations

import json
import re
import secrets
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from encrypted_records import __version__
from encrypted_records.cli.settings import TABLE, flag, variable
from tests.cli.tree import commands
from tests.support.service import Service

ROOT = Path(__file__).parents[1]
CHANGES = (ROOT / "CHANGELOG.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "examples" / "README.md"]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("name", TABLE)
def test_every_setting_has_its_row_in_operations(name: str) -> None:
    row = next(row for row in rows(OPERATIONS) if row[0] == f"`{flag(name)}`")
    assert row[1] == f"`{variable(name)}`"
    default = TABLE[name].default
    if isinstance(default, str | int):
        assert row[2] == f"`{default}`"


def test_operations_has_no_row_for_a_setting_that_is_gone() -> None:
    flags = {row[0].strip("`") for row in rows(OPERATIONS) if row[0].startswith("`--")}
    assert flags == {flag(name) for name in TABLE} | {"--config"}


def test_every_variable_the_code_reads_is_in_operations() -> None:
    sources = (ROOT / "src").rglob("*.py")
    read = {name for path in sources for name in re.findall(r"\bERS_[A-Z_]+\b", path.read_text())}
    # ers up and ers api set these for their children.
    read -= {"ERS_PARENT_PIPE", "ERS_BESIDE_OWN_API", "ERS_INLINE_SECRET"}
    read -= {"ERS_WORKER_SOCKETS", "ERS_WORKER_FIRST", "ERS_OWN_NAMES"}
    assert {name for name in read if name not in OPERATIONS} == set()


def test_every_dependency_has_a_reason_and_every_reason_a_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    groups = project["dependency-groups"].values()
    wanted = sum([*extras, *groups], project["project"]["dependencies"])
    names = {re.split(r"[\[<>=;! ]", wish)[0] for wish in wanted} - {"encrypted-records"}
    record = (ROOT / "docs" / "decisions" / "dependencies.md").read_text()
    given = {row[0].strip("`"): row[1] for row in rows(record) if row[0].startswith("`")}
    assert set(given) == names
    assert all(given.values())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", document.read_text())
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_documents_name_are_there(document: Path) -> None:
    named = re.findall(
        r"`((?:deploy|docs|src|tests|examples|scripts)/[\w./-]+)`", document.read_text()
    )
    assert [name for name in named if not (ROOT / name).exists()] == []


def last_object(text: str) -> Any:
    """The last of several JSON texts that follow each other without a separator."""
    decoder, at, found = json.JSONDecoder(), 0, None
    while at < len(text):
        found, at = decoder.raw_decode(text, at)
        at += len(text[at:]) - len(text[at:].lstrip())
    return found


def test_the_curl_walk_through_works(service: Service) -> None:
    quickstart = (ROOT / "docs" / "quickstart.md").read_text()
    (script,) = re.findall(r"```bash\n(.*?)```", quickstart, re.DOTALL)
    # Only where and who it is differ from what a reader would type.
    for theirs, ours in {
        "http://127.0.0.1:8080": service.proxy_url,
        ".data/mail": str(service.data_dir / "mail"),
        "ada@example.org": f"{secrets.token_hex(6)}@example.org",
    }.items():
        assert theirs in script
        script = script.replace(theirs, ours)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = last_object(done.stdout)
    assert [row["data"]["name"] for row in found["results"]] == ["Ada", "Alan"]


GUIDES = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/[hc]o*/*.md")]


@pytest.mark.parametrize("document", GUIDES, ids=lambda path: path.name)
def test_a_document_names_only_commands_that_exist(document: Path) -> None:
    known = {path for path, _ in commands()}
    text = document.read_text()
    named = re.findall(r"(?:^|`|&& )ers((?: [a-z][a-z-]*)+)", text, re.MULTILINE)
    missing = [words for words in named if f"ers {words.split()[0]}" not in known]
    assert missing == []
    targets = set(re.findall(r"(?:^|`)make (\w+)", text, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    assert [name for name in targets if f"\n{name}:" not in makefile] == []


def test_the_first_screen_of_the_readme_holds_what_a_reader_wants_first() -> None:
    """In its first 65 lines, diagram and program included."""
    screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:65])
    wanted = ("Search records on a server that cannot read them", "The server cannot see")
    for part in (
        *wanted,
        "pip install",
        "ers demo",
        "make run",
        "make test",
        "docs/performance.md",
    ):
        assert part in screen
    (program,) = re.findall(r"```python\n(.*?)```", screen, re.DOTALL)
    inside = [line for line in program.splitlines() if line and "import" not in line]
    assert len(inside) <= 8


def test_every_line_of_a_how_to_is_a_command_with_options_that_it_has() -> None:
    known = dict(commands())
    paths = [*ROOT.glob("docs/how-to/*.md"), ROOT / "docs" / "tutorial.md"]
    lines = [
        shlex.split(line, comments=True)
        for path in paths
        for block in re.findall(r"```(?:ba)?sh\n(.*?)```", path.read_text(), re.DOTALL)
        for line in block.splitlines()
        if line.startswith("ers ")
    ]
    assert len(lines) > 25
    for words in lines:
        found = next(
            known[" ".join(words[:length])]
            for length in range(len(words), 0, -1)
            if " ".join(words[:length]) in known
        )
        options = {name for param in found.params for name in (*param.opts, *param.secondary_opts)}
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= options, words
        assert not isinstance(found, click.Group) or found.invoke_without_command, words


def test_the_newest_version_of_the_changelog_is_this_one() -> None:
    newest = re.search(r"^## (\d\S*) - \d{4}-\d{2}-\d{2}$", CHANGES, re.MULTILINE)
    assert newest
    assert newest[1] == __version__
