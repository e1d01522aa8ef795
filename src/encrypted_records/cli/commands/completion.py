"""``ers completion``: what makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from encrypted_records.cli.terminal import say


@click.command(short_help="Print the shell completion script for ers.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in your shell.

    Add its line to ~/.bashrc or ~/.zshrc, or for fish to ~/.config/fish/config.fish: ers completion
    fish | source

    \b
    Example:
      eval "$(ers completion bash)"
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = context.find_root()
    say(kind(root.command, {}, "ers", "_ERS_COMPLETE").source())
