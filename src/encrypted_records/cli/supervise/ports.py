"""The ports of both sides: whether they are free, before anything is started."""

from __future__ import annotations

import errno

from encrypted_records.cli.settings import LOCAL, Settings, flag, variable
from encrypted_records.errors import Startup
from encrypted_records.listening.binding import CannotListen, bound


def check_port(host: str, port: int, side: str) -> None:
    """Make sure that a listener can be opened.

    Raises:
        Startup: it cannot; the hint names the flag that changes it.
    """
    hint = f"choose another with {flag(f'{side}_port')} or {variable(f'{side}_port')}"
    try:
        with bound(host, port):
            pass
    except CannotListen as error:
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} of {error.host} is in use"
        elif error.errno == errno.EACCES:
            message = f"port {port} is not open to this user"
        else:
            message = f"cannot listen on {error.host} port {port}: {(error.strerror or '').lower()}"
            hint = f"choose an address of this machine with {flag(f'{side}_host')}"
        raise Startup(message, hint=hint) from None


def check_ports(settings: Settings) -> None:
    if settings.api_port == settings.proxy_port and settings.api_host == settings.proxy_host:
        raise Startup(
            f"API and proxy cannot both listen on port {settings.api_port}",
            hint="choose another with --proxy-port",
        )
    check_port(settings.api_host, settings.api_port, "api")
    check_port(settings.proxy_host, settings.proxy_port, "proxy")
    check_metrics_port(settings.api_metrics_port, "api_metrics")
    check_metrics_port(settings.proxy_metrics_port, "proxy_metrics")


def check_metrics_port(port: int | None, name: str) -> None:
    if port is not None:
        check_port(LOCAL, port, name)


def free_port() -> int:
    with bound(LOCAL, 0) as sockets:
        return int(sockets[0].getsockname()[1])
