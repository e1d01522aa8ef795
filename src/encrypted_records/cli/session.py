"""A command's way to a proxy: which one, as whom, and whether it has to be started first.

Who asks is found in this order: ``ERS_EMAIL`` and ``ERS_PASSWORD``; what ``ers login`` stored for
the address; a question on the terminal. A password is never an argument: arguments show in ``ps``.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from encrypted_records.cli import terminal
from encrypted_records.cli.settings import Origin, Settings, takes_settings
from encrypted_records.client import DEFAULT_PROXY
from encrypted_records.errors import InvalidSetting

if TYPE_CHECKING:
    from encrypted_records.cli.logins import Logins
    from encrypted_records.client.names import Names
    from encrypted_records.client.proxy import ProxyClient, Tokens
    from encrypted_records.client.transport import Authorization

_OPTIONS = (
    click.option(
        "--proxy-url",
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
    terminal.debug_option,
)


@dataclass(frozen=True)
class Credentials:
    """E-mail and password, or what gives the Authorization value of a login; or nothing."""

    email: str = ""
    password: str = field(default="", repr=False)
    login: Authorization | None = None

    def client(self, proxy_url: str) -> ProxyClient:
        from encrypted_records.client.proxy import ProxyClient  # noqa: PLC0415 - slow to import

        if not self.email:
            return ProxyClient(proxy_url, auth=self.login)
        return ProxyClient(proxy_url, email=self.email, password=self.password)


@dataclass(frozen=True)
class Session:
    """
    Attributes:
        client: the proxy, used as the account; of an anonymous session as nobody.
        address: what logins are kept under: the proxy's URL, or the API's of an inline proxy.
    """

    client: ProxyClient
    names: Names
    proxy_url: str
    address: str
    who: Credentials

    async def access_token(self) -> str:
        """An access token of the account's."""
        if self.who.login is not None:
            return (await self.who.login()).removeprefix("Bearer ")
        email, password = self.who.email, self.who.password
        return (await self.client.tokens(email=email, password=password)).access


def connected(
    *, organization: bool = False, anonymous: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make an async function of a :class:`Session` the body of a command.

    Args:
        organization: whether the command can be told where to look for names.
        anonymous: whether it needs no account.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(*, proxy_url: str, inline: bool, **values: Any) -> Any:
            where = values.pop("organization", None) if organization else None

            async def run() -> Any:
                opened = _opened(proxy_url, inline=inline, anonymous=anonymous, organization=where)
                async with opened as session:
                    return await command(session, **values)

            return asyncio.run(run())

        wrapped: Callable[..., Any] = call
        for option in reversed((_ORGANIZATION, *_OPTIONS) if organization else _OPTIONS):
            wrapped = option(wrapped)
        return wrapped

    return decorate


_ORGANIZATION = click.option(
    "--organization",
    envvar="ERS_ORGANIZATION",
    show_envvar=True,
    metavar="NAME",
    help="Slug, name or id of the organization. Not needed by those who have one.",
)


@asynccontextmanager
async def _opened(
    proxy_url: str, *, inline: bool, anonymous: bool, organization: str | None
) -> AsyncIterator[Session]:
    from encrypted_records.client.names import Names  # noqa: PLC0415 - slow to import

    async with AsyncExitStack() as stack:
        address = proxy_url
        if inline:
            from encrypted_records.cli import up  # noqa: PLC0415 - only this starts a side

            settings = inline_settings()
            address = settings.base_url
            proxy_url = await stack.enter_async_context(up.proxy_beside(settings))
        who = Credentials() if anonymous else _credentials(proxy_url, address)
        client = await stack.enter_async_context(who.client(proxy_url))
        yield Session(client, Names(client, organization), proxy_url, address, who)


def _credentials(proxy_url: str, address: str) -> Credentials:
    email, password = os.environ.get("ERS_EMAIL"), os.environ.get("ERS_PASSWORD")
    if not (email and password):
        from encrypted_records.cli.logins import Logins  # noqa: PLC0415 - slow to import

        logins = Logins()
        login = logins.find(address)
        if login is not None and email in (None, "", login.email):
            return Credentials(login=lambda: bearer(proxy_url, logins, address))
    return Credentials(*ask_credentials(email, password))


async def bearer(proxy_url: str, logins: Logins, address: str) -> str:
    """The Authorization value of the login that is kept for an address.

    Raises:
        NotAuthenticated: none is, or it has ended.
    """

    async def trade(refresh: str) -> Tokens:
        async with Credentials().client(proxy_url) as nobody:
            return await nobody.refresh_tokens(refresh)

    return await logins.authorization(address, trade)


def ask_credentials(email: str | None, password: str | None) -> tuple[str, str]:
    """What is missing of e-mail and password, asked for on the terminal.

    Raises:
        InvalidSetting: there is no terminal to ask on.
    """
    if not (email and password) and not sys.stdin.isatty():
        raise InvalidSetting(
            "who you are is not known, and there is no terminal to ask on",
            hint="set ERS_EMAIL and ERS_PASSWORD, or run: ers login",
        )
    return email or terminal.ask("E-mail"), password or terminal.ask("Password", hide_input=True)


@click.command()
@takes_settings("data_dir", "base_url", "log_format")
def _settings(settings: Settings) -> Settings:
    return settings


def inline_settings() -> Settings:
    """The settings of an inline proxy: from variables and the config file alone."""
    found = _settings.main([], standalone_mode=False)
    assert isinstance(found, Settings)
    return found
