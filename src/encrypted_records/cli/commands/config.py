"""``ers config``: profiles, the settings that commands use where no flag or variable sets them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.profiles import (
    DEFAULT,
    KEYS,
    change_profile,
    check_value,
    config_path,
    profile_option,
    read_profiles,
)
from encrypted_records.cli.terminal import debug_option, say
from encrypted_records.errors import NotFound

_KEY = click.argument("key", metavar="KEY")
_profile = click.option(
    "--profile",
    metavar="NAME",
    envvar="ERS_PROFILE",
    show_envvar=True,
    default=DEFAULT,
    show_default=True,
    help="Profile to read or change.",
)


@click.group(
    cls=CommandGroup, short_help="Show or change profiles: proxy, output and default names."
)
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
@profile_option
@takes_output
def list_(output: Output) -> None:
    """Show all values of all profiles.

    \b
    Example:
      ers config list
    """
    import asyncio  # noqa: PLC0415 - slow to import

    async def things() -> AsyncIterator[dict[str, Any]]:
        for name, profile in read_profiles().items():
            for key, value in profile.items():
                yield {"profile": name, "key": key, "value": value}

    asyncio.run(output.many(things(), ("profile", "key", "value"), called="profiles"))


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
    value = read_profiles().get(profile, {}).get(key)
    if value is None:
        if key not in KEYS:
            check_value(key, "")
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
    change_profile(profile, key, check_value(key, value))


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
    if key not in KEYS:
        check_value(key, "")
    if key not in read_profiles().get(profile, {}):
        raise NotFound(f"profile {profile} has no {key}", hint="nothing was changed")
    change_profile(profile, key, None)


@config.command(short_help="Show the path of the config file.")
@debug_option
def path() -> None:
    """Show the path of the config file, whether it exists or not.

    \b
    Example:
      ers config path
    """
    say(str(config_path()))
