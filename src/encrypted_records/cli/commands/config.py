"""``ers config``: profiles, the settings that commands use where no flag or variable sets them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import click

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
    help="The profile that is meant.",
)


@click.group(short_help="Show or change profiles: proxy, output, names that commands use.")
def config() -> None:
    """Profiles: what commands use where neither a flag nor a variable says otherwise. They lie in
    the config file, by name; the profile "default" counts where --profile names none.

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
    """Show what every profile says.

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


@config.command(short_help="Show one value.")
@_KEY
@_profile
@debug_option
def get(key: str, profile: str) -> None:
    """Show what a profile says of a key: proxy_url, output, organization, dataset or schema. The
    exit code is 3 where it says nothing.

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


@config.command("set", short_help="Change one value.")
@_KEY
@click.argument("value")
@_profile
@debug_option
def set_(key: str, value: str, profile: str) -> None:
    """Have a profile say VALUE of a key: proxy_url, output, organization, dataset or schema. What
    else the config file holds stays as it is. Passwords are not for config files: use ers login.

    \b
    Examples:
      ers config set output json
      ers config set --profile work proxy_url http://127.0.0.1:9090
    """
    change_profile(profile, key, check_value(key, value))


@config.command(short_help="Forget one value.")
@_KEY
@_profile
@debug_option
def unset(key: str, profile: str) -> None:
    """Have a profile say nothing of a key any more.

    \b
    Example:
      ers config unset output
    """
    if key not in KEYS:
        check_value(key, "")
    if key not in read_profiles().get(profile, {}):
        raise NotFound(f"profile {profile} has no {key}", hint="nothing is to be done")
    change_profile(profile, key, None)


@config.command(short_help="Say where the config file is.")
@debug_option
def path() -> None:
    """Say where the config file is, whether or not there is one.

    \b
    Example:
      ers config path
    """
    say(str(config_path()))
