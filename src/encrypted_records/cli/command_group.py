"""Groups of commands: loaded when called, with old names of renamed commands and suggestions for
mistyped names; and the limits of commands.

A command is an attribute of its name in a module under ``commands``: the module that the group's
table of modules names, or the module with the command's name. A name that is a Python keyword is
followed by "_". The group's other table contains the help line of each command, so that
``ers --help`` needs no imports.
"""

from __future__ import annotations

import difflib
import importlib
import keyword
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from encrypted_records.cli.terminal import warn

if TYPE_CHECKING:
    from encrypted_records.client.limits import ClientLimits


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """
    Attributes:
        at_once: items read from a file at once, and maximum number of sealed records per request.
        resumable_bytes: size in bytes from which an upload can be resumed after an interruption.
        clocks_differ: maximum difference between clocks in seconds: tokens last fifteen minutes and
            are renewed a minute early.
        little_space: bytes; with less free space below the data folder, the doctor warns.
        silent_seconds: longest wait for a server that does not answer before the command says so.
        client: limits of the client; None uses the defaults.
    """

    at_once: int = 1000
    resumable_bytes: int = 64 << 20
    clocks_differ: float = 30.0
    little_space: int = 1 << 30
    silent_seconds: float = 1.0
    client: ClientLimits | None = None


STANDARD = CommandLimits()


#: Words of other programs -> the equivalent command here.
_ELSEWHERE = {
    "version": "ers --version",
    "count": "ers record aggregate",
    "sum": "ers record aggregate",
    "file": "ers import",
    "ingest": "ers import or ers record create",
    "store": "ers import",
    "upload": "ers import",
    "find": "ers record search",
    "query": "ers record search",
    "show": "ers record get or ers schema get or ers dataset get",
    "serve": "ers up",
    "start": "ers up",
}
#: Maximum suggestions in a message.
_SUGGESTED = 3
#: Similarity of a suggestion from another group; difflib's 0.6 suggested "unset" for "count".
_LIKE_ELSEWHERE = 0.72


class CommandGroup(click.Group):
    """A group whose renamed commands keep their old names, which the help does not list.

    Args:
        renamed: old name -> new name of a command of this group, or the whole new command with its
            options, such as ``ers import --exact``. ``show`` is an old name of every ``get``.
    """

    #: Groups below this one are of this class, too.
    group_class = type

    def __init__(self, *args: Any, renamed: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.renamed = {"show": "get"} | dict(renamed or {})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *arguments = args
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        now = self.renamed.get(name, "")
        if not now.startswith("ers ") and self.get_command(ctx, now) is None:
            meant = suggestions(ctx, self, name)
            hint = f"; did you mean {meant}?" if meant else ""
            raise click.UsageError(f"no such command: {ctx.command_path} {name}{hint}", ctx)
        moved = now.startswith("ers ")
        if not ctx.resilient_parsing:
            called = now if moved else f"{ctx.command_path} {now}"
            warn(f"{ctx.command_path} {name} is now called {called}")
        if not moved:
            return now, self.get_command(ctx, now), arguments
        return _resolve_path(ctx.find_root(), now.split()[1:], arguments)


class _Elsewhere(click.Command):
    """A command that was called below another group; its usage shows its real group."""

    def __init__(self, command: click.Command, context: click.Context) -> None:
        super().__init__(command.name)
        self._command, self._context = command, context

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        return self._command.make_context(info_name, args, parent=self._context, **extra)


def _resolve_path(
    root: click.Context, words: list[str], arguments: list[str]
) -> tuple[str | None, click.Command, list[str]]:
    """Find a command by its words; returns it with the options that follow them."""
    context, found = root, root.command
    while isinstance(found, click.Group):
        name, *words = words
        below = found.get_command(context, name)
        assert below is not None
        if isinstance(below, click.Group):
            context = click.Context(below, info_name=name, parent=context)
        found = below
    return found.name, _Elsewhere(found, context), [*words, *arguments]


def suggestions(ctx: click.Context, group: click.Group, name: str) -> str:
    """Suggestions for an unknown command ``name``: the commands of the group with the nearest name,
    otherwise those of all groups; empty if no name is near.
    """
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    of_group = {known: [f"{ctx.command_path} {known}"] for known in group.list_commands(ctx)}
    everywhere: dict[str, list[str]] = {}
    for path in _below(root, root.command):
        everywhere.setdefault(path.rpartition(" ")[2], []).append(path)
    typed = name.lower()
    close = difflib.get_close_matches(typed, everywhere, len(everywhere), _LIKE_ELSEWHERE)
    near = difflib.get_close_matches(typed, [*of_group, *close], 1)
    if (known := _ELSEWHERE.get(typed)) and (not near or near[0] != name):
        return known
    if not near:
        return ""
    paths = of_group.get(near[0]) or sorted(everywhere[near[0]], key=_is_not_about_records)
    return " or ".join(paths[:_SUGGESTED])


def _is_not_about_records(path: str) -> bool:
    return not path.startswith("ers record ")


def _below(ctx: click.Context, group: click.Group) -> Iterator[str]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        below = click.Context(command, info_name=name, parent=ctx) if command else ctx
        if isinstance(command, click.Group):
            yield from _below(below, command)
        elif command is not None:
            yield below.command_path


_PACKAGE = "encrypted_records.cli.commands"

#: Title of a section of the help -> name of a command -> its description in one line.
Sections = Mapping[str, Mapping[str, str]]


class Unread(Exception):
    """The reader of the result has closed the pipe."""


class LazyGroup(CommandGroup):
    """
    Args:
        modules: name of a module -> the commands in it, if it has several.
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
        self._short_help = {
            name: short for commands in sections.values() for name, short in commands.items()
        }

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # not as an OSError, which click reports as a failure
            raise Unread from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._short_help)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._short_help:
            return None
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        module = importlib.import_module(f"{_PACKAGE}.{self._module_of.get(cmd_name, name)}")
        command = getattr(module, name)
        assert isinstance(command, click.Command)
        command.short_help = self._short_help[cmd_name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.list_commands(ctx))
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), short) for name, short in commands.items()])
