"""Documents that can fail: what they say of settings and dependencies is what the code has."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from encrypted_records.cli.main import ers
from encrypted_records.cli.settings import TABLE, flag, variable
from tests.support.service import Service

ROOT = Path(__file__).parents[1]
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
    # ers up sets this one for its children.
    read -= {"ERS_PARENT_PIPE"}
    assert {name for name in read if name not in OPERATIONS} == set()


def test_every_dependency_has_a_reason_and_every_reason_a_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = sum(project["dependency-groups"].values(), project["project"]["dependencies"])
    names = {re.split(r"[\[<>=;! ]", wish)[0] for wish in wanted}
    record = (ROOT / "docs" / "decisions" / "0002-dependencies.md").read_text()
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
    named = re.findall(r"`((?:docs|src|tests|examples|scripts)/[\w./-]+)`", document.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def last_object(text: str) -> Any:
    """The last of several JSON texts that follow each other without a separator."""
    decoder, at, found = json.JSONDecoder(), 0, None
    while at < len(text):
        found, at = decoder.raw_decode(text, at)
        at += len(text[at:]) - len(text[at:].lstrip())
    return found


def test_the_curl_walk_through_of_the_readme_works(service: Service) -> None:
    script = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
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


def test_help_in_the_readme_names_only_commands_that_exist() -> None:
    named = set(re.findall(r"`(?:\.venv/bin/)?ers (\w+)", (ROOT / "README.md").read_text()))
    assert named <= set(ers.list_commands(click.Context(ers)))
    targets = set(re.findall(r"(?:^|`)make (\w+)", (ROOT / "README.md").read_text(), re.M))
    makefile = (ROOT / "Makefile").read_text()
    assert [name for name in targets if f"\n{name}:" not in makefile] == []
