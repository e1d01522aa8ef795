"""Every setting of the command line, in one table (:class:`Settings`), and profiles of settings.

Each field of that class is a flag (``--api-port``), an environment variable (``ERS_API_PORT``), a
key of the config file (``api_port``) and a row of the table in docs/operations.md. The first of
flag, variable, file and default that has a value decides; an empty variable has none. An unknown
key in the file is an error.

Profiles are named groups of settings in the same file:

::

    [profiles.work]
    proxy_url = "https://proxy.example.org"
    output = "json"

The profile ``default`` applies if none is named. The first of flag, variable, profile and default
that has a value decides. A profile contains no secret: only :data:`PROFILE_KEYS`, and a URL without
a password.
"""

from __future__ import annotations

import difflib
import functools
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
import platformdirs
from click.core import ParameterSource

from encrypted_records.cli.data_folder import alone_in, replace_file
from encrypted_records.errors import InvalidSetting, NotFound

APP = "encrypted-records"
LOCAL = "127.0.0.1"
#: The table of the config file that contains the profiles of commands.
PROFILES = "profiles"
PORT = click.IntRange(1, 65535)

Command = TypeVar("Command", bound=Callable[..., Any])


class Url(click.ParamType[str]):
    """A URL of one of ``schemes``. Errors do not repeat the value, because it may contain a
    password.
    """

    name = "url"

    def __init__(self, *schemes: str) -> None:
        self.schemes = schemes

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value.partition("://")[0] not in self.schemes or "://" not in value:
            self.fail(
                f"expected {' or '.join(f'{scheme}://' for scheme in self.schemes)}", param, ctx
            )
        return value


class Origin(Url):
    """``http(s)://host[:port]``, returned without a final slash."""

    def __init__(self) -> None:
        super().__init__("http", "https")

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        address = super().convert(value, param, ctx).rstrip("/")
        parts = urlsplit(address)
        if not parts.hostname or parts.path or parts.query:
            self.fail("expected http://host:port, with no path", param, ctx)
        return address


