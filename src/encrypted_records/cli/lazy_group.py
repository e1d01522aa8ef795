"""A group that imports a command when it is called, so that ``ers --help`` costs no imports.

A command is an attribute of its name in a module under ``commands``: in the one that the group's
table of modules says, or in the module of its name. A name that is a keyword of Python has a "_"
behind it. The group's other table contains the line that the help shows for each command.
"""

from __future__ import annotations

import importlib
import keyword
from collections.abc import Mapping, Sequence
from typing import Any

import click

from encrypted_records.cli.command_group import CommandGroup

_PACKAGE = "encrypted_records.cli.commands"

#: Title of a section of the help -> name of a command -> what it does, in one line.
Sections = Mapping[str, Mapping[str, str]]


class Unread(Exception):
    """The reader of the result has gone."""


class LazyGroup(CommandGroup):
    """
    Args:
        modules: name of a module -> the commands in it, where it holds several.
    """

    def __init__(
        self,
        *args: Any,
        sections: Sections,
        modules: Mapping[str, Sequence[str]],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self._module_of = {name: module for module, names in modules.items() for name in names}

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # not as an OSError, which click reports as a failure
            raise Unread from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in self.sections.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        module = importlib.import_module(f"{_PACKAGE}.{self._module_of.get(cmd_name, name)}")
        command = getattr(module, name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.list_commands(ctx))
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), short) for name, short in commands.items()])
