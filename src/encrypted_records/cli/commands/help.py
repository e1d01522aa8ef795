"""``ers help``: the help of a command, for users who look for it under that word."""

from __future__ import annotations

import click

from encrypted_records.cli.terminal import say


@click.command(short_help="Show help for a command.")
@click.argument("command", nargs=-1)
@click.pass_context
def help(context: click.Context, command: tuple[str, ...]) -> None:  # noqa: A001 - its name
    """Show help for a command, as --help does; without a command, list all commands.

    \b
    Example:
      ers help record search
    """
    shown = context.find_root()
    for word in command:
        group = shown.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{shown.command_path} has no subcommands", shown)
        name, resolved, _rest = group.resolve_command(shown, [word])
        if resolved is None:
            raise click.UsageError(f"no such command {word!r}", shown)
        shown = click.Context(resolved, parent=shown, info_name=name)
    say(shown.get_help())
