"""A command's session at a proxy: which proxy, which account, and whether one is started.

The caller is determined in this order: ``ERS_SERVICE``, a service's string; ``ERS_TOKEN``, an API
token; ``ERS_EMAIL`` and ``ERS_PASSWORD``; the login that ``ers login`` stored for the address; a
question on the terminal. A password is never an argument, because arguments show in ``ps``.

The device is the one in ``ERS_DEVICE``, or the stored device of the account. A proxy that has
registered it is recognised by it, and a server that does not know it gets no secrets.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import click
from click.shell_completion import CompletionItem

from encrypted_records.cli import terminal
from encrypted_records.cli.command_group import STANDARD, CommandLimits
from encrypted_records.cli.output import row_of
from encrypted_records.cli.settings import (
    Origin,
    ProfileOption,
    Settings,
    choose_profile,
    profile_option,
    takes_settings,
)
from encrypted_records.client import DEFAULT_PROXY
from encrypted_records.errors import ErsError, Flaw, NotAllowed, NotAuthenticated, NotFound
from encrypted_records.model.credentials import INLINE_HEADER, parse_service_key

if TYPE_CHECKING:
    from encrypted_records.cli.login.keychain import Logins
    from encrypted_records.client.proxy.client import ProxyClient
    from encrypted_records.client.proxy.connection import ShownDataset, ShownSchema
    from encrypted_records.client.proxy.transport import Device
    from encrypted_records.client.sdk.names import Names
    from encrypted_records.client.transport import Authorization
    from encrypted_records.model.resources import Tokens

#: Maximum time for completing a name in a shell.
_COMPLETION_SECONDS = 5.0
_OPTIONS = (
    click.option(
        "--proxy-url",
        cls=ProfileOption,
        type=Origin(),
        default=DEFAULT_PROXY,
        envvar="ERS_PROXY_URL",
        show_envvar=True,
        show_default=True,
        help="The proxy to use.",
    ),
    click.option(
        "--inline",
        is_flag=True,
        envvar="ERS_INLINE",
        show_envvar=True,
        help="Run a proxy just for this command, on ERS_DATA_DIR and for the API at ERS_BASE_URL.",
    ),
    profile_option,
    terminal.debug_option,
)


@dataclass(frozen=True)
class Credentials:
    """Credentials of a caller: a password, or a function that returns the Authorization header of a
    login; or none.

    ``by_device``: over a mirror, which has no logins, the device alone identifies the caller.
    ``is_token``: the login is an API token, which does not identify its bearer. ``service`` is the
    secret key of a service, which has no login.
    """

    email: str = ""
    password: str = field(default="", repr=False)
    login: Authorization | None = None
    is_token: bool = False
    service: str = field(default="", repr=False)
    by_device: bool = False

    @property
    def renewal_hint(self) -> str:
        """The hint of an error that refuses these credentials."""
        if self.is_token:
            return "set ERS_TOKEN to a token of ers token create; or unset it, and run: ers login"
        return "run: ers login"


NOBODY = Credentials()


@dataclass(frozen=True)
class ProxyAddress:
    """The address of a proxy, as used on this machine.

    Attributes:
        proxy_url: the URL of the proxy.
        logins: the key under which logins are stored: the proxy's URL, or the API's URL for an
            inline proxy.
        devices: the key under which devices are stored: the proxy's URL, or the data folder of an
            inline proxy.
        headers: headers that an inline proxy requires.
        requires_door: whether this command started the proxy for its own use.
        limits: limits of the command that uses the proxy.
    """

    proxy_url: str
    logins: str
    devices: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    requires_door: bool = False
    limits: CommandLimits = STANDARD

    def client(self, who: Credentials, device: Device | None) -> ProxyClient:
        """A client of the proxy, used as ``who`` from ``device``."""
        from encrypted_records.cli.state_file import read_door  # noqa: PLC0415 - slow to import
        from encrypted_records.client import limits  # noqa: PLC0415
        from encrypted_records.client.proxy.client import ProxyClient  # noqa: PLC0415

        password = who.password or None
        return ProxyClient(
            self.proxy_url,
            email=who.email if password else None,
            password=password,
            token=who.service or None,
            auth=who.login,
            headers=self.headers,
            device=device,
            door=read_door(self.proxy_url),
            requires_door=self.requires_door,
            limits=self.limits.client or limits.STANDARD,
        )


@dataclass(frozen=True)
class CommandSession:
    """
    Attributes:
        client: the client of the proxy, authenticated as the account; not authenticated in an
            anonymous session.
    """

    client: ProxyClient
    names: Names
    proxy: ProxyAddress
    who: Credentials

    @property
    def proxy_url(self) -> str:
        return self.proxy.proxy_url

    @property
    def limits(self) -> CommandLimits:
        return self.proxy.limits

    @property
    def address(self) -> str:
        """The key under which logins and uploads are stored."""
        return self.proxy.logins

    async def reads_mirror(self) -> bool:
        """Whether the proxy reads from a mirror, which has no logins and passwords."""
        return "mirror" in await self.client.status()

    async def invitations(self) -> str:
        """A description of the account's pending invitations; empty if there are none."""
        lines = []
        with suppress(ErsError):  # this is only a remark next to a more important message
            async for invitation in self.client.listing("invitations"):
                lines.append(
                    f"{invitation['invited_by']} has invited you to"
                    f" {invitation['organization_name']}: ers share accept {invitation['id']}. If"
                    " you have entered the words, an owner's proxy still has to admit you"
                )
        return "\n".join(lines)

    async def slugs(self, collection: str) -> dict[str, str]:
        """The slug of each dataset, schema or organization that the account can reach, by path."""
        return {
            str(entry["url"]): str(entry["slug"]) async for entry in self.client.listing(collection)
        }

    async def with_slugs(self, resource: ShownDataset | ShownSchema) -> dict[str, Any]:
        """A dataset or schema for people: with slugs instead of paths of its parents."""
        slugs = (await self.names.path_of(resource)).split("/")[:-1]
        return row_of(resource) | dict(zip(("organization", "dataset"), slugs, strict=False))

    async def tell_of_invitations(self) -> None:
        """Explain to an invited user why shared data is not visible yet."""
        if waiting := await self.invitations():
            for line in waiting.split("\n"):
                terminal.warn(line)

    async def access_token(self) -> str:
        """An access token of the account.

        Raises:
            NotAllowed: a service has no access token.
        """
        if self.who.service:
            raise NotAllowed(
                "a service has no login",
                code="token_limited",
                hint="log in as yourself",
            )
        if self.who.login is not None:
            return (await self.who.login()).removeprefix("Bearer ")
        email, password = self.who.email, self.who.password
        return (await self.client.tokens(email=email, password=password)).access

    def keep_device(self, device: Device) -> str:
        """Use this device from now on, also in later commands; returns a description of the
        storage.
        """
        from encrypted_records.cli.login.keychain import DEVICE_VARIABLE, KeptDevices  # noqa: PLC0415 - slow

        self.client.show_device(device)
        if os.environ.get(DEVICE_VARIABLE):
            return DEVICE_VARIABLE  # it takes precedence over stored devices
        return KeptDevices().keep(self.proxy.devices, self.who.email, device)

    def make_device(self) -> None:
        """Make a device unless this machine has one for the account."""
        from encrypted_records.client.proxy.transport import new_device  # noqa: PLC0415 - slow

        if self.client.device is None:
            self.keep_device(new_device())

    async def remember_device(self) -> None:
        """Record that the proxy has registered the device, so that the next command can recognise
        the proxy by it.
        """
        device = self.client.device
        if device is not None and device.new and await self.client.is_known():
            self.keep_device(replace(device, new=False))