class FolderPath(click.ParamType[Path]):
    """A path; ``~`` is expanded here, because only shells expand it otherwise."""

    name = "path"

    def convert(
        self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        return Path(value).expanduser()


def _row(text: str, kind: click.ParamType[Any], shown: str = "") -> dict[str, Any]:
    """The help entry of a setting; ``shown`` describes its default."""
    return {"help": text, "kind": kind, "shown": shown}


def _data_dir() -> Path:
    return platformdirs.user_data_path(APP)


@dataclass(frozen=True, kw_only=True)
class Settings:
    data_dir: Path = field(
        default_factory=_data_dir,
        metadata=_row(
            "Folder for keys, database, uploads and mail.",
            FolderPath(),
            f"the platform's user data folder, {APP}",
        ),
    )
    api_host: str = field(
        default=LOCAL, metadata=_row("Address that the API listens on.", click.STRING)
    )
    api_port: int = field(default=8000, metadata=_row("Port of the API.", PORT))
    proxy_host: str = field(
        default=LOCAL,
        metadata=_row(
            "Address that the proxy listens on. It receives plaintext: keep it local.", click.STRING
        ),
    )
    proxy_port: int = field(default=8080, metadata=_row("Port of the proxy.", PORT))
    workers: int = field(
        default=1,
        metadata=_row("Number of API processes, all on one port.", click.IntRange(min=1, max=64)),
    )
    base_url: str = field(
        default=f"http://{LOCAL}:8000",
        metadata=_row("Address of the API.", Origin()),
    )
    database_url: str | None = field(
        default=None,
        metadata=_row(
            "postgresql://user:password@host/name. Prefer the variable: flags are visible in"
            " the list"
            " of processes.",
            Url("postgresql", "postgres", "sqlite"),
            "SQLite in the data folder",
        ),
    )
    replica_url: str | None = field(
        default=None,
        metadata=_row(
            "PostgreSQL replica that rows and index pages are read from.",
            Url("postgresql", "postgres"),
            "none",
        ),
    )
    bulk_url: str | None = field(
        default=None,
        metadata=_row(
            "Store for large objects: file:///path, s3://bucket/prefix?endpoint=https://host, or"
            " database:// to keep them in the database.",
            Url("file", "s3", "database"),
            "files in api/objects/ of the data folder",
        ),
    )
    bulk_before: str | None = field(
        default=None,
        metadata=_row(
            "Former store, read until its objects have moved to --bulk-url.",
            Url("file", "s3"),
            "none",
        ),
    )
    keep_replaced: int = field(
        default=15,
        metadata=_row(
            "Minutes to keep replaced objects, for running readers and restores.",
            click.IntRange(min=1, max=60 * 24 * 365),
        ),
    )
    erase_within: int = field(
        default=30,
        metadata=_row(
            "Days until the ciphertext of deleted records is erased.",
            click.IntRange(min=1, max=3650),
        ),
    )
    email_url: str | None = field(
        default=None,
        metadata=_row(
            "smtp://user:password@host:port, to send mail by SMTP. Prefer the variable.",
            Url("smtp", "smtp+tls", "smtp+ssl"),
            "one file per message in mail/ of the data folder",
        ),
    )
    public_url: str | None = field(
        default=None,
        metadata=_row("Base address of links in messages.", Origin(), "this service's own address"),
    )
    allowed_hosts: str | None = field(
        default=None,
        metadata=_row(
            "Host names, separated by commas, that API and proxy also answer to.",
            click.STRING,
            "none",
        ),
    )
    access: str = field(
        default="auto",
        metadata=_row(
            "Requests that may use a keyring: those of users known to the API (api), or only those"
            " from a registered device (device). auto: device if other machines can reach the"
            " proxy, else api.",
            click.Choice(["auto", "api", "device"]),
        ),
    )
    page_cache: int = field(
        default=2048,
        metadata=_row(
            "Disk cache of the proxy in MiB, for encrypted rows and index pages.",
            click.IntRange(min=1),
        ),
    )
    memory_cache: int = field(
        default=192,
        metadata=_row(
            "Memory cache of the proxy in MiB, all caches together.",
            click.IntRange(min=16),
        ),
    )
    lock_after: int = field(
        default=720,
        metadata=_row(
            "Minutes without use after which an unlocked keyring locks.",
            click.IntRange(min=1, max=10_080),
        ),
    )
    mirror: str | None = field(
        default=None,
        metadata=_row(
            "Mirror that the proxy reads instead of an API: a folder, s3://bucket/prefix, or the"
            " address of ers api --mirror.",
            click.STRING,
            "none",
        ),
    )
    webhooks: str = field(
        default="public",
        metadata=_row(
            "Addresses that webhooks may go to: public ones over HTTPS, or any.",
            click.Choice(["public", "any"]),
        ),
    )
    api_metrics_port: int | None = field(
        default=None,
        metadata=_row(f"Port on {LOCAL} for the API's metrics.", PORT, "no metrics"),
    )
    proxy_metrics_port: int | None = field(
        default=None,
        metadata=_row(f"Port on {LOCAL} for the proxy's metrics.", PORT, "no metrics"),
    )
    admin: str | None = field(
        default=None,
        metadata=_row(
            "E-mail addresses of operators, separated by commas, who may use /admin/ on the API.",
            click.STRING,
            "none, and no admin",
        ),
    )
    log_format: str = field(
        default="text", metadata=_row("Format of the log.", click.Choice(["text", "json"]))
    )

    @property
    def api_url(self) -> str:
        """The URL of the API, as seen from this machine."""
        return url_of(self.api_host, self.api_port)

    @property
    def proxy_url(self) -> str:
        """The URL of the proxy, as seen from this machine."""
        return url_of(self.proxy_host, self.proxy_port)


#: The table by name.
TABLE: dict[str, Field[Any]] = {row.name: row for row in fields(Settings)}


def url_of(host: str, port: int) -> str:
    """The URL of a listener; for a listener on all addresses, by the loopback address."""
    host = {"0.0.0.0": LOCAL, "::": "::1", "": LOCAL}.get(host, host)  # noqa: S104 - read, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def without_password(url: str) -> str:
    """The part of a URL that may be shown: no user, password or query."""
    parts = urlsplit(url)
    if "@" in f"{parts.path}{parts.fragment}":
        return f"{parts.scheme}://..."  # of a password with a / or #, which is not escaped
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    return "ERS_" + name.upper()


def default_config() -> Path:
    return platformdirs.user_config_path(APP) / "config.toml"


def read_config(path: Path, *, must_exist: bool) -> dict[str, Any]:
    """The settings in a config file, checked and converted.

    Raises:
        InvalidSetting: unreadable, not TOML, an unknown key, or an invalid value.
    """
    if must_exist and not path.exists():
        raise InvalidSetting(
            f"there is no config file {path}", hint="correct --config or ERS_CONFIG"
        )
    members = read_toml(path)
    members.pop(PROFILES, None)  # for commands, which read them separately
    return {key: _convert(path, key, value) for key, value in members.items()}


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a config file; empty if the file does not exist.

    Raises:
        InvalidSetting: the file cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InvalidSetting(f"the config file {path} cannot be read: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(
            f"the config file {path} is not valid TOML: {str(error).lower()}",
            hint="write one setting per line, such as: api_port = 9000",
        ) from None


def _convert(path: Path, key: str, value: object) -> Any:
    row = TABLE.get(key)
    if row is None:
        near = difflib.get_close_matches(key, TABLE, 1)
        known = f"did you mean {near[0]}?" if near else f"keys are {', '.join(TABLE)}"
        raise InvalidSetting(f"the config file {path} has an unknown key: {key}", hint=known)
    kind: click.ParamType[Any] = row.metadata["kind"]
    expected = int if isinstance(kind, click.IntRange) else str
    try:
        # To Python and click, bool is an int; but a boolean is not a number.
        if type(value) is not expected:
            raise click.BadParameter(f"expected {'a number' if expected is int else 'a string'}")
        return kind.convert(value, None, None)
    except click.BadParameter as error:
        raise InvalidSetting(
            f"the config file {path}, {key}: {error.message.rstrip('.').lower()}"
        ) from None


def _load_config(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
    ctx.default_map = read_config(value or default_config(), must_exist=value is not None)


def takes_settings(*names: str) -> Callable[[Command], Command]:
    """Give a command the flags of ``names`` and pass it a :class:`Settings`."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def call(**values: Any) -> Any:
            chosen = {name: values.pop(name) for name in names}
            return command(Settings(**chosen), **values)

        wrapped: Any = call
        for name in reversed(names):
            wrapped = _option(name)(wrapped)
        config = click.option(
            "--config",
            type=FolderPath(),
            envvar="ERS_CONFIG",
            show_envvar=True,
            show_default=f"the platform's config folder, {APP}/config.toml",
            is_eager=True,  # its content sets the defaults of all other options
            expose_value=False,
            callback=_load_config,
            help="TOML file with settings by name.",
        )
        return config(wrapped)  # type: ignore[no-any-return] # click's decorators return Any

    return decorate


def _option(name: str) -> Callable[[Any], Any]:
    row = TABLE[name]
    default = row.default_factory if callable(row.default_factory) else row.default
    return click.option(
        flag(name),
        type=row.metadata["kind"],
        default=default,
        envvar=variable(name),
        show_envvar=True,
        show_default=row.metadata["shown"] or True,
        help=row.metadata["help"],
    )


FORMATS = ("table", "json", "ndjson", "csv")
DEFAULT_PROFILE = "default"
_NAMED = "encrypted_records.profile"

Profile = Mapping[str, str]


class _Address(Origin):
    """The address of a proxy, without a password."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if "@" in urlsplit(value).netloc:
            self.fail("a profile cannot contain a user or password", param, ctx)
        return super().convert(value, param, ctx)


#: The keys of a profile, and the types of their values.
PROFILE_KEYS: Mapping[str, click.ParamType[Any]] = {
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
    return {name: _check_profile(path, name, profile) for name, profile in profiles.items()}


def _check_profile(path: Path, name: str, profile: object) -> Profile:
    if not isinstance(profile, dict):
        raise InvalidSetting(f"the config file {path}: {name} is not a table of settings")
    location = f"the config file {path}, profile {name}, "
    return {key: check_value(key, value, location) for key, value in profile.items()}


def check_value(key: str, value: object, location: str = "") -> str:
    """A value, converted for its key; errors do not repeat the value.

    Raises:
        InvalidSetting: the key is unknown, or the value is invalid for it.
    """
    kind = PROFILE_KEYS.get(key)
    if kind is None:
        near = difflib.get_close_matches(key, PROFILE_KEYS, 1)
        known = f"did you mean {near[0]}?" if near else f"keys are {', '.join(PROFILE_KEYS)}"
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
    if name and name not in profiles and name != DEFAULT_PROFILE:
        known = f"there are: {', '.join(profiles)}" if profiles else "create it: ers config set"
        raise NotFound(f"there is no profile {name}", hint=known)
    return profiles.get(name or DEFAULT_PROFILE, {})


def _remember(context: click.Context, _param: click.Parameter, value: str | None) -> None:
    context.meta[_NAMED] = value


profile_option = click.option(
    "--profile",
    metavar="NAME",
    envvar="ERS_PROFILE",
    show_envvar=True,
    show_default=DEFAULT_PROFILE,
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

    path = config_path().resolve()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with alone_in(path.parent):
            read_profiles()  # report an invalid file instead of overwriting it
            document = tomlkit.parse(path.read_text("utf-8") if path.exists() else "")
            profiles = document.setdefault(PROFILES, tomlkit.table(is_super_table=True))
            profile = profiles.setdefault(name, tomlkit.table())
            if value is None:
                profile.pop(key, None)
                if not profile:
                    del profiles[name]
                if not profiles:
                    del document[PROFILES]
            else:
                profile[key] = value
            text = tomlkit.dumps(document)
            tomllib.loads(text)
            if path.exists() and not path.is_file():
                raise InvalidSetting(
                    f"{path} is not a file that can be written",
                    hint="name another one with ERS_CONFIG",
                )
            replace_file(path, text.encode())
    except OSError as error:
        reason = (error.strerror or "it fails").lower()
        raise InvalidSetting(f"the config file {path} cannot be written: {reason}") from None
