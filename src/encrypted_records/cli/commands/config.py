"""``ers config``, ``completion`` and ``help``: profiles, completion and help of ``ers`` itself.

Profiles are the settings that commands use where no flag or variable sets them. ``ers help`` is
for users who look for the help of a command under that word.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from encrypted_records.cli import settings
from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import debug_option, say
from encrypted_records.errors import NotFound

_KEY = click.argument("key", metavar="KEY")
_profile = click.option(
    "--profile",
    metavar="NAME",
    envvar="ERS_PROFILE",
    show_envvar=True,
    default=settings.DEFAULT_PROFILE,
    show_default=True,
    help="Profile to read or change.",
)


@click.group(cls=CommandGroup)
def config() -> None:
    """Manage profiles: defaults for commands when neither a flag nor a variable is set. They are in
    the config file, by name; the profile "default" is used without --profile.

    \b
    Keys:
      proxy_url      the proxy to use
      output         how results are written: table, json, ndjson or csv
      organization   where to look for names
      dataset        where to look for schemas, and to make them
      schema         the schema of records

    \b
    Example:
      ers config set output json
    """


@config.command("list", short_help="Show all profiles.")
@debug_option
@settings.profile_option
@takes_output
def list_(output: Output) -> None:
    """Show all values of all profiles.

    \b
    Example:
      ers config list
    """
    import asyncio  # noqa: PLC0415 - slow to import

    values = (
        {"profile": name, "key": key, "value": value}
        for name, profile in settings.read_profiles().items()
        for key, value in profile.items()
    )
    asyncio.run(output.many(values, ("profile", "key", "value"), called="profiles"))


@config.command(short_help="Show a value.")
@_KEY
@_profile
@debug_option
def get(key: str, profile: str) -> None:
    """Show the value of a key in a profile: proxy_url, output, organization, dataset or schema. The
    exit code is 3 if it has none.

    \b
    Example:
      ers config get output
    """
    value = settings.read_profiles().get(profile, {}).get(key)
    if value is None:
        if key not in settings.PROFILE_KEYS:
            settings.check_value(key, "")
        raise NotFound(f"profile {profile} has no {key}", hint=f"ers config set {key} VALUE")
    say(value)


@config.command("set", short_help="Set a value.")
@_KEY
@click.argument("value")
@_profile
@debug_option
def set_(key: str, value: str, profile: str) -> None:
    """Set the VALUE of a key in a profile: proxy_url, output, organization, dataset or schema. The
    rest of the config file stays as it is. Passwords do not belong in config files: use ers login.

    \b
    Examples:
      ers config set output json
      ers config set --profile work proxy_url http://127.0.0.1:9090
    """
    settings.change_profile(profile, key, settings.check_value(key, value))


@config.command(short_help="Remove a value.")
@_KEY
@_profile
@debug_option
def unset(key: str, profile: str) -> None:
    """Remove the value of a key from a profile.

    \b
    Example:
      ers config unset output
    """
    if key not in settings.PROFILE_KEYS:
        settings.check_value(key, "")
    if key not in settings.read_profiles().get(profile, {}):
        raise NotFound(f"profile {profile} has no {key}", hint="nothing was changed")
    settings.change_profile(profile, key, None)


@config.command(short_help="Show the path of the config file.")
@debug_option
def path() -> None:
    """Show the path of the config file, whether it exists or not.

    \b
    Example:
      ers config path
    """
    say(str(settings.config_path()))


@click.command()
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


@click.command()
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
