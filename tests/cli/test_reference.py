"""The reference in docs/cli.md says of every command what its ``--help`` says."""

from __future__ import annotations

import re

import click
import pytest

from encrypted_records.cli import main
from tests.cli.reference import DOCUMENT, TITLE, reference
from tests.cli.tree import commands

WRITTEN = "".join(DOCUMENT.read_text().partition(TITLE)[1:])


def words(text: str) -> str:
    """``text`` without what help and document do by themselves: line ends, code marks."""
    return re.sub(r"[\s`]+", "", text)


def test_the_reference_is_the_generated_one() -> None:
    assert reference() == WRITTEN, "write it anew: python -m tests.cli.reference"


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(*command, id=command[0]) for command in commands()]
)
def test_what_help_shows_is_in_the_reference(
    path: str, command: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*path.split()[1:], "--help"]) == 0
    shown = capsys.readouterr().out
    shared, *sections = re.split(r"^### ", WRITTEN, flags=re.MULTILINE)
    (own,) = [section for section in sections if section.startswith(f"{path}\n")]

    usage = shown.partition("\n\n")[0].removeprefix("Usage: ")
    assert words(usage) in words(own)
    options = shown.partition("Options:\n")[2].partition("\n\n")[0]
    for option in re.findall(r"^  (?:-\w, )?(--[\w-]+)", options, re.MULTILINE):
        assert option in own
    told = re.split(r"^  (?=-)", options, flags=re.MULTILINE)
    for one in told[1:]:
        form, text = re.split(r"\s{2,}", one, maxsplit=1)
        assert words(f"- {form}: {text}") in words(own) + words(shared)