#: Members of requests by the parameter of a command that has another name.
_PARAMETERS = {"organization_name": "organization"}


def _by_option(flaw: Flaw, context: click.Context) -> Flaw:
    """The flaw at the option or argument of the command that a member of the request is from, or
    else at the member's name. A pointer into a nested member is kept: it leads into the user's own
    file.
    """
    member = (flaw.pointer or "").removeprefix("/")
    if not member or "/" in member or member.isdecimal():
        return flaw
    wanted = _PARAMETERS.get(member, member)
    option = f"--{wanted.replace('_', '-')}"
    for parameter in context.command.params:
        if not context.params.get(parameter.name or ""):
            continue
        if option in parameter.opts:
            return replace(flaw, pointer=option)
        if parameter.name == wanted:
            return replace(flaw, pointer=parameter.opts[-1])
    return replace(flaw, pointer=member.replace("_", " "))


def connected(
    *, organization: bool = False, anonymous: bool = False, login_optional: bool | str = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make the body of a command from an async function of a :class:`CommandSession`.

    Args:
        organization: whether the command has an option for the organization in which names are
            looked up.
        anonymous: whether the command needs no account.
        login_optional: whether the command runs without an account if there is no login, instead of
            asking for credentials; or the option with which it does.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(*, proxy_url: str, inline: bool, **values: Any) -> Any:
            where = values.pop("organization", None) if organization else None
            context = click.get_current_context()
            dataset = choose_profile(context).get("dataset")
            limits = context.find_object(CommandLimits) or STANDARD

            async def run() -> Any:
                from encrypted_records.client.transport import on_retry  # noqa: PLC0415 - slow

                on_retry.set(terminal.RetryNotice(limits.silent_seconds))
                opened = _open(
                    proxy_url,
                    inline=inline,
                    anonymous=anonymous,
                    login_optional=bool(values.get(str(login_optional), login_optional is True)),
                    organization=where,
                    dataset=dataset,
                    limits=limits,
                )
                async with opened as session:
                    try:
                        return await command(session, **values)
                    except NotFound as error:
                        if not anonymous and (waiting := await session.invitations()):
                            error.hint = waiting
                        raise
                    except NotAuthenticated as error:
                        from encrypted_records.client.proxy.transport import CREDENTIAL_HINTS  # noqa: PLC0415 - slow

                        # A command's own refusals, for lack of a login, have hints of their own.
                        if error.hint in CREDENTIAL_HINTS.values():
                            error.hint = session.who.renewal_hint
                        raise
                    except ErsError as error:
                        if error.reason == "confirm_count":
                            error.hint = _hint_of_count(context)
                        error.flaws = tuple(_by_option(flaw, context) for flaw in error.flaws)
                        raise

            return asyncio.run(run())

        wrapped: Callable[..., Any] = call
        for option in reversed((_ORGANIZATION, *_OPTIONS) if organization else _OPTIONS):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def _hint_of_count(context: click.Context) -> str:
    """The hint for a command that confirmed another number of records than there are."""
    if "confirm" in context.params:
        return "nothing was deleted; if that is the number you expect, give it with --confirm"
    return "the number has changed since it was counted; repeat the command"


class StoredName(click.ParamType[str]):
    """The name of a dataset or schema. Shell completion lists the existing names."""

    name = "text"

    def __init__(self, collection: Literal["datasets", "schemas"]) -> None:
        self._collection = collection

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        # A shell waits for it, and cannot show an error.
        with suppress(ErsError, OSError):
            names = asyncio.run(self._list(ctx, paths="/" in incomplete))
            return [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return []

    async def _list(self, ctx: click.Context, *, paths: bool) -> list[str]:
        """
        Args:
            paths: whether schemas are named with their datasets; schemas that share a slug always
                are.
        """
        opened = _open(
            ctx.params.get("proxy_url") or DEFAULT_PROXY,
            inline=False,
            anonymous=False,
            login_optional=True,
            organization=ctx.params.get("organization"),
            dataset=None,
            limits=STANDARD,
        )
        async with asyncio.timeout(_COMPLETION_SECONDS), opened as session:
            if session.who == NOBODY:
                return []
            datasets = [dataset async for dataset in session.names.datasets()]
            if self._collection == "datasets":
                return [dataset.slug for dataset in datasets if dataset.signed is not False]
            slugs = {dataset.url: dataset.slug for dataset in datasets}
            schemas = [schema async for schema in session.names.schemas()]
            found = [schema for schema in schemas if schema.signed is not False]
        times = Counter(resource.slug for resource in found)
        return [
            f"{slugs[resource.dataset]}/{resource.slug}"
            if (paths or times[resource.slug] > 1) and resource.dataset in slugs
            else resource.slug
            for resource in found
        ]


DATASET, SCHEMA = StoredName("datasets"), StoredName("schemas")

#: For commands that need no account before they run.
email_option = click.option(
    "--email", envvar="ERS_EMAIL", show_envvar=True, help="E-mail address (asked for if missing)."
)

_ORGANIZATION = click.option(
    "--organization",
    cls=ProfileOption,
    envvar="ERS_ORGANIZATION",
    show_envvar=True,
    metavar="NAME",
    help="Slug, name or id of the organization (default: your only one).",
)


@asynccontextmanager
async def _open(
    proxy_url: str,
    *,
    inline: bool,
    anonymous: bool,
    login_optional: bool,
    organization: str | None,
    dataset: str | None,
    limits: CommandLimits,
) -> AsyncIterator[CommandSession]:
    from encrypted_records.client.proxy.transport import by_address  # noqa: PLC0415 - slow

    async with AsyncExitStack() as stack:
        proxy = ProxyAddress(proxy_url, proxy_url, by_address(proxy_url))
        if inline:
            proxy = await stack.enter_async_context(_inline())
        proxy = replace(proxy, limits=limits)
        if anonymous or login_optional:
            who = (None if anonymous else known_credentials(proxy)) or NOBODY
        else:
            who = await caller_at(proxy)
        session = await stack.enter_async_context(session_of(proxy, who, organization, dataset))
        yield session
        with suppress(ErsError):
            await session.remember_device()


@asynccontextmanager
async def _inline() -> AsyncIterator[ProxyAddress]:
    """A proxy that runs only for this command."""
    from encrypted_records.cli.supervise import supervisor as up  # noqa: PLC0415 - only this starts a side

    settings = inline_settings()
    async with up.inline_proxy(settings) as (url, secret):
        folder = str(settings.data_dir.absolute())
        yield ProxyAddress(
            url, settings.base_url, folder, {INLINE_HEADER: secret}, requires_door=True
        )


@asynccontextmanager
async def session_of(
    proxy: ProxyAddress,
    who: Credentials,
    organization: str | None = None,
    dataset: str | None = None,
) -> AsyncIterator[CommandSession]:
    """A session of an account, with its stored device."""
    from encrypted_records.client.sdk.names import Names  # noqa: PLC0415 - slow to import

    async with proxy.client(who, _device_of(proxy, who)) as client:
        yield CommandSession(client, Names(client, organization, dataset), proxy, who)


def _device_of(proxy: ProxyAddress, who: Credentials) -> Device | None:
    if who.service:
        return None
    from encrypted_records.cli.login.keychain import KeptDevices, read_device  # noqa: PLC0415 - slow to import

    if who.by_device:
        return read_device() or KeptDevices().find(proxy.devices, who.email)
    return read_device() if who.is_token else device_at(proxy, who.email)


def device_at(proxy: ProxyAddress, email: str) -> Device | None:
    """The device for commands of this account there: ``ERS_DEVICE``, or the stored device."""
    if not email:
        return None
    from encrypted_records.cli.login.keychain import KeptDevices, read_device  # noqa: PLC0415 - slow to import

    return read_device() or KeptDevices().find(proxy.devices, email)


def usual_device(proxy: ProxyAddress) -> Device | None:
    """For a command without a login: the device that its user usually has here."""
    login = login_at(proxy)
    return device_at(proxy, os.environ.get("ERS_EMAIL", "") if login is None else login.email)


async def caller_at(proxy: ProxyAddress) -> Credentials:
    """The account that uses a proxy; over a mirror without a login, the device of this machine.

    Raises:
        NotAuthenticated, Malformed: as :func:`credentials_at`.
    """
    known = known_credentials(proxy)
    if known is not None:
        return known
    with suppress(ErsError):  # the command reports it later, together with its purpose
        async with session_of(proxy, NOBODY) as session:
            if await session.reads_mirror():
                return Credentials(os.environ.get("ERS_EMAIL", ""), by_device=True)
    return credentials_at(proxy)


def credentials_at(proxy: ProxyAddress) -> Credentials:
    """The account that uses a proxy.

    Raises:
        NotAuthenticated: it is unknown, and there is no terminal to ask on.
        Malformed: ``ERS_SERVICE`` is not the secret key of a service.
    """
    known = known_credentials(proxy)
    if known is not None:
        return known
    email, password = os.environ.get("ERS_EMAIL"), os.environ.get("ERS_PASSWORD")
    return Credentials(*ask_credentials(email, password))


def known_credentials(proxy: ProxyAddress) -> Credentials | None:
    """The account that uses a proxy, by variables or a login; None if neither names it.

    Raises:
        Malformed: ``ERS_SERVICE`` is not the secret key of a service.
    """
    if service := os.environ.get("ERS_SERVICE", "").strip():
        parse_service_key(service)
        return Credentials(service=service)
    if token := os.environ.get("ERS_TOKEN", "").strip():
        return _by_token(token)
    email, password = os.environ.get("ERS_EMAIL"), os.environ.get("ERS_PASSWORD")
    if email and password:
        return Credentials(email, password)
    login = login_at(proxy)
    return login if login is not None and email in (None, "", login.email) else None


def _by_token(token: str) -> Credentials:
    async def authorization() -> str:
        return f"Bearer {token}"

    return Credentials(login=authorization, is_token=True)


def login_at(proxy: ProxyAddress) -> Credentials | None:
    """The stored login for a proxy, if there is one."""
    from encrypted_records.cli.login.keychain import Logins  # noqa: PLC0415 - slow to import

    logins = Logins()
    login = logins.find(proxy.logins)
    if login is None:
        return None
    email = login.email
    return Credentials(email, login=lambda: bearer(proxy, logins, email))


async def bearer(proxy: ProxyAddress, logins: Logins, email: str) -> str:
    """The Authorization value of the stored login for a proxy.

    Raises:
        NotAuthenticated: there is no login, or it has ended.
    """

    async def trade(refresh: str) -> Tokens:
        # With the device, too, so that another program on the proxy's port gets no token.
        async with proxy.client(NOBODY, device_at(proxy, email)) as nobody:
            return await nobody.refresh_tokens(refresh)

    return await logins.authorization(proxy.logins, trade)


def ask_credentials(email: str | None, password: str | None) -> tuple[str, str]:
    """Ask on the terminal for a missing e-mail address or password.

    Raises:
        NotAuthenticated: there is no terminal.
    """
    if not (email and password) and not sys.stdin.isatty():
        missing = [] if email else ["ERS_EMAIL"]
        missing += [] if password else ["ERS_PASSWORD"]
        raise NotAuthenticated(
            "you are not logged in, and there is no terminal to ask for the password",
            hint=f"set {' and '.join(missing)}; or run this in a terminal: ers login",
        )
    return email or terminal.ask("E-mail"), password or terminal.ask("Password", hide_input=True)


@click.command()
@takes_settings("data_dir", "base_url", "mirror", "access", "log_format")
def _settings(settings: Settings) -> Settings:
    return settings


def inline_settings() -> Settings:
    """The settings of an inline proxy: only from variables and the config file."""
    settings = _settings.main([], standalone_mode=False)
    assert isinstance(settings, Settings)
    return settings
