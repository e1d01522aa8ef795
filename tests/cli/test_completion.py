"""What a shell offers to complete a command line with, and what ``ers completion`` says."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass

import pytest

from tests.cli.command import Ers

DEFINITION = json.dumps({"type": "object", "properties": {"name": {"type": "string"}}})


@dataclass
class Shell:
    ers: Ers
    capsys: pytest.CaptureFixture[str]

    def offers(self, *words: str) -> list[str]:
        """What bash offers for the last of these words."""
        self.ers.set(_ERS_COMPLETE="bash_complete", COMP_WORDS=" ".join(("ers", *words)))
        self.ers.set(COMP_CWORD=str(len(words)))
        with pytest.raises(SystemExit):
            self.ers()
        self.ers.unset("_ERS_COMPLETE", "COMP_WORDS", "COMP_CWORD")
        said = self.capsys.readouterr()
        assert not said.err
        return [line.partition(",")[2] for line in said.out.splitlines() if line]


@pytest.fixture
def shell(ers: Ers, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(ers, capsys)


def test_datasets_and_schemas_are_completed_by_their_slugs(ers: Ers, shell: Shell) -> None:
    slug = f"ward-{secrets.token_hex(4)}"
    one, other = f"{slug}-a", f"{slug}-b"
    for dataset in (one, other):
        ers.done("dataset", "create", "--name", dataset, "--slug", dataset)
        made = ("schema", "create", "--dataset", dataset, "--file", "-", "--name")
        ers.done(*made, f"{slug}-visits", typed=DEFINITION)
    ers.done(*made, f"{slug}-beds", typed=DEFINITION)

    assert shell.offers("dataset", "get", slug) == [one, other]
    assert shell.offers("record", "search", "--dataset", f"{slug}-b") == [other]
    assert shell.offers("schema", "get", f"{slug}-be") == [f"{slug}-beds"]
    # A slug that two datasets have would be refused: it is offered with each.
    assert shell.offers("schema", "get", f"{other}/") == [
        f"{other}/{slug}-visits",
        f"{other}/{slug}-beds",
    ]
    assert sorted(shell.offers("record", "search", "--schema", slug)) == sorted(
        [f"{one}/{slug}-visits", f"{other}/{slug}-visits", f"{slug}-beds"]
    )


def test_without_a_login_or_a_proxy_nothing_is_offered_and_nothing_said(
    ers: Ers, shell: Shell
) -> None:
    there = os.environ["ERS_PROXY_URL"]
    ers.set(ERS_PROXY_URL="http://127.0.0.1:9")
    assert shell.offers("schema", "get", "a") == []
    ers.set(ERS_PROXY_URL=there)
    ers.unset("ERS_EMAIL", "ERS_PASSWORD")
    assert shell.offers("schema", "get", "a") == []


def test_a_missing_shell_is_named_in_one_line(ers: Ers) -> None:
    said = ers("completion")
    assert said.code == 2
    assert "Choose from: bash, zsh, fish" in said.err
    assert "\\t" not in said.err
