"""Checks at the start of a side: installed packages and free ports; and the link by which a child
ends with its parent.

Without extras, the package contains the client and the command line. Each side is an *extra*.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from importlib.util import find_spec
from typing import Literal

from encrypted_records.cli.settings import LOCAL, Settings, flag, variable
from encrypted_records.errors import Startup
from encrypted_records.listening.binding import CannotListen, bound

Side = Literal["api", "proxy"]

_BOTH = ("httptools", "numpy", "prometheus_client", "re2", "starlette", "uvicorn")
_LOOP = () if sys.platform == "win32" else ("uvloop",)
#: The modules of each extra of pyproject.toml.
MODULES: dict[Side, tuple[str, ...]] = {
    "api": (
        *("argon2", "django", "drf_spectacular", "environ", "psycopg", "pyotp"),
        *("rest_framework", "rest_framework_simplejwt", "rest_registration"),
        *_BOTH,
        *_LOOP,
    ),
    "proxy": (
        *("cryptography", "jinja2", "markdown_it", "markupsafe", "mnemonic", "pyroaring"),
        *("python_multipart", "rapidfuzz", "segno", "websockets", "zstandard"),
        *_BOTH,
        *_LOOP,
    ),
}
_WHO = {"api": "the API needs", "proxy": "the proxy needs", "all": "API and proxy need"}
#: Maximum package names in an error.
_SHOWN = 3


def check_installed(*sides: Side) -> None:
    """
    Raises:
        Startup: a package that one of ``sides`` needs is missing.
    """
    missing = {side: gone for side in sides if (gone := _missing(side))}
    if not missing:
        return
    packages = sorted({name for gone in missing.values() for name in gone})
    shown = ", ".join(packages[:_SHOWN])
    more = f" and {len(packages) - _SHOWN} more" if len(packages) > _SHOWN else ""
    extra = "all" if len(missing) > 1 else next(iter(missing))
    raise Startup(
        f"{_WHO[extra]} packages that are not installed: {shown}{more}",
        hint=f"install them: pip install 'encrypted-records[{extra}]'",
    )


def _missing(side: Side) -> list[str]:
    return [name for name in MODULES[side] if find_spec(name) is None]


def check_port(host: str, port: int, side: str) -> None:
    """Make sure that a listener can be opened.

    Raises:
        Startup: it cannot be opened; the hint names the flag that changes it.
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


#: A child of ``ers up`` ends when ``ers up`` has ended, even if that was killed. The parent keeps
#: the writing end of a pipe and writes nothing; the child inherits the reading end. The operating
#: system closes the writing end with the parent, however that ended, and the child reads end of
#: file. This variable gives the child the inherited descriptor.
PARENT_PIPE = "ERS_PARENT_PIPE"
#: Seconds for an orderly end of a child whose parent is gone.
PARENT_GRACE_SECONDS = 8.0


def end_with_parent() -> None:
    """Watch the parent, if this process was started by ``ers up``; otherwise do nothing."""
    descriptor = os.environ.pop(PARENT_PIPE, "")
    if descriptor.isdecimal():
        os.set_inheritable(int(descriptor), False)
        threading.Thread(
            target=_watch_parent, args=(int(descriptor),), name="parent-watch", daemon=True
        ).start()


def _watch_parent(descriptor: int) -> None:
    try:
        while os.read(descriptor, 1):
            pass
    except OSError:
        return  # not our pipe: the variable was set by hand
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PARENT_GRACE_SECONDS)
    # A daemon thread ends with its process: if this line runs, the end was not orderly.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
