"""The ports of both sides: whether they are free, before anything is started."""

from __future__ import annotations

import errno
import socket

from encrypted_records.cli.settings import LOCAL, Settings, flag, variable
from encrypted_records.errors import Startup


def check_port(host: str, port: int, side: str) -> None:
    """Make sure that a listener can be opened.

    Raises:
        Startup: it cannot; the hint names the flag that changes it.
    """
    hint = f"choose another with {flag(f'{side}_port')} or {variable(f'{side}_port')}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} of {host} is in use"
        elif error.errno == errno.EACCES:
            message = f"port {port} is not open to this user"
        else:
            message = f"cannot listen on {host} port {port}: {(error.strerror or '').lower()}"
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
    with socket.create_server((LOCAL, 0)) as probe:
        return int(probe.getsockname()[1])
