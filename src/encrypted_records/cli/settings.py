"""Every setting of the command line, in one table: :class:`Settings`.

A field of that class is at once a flag (``--api-port``), an environment variable
(``ERS_API_PORT``), a key of the config file (``api_port``) and a row of the table in
docs/operations.md. The first of flag, variable, file and default that says something decides; an
empty variable says nothing. A key the table does not have is an error, not a comment.
"""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
import platformdirs

from encrypted_records.errors import InvalidSetting

APP = "encrypted-records"
LOCAL = "127.0.0.1"
PORT = click.IntRange(1, 65535)

Command = TypeVar("Command", bound=Callable[..., Any])


class Url(click.ParamType[str]):
    """A URL of one of ``schemes``. What is wrong with one is said without repeating it: it may
    hold a password."""

    name = "url"

    def __init__(self, *schemes: str) -> None:
        self.schemes = schemes

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value.partition("://")[0] not in self.schemes or "://" not in value:
            self.fail(f"expected {' or '.join(f'{one}://' for one in self.schemes)}", param, ctx)
        return value


class Origin(Url):
    """``http(s)://host[:port]``, returned without a final slash."""

    def __init__(self) -> None:
        super().__init__("http", "https")

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = super().convert(value, param, ctx).rstrip("/")
        parts = urlsplit(found)
        if not parts.hostname or parts.path or parts.query:
            self.fail("expected http://host:port, with no path", param, ctx)
        return found


class Folder(click.ParamType[Path]):
    """A path; ``~`` is the home folder wherever it is written, since only shells expand it."""

    name = "path"

    def convert(
        self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        return Path(value).expanduser()


def _row(text: str, kind: click.ParamType[Any], shown: str = "") -> dict[str, Any]:
    """What --help says of a setting; ``shown`` says in words what its default is."""
    return {"help": text, "kind": kind, "shown": shown}


def _data_dir() -> Path:
    return platformdirs.user_data_path(APP)


@dataclass(frozen=True, kw_only=True)
class Settings:
    data_dir: Path = field(
        default_factory=_data_dir,
        metadata=_row(
            "Folder that holds everything: keys, database, uploads, mail.",
            Folder(),
            f"the platform's user data folder, {APP}",
        ),
    )
    api_host: str = field(default=LOCAL, metadata=_row("Address the API listens on.", click.STRING))
    api_port: int = field(default=8000, metadata=_row("Port of the API.", PORT))
    proxy_host: str = field(
        default=LOCAL,
        metadata=_row(
            "Address the proxy listens on. Plaintext passes here: keep it local.", click.STRING
        ),
    )
    proxy_port: int = field(default=8080, metadata=_row("Port of the proxy.", PORT))
    base_url: str = field(
        default=f"http://{LOCAL}:8000",
        metadata=_row("The API that this proxy works for.", Origin()),
    )
    database_url: str | None = field(
        default=None,
        metadata=_row(
            "postgresql://user:password@host/name. Better set by its variable: ps shows flags.",
            Url("postgresql", "postgres", "sqlite"),
            "SQLite in the data folder",
        ),
    )
    email_url: str | None = field(
        default=None,
        metadata=_row(
            "smtp://user:password@host:port, for mail by SMTP. Better set by its variable.",
            Url("smtp", "smtp+tls", "smtp+ssl"),
            "one file per message in mail/ of the data folder",
        ),
    )
    public_url: str | None = field(
        default=None,
        metadata=_row(
            "Address that links in messages lead to.", Origin(), "this service's own address"
        ),
    )
    allowed_hosts: str | None = field(
        default=None,
        metadata=_row(
            "Names, separated by commas, that both sides answer to besides those they listen on.",
            click.STRING,
            "none",
        ),
    )
    page_cache: int = field(
        default=2048,
        metadata=_row(
            "MiB of index pages that the proxy keeps on disk, sealed.", click.IntRange(min=1)
        ),
    )
    api_metrics_port: int | None = field(
        default=None,
        metadata=_row(f"Port of {LOCAL} for the metrics of the API.", PORT, "no metrics"),
    )
    proxy_metrics_port: int | None = field(
        default=None,
        metadata=_row(f"Port of {LOCAL} for the metrics of the proxy.", PORT, "no metrics"),
    )
    admin: str | None = field(
        default=None,
        metadata=_row(
            "E-mail addresses, separated by commas, of operators: they may use /admin/ on the API.",
            click.STRING,
            "none, and no admin",
        ),
    )
    log_format: str = field(
        default="text", metadata=_row("Form of the log.", click.Choice(["text", "json"]))
    )

    @property
    def api_url(self) -> str:
        """Where the API is reached from this machine."""
        return url_of(self.api_host, self.api_port)

    @property
    def proxy_url(self) -> str:
        """Where the proxy is reached from this machine."""
        return url_of(self.proxy_host, self.proxy_port)


#: The table by name.
TABLE: dict[str, Field[Any]] = {row.name: row for row in fields(Settings)}


def url_of(host: str, port: int) -> str:
    """The URL of a listener; one that listens everywhere is reached by the loopback address."""
    host = {"0.0.0.0": LOCAL, "::": "::1", "": LOCAL}.get(host, host)  # noqa: S104 - read, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def without_password(url: str) -> str:
    """The part of a URL that may be shown: no user, password or query."""
    parts = urlsplit(url)
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
        InvalidSetting: unreadable, no TOML, an unknown key, or a value that does not fit its key.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        if not must_exist:
            return {}
        raise InvalidSetting(
            f"there is no config file {path}", hint="correct --config or ERS_CONFIG"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InvalidSetting(f"the config file {path} cannot be read: {reason}") from None
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(
            f"the config file {path} is no TOML: {str(error).lower()}",
            hint="write one setting per line, such as: api_port = 9000",
        ) from None
    return {key: _convert(path, key, value) for key, value in found.items()}


def _convert(path: Path, key: str, value: object) -> Any:
    row = TABLE.get(key)
    if row is None:
        near = difflib.get_close_matches(key, TABLE, 1)
        known = f"did you mean {near[0]}?" if near else f"keys are {', '.join(TABLE)}"
        raise InvalidSetting(f"the config file {path} has an unknown key: {key}", hint=known)
    kind: click.ParamType[Any] = row.metadata["kind"]
    expected = int if isinstance(kind, click.IntRange) else str
    try:
        # bool is an int to Python and to click; a number is none.
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
    """Give a command the flags of ``names`` and hand it one :class:`Settings`."""

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
            type=Folder(),
            envvar="ERS_CONFIG",
            show_envvar=True,
            show_default=f"the platform's config folder, {APP}/config.toml",
            is_eager=True,  # its content is the default of all the others
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
