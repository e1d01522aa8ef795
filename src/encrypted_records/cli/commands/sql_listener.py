"""``ers sql --listen``: PostgreSQL's protocol in front of a proxy, in the foreground."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from encrypted_records.cli.terminal import say, warn
from encrypted_records.errors import InvalidSetting
from encrypted_records.listening.binding import CannotListen, bound

if TYPE_CHECKING:
    from encrypted_records.cli.login.session import ProxyAddress
    from encrypted_records.client.proxy.client import ProxyClient

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+)):(\d{1,5})")


def listening_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a command that may listen."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_FILE = click.Path(exists=True, dir_okay=False)
_OPTIONS = (
    click.option(
        "--listen",
        metavar="HOST:PORT",
        help="Answer clients of PostgreSQL at this address until Ctrl-C: psql, DBeaver, pandas.",
    ),
    click.option(
        "--tls-cert",
        type=_FILE,
        help="Certificate of the listener, a PEM file; needed beyond loopback.",
    ),
    click.option("--tls-key", type=_FILE, help="Key of that certificate, a PEM file."),
)


async def serve(
    proxy: ProxyAddress, address: str, certificate: str | None, key: str | None
) -> None:
    """Serve clients of PostgreSQL until SIGINT or SIGTERM. Each logs in by itself; this command's
    own login and devices are not used for them.

    Raises:
        InvalidSetting: the address or the certificate cannot be used.
    """
    from encrypted_records.sql.limits import STANDARD as SQL_LIMITS  # noqa: PLC0415 - optional
    from encrypted_records.sql.wire.limits import STANDARD  # noqa: PLC0415 - optional
    from encrypted_records.sql.wire.server import (  # noqa: PLC0415 - optional, slow to import
        Listener,
        check_host,
        tls_context,
    )

    host, port = _parsed(address)
    if (certificate is None) != (key is None):
        raise InvalidSetting("--tls-cert and --tls-key must be given together")
    tls = tls_context(certificate, key) if certificate and key else None
    check_host(host, tls)
    listener = Listener(_connecting(proxy), tls=tls, limits=STANDARD, sql_limits=SQL_LIMITS)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Each session may keep a thread busy, and none is to wait for another's statement.
    loop.set_default_executor(ThreadPoolExecutor(STANDARD.connections + STANDARD.waiting))
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows has Ctrl-C as KeyboardInterrupt
            loop.add_signal_handler(number, stopped.set)
    try:
        with bound(host, port) as sockets:
            async with listener.listening(sockets):
                say(f"Listening on {host}:{sockets[0].getsockname()[1]} for clients of PostgreSQL.")
                warn("Database: a dataset's slug. User: e-mail. Password: yours, or an API token.")
                await stopped.wait()
    except CannotListen as error:
        raise InvalidSetting(
            f"--listen cannot use {error.host}:{port} ({error.strerror})",
            hint="choose another port, or stop the program that uses it",
        ) from None


def _parsed(address: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found[3]) > 65_535:
        raise InvalidSetting("--listen takes HOST:PORT", hint="for example --listen 127.0.0.1:5433")
    return found[1] or found[2], int(found[3])


def _connecting(proxy: ProxyAddress) -> Callable[[str, str, str | None, str | None], ProxyClient]:
    from encrypted_records.client.proxy.client import ProxyClient  # noqa: PLC0415 - slow to import

    def connect(user: str, password: str, token: str | None, device: str | None) -> ProxyClient:
        if token is not None:
            return ProxyClient(proxy.proxy_url, token=token, headers=proxy.headers, device=device)
        return ProxyClient(
            proxy.proxy_url, email=user, password=password, headers=proxy.headers, device=device
        )

    return connect
