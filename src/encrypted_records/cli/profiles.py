"""Profiles: named groups of settings in the config file.

::

    [profiles.work]
    proxy_url = "https://proxy.example.org"
    output = "json"

The profile ``default`` applies if none is named. The first of flag, variable, profile and default
that has a value decides. A profile contains no secret: only the keys of :data:`KEYS`, and a URL
without a password.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from encrypted_records.cli.data_folder import for_owner
from encrypted_records.cli.settings import PROFILES, FolderPath, Origin, default_config, read_toml
from encrypted_records.errors import InvalidSetting, NotFound

FORMATS = ("table", "json", "ndjson", "csv")
DEFAULT = "default"
_NAMED = "encrypted_records.profile"

Profile = Mapping[str, str]


class _Address(Origin):
    """The address of a proxy, without a password."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if "@" in urlsplit(value).netloc:
            self.fail("a profile cannot contain a user or password", param, ctx)
        return super().convert(value, param, ctx)


#: The keys of a profile, and the types of their values.
KEYS: Mapping[str, click.ParamType[Any]] = {
    "proxy_url": _Address(),
    "output": click.Choice(FORMATS),
    "organization": click.STRING,
    "dataset": click.STRING,
    "schema": click.STRING,
}


def config_path() -> Path:
    """The config file: the one that ``ERS_CONFIG`` names, or the platform's default."""
    named = os.environ.get("ERS_CONFIG")
    return FolderPath().convert(named, None, None) if named else default_config()


def read_profiles() -> dict[str, Profile]:
    """All profiles, by name.

    Raises:
        InvalidSetting: the file cannot be read, or a table in it is not a valid profile.
    """
    path = config_path()
    profiles = read_toml(path).get(PROFILES, {})
    if not isinstance(profiles, dict):
        raise InvalidSetting(f"the config file {path}: profiles are tables, [{PROFILES}.NAME]")
    return {name: _check_profile(path, name, told) for name, told in profiles.items()}


def _check_profile(path: Path, name: str, told: object) -> Profile:
    if not isinstance(told, dict):
        raise InvalidSetting(f"the config file {path}: {name} is not a table of settings")
    location = f"the config file {path}, profile {name}, "
    return {key: check_value(key, value, location) for key, value in told.items()}


def check_value(key: str, value: object, location: str = "") -> str:
    """A value, converted for its key; errors do not repeat the value.

    Raises:
        InvalidSetting: the key is unknown, or the value is invalid for it.
    """
    kind = KEYS.get(key)
    if kind is None:
        near = difflib.get_close_matches(key, KEYS, 1)
        known = f"did you mean {near[0]}?" if near else f"keys are {', '.join(KEYS)}"
        raise InvalidSetting(f"{location}a profile has no {key}", hint=known)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InvalidSetting(f"{location}{key}: expected a text")
    try:
        return str(kind.convert(value, None, None))
    except click.BadParameter as error:
        shown = f"expected one of {', '.join(FORMATS)}" if key == "output" else error.message
        raise InvalidSetting(f"{location}{key}: {shown.rstrip('.').lower()}") from None


def choose_profile(context: click.Context) -> Profile:
    """The profile for a command.

    Raises:
        NotFound: no profile has that name.
        InvalidSetting: as :func:`read_profiles`.
    """
    name = context.meta.get(_NAMED)
    profiles = read_profiles()
    if name and name not in profiles and name != DEFAULT:
        known = f"there are: {', '.join(profiles)}" if profiles else "create it: ers config set"
        raise NotFound(f"there is no profile {name}", hint=known)
    return profiles.get(name or DEFAULT, {})


def _remember(context: click.Context, _param: click.Parameter, value: str | None) -> None:
    context.meta[_NAMED] = value


profile_option = click.option(
    "--profile",
    metavar="NAME",
    envvar="ERS_PROFILE",
    show_envvar=True,
    show_default=DEFAULT,
    is_eager=True,  # profiles are defaults of other options
    expose_value=False,
    callback=_remember,
    help="The profile of the config file to use.",
)


class ProfileOption(click.Option):
    """An option whose value comes from the profile if neither flag nor variable sets it.

    Args:
        key: the profile's key; by default, the option's name.
    """

    def __init__(self, *args: Any, key: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.key = key or self.name

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        value, source = super().consume_value(ctx, opts)
        if source in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP):
            kept = choose_profile(ctx).get(str(self.key))
            if kept is not None:
                return kept, ParameterSource.DEFAULT_MAP
        return value, source


def change_profile(name: str, key: str, value: str | None) -> None:
    """Set a key of a profile, or remove it with None; the rest of the file stays unchanged.

    The file becomes readable only by its owner, because it may also contain the service's settings.

    Raises:
        InvalidSetting: the key is unknown, or the file cannot be read or written.
    """
    import tomlkit  # noqa: PLC0415 - only this writes

    read_profiles()  # report an invalid file instead of overwriting it
    path = config_path().resolve()
    try:
        whole = tomlkit.parse(path.read_text("utf-8") if path.exists() else "")
        profiles = whole.setdefault(PROFILES, tomlkit.table(is_super_table=True))
        profile = profiles.setdefault(name, tomlkit.table())
        if value is None:
            profile.pop(key, None)
            if not profile:
                del profiles[name]
            if not profiles:
                del whole[PROFILES]
        else:
            profile[key] = value
        text = tomlkit.dumps(whole)
        tomllib.loads(text)
        _write(path, text)
    except OSError as error:
        reason = (error.strerror or "it fails").lower()
        raise InvalidSetting(f"the config file {path} cannot be written: {reason}") from None


def _write(path: Path, text: str) -> None:
    if path.exists() and not path.is_file():
        raise InvalidSetting(
            f"{path} is not a file that can be written", hint="name another one with ERS_CONFIG"
        )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Written under another name and renamed, so that a killed command leaves the old file intact.
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with open(draft, "x", encoding="utf-8", opener=for_owner) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
