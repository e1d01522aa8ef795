"""All commands of ``ers``, and the examples in their help."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from encrypted_records.cli.main import ers


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with the words that call it, groups before what is in them."""
    return _below("ers", ers, click.Context(ers, info_name="ers"))


def _below(
    path: str, command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _below(f"{path} {name}", found, context)


def examples(text: str) -> list[str]:
    """The command lines that a help text shows: after ``Example:``, or indented below it."""
    text = inspect.cleandoc(text)
    found = re.findall(r"^Example: (.+)$", text, re.MULTILINE)
    for block in re.findall(r"^Examples?:\n((?:  .+\n?)+)", text, re.MULTILINE):
        found += [line.strip() for line in block.splitlines()]
    return found
